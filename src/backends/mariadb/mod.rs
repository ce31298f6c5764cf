//! MariaDB: one server; a lock is a named lock of a session, or a lease in a row. MySQL has the same recipes and observer.

use harness_proxy::tap::Protocol;
use harness_workloads::BackendId;

use super::polled::PolledObserver;
use super::{Backend, BackendOptions, Topology};

mod data;
mod looks;
mod server;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Mariadb),
    file: None,
    software: &server::SOFTWARE,
    topology: Topology::Plain,
    protocol: Protocol::Mysql,
    default_recipe: Some("mysql-row-lease"),
    separators: &['/', ':', '.'],
    // leases end by the server's time of day
    wall_clock: true,
    refuse,
    keys: "{lock}",
    // the observer finds locks by their names
    values: &[],
    observe: Some(&|endpoints, keys| Box::pin(PolledObserver::connect(looks::open, endpoints, keys))),
    // a session's lock leaves nothing, and each lock has one row
    sweep: None,
    data: &data::MariadbData,
    pooler: false,
};

fn refuse(options: &BackendOptions) -> Option<String> {
    (options.nodes != 1).then(|| "locks on MariaDB are on one server\nhint: --nodes 1".into())
}
