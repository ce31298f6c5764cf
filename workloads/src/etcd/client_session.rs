//! The etcd session for real servers, on a client generated from etcd's own API.
//!
//! [`Channels`] decides which server a call goes to, and what its failure means.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Response, Streaming};

use super::channels::{Channels, with_leader};
use super::prefix_end;
use super::wire::etcdserverpb::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse, compare, event,
    kv_client::KvClient, lease_client::LeaseClient, range_request, request_op, response_op, watch_client::WatchClient,
    watch_request,
};
use super::wire::v3electionpb::{CampaignRequest, LeaderKey, ResignRequest, election_client::ElectionClient};
use super::wire::v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::SessionError;
use crate::session::etcd::{Created, EtcdKey, EtcdSession, EtcdWatch, KeyEvent, Leader, Lease, Listing};

/// A real cluster.
pub struct EtcdServers {
    channels: Channels,
}

impl EtcdServers {
    /// Must be called inside a tokio runtime. Connects when first used.
    pub fn new(open: &OpenRequest, login: Option<&Login>) -> Result<Self, String> {
        Ok(EtcdServers {
            channels: Channels::new(open, login)?,
        })
    }

    async fn range(&self, request: RangeRequest) -> Result<Listing, SessionError> {
        let range = |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).range(request).await.map(Response::into_inner) }
        };
        let answer = self.channels.call("range", range).await?;
        let revision = answer.header.map_or(0, |header| header.revision);
        Ok(Listing {
            keys: answer.kvs.into_iter().map(key).collect(),
            revision,
        })
    }

    async fn transact(&self, what: &str, request: TxnRequest) -> Result<TxnResponse, SessionError> {
        let transaction = |channel| {
            let request = request.clone();
            async move { KvClient::new(channel).txn(request).await.map(Response::into_inner) }
        };
        self.channels.call(what, transaction).await
    }
}

fn key(kv: KeyValue) -> EtcdKey {
    let KeyValue {
        create_revision,
        mod_revision,
        lease,
        ..
    } = kv;
    EtcdKey {
        name: text(&kv.key),
        value: text(&kv.value),
        create_revision,
        mod_revision,
        lease,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Rounds up to whole seconds, in which etcd counts a lease.
fn whole_seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).expect("a time to live is below 292 million years")
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

#[async_trait(?Send)]
impl EtcdSession for EtcdServers {
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, SessionError> {
        let request = LeaseGrantRequest {
            ttl: whole_seconds(ttl),
        };
        let grant = |channel| async move { LeaseClient::new(channel).lease_grant(request).await };
        let lease = self.channels.call("grant a lease", grant).await?.into_inner();
        Ok(Lease {
            id: lease.id,
            ttl: seconds(lease.ttl),
        })
    }

    async fn keep_alive(&self, lease: i64) -> Result<Option<Duration>, SessionError> {
        let renew = |channel| async move {
            let request = with_leader(tokio_stream::once(LeaseKeepAliveRequest { id: lease }));
            let answers = LeaseClient::new(channel).lease_keep_alive(request).await?;
            answers.into_inner().message().await
        };
        match self.channels.call("keep-alive", renew).await? {
            Some(answer) => Ok((answer.ttl > 0).then(|| seconds(answer.ttl))),
            None => Err(SessionError::Indefinite("keep-alive: the stream ended".into())),
        }
    }

    async fn revoke_lease(&self, lease: i64) -> Result<bool, SessionError> {
        let request = LeaseRevokeRequest { id: lease };
        let revoke = |channel| async move {
            match LeaseClient::new(channel).lease_revoke(request).await {
                Ok(_) => Ok(true),
                Err(status) if status.code() == Code::NotFound => Ok(false),
                Err(status) => Err(status),
            }
        };
        self.channels.call("revoke", revoke).await
    }

    async fn create(&self, name: &str, value: &str, lease: i64) -> Result<Created, SessionError> {
        let answer = self.transact("create", create_txn(name, value, lease)).await?;
        let revision = answer.header.map_or(0, |header| header.revision);
        let responses = answer.responses.into_iter();
        let found = responses.filter_map(|response| match response.response {
            Some(response_op::Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            _ => None,
        });
        match found.map(key).next() {
            Some(key) => Ok(Created {
                created: answer.succeeded,
                key,
                revision,
            }),
            None => Err(SessionError::Indefinite("create: the answer has no key".into())),
        }
    }

    async fn get(&self, name: &str) -> Result<Option<EtcdKey>, SessionError> {
        let request = RangeRequest {
            key: name.into(),
            ..RangeRequest::default()
        };
        Ok(self.range(request).await?.keys.into_iter().next())
    }

    async fn list(&self, prefix: &str) -> Result<Listing, SessionError> {
        let request = RangeRequest {
            key: prefix.into(),
            range_end: prefix_end(prefix),
            sort_order: range_request::SortOrder::Ascend.into(),
            sort_target: range_request::SortTarget::Create.into(),
            ..RangeRequest::default()
        };
        self.range(request).await
    }

    async fn delete(&self, name: &str) -> Result<bool, SessionError> {
        let delete = |channel| {
            let request = DeleteRangeRequest {
                key: name.into(),
                ..DeleteRangeRequest::default()
            };
            async move { KvClient::new(channel).delete_range(request).await }
        };
        Ok(self.channels.call("delete", delete).await?.into_inner().deleted > 0)
    }

    async fn delete_owned(&self, name: &str, lease: i64) -> Result<bool, SessionError> {
        let answer = self.transact("delete", delete_txn(name, lease)).await?;
        Ok(answer.succeeded)
    }

    async fn watch(&self, name: &str, from_revision: i64) -> Result<Box<dyn EtcdWatch>, SessionError> {
        let watch = |channel| {
            let create = WatchCreateRequest {
                key: name.into(),
                start_revision: from_revision,
                ..WatchCreateRequest::default()
            };
            let request = WatchRequest {
                request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
            };
            // the end of the requests is the watch's end: without it the server would go on sending events that are not read
            let (requests, sent) = mpsc::channel(1);
            async move {
                let _ = requests.send(request).await;
                let answer = WatchClient::new(channel)
                    .watch(with_leader(ReceiverStream::new(sent)))
                    .await?;
                Ok((answer.into_inner(), requests))
            }
        };
        let (stream, requests) = self.channels.call("watch", watch).await?;
        Ok(Box::new(EtcdClientWatch {
            stream,
            _requests: requests,
        }))
    }

    async fn lock(&self, name: &str, lease: i64, wait: Duration) -> Result<String, SessionError> {
        let lock = |channel| {
            let request = LockRequest {
                name: name.into(),
                lease,
            };
            async move { LockClient::new(channel).lock(request).await }
        };
        let answer = self.channels.call_within("lock", wait, lock).await?.into_inner();
        Ok(text(&answer.key))
    }

    async fn unlock(&self, key: &str) -> Result<(), SessionError> {
        let unlock = |channel| {
            let request = UnlockRequest { key: key.into() };
            async move { LockClient::new(channel).unlock(request).await }
        };
        self.channels.call("unlock", unlock).await.map(drop)
    }

    async fn campaign(&self, name: &str, value: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError> {
        let campaign = |channel| {
            let request = CampaignRequest {
                name: name.into(),
                lease,
                value: value.into(),
            };
            async move { ElectionClient::new(channel).campaign(request).await }
        };
        let answer = self.channels.call_within("campaign", wait, campaign).await?;
        let leader = answer.into_inner().leader.unwrap_or_default();
        Ok(Leader {
            name: text(&leader.name),
            key: text(&leader.key),
            revision: leader.rev,
            lease: leader.lease,
        })
    }

    async fn resign(&self, leader: &Leader) -> Result<(), SessionError> {
        let resign = |channel| {
            let leader = LeaderKey {
                name: leader.name.clone().into(),
                key: leader.key.clone().into(),
                rev: leader.revision,
                lease: leader.lease,
            };
            async move {
                ElectionClient::new(channel)
                    .resign(ResignRequest { leader: Some(leader) })
                    .await
            }
        };
        self.channels.call("resign", resign).await.map(drop)
    }
}

/// If the key has no creation: put it, and get it. Else: get it.
fn create_txn(name: &str, value: &str, lease: i64) -> TxnRequest {
    let get = || RequestOp {
        request: Some(request_op::Request::RequestRange(RangeRequest {
            key: name.into(),
            ..RangeRequest::default()
        })),
    };
    let put = PutRequest {
        key: name.into(),
        value: value.into(),
        lease,
    };
    let absent = Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Create.into(),
        key: name.into(),
        target_union: Some(compare::TargetUnion::CreateRevision(0)),
    };
    TxnRequest {
        compare: vec![absent],
        success: vec![
            RequestOp {
                request: Some(request_op::Request::RequestPut(put)),
            },
            get(),
        ],
        failure: vec![get()],
    }
}

/// If the key is of this lease (and so exists): delete it.
fn delete_txn(name: &str, lease: i64) -> TxnRequest {
    let delete = DeleteRangeRequest {
        key: name.into(),
        ..DeleteRangeRequest::default()
    };
    let owned = Compare {
        result: compare::CompareResult::Equal.into(),
        target: compare::CompareTarget::Lease.into(),
        key: name.into(),
        target_union: Some(compare::TargetUnion::Lease(lease)),
    };
    TxnRequest {
        compare: vec![owned],
        success: vec![RequestOp {
            request: Some(request_op::Request::RequestDeleteRange(delete)),
        }],
        failure: Vec::new(),
    }
}

struct EtcdClientWatch {
    stream: Streaming<WatchResponse>,
    /// Ends the requests, and with them the watch, when it is dropped.
    _requests: mpsc::Sender<WatchRequest>,
}

#[async_trait(?Send)]
impl EtcdWatch for EtcdClientWatch {
    async fn next(&mut self) -> Result<Vec<KeyEvent>, SessionError> {
        loop {
            let answer = match self.stream.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(SessionError::Lost("watch: the stream ended".into())),
                Err(status) => return Err(SessionError::Lost(format!("watch: {}", status.message()))),
            };
            if answer.canceled {
                return Err(SessionError::Lost(format!(
                    "watch: cancelled: {}",
                    answer.cancel_reason
                )));
            }
            if !answer.events.is_empty() {
                let events = answer.events.into_iter().map(|event| {
                    let deleted = event.r#type() == event::EventType::Delete;
                    KeyEvent {
                        key: event.kv.map(|kv| text(&kv.key)).unwrap_or_default(),
                        deleted,
                    }
                });
                return Ok(events.collect());
            }
        }
    }
}
