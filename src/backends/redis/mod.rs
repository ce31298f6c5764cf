//! Redis: one server, or several independent ones for Redlock; a lock is a key. `failover` adds a replica.

use harness_workloads::BackendId;

use super::observer::Observer;
use super::{Backend, BackendOptions};
use crate::cluster::EndpointsReceiver;
use crate::network::tap::Protocol;

mod connection;
mod control;
mod keyspace;
mod observer;
mod quorum;
mod resp;
mod server;

pub static BACKEND: Backend = Backend {
    id: BackendId::Redis,
    software: &server::SOFTWARE,
    protocol: Protocol::Resp,
    default_recipe: Some("redis-set-px-lua"),
    separators: &[':', '.', '{', '}', '/'],
    wall_clock: true,
    refuse,
    observe: |endpoints| Box::pin(observe(endpoints)),
    // a key goes with its holder
    sweep: None,
};

/// Several servers know nothing of each other, so only a lock of a majority of them can use more than one.
fn refuse(options: &BackendOptions<'_>) -> Option<String> {
    let lives_on_one = options.recipe.is_some_and(|recipe| recipe.servers.is_none());
    (options.nodes != 1 && lives_on_one).then(|| {
        let clients = options.clients;
        format!("{clients} lives on one server: --nodes 1, or --recipe redlock")
    })
}

async fn observe(endpoints: EndpointsReceiver) -> Result<Box<dyn Observer>, String> {
    let servers = endpoints.borrow().servers().len();
    if servers > 1 {
        quorum::QuorumObserver::connect(endpoints).await
    } else {
        observer::RedisObserver::connect(endpoints).await
    }
}
