//! The setup of a run from its [`RunSpec`]: wall clocks, disks, servers, links through the proxy, clients, the header.

pub mod attached;
mod clients;
mod clocks;
mod disks;
mod header;
mod links;
mod open_files;
mod servers;

use std::sync::Arc;

use tokio::sync::mpsc;

pub use clients::{client_command, client_pool, opens};
pub use clocks::WallClocks;
pub use header::header;
pub use links::ClientLinks;
pub use servers::RunServers;

use crate::client_role::LABELS;
use crate::config::Config;
use harness_proxy::{TapHub, TapNotification};

/// The number of notifications of taps that may wait for the recorder; more are lost, and counted as lost.
const NOTICES: usize = 65_536;

/// Returns the common state of the taps of all links, and the receiver of their notifications.
pub fn exchange(config: &Config) -> (Arc<TapHub>, mpsc::Receiver<TapNotification>) {
    let (sender, notices) = mpsc::channel(NOTICES);
    let exchange = TapHub::new(config.backend.protocol, LABELS, config.clients, sender);
    (exchange, notices)
}
