//! The servers of a simulation, whichever product they are models of ([`SimulatedServers`]).

use std::time::Duration;

use harness_workloads::{LockClient, RecipeOptions, SignalSink};

use crate::network::SimulatedLink;
use crate::world::SimulatedProcess;

/// The servers of one product in a world, numbered from 0.
pub trait SimulatedServers {
    /// Returns how many there are, running or not.
    fn count(&self) -> usize;

    /// Returns the process of a server: it can be stopped, and its wall clock set. To kill it, use [`SimulatedServers::kill`].
    fn process(&self, server: usize) -> SimulatedProcess;

    /// Whether a server runs; also while it is stopped.
    fn is_running(&self, server: usize) -> bool;

    /// Returns the number of the leader, if there is one.
    fn leader(&self) -> Option<usize> {
        None
    }

    /// Kills a server. Answers that it has sent still arrive.
    fn kill(&self, server: usize);

    /// Starts a killed server again, with its data, unless it has that in memory alone and does not keep it.
    fn restart(&self, server: usize, keeps_data: bool);

    /// Makes a client of a recipe, which is for this product.
    fn client(&self, options: RecipeOptions, place: ClientPlace, signals: SignalSink) -> Box<dyn LockClient>;
}

/// The origin of a request that other servers may have to carry out: the connection to a server, and the number of the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestOrigin {
    pub server: usize,
    pub connection: u64,
    pub number: u64,
    pub name: &'static str,
}

/// The process of a client, and its links to simulated servers.
pub struct ClientPlace {
    pub process: SimulatedProcess,
    /// One for each server, in their order.
    pub links: Vec<SimulatedLink>,
    pub lease: Duration,
}
