//! Kubernetes: an API server for Leases (`coordination.k8s.io/v1`), and a client that watches them on any API server.
//!
//! The server follows <https://kubernetes.io/docs/reference/using-api/api-concepts/>; it serves Leases and nothing else.
//! Begin with [`serving`] for requests, [`lease_store`] for versions and conflicts, [`watching`] for the client.

mod http_client;
mod lease;
mod lease_store;
mod log_follower;
mod refusal;
mod serving;
pub mod terms;
mod watch_stream;
mod watching;

use std::time::Duration;

pub use crate::clock::monotonic_ns;
pub use http_client::{ApiAddress, ApiCallError};
pub use lease_store::LeaseStore;
pub use log_follower::{FollowedLine, LogSource, follow};
pub use serving::serve;
pub use watching::{LeaseNews, LeaseRecord, LeaseWatcher, delete_marked};

/// The group and version of Leases in paths.
const GROUP: &str = "coordination.k8s.io";
const GROUP_VERSION: &str = "coordination.k8s.io/v1";

/// The changes that are kept for watches; API servers keep those of some minutes.
const KEPT_CHANGES: usize = 10_000;
/// The time between two bookmarks of a watch that allows them.
const BOOKMARK: Duration = Duration::from_millis(250);
/// The time of a watch that names none.
const WATCH_LASTS: Duration = Duration::from_secs(1800);
