//! The messages of etcd's own API for the calls of a client ([`send`]), on a client that is generated from it.

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};

use super::call::{EtcdAnswer, EtcdCall, EtcdCompare, EtcdOp, EtcdReply, EtcdTxn};
use super::login::EtcdChannel;
use super::prefix_end;
use super::wire::etcdserverpb::{
    Compare, DeleteRangeRequest, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RequestOp, ResponseHeader, ResponseOp, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse,
    compare, event, kv_client::KvClient, lease_client::LeaseClient, range_request, request_op, response_op,
    watch_client::WatchClient, watch_request,
};
use super::wire::v3electionpb::{CampaignRequest, LeaderKey, ResignRequest, election_client::ElectionClient};
use super::wire::v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient};
use crate::session::SessionError;
use crate::session::etcd::{EtcdKey, EtcdWatch, KeyEvent, Leader};

/// Sends a call to a server, and reads its answer.
pub(super) async fn send(channel: EtcdChannel, call: &EtcdCall) -> Result<EtcdReply, Status> {
    let answer = match call {
        EtcdCall::Range { key, is_prefix } => {
            let answer = KvClient::new(channel).range(range(key, *is_prefix)).await?.into_inner();
            EtcdAnswer::Keys {
                keys: read_keys(answer.kvs),
                revision: revision(answer.header),
            }
        }
        EtcdCall::Txn(txn) => {
            let answer = KvClient::new(channel).txn(request_of(txn)).await?.into_inner();
            EtcdAnswer::Txn {
                succeeded: answer.succeeded,
                responses: answer.responses.into_iter().map(found).collect(),
                revision: revision(answer.header),
            }
        }
        EtcdCall::DeleteRange { key } => {
            let answer = KvClient::new(channel).delete_range(delete(key)).await?;
            EtcdAnswer::Deleted(answer.into_inner().deleted > 0)
        }
        EtcdCall::LeaseGrant { ttl } => {
            let request = LeaseGrantRequest { ttl: *ttl };
            let lease = LeaseClient::new(channel).lease_grant(request).await?.into_inner();
            EtcdAnswer::Lease {
                id: lease.id,
                ttl: lease.ttl,
            }
        }
        EtcdCall::LeaseKeepAlive { lease } => keep_alive(channel, *lease).await?,
        EtcdCall::LeaseRevoke { lease } => {
            let request = LeaseRevokeRequest { id: *lease };
            LeaseClient::new(channel).lease_revoke(request).await?;
            EtcdAnswer::Done
        }
        EtcdCall::Watch { key, from_revision } => return watch(channel, key, *from_revision).await,
        EtcdCall::Lock { name, lease } => {
            let (name, lease) = (name.as_str().into(), *lease);
            let answer = LockClient::new(channel).lock(LockRequest { name, lease }).await?;
            let key = text(&answer.into_inner().key);
            EtcdAnswer::Locked { key }
        }
        EtcdCall::Unlock { key } => {
            let key = key.as_str().into();
            LockClient::new(channel).unlock(UnlockRequest { key }).await?;
            EtcdAnswer::Done
        }
        EtcdCall::Campaign { name, value, lease } => campaign(channel, name, value, *lease).await?,
        EtcdCall::Resign(leader) => resign(channel, leader).await?,
    };
    Ok((answer, None))
}

fn range(key: &str, is_prefix: bool) -> RangeRequest {
    if !is_prefix {
        return RangeRequest {
            key: key.into(),
            ..RangeRequest::default()
        };
    }
    RangeRequest {
        key: key.into(),
        range_end: prefix_end(key),
        sort_order: range_request::SortOrder::Ascend.into(),
        sort_target: range_request::SortTarget::Create.into(),
        ..RangeRequest::default()
    }
}

fn delete(key: &str) -> DeleteRangeRequest {
    DeleteRangeRequest {
        key: key.into(),
        ..DeleteRangeRequest::default()
    }
}

fn request_of(txn: &EtcdTxn) -> TxnRequest {
    let (target, value) = match &txn.compare {
        EtcdCompare::Created { revision, .. } => (
            compare::CompareTarget::Create,
            compare::TargetUnion::CreateRevision(*revision),
        ),
        EtcdCompare::Lease { lease, .. } => (compare::CompareTarget::Lease, compare::TargetUnion::Lease(*lease)),
    };
    let compared = Compare {
        result: compare::CompareResult::Equal.into(),
        target: target.into(),
        key: txn.key().into(),
        target_union: Some(value),
    };
    TxnRequest {
        compare: vec![compared],
        success: txn.success.iter().map(operation).collect(),
        failure: txn.failure.iter().map(operation).collect(),
    }
}

fn operation(op: &EtcdOp) -> RequestOp {
    let request = match op {
        EtcdOp::Put { key, value, lease } => request_op::Request::RequestPut(PutRequest {
            key: key.as_str().into(),
            value: value.as_str().into(),
            lease: *lease,
        }),
        EtcdOp::Get { key } => request_op::Request::RequestRange(range(key, false)),
        EtcdOp::First { prefix } => request_op::Request::RequestRange(RangeRequest {
            limit: 1,
            ..range(prefix, true)
        }),
        EtcdOp::Delete { key } => request_op::Request::RequestDeleteRange(delete(key)),
    };
    RequestOp { request: Some(request) }
}

/// Returns the keys that an operation found.
fn found(response: ResponseOp) -> Vec<EtcdKey> {
    match response.response {
        Some(response_op::Response::ResponseRange(range)) => read_keys(range.kvs),
        _ => Vec::new(),
    }
}

fn read_keys(keys: Vec<KeyValue>) -> Vec<EtcdKey> {
    let key = |kv: KeyValue| EtcdKey {
        name: text(&kv.key).into(),
        value: text(&kv.value).into(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        lease: kv.lease,
    };
    keys.into_iter().map(key).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn revision(header: Option<ResponseHeader>) -> i64 {
    header.map_or(0, |header| header.revision)
}

/// Returns a request for a stream that shall end when its server has lost the majority: without this it would stay silent.
fn with_leader<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    request
}

async fn keep_alive(channel: EtcdChannel, lease: i64) -> Result<EtcdAnswer, Status> {
    let request = with_leader(tokio_stream::once(LeaseKeepAliveRequest { id: lease }));
    let answers = LeaseClient::new(channel).lease_keep_alive(request).await?;
    let answer = answers.into_inner().message().await?;
    let answer = answer.ok_or_else(|| Status::unknown("the stream ended"))?;
    Ok(EtcdAnswer::KeptAlive { ttl: answer.ttl })
}

async fn campaign(channel: EtcdChannel, name: &str, value: &str, lease: i64) -> Result<EtcdAnswer, Status> {
    let request = CampaignRequest {
        name: name.into(),
        lease,
        value: value.into(),
    };
    let answer = ElectionClient::new(channel).campaign(request).await?;
    let leader = answer.into_inner().leader.unwrap_or_default();
    Ok(EtcdAnswer::Elected(Leader {
        name: text(&leader.name),
        key: text(&leader.key),
        revision: leader.rev,
        lease: leader.lease,
    }))
}

async fn resign(channel: EtcdChannel, leader: &Leader) -> Result<EtcdAnswer, Status> {
    let leader = LeaderKey {
        name: leader.name.as_str().into(),
        key: leader.key.as_str().into(),
        rev: leader.revision,
        lease: leader.lease,
    };
    let request = ResignRequest { leader: Some(leader) };
    ElectionClient::new(channel).resign(request).await?;
    Ok(EtcdAnswer::Done)
}

async fn watch(channel: EtcdChannel, key: &str, from_revision: i64) -> Result<EtcdReply, Status> {
    let create = WatchCreateRequest {
        key: key.into(),
        start_revision: from_revision,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        request_union: Some(watch_request::RequestUnion::CreateRequest(create)),
    };
    // the end of the requests is the watch's end: without it the server would go on sending events that are not read
    let (requests, sent) = mpsc::channel(1);
    let _ = requests.send(request).await;
    let answer = WatchClient::new(channel)
        .watch(with_leader(ReceiverStream::new(sent)))
        .await?;
    let watch: Box<dyn EtcdWatch> = Box::new(EtcdClientWatch {
        stream: answer.into_inner(),
        _requests: requests,
    });
    Ok((EtcdAnswer::Watching, Some(watch)))
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
