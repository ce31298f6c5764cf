//! etcd: three servers that elect a leader; a lock is a prefix, and its contenders are keys with a lease below it.

use std::time::Duration;

use harness_workloads::{BackendId, KeyValue};

use super::{Backend, BackendOptions};
use harness_proxy::tap::Protocol;

mod data;
mod dialled;
mod guard;
pub mod key_changes;
mod membership;
mod observer;
mod server;

pub use observer::observe;

pub static BACKEND: Backend = Backend {
    id: Some(BackendId::Etcd),
    default_recipe: Some("etcd-mutex"),
    refuse,
    keys: "harness/{lock}",
    values: &[KeyValue::Revision],
    observe: Some(&|endpoints, keys| Box::pin(observe(dialled::watching(), endpoints, keys))),
    // no sweeper: a key is deleted with the lease of its holder
    ..Backend::plain(&server::SOFTWARE, Protocol::Grpc, &data::EtcdData)
};

fn refuse(options: &BackendOptions) -> Option<String> {
    if options.lease < Duration::from_secs(2) {
        let why = "etcd grants no lease shorter than 2s with the election timeout of these servers\nhint: --lease 2s";
        return Some(why.into());
    }
    (options.lease.subsec_nanos() != 0).then(|| "etcd counts leases in whole seconds\nhint: --lease 2s".into())
}
