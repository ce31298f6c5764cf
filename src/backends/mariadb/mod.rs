//! MariaDB: one server; a lock is a named lock of a session, or a lease in a row. MySQL has the same recipes and observer.

use harness_proxy::tap::Protocol;
use harness_workloads::BackendId;

use super::polled::PolledObserver;
use super::{Backend, BackendOptions};

mod data;
mod looks;
mod server;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Mariadb),
    default_recipe: Some("mysql-row-lease"),
    // leases end by the server's time of day
    wall_clock: true,
    refuse,
    // it finds locks by their names
    observe: Some(&|endpoints, keys| Box::pin(PolledObserver::connect(looks::open, endpoints, keys))),
    // no sweeper: a session's lock leaves nothing, and each lock has one row
    ..Backend::plain(&server::SOFTWARE, Protocol::Mysql, &data::MariadbData)
};

fn refuse(options: &BackendOptions) -> Option<String> {
    (options.nodes != 1).then(|| "locks on MariaDB are on one server\nhint: --nodes 1".into())
}
