//! What a run begins with, made from its [`RunSpec`]: wall clocks, disks, servers, links through the proxy, clients, the header.

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

/// Notifications that taps read and that wait to be recorded; more are lost, and counted as lost.
const NOTICES: usize = 65_536;

/// What the taps of all links share, and where they report notifications.
pub fn exchange(config: &Config) -> (Arc<TapHub>, mpsc::Receiver<TapNotification>) {
    let (sender, notices) = mpsc::channel(NOTICES);
    let exchange = TapHub::new(config.backend.protocol, LABELS, config.clients, sender);
    (exchange, notices)
}
