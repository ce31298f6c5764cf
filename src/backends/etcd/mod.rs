//! etcd: three servers that elect a leader; a lock is a prefix, and its contenders are keys with a lease below it.

use std::time::Duration;

use harness_workloads::{BackendId, KeyValue};

use super::{Backend, BackendOptions};
use harness_proxy::tap::Protocol;

mod data;
mod observer;
mod server;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Etcd),
    file: None,
    software: &server::SOFTWARE,
    protocol: Protocol::Grpc,
    default_recipe: Some("etcd-mutex"),
    separators: &['/', ':', '.'],
    wall_clock: false,
    refuse,
    keys: "harness/{lock}",
    values: &[KeyValue::Revision],
    observe: Some(&|endpoints, keys| Box::pin(observer::EtcdObserver::connect(endpoints, keys))),
    // a key goes with the lease of its holder
    sweep: None,
    data: &data::EtcdData,
};

fn refuse(options: &BackendOptions) -> Option<String> {
    if options.lease < Duration::from_secs(2) {
        let why = "etcd grants no lease shorter than 2s with the election timeout of these servers\nhint: --lease 2s";
        return Some(why.into());
    }
    (options.lease.subsec_nanos() != 0).then(|| "etcd counts leases in whole seconds\nhint: --lease 2s".into())
}
