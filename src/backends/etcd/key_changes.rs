//! What a store tells of keys, and what it can be asked ([`KeyChanges`], [`LeaseQueries`]); and how real servers are heard: a watch
//! on the locks' prefix, which misses nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::Login;
use harness_workloads::etcd::wire::etcdserverpb::event::EventType;
use harness_workloads::etcd::wire::etcdserverpb::kv_client::KvClient;
use harness_workloads::etcd::wire::etcdserverpb::lease_client::LeaseClient;
use harness_workloads::etcd::wire::etcdserverpb::watch_client::WatchClient;
use harness_workloads::etcd::wire::etcdserverpb::watch_request::RequestUnion;
use harness_workloads::etcd::wire::etcdserverpb::{
    Event, LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, RangeRequest, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use harness_workloads::etcd::{EtcdChannel, LoginToken, log_in, prefix_end};
use tokio_stream::StreamExt;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;

/// Time for a server to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdKeyChange {
    pub key: Vec<u8>,
    /// Otherwise it was put.
    pub deleted: bool,
    /// 0 where it was deleted.
    pub create_revision: i64,
    /// The revision of this change.
    pub mod_revision: i64,
    /// 0 if it has none.
    pub lease: i64,
}

/// The changes of the keys with a prefix, in the order of their revisions.
pub trait KeyChanges: Send {
    /// What the store told next; `None` when the watch is over. What it told is not lost when the future is dropped.
    fn next(&mut self) -> BoxFuture<'_, Option<Vec<EtcdKeyChange>>>;
}

/// What the store can be asked.
pub trait LeaseQueries: Send + Sync {
    /// Why a key of this lease went that its owner did not delete: its lease is gone, or it is not.
    fn why(&self, lease: i64) -> BoxFuture<'static, Unasked>;
}

/// A watch on a store.
pub struct OpenedStore {
    /// The first revision that it tells of.
    pub from_revision: i64,
    pub queries: Arc<dyn LeaseQueries>,
    pub changes: Box<dyn KeyChanges>,
}

/// Watches stores.
pub trait StoreSource: Send + Sync {
    /// Watches the keys with `prefix` from a revision on; `None`: what happened before is not told.
    fn open(
        &self,
        endpoints: &EndpointsReceiver,
        prefix: &str,
        from_revision: Option<i64>,
    ) -> BoxFuture<'static, Result<OpenedStore, String>>;
}

/// Watches etcd servers.
pub struct EtcdServerStore;

impl StoreSource for EtcdServerStore {
    fn open(
        &self,
        endpoints: &EndpointsReceiver,
        prefix: &str,
        from_revision: Option<i64>,
    ) -> BoxFuture<'static, Result<OpenedStore, String>> {
        let (entrance, prefix) = (StoreEntrance::of(endpoints), prefix.to_owned());
        Box::pin(async move {
            let opened = async {
                let channel = entrance.enter().await?;
                let from_revision = match from_revision {
                    Some(revision) => revision,
                    None => revision(&channel).await? + 1,
                };
                let events = watch(&channel, &prefix, from_revision).await?;
                Ok::<_, Status>((from_revision, events))
            };
            let (from_revision, events) = opened.await.map_err(said)?;
            Ok(OpenedStore {
                from_revision,
                queries: Arc::new(LeasesOfServers(entrance)),
                changes: Box::new(WatchedKeys(events)),
            })
        })
    }
}

struct WatchedKeys(Streaming<WatchResponse>);

impl KeyChanges for WatchedKeys {
    fn next(&mut self) -> BoxFuture<'_, Option<Vec<EtcdKeyChange>>> {
        Box::pin(async {
            let response = self.0.message().await.ok().flatten()?;
            Some(response.events.into_iter().filter_map(change).collect())
        })
    }
}

pub fn change(event: Event) -> Option<EtcdKeyChange> {
    let deleted = event.r#type() == EventType::Delete;
    let kv = event.kv?;
    Some(EtcdKeyChange {
        key: kv.key,
        deleted,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        lease: kv.lease,
    })
}

struct LeasesOfServers(StoreEntrance);

impl LeaseQueries for LeasesOfServers {
    fn why(&self, lease: i64) -> BoxFuture<'static, Unasked> {
        let entrance = self.0.clone();
        Box::pin(async move {
            let asked = async {
                let mut leases = LeaseClient::new(entrance.enter().await?);
                leases.lease_time_to_live(LeaseTimeToLiveRequest { id: lease }).await
            };
            match tokio::time::timeout(PROBE, asked).await {
                Ok(Ok(answer)) => why_of(answer.into_inner()),
                _ => Unasked::Unknown,
            }
        })
    }
}

/// Why a key went, by what is said of its lease.
pub fn why_of(lease: LeaseTimeToLiveResponse) -> Unasked {
    if lease.ttl < 0 {
        Unasked::Expired
    } else {
        Unasked::Deleted
    }
}

/// A question whose answer has the revision of the store, and no key.
pub fn nothing() -> RangeRequest {
    RangeRequest {
        key: vec![0],
        count_only: true,
        ..RangeRequest::default()
    }
}

/// The revision of the store before the clients of this run begin.
async fn revision(channel: &EtcdChannel) -> Result<i64, Status> {
    let asked = KvClient::new(channel.clone()).range(nothing()).await?;
    Ok(asked.into_inner().header.map_or(0, |header| header.revision))
}

/// Logs in to servers, where they want that, once for each use: a member may have forgotten an older token.
#[derive(Clone)]
pub struct StoreEntrance {
    channel: Channel,
    login: Option<Arc<Login>>,
}

impl StoreEntrance {
    /// To the servers at their current endpoints.
    pub fn of(endpoints: &EndpointsReceiver) -> Self {
        Self {
            channel: plain_channel(endpoints),
            login: endpoints.borrow().login(),
        }
    }

    pub async fn enter(&self) -> Result<EtcdChannel, Status> {
        let token = match &self.login {
            None => LoginToken::default(),
            Some(login) => {
                let asked = tokio::time::timeout(ANSWER, log_in(self.channel.clone(), login)).await;
                asked.map_err(|_| Status::deadline_exceeded("no answer to a login"))??
            }
        };
        Ok(token.on(self.channel.clone()))
    }
}

/// What a server said that did not do what it was asked for.
pub fn said(status: Status) -> String {
    status.message().to_owned()
}

/// A channel to the servers that answer, at their current endpoints. It leaves one that is silent.
pub fn plain_channel(endpoints: &EndpointsReceiver) -> Channel {
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

/// A watch of the keys with a prefix, from a revision on.
pub fn watch_of(prefix: &str, start_revision: i64) -> WatchCreateRequest {
    let (key, range_end) = match prefix {
        // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
        "" => (vec![0], vec![0]),
        prefix => (prefix.as_bytes().to_vec(), prefix_end(prefix)),
    };
    WatchCreateRequest {
        key,
        range_end,
        start_revision,
    }
}

async fn watch(channel: &EtcdChannel, prefix: &str, start_revision: i64) -> Result<Streaming<WatchResponse>, Status> {
    let request = WatchRequest {
        request_union: Some(RequestUnion::CreateRequest(watch_of(prefix, start_revision))),
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
    let answer = tokio::time::timeout(ANSWER, asked)
        .await
        .map_err(|_| Status::deadline_exceeded("no answer to a watch"))?;
    Ok(answer?.into_inner())
}
