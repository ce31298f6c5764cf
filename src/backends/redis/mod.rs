//! Redis: one server, or several independent ones for Redlock; a lock is a key. `failover` adds a replica. In the other
//! topologies sentinels watch over a master and its replicas, or the keys are spread over the masters of a cluster.

use harness_workloads::{BackendId, KeyValue};

use keyspace::OpenKeyspace;

use super::lock_keys::LockKeys;
use super::observer::Observer;
use super::{Backend, BackendOptions, Topology};
use crate::cluster::EndpointsReceiver;
use harness_proxy::tap::Protocol;

pub mod cluster;
mod connection;
mod control;
mod data;
mod elected_observer;
pub mod keyspace;
mod observer;
mod quorum;
mod resp;
pub mod sentinel;
pub mod server;

pub static BACKEND: Backend = PLAIN;
pub static SENTINEL: Backend = ELECTED;
pub static CLUSTER: Backend = SHARDED;

/// A master with replicas, and the sentinels that choose it.
pub const ELECTED: Backend = Backend {
    software: &sentinel::SOFTWARE,
    topology: Topology::Sentinel,
    refuse: sentinel::refuse,
    observe: Some(&|endpoints, keys| {
        let group = (0..sentinel::SERVERS).collect();
        Box::pin(elected_observer::observe(endpoints, keys, vec![group]))
    }),
    ..PLAIN
};

/// Masters that have a part of the keys each, and a replica each.
pub const SHARDED: Backend = Backend {
    software: &cluster::SOFTWARE,
    topology: Topology::Cluster,
    refuse: cluster::refuse,
    observe: Some(&|endpoints, keys| {
        let groups = cluster::groups().into();
        Box::pin(elected_observer::observe(endpoints, keys, groups))
    }),
    ..PLAIN
};

pub const PLAIN: Backend = Backend {
    id: Some(BackendId::Redis),
    default_recipe: Some("redis-set-px-lua"),
    separators: &[':', '.', '{', '}', '/'],
    wall_clock: true,
    refuse,
    keys: "harness:{lock}",
    values: &[KeyValue::String, KeyValue::Hash, KeyValue::List],
    observe: Some(&|endpoints, keys| {
        let source = keyspace::opening(endpoints.borrow().clone());
        Box::pin(observe(source, endpoints, keys))
    }),
    // no sweeper: a key is deleted with its holder
    ..Backend::plain(&server::SOFTWARE, Protocol::Resp, &data::RedisData)
};

/// Refuses a lock of one server on several ones: they are independent, so only a lock of a majority can use more than one.
fn refuse(options: &BackendOptions) -> Option<String> {
    let single = options.recipe.filter(|recipe| recipe.servers.is_none());
    let nodes = options.nodes;
    single.filter(|_| nodes != 1).map(|recipe| {
        let name = recipe.name;
        format!("{name} is a single-server lock but --nodes is {nodes}\nhint: --nodes 1, or --recipe redlock")
    })
}

/// Connects the observer of servers with the keyspaces of `source`.
pub async fn observe(source: OpenKeyspace, endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Observer, String> {
    let servers = endpoints.borrow().servers().len();
    if servers > 1 {
        quorum::QuorumObserver::connect(source, endpoints, keys).await
    } else {
        observer::RedisObserver::connect(source, endpoints, keys, observer::OneMaster::fixed()).await
    }
}
