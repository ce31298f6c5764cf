//! The messages of etcd's own API for the calls of a client ([`send`]).

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::call::{EtcdAnswer, EtcdCall, EtcdCompare, EtcdOp, EtcdReply, EtcdTxn};
use super::methods::{EtcdChannel, ask, open_stream};
use super::prefix_end;
use super::wire::{
    COMPARE_CREATION, COMPARE_LEASE, CampaignRequest, Compare, DeleteRangeRequest, EVENT_DELETED, KeyValue, LeaderKey,
    LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, LockRequest, PutRequest, RangeRequest, RequestOp,
    ResignRequest, ResponseHeader, ResponseOp, SORT_ASCENDING, SORT_BY_CREATION, TxnRequest, UnlockRequest,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use crate::session::SessionError;
use crate::session::etcd::{EtcdKey, EtcdWatch, Leader};

/// Sends a call to a server, and reads its answer.
pub(super) async fn send(channel: EtcdChannel, call: &EtcdCall) -> Result<EtcdReply, Status> {
    let answer = match call {
        EtcdCall::Range { key, is_prefix } => {
            let answer = ask(channel, range(key, *is_prefix)).await?;
            EtcdAnswer::Keys {
                keys: read_keys(answer.kvs),
                revision: revision(answer.header),
            }
        }
        EtcdCall::Txn(txn) => {
            let answer = ask(channel, request_of(txn)).await?;
            EtcdAnswer::Txn {
                succeeded: answer.succeeded,
                responses: answer.responses.into_iter().map(found).collect(),
                revision: revision(answer.header),
            }
        }
        EtcdCall::DeleteRange { key } => EtcdAnswer::Deleted(ask(channel, delete(key)).await?.deleted > 0),
        EtcdCall::LeaseGrant { ttl } => {
            let lease = ask(channel, LeaseGrantRequest { ttl: *ttl }).await?;
            EtcdAnswer::Lease {
                id: lease.id,
                ttl: lease.ttl,
            }
        }
        EtcdCall::LeaseKeepAlive { lease } => keep_alive(channel, *lease).await?,
        EtcdCall::LeaseRevoke { lease } => {
            ask(channel, LeaseRevokeRequest { id: *lease }).await?;
            EtcdAnswer::Done
        }
        EtcdCall::Watch { key, from_revision } => return watch(channel, key, *from_revision).await,
        EtcdCall::Lock { name, lease } => {
            let (name, lease) = (name.as_str().into(), *lease);
            let answer = ask(channel, LockRequest { name, lease }).await?;
            let key = text(&answer.key);
            EtcdAnswer::Locked { key }
        }
        EtcdCall::Unlock { key } => {
            let key = key.as_str().into();
            ask(channel, UnlockRequest { key }).await?;
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
        sort_order: SORT_ASCENDING,
        sort_target: SORT_BY_CREATION,
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
    let (target, create_revision, lease) = match &txn.compare {
        EtcdCompare::Created { revision, .. } => (COMPARE_CREATION, Some(*revision), None),
        EtcdCompare::Lease { lease, .. } => (COMPARE_LEASE, None, Some(*lease)),
    };
    // without a `result`, which these messages leave out, for equality
    let compared = Compare {
        target,
        key: txn.key().into(),
        create_revision,
        lease,
    };
    TxnRequest {
        compare: vec![compared],
        success: txn.success.iter().map(operation).collect(),
        failure: txn.failure.iter().map(operation).collect(),
    }
}

fn operation(op: &EtcdOp) -> RequestOp {
    let mut request = RequestOp::default();
    match op {
        EtcdOp::Put { key, value, lease } => {
            request.put = Some(PutRequest {
                key: key.as_str().into(),
                value: value.as_str().into(),
                lease: *lease,
            });
        }
        EtcdOp::Get { key } => request.range = Some(range(key, false)),
        EtcdOp::First { prefix } => {
            request.range = Some(RangeRequest {
                limit: 1,
                ..range(prefix, true)
            });
        }
        EtcdOp::Delete { key } => request.delete_range = Some(delete(key)),
    }
    request
}

/// Returns the keys that an operation found.
fn found(response: ResponseOp) -> Vec<EtcdKey> {
    response.range.map(|range| read_keys(range.kvs)).unwrap_or_default()
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

async fn keep_alive(channel: EtcdChannel, lease: i64) -> Result<EtcdAnswer, Status> {
    let request = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
    let answer = open_stream(channel, request).await?.message().await?;
    let answer = answer.ok_or_else(|| Status::unknown("the stream ended"))?;
    Ok(EtcdAnswer::KeptAlive { ttl: answer.ttl })
}

async fn campaign(channel: EtcdChannel, name: &str, value: &str, lease: i64) -> Result<EtcdAnswer, Status> {
    let request = CampaignRequest {
        name: name.into(),
        lease,
        value: value.into(),
    };
    let leader = ask(channel, request).await?.leader.unwrap_or_default();
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
    ask(channel, ResignRequest { leader: Some(leader) }).await?;
    Ok(EtcdAnswer::Done)
}

async fn watch(channel: EtcdChannel, key: &str, from_revision: i64) -> Result<EtcdReply, Status> {
    let create = WatchCreateRequest {
        key: key.into(),
        start_revision: from_revision,
        ..WatchCreateRequest::default()
    };
    let request = WatchRequest {
        create_request: Some(create),
    };
    // the end of the requests is the watch's end: without it the server would go on sending events that are not read
    let (requests, sent) = mpsc::channel(1);
    let _ = requests.send(request).await;
    let watch: Box<dyn EtcdWatch> = Box::new(EtcdClientWatch {
        stream: open_stream(channel, ReceiverStream::new(sent)).await?,
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
    async fn next(&mut self) -> Result<Vec<bool>, SessionError> {
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
                let events = answer.events.iter();
                return Ok(events.map(|event| event.kind == EVENT_DELETED).collect());
            }
        }
    }
}
