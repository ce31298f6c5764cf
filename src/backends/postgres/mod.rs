//! PostgreSQL: one server; a lock is an advisory lock, a row that a transaction locked, or a lease in a row.

use harness_proxy::tap::Protocol;
use harness_workloads::BackendId;

use super::polled::PolledObserver;
use super::{Backend, BackendOptions};

mod control;
mod data;
mod looks;
pub mod pooler;
mod server;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Postgres),
    default_recipe: Some("pg-row-lease"),
    // leases end by the server's time of day
    wall_clock: true,
    refuse,
    // it finds locks by their names
    observe: Some(&|endpoints, keys| Box::pin(PolledObserver::connect(looks::open, endpoints, keys))),
    pooler: true,
    // no sweeper: an advisory lock leaves nothing, and each lock has one row
    ..Backend::plain(&server::SOFTWARE, Protocol::Postgres, &data::PostgresData)
};

fn refuse(options: &BackendOptions) -> Option<String> {
    (options.nodes != 1).then(|| "locks on PostgreSQL are on one server\nhint: --nodes 1".into())
}
