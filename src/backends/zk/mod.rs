//! ZooKeeper: three servers that elect a leader; a lock is a node, and its contenders are nodes below it.

use harness_workloads::{BackendId, KeyValue};

use super::Backend;
use harness_proxy::tap::Protocol;

mod observer;
mod server;
mod sweep;
mod wipe;

pub static BACKEND: Backend = Backend {
    id: BackendId::Zk,
    software: &server::SOFTWARE,
    protocol: Protocol::Zk,
    default_recipe: Some("zk-predecessor-watch"),
    separators: &['/'],
    wall_clock: false,
    refuse: |_| None,
    keys: "/harness/{lock}",
    values: &[KeyValue::Sequential, KeyValue::Node],
    observe: |endpoints, keys| Box::pin(observer::ZkObserver::connect(endpoints, keys)),
    sweep: Some(|endpoints| Box::pin(sweep::ZkSweeper::connect(endpoints))),
    wipe: |endpoints| Box::pin(wipe::wipe(endpoints)),
};
