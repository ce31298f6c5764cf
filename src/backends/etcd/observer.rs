//! Observes etcd: a watch on the locks' prefix, which misses nothing, and the lease of a contender that went unasked.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use harness_workloads::etcd::owner_name;
use harness_workloads::etcd::prefix_end;
use harness_workloads::etcd::wire::etcdserverpb::event::EventType;
use harness_workloads::etcd::wire::etcdserverpb::kv_client::KvClient;
use harness_workloads::etcd::wire::etcdserverpb::lease_client::LeaseClient;
use harness_workloads::etcd::wire::etcdserverpb::watch_client::WatchClient;
use harness_workloads::etcd::wire::etcdserverpb::watch_request::RequestUnion;
use harness_workloads::etcd::wire::etcdserverpb::{
    Event, LeaseTimeToLiveRequest, RangeRequest, WatchCreateRequest, WatchRequest, WatchResponse,
};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, Unasked};
use crate::backends::owners::{Contender, OwnerQueues};
use crate::clock::monotonic_ns;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;

pub struct EtcdObserver {
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    channel: Channel,
    events: Streaming<WatchResponse>,
    /// What came while something else was waited for.
    ahead: VecDeque<WatchUpdate>,
    /// The first revision that was not seen yet.
    next_revision: i64,
    /// The lease behind each contender's key, and its place in its queue.
    contenders: HashMap<Vec<u8>, (i64, u64)>,
}

/// What the store told, and when it was heard. It is heard as it comes, whatever is asked meanwhile.
struct WatchUpdate {
    at: u64,
    response: WatchResponse,
}

impl EtcdObserver {
    pub async fn connect(endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Box<dyn Observer>, String> {
        let channel = channel(&endpoints);
        let failed = |error: Status| format!("the observer: {}", error.message());
        // what earlier runs did on these servers is not of this one
        let next_revision = revision(&channel).await.map_err(failed)? + 1;
        let events = watch(&channel, &keys, next_revision).await.map_err(failed)?;
        Ok(Box::new(Self {
            endpoints,
            keys,
            channel,
            events,
            ahead: VecDeque::new(),
            next_revision,
            contenders: HashMap::new(),
        }))
    }

    async fn observe(mut self, log: ObservationLog) {
        let mut queues = OwnerQueues::default();
        loop {
            while let Some(WatchUpdate { at, response }) = self.next().await {
                for event in response.events {
                    self.saw(event, at, &mut queues, &log).await;
                }
            }
            loop {
                log.pause().await;
                self.channel = channel(&self.endpoints);
                if let Ok(events) = watch(&self.channel, &self.keys, self.next_revision).await {
                    self.events = events;
                    break;
                }
            }
        }
    }

    /// What the store told next; `None` when the watch is over.
    async fn next(&mut self) -> Option<WatchUpdate> {
        match self.ahead.pop_front() {
            Some(told) => Some(told),
            None => hear(&mut self.events).await,
        }
    }

    async fn saw(&mut self, event: Event, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        let kind = event.r#type();
        let Some(kv) = event.kv else { return };
        self.next_revision = self.next_revision.max(kv.mod_revision + 1);
        let Some(lock) = lock_of(&self.keys, &kv.key) else {
            return;
        };
        match kind {
            EventType::Put if kv.create_revision == kv.mod_revision => {
                let place = kv.create_revision as u64;
                let contender = Contender {
                    owner: Some(owner_name(kv.lease)),
                    token: Some(place),
                };
                self.contenders.insert(kv.key.clone(), (kv.lease, place));
                let changes = queues.add(&lock, place, contender);
                log.record(&lock, changes, at, |_| async { Unasked::Unknown }).await;
            }
            EventType::Put => {}
            EventType::Delete => {
                let Some((lease, place)) = self.contenders.remove(&kv.key) else {
                    return;
                };
                let changes = queues.remove(&lock, place);
                let recording = log.record(&lock, changes, at, |_| why(&self.channel, lease));
                let mut recording = std::pin::pin!(recording);
                loop {
                    tokio::select! {
                        biased;
                        Some(told) = hear(&mut self.events) => self.ahead.push_back(told),
                        () = &mut recording => break,
                    }
                }
            }
        }
    }
}

impl Observer for EtcdObserver {
    fn run(self: Box<Self>, log: ObservationLog) -> BoxFuture<'static, ()> {
        Box::pin(self.observe(log))
    }
}

/// What the store tells next, with the time at which it was heard; `None` when the watch is over.
async fn hear(events: &mut Streaming<WatchResponse>) -> Option<WatchUpdate> {
    let response = events.message().await.ok().flatten()?;
    let at = monotonic_ns();
    Some(WatchUpdate { at, response })
}

/// Why a key went that its owner did not delete: its lease is gone, or it is not.
async fn why(channel: &Channel, lease: i64) -> Unasked {
    let mut leases = LeaseClient::new(channel.clone());
    let asked = leases.lease_time_to_live(LeaseTimeToLiveRequest { id: lease, keys: false });
    match tokio::time::timeout(PROBE, asked).await {
        Ok(Ok(answer)) if answer.get_ref().ttl < 0 => Unasked::Expired,
        Ok(Ok(_)) => Unasked::Deleted,
        _ => Unasked::Unknown,
    }
}

/// The revision of the store before the clients of this run begin.
async fn revision(channel: &Channel) -> Result<i64, Status> {
    let nothing = RangeRequest {
        key: vec![0],
        count_only: true,
        ..RangeRequest::default()
    };
    let asked = KvClient::new(channel.clone()).range(nothing).await?;
    Ok(asked.into_inner().header.map_or(0, |header| header.revision))
}

/// A channel to the servers that answer, at their current endpoints. It leaves one that is silent.
pub fn channel(endpoints: &EndpointsReceiver) -> Channel {
    let endpoint = |address: &SocketAddr| {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address makes an endpoint");
        endpoint
            .connect_timeout(PROBE)
            .tcp_nodelay(true)
            .keep_alive_while_idle(true)
            .http2_keep_alive_interval(PROBE)
            .keep_alive_timeout(PROBE)
    };
    Channel::balance_list(endpoints.borrow().servers().iter().map(endpoint))
}

async fn watch(channel: &Channel, keys: &LockKeys, start_revision: i64) -> Result<Streaming<WatchResponse>, Status> {
    let (key, range_end) = match keys.pattern.before() {
        // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
        "" => (vec![0], vec![0]),
        prefix => (prefix.as_bytes().to_vec(), prefix_end(prefix)),
    };
    let create = WatchCreateRequest {
        key,
        range_end,
        start_revision,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(create)),
    };
    // the stream of requests stays open: its end would end the watch
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut client = WatchClient::new(channel.clone());
    let mut requests = Request::new(requests);
    // a member that has lost its leader ends the watch, instead of falling behind in silence
    requests
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    let asked = client.watch(requests);
    let limit = Duration::from_secs(5);
    let answer = tokio::time::timeout(limit, asked)
        .await
        .map_err(|_| Status::deadline_exceeded("no answer to a watch"))?;
    Ok(answer?.into_inner())
}

/// The lock that a key belongs to: it is the lock's key, or a contender's below it.
fn lock_of(keys: &LockKeys, key: &[u8]) -> Option<String> {
    let (lock, rest) = keys.pattern.lock_of(std::str::from_utf8(key).ok()?)?;
    let below = rest.is_empty() || rest.starts_with('/') || keys.pattern.after().ends_with('/');
    below.then(|| lock.to_owned())
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

    #[test]
    fn a_contender_is_a_key_at_or_below_its_locks() {
        let mut keys = LockKeys::default_of(backends::of(BackendId::Etcd));
        assert_eq!(lock_of(&keys, b"harness/l0/694d"), Some("l0".into()));
        assert_eq!(lock_of(&keys, b"harness/l0"), Some("l0".into()));
        assert_eq!(lock_of(&keys, b"harness/l0-waiters"), None);
        assert_eq!(lock_of(&keys, b"other"), None);
        keys.pattern = "/locks/{lock}.d/".parse().unwrap();
        assert_eq!(lock_of(&keys, b"/locks/l3.d/694d"), Some("l3".into()));
        assert_eq!(lock_of(&keys, b"/locks/l3/694d"), None);
    }
}
