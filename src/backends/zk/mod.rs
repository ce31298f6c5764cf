//! ZooKeeper: three servers that elect a leader; a lock is a node, and its contenders are nodes below it.

use harness_workloads::{BackendId, KeyValue};

use super::Backend;
use harness_proxy::tap::Protocol;

mod data;
mod dialled;
pub mod ensemble;
mod membership;
mod observer;
mod server;
mod sweep;

pub use observer::observe;
pub use server::tick;
pub use sweep::LockSweeper;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Zk),
    default_recipe: Some("zk-predecessor-watch"),
    separators: &['/'],
    keys: "/harness/{lock}",
    values: &[KeyValue::Sequential, KeyValue::Node],
    observe: Some(&|endpoints, keys| {
        let source = dialled::connecting(&keys);
        Box::pin(observe(source, endpoints, keys))
    }),
    sweep: Some(|endpoints| Box::pin(LockSweeper::connect(endpoints))),
    ..Backend::plain(&server::SOFTWARE, Protocol::Zk, &data::ZkData)
};
