//! The data of etcd: all keys are removed from servers that harness started, those of one run from others. Revisions continue.

use std::time::Duration;

use harness_workloads::etcd::wire::{DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest};

use super::dialled::GrpcConnection;
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, connect_to_any, counted, in_time};
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// Keys in one answer.
const PORTION: i64 = 1000;

pub struct EtcdData;

impl StoredData for EtcdData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
            let all = DeleteRangeRequest {
                key: vec![0],
                range_end: vec![0],
            };
            store.ask(&all).await.map(drop)
        })
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            survey(&store, lease).await
        })
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        in_time(async move {
            let store = any(&endpoints).await?;
            remove(&store, &traces).await
        })
    }
}

async fn any(endpoints: &EndpointsReceiver) -> Result<GrpcConnection, String> {
    connect_to_any(|| endpoints.borrow().accesses(), GrpcConnection::answering).await
}

async fn survey(store: &GrpcConnection, lease: Duration) -> Result<StoreSurvey, String> {
    let count = RangeRequest {
        key: vec![0],
        range_end: vec![0],
        count_only: true,
        ..RangeRequest::default()
    };
    let counted_keys = store.ask(&count).await?;
    // the servers have a minimum lease
    let asked = lease.as_secs() as i64;
    let granted = store.ask(&LeaseGrantRequest { ttl: asked }).await?;
    store.ask(&LeaseRevokeRequest { id: granted.id }).await?;
    if granted.ttl != asked {
        let granted = granted.ttl;
        return Err(format!(
            "these servers grant a lease of {granted}s when one of {asked}s is asked for\nhint: --lease {granted}s"
        ));
    }
    Ok(StoreSurvey {
        holds: counted(counted_keys.count as u64, "key"),
        ..StoreSurvey::default()
    })
}

/// Removes the run's keys, one by one, so that no range has a key of others.
async fn remove(store: &GrpcConnection, traces: &RunTraces) -> Result<u64, String> {
    let mut removed = 0;
    let mut from = vec![0];
    loop {
        let portion = RangeRequest {
            key: from,
            range_end: vec![0],
            limit: PORTION,
            keys_only: true,
            ..RangeRequest::default()
        };
        let portion = store.ask(&portion).await?;
        for kv in portion.kvs.iter().filter(|kv| traces.made(&kv.key)) {
            let own = DeleteRangeRequest {
                key: kv.key.clone(),
                ..DeleteRangeRequest::default()
            };
            removed += store.ask(&own).await?.deleted as u64;
        }
        match portion.kvs.last() {
            // the first key after the last one
            Some(last) if portion.more => from = [&last.key[..], &[0]].concat(),
            _ => return Ok(removed),
        }
    }
}
