//! What is done to simulated servers, whichever product they are models of ([`SimulatedServers`]).

use std::time::Duration;

use harness_workloads::{LockClient, RecipeOptions, SignalSink};

use crate::network::SimulatedLink;
use crate::world::SimulatedProcess;

/// The servers of one product in a world, numbered from 0.
pub trait SimulatedServers {
    /// How many there are, running or not.
    fn count(&self) -> usize;

    /// The process of a server: it can be stopped, and its wall clock set. To kill it, use [`SimulatedServers::kill`].
    fn process(&self, server: usize) -> SimulatedProcess;

    /// Whether a server runs; also while it is stopped.
    fn is_running(&self, server: usize) -> bool;

    /// The number of the leader, if there is one.
    fn leader(&self) -> Option<usize> {
        None
    }

    /// Kills a server. What it answered still arrives.
    fn kill(&self, server: usize);

    /// Starts a killed server again: with what it had, unless it has that in memory alone and does not keep it.
    fn restart(&self, server: usize, keeps_data: bool);

    /// A client of a recipe, which is for this product.
    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient>;
}

/// Where a request came from that others may have to carry out: the connection to a server, and which of its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub server: usize,
    pub connection: u64,
    pub number: u64,
    pub name: &'static str,
}

/// Where a client runs, and how it reaches simulated servers.
pub struct ClientPlace {
    pub process: SimulatedProcess,
    /// One for each server, in their order.
    pub links: Vec<SimulatedLink>,
    pub lease: Duration,
}
