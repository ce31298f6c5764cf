//! The data of etcd: all keys are removed from servers that harness started, those of one run from others. Revisions continue.

use std::time::Duration;

use harness_workloads::etcd::wire::{DeleteRangeRequest, LeaseGrantRequest, LeaseRevokeRequest, RangeRequest};
use harness_workloads::etcd::{EtcdChannel, ask};
use tonic::Status;

use super::channel::{logged_in, plain_channel, said};
use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, counted};
use crate::clock::GroundClock;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::SERVER_WORK;

/// Keys in one answer.
const PORTION: i64 = 1000;

pub struct EtcdData;

impl StoredData for EtcdData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        on_store(endpoints, |channel| async move { wipe(channel).await.map_err(said) })
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        on_store(endpoints, move |channel| survey(channel, lease))
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        on_store(endpoints, move |channel| async move {
            remove(channel, &traces).await.map_err(said)
        })
    }
}

/// Executes `work` with patience: a member that has just lost its leader waits for the next one.
fn on_store<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
    endpoints: EndpointsReceiver,
    work: impl FnOnce(EtcdChannel) -> F + Send + 'static,
) -> BoxFuture<'static, Result<T, String>> {
    let servers = endpoints.borrow().clone();
    let asked = async move {
        let login = servers.login();
        let channel = logged_in(plain_channel(&servers), login.as_deref()).await;
        work(channel.map_err(said)?).await
    };
    Box::pin(GroundClock::Real.answer_within(SERVER_WORK, asked))
}

async fn wipe(channel: EtcdChannel) -> Result<(), Status> {
    // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
    let all = DeleteRangeRequest {
        key: vec![0],
        range_end: vec![0],
    };
    ask(channel, all).await.map(drop)
}

async fn survey(channel: EtcdChannel, lease: Duration) -> Result<StoreSurvey, String> {
    let count = RangeRequest {
        key: vec![0],
        range_end: vec![0],
        count_only: true,
        ..RangeRequest::default()
    };
    let counted_keys = ask(channel.clone(), count).await.map_err(said)?;
    // the servers have a minimum lease
    let asked = lease.as_secs() as i64;
    let granted = ask(channel.clone(), LeaseGrantRequest { ttl: asked }).await;
    let granted = granted.map_err(said)?;
    let revoked = ask(channel, LeaseRevokeRequest { id: granted.id }).await;
    revoked.map_err(said)?;
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
async fn remove(channel: EtcdChannel, traces: &RunTraces) -> Result<u64, Status> {
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
        let portion = ask(channel.clone(), portion).await?;
        for kv in portion.kvs.iter().filter(|kv| traces.made(&kv.key)) {
            let own = DeleteRangeRequest {
                key: kv.key.clone(),
                ..DeleteRangeRequest::default()
            };
            removed += ask(channel.clone(), own).await?.deleted as u64;
        }
        match portion.kvs.last() {
            // the first key after the last one
            Some(last) if portion.more => from = [&last.key[..], &[0]].concat(),
            _ => return Ok(removed),
        }
    }
}
