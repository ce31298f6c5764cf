//! Connections to real etcd servers ([`GrpcConnection`]), and the observer's watches over them ([`watching`]), with every change below the
//! locks' prefix. Calls are gRPC over HTTP/2, over streams of any kind: a channel of the client library uses sockets and timers of this
//! machine, which a world does not have.
//!
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::stream::{self, StreamExt};
use h2::client::{Connection, SendRequest};
use h2::{Ping, RecvStream, SendStream};
use harness_workloads::Login;
use harness_workloads::etcd::wire::{
    AuthenticateRequest, EVENT_DELETED, KeyValue, LeaseTimeToLiveRequest, RangeRequest, StatusRequest,
    WatchCreateRequest, WatchEvent, WatchRequest, WatchResponse,
};
use harness_workloads::etcd::{EtcdMethod, prefix_end};
use http::Request;
use prost::Message;

use super::key_changes::{EtcdKeyChange, KeyChangeStream, OpenedStore, WatchStore};
use crate::backends::observer::Unasked;
use crate::clock::{GroundClock, RunningTask};
use crate::cluster::{ByteStream, ServerAccess, ServerTurns, first_answer};
use crate::limits::PROBE;

/// The time of one server to begin a watch.
const BEGIN: Duration = Duration::from_secs(1);

/// Returns a watch on real servers.
pub fn watching() -> WatchStore {
    let turns = ServerTurns::default();
    Box::new(move |endpoints, prefix, from_revision| {
        let servers = endpoints.borrow().accesses();
        let (in_turn, prefix) = (turns.in_turn(servers.clone()), prefix.to_owned());
        Box::pin(async move {
            let watching = |server| watch(server, (&prefix, from_revision));
            let (from_revision, present, changes) = first_answer(in_turn, BEGIN, watching).await?;
            Ok(OpenedStore {
                from_revision,
                present,
                changes,
                why: Arc::new(move |lease| Box::pin(why_gone(servers.clone(), lease))),
            })
        })
    })
}

async fn watch(
    server: ServerAccess,
    (prefix, from_revision): (&str, Option<i64>),
) -> Result<(i64, Vec<EtcdKeyChange>, KeyChangeStream), String> {
    let connection = GrpcConnection::begin(&server).await?;
    let (key, range_end) = match prefix {
        // from the first key to the last: <https://etcd.io/docs/latest/learning/api/#key-ranges>
        "" => (vec![0], vec![0]),
        prefix => (prefix.as_bytes().to_vec(), prefix_end(prefix)),
    };
    let (start_revision, present) = match from_revision {
        Some(revision) => (revision, Vec::new()),
        None => {
            let all = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                keys_only: true,
                ..RangeRequest::default()
            };
            let answer = connection.ask(&all).await?;
            let revision = answer.header.map_or(0, |header| header.revision);
            let present = answer.kvs.into_iter().map(|kv| change_of(kv, false)).collect();
            (revision + 1, present)
        }
    };
    let create = WatchCreateRequest {
        key,
        range_end,
        start_revision,
    };
    let request = WatchRequest {
        create_request: Some(create),
    };
    let (requests, mut answers) = connection.call(&request, false).await?;
    let created: Option<WatchResponse> = answers.next().await?;
    // a refused watch is created and canceled by one answer, and its stream may stay open
    created
        .filter(|created| !created.canceled)
        .ok_or("it ended the watch")?;
    // the end of the requests would end the watch
    let watched = (answers, requests, connection);
    let changes = stream::unfold(watched, |mut watched| async move {
        let answer: WatchResponse = watched.0.next().await.ok().flatten()?;
        let changes: Vec<EtcdKeyChange> = answer.events.into_iter().filter_map(change).collect();
        // a watch of compacted changes is canceled, too
        let changes = (answer.compact_revision == 0).then_some(changes);
        (!answer.canceled || changes.is_none()).then_some((changes, watched))
    });
    Ok((start_revision, present, KeyChangeStream::new(changes.fuse().boxed())))
}

fn change(event: WatchEvent) -> Option<EtcdKeyChange> {
    Some(change_of(event.kv?, event.kind == EVENT_DELETED))
}

fn change_of(kv: KeyValue, deleted: bool) -> EtcdKeyChange {
    EtcdKeyChange {
        key: kv.key,
        deleted,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        lease: kv.lease,
    }
}

async fn why_gone(servers: Vec<ServerAccess>, lease: i64) -> Unasked {
    // a key without a lease ends by a request alone
    if lease == 0 {
        return Unasked::Deleted;
    }
    for server in servers {
        let asked = async {
            let connection = GrpcConnection::begin(&server).await?;
            connection.ask(&LeaseTimeToLiveRequest { id: lease }).await
        };
        let answer: Option<Result<_, String>> = server.clock().within(PROBE, asked).await;
        match answer {
            Some(Ok(answer)) if answer.ttl < 0 => return Unasked::Expired,
            Some(Ok(_)) => return Unasked::Deleted,
            _ => {}
        }
    }
    Unasked::Unknown
}

/// A connection for gRPC calls.
pub(super) struct GrpcConnection {
    requests: SendRequest<Bytes>,
    server: SocketAddr,
    /// The server's token for a login, if it needs one.
    token: Option<String>,
    _carrying: RunningTask,
}

impl GrpcConnection {
    /// Connects, and logs in if the server needs that, once for each connection: a member may have forgotten an older token.
    pub(super) async fn begin(server: &ServerAccess) -> Result<Self, String> {
        let mut builder = h2::client::Builder::new();
        // by default it forgets a stream that it reset after a second of real time, and answers its late frames then
        builder.reset_stream_duration(Duration::MAX);
        let begun = builder.handshake(server.connect().await?).await;
        let (requests, connection) = begun.map_err(|error| error.to_string())?;
        let mut begun = Self {
            requests,
            server: server.address,
            token: None,
            _carrying: server.clock().spawn(carry(connection, server.clock())),
        };
        if let Some(Login { user, password }) = server.login() {
            let request = AuthenticateRequest {
                name: user.clone(),
                password: password.clone(),
            };
            begun.token = Some(begun.ask(&request).await?.token);
        }
        Ok(begun)
    }

    /// Connects to a server that answers: the kernel accepts a connection also for one that is stopped.
    pub(super) async fn answering(server: ServerAccess) -> Result<Self, String> {
        let connection = Self::begin(&server).await?;
        // a login was answered
        if server.login.is_none() {
            connection.ask(&StatusRequest {}).await?;
        }
        Ok(connection)
    }

    /// Makes a call with one answer.
    pub(super) async fn ask<M: EtcdMethod>(&self, request: &M) -> Result<M::Answer, String> {
        let (_, mut answers) = self.call(request, true).await?;
        answers.next().await?.ok_or_else(|| "it did not answer".to_owned())
    }

    /// Makes a call with this first request, which is the only one if it `ends`.
    async fn call<M: EtcdMethod>(&self, request: &M, ends: bool) -> Result<(SendStream<Bytes>, GrpcAnswers), String> {
        let failed = |error: h2::Error| error.to_string();
        let mut head = Request::post(format!("http://{}{}", self.server, M::PATH))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // a member that has lost its leader ends a watch, instead of lagging without a sign
            .header("hasleader", "true");
        if let Some(token) = &self.token {
            head = head.header("token", token);
        }
        let head = head.body(()).map_err(|error| error.to_string())?;
        let mut ready = self.requests.clone().ready().await.map_err(failed)?;
        let (answer, mut requests) = ready.send_request(head, false).map_err(failed)?;
        let message = request.encode_to_vec();
        // the flag for no compression, and the length
        let mut frame = vec![0];
        frame.extend((message.len() as u32).to_be_bytes());
        frame.extend(message);
        requests.send_data(frame.into(), ends).map_err(failed)?;
        let answer = answer.await.map_err(failed)?;
        if let Some(why) = answer.headers().get("grpc-message") {
            return Err(String::from_utf8_lossy(why.as_bytes()).into_owned());
        }
        let answers = GrpcAnswers {
            body: answer.into_body(),
            bytes: Vec::new(),
        };
        Ok((requests, answers))
    }
}

/// Carries a connection until its end, or until its server is silent: a stopped one keeps its connections. There are no pings in
/// virtual time, where each would be an event of the world.
async fn carry(mut connection: Connection<Box<dyn ByteStream>>, clock: GroundClock) {
    let pings = connection.ping_pong().filter(|_| !clock.is_virtual());
    let silence = async {
        let Some(mut pings) = pings else {
            return std::future::pending().await;
        };
        loop {
            clock.sleep(PROBE).await;
            if !matches!(clock.within(PROBE, pings.ping(Ping::opaque())).await, Some(Ok(_))) {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        _ = connection => {}
        () = silence => {}
    }
}

/// The answers to a call.
struct GrpcAnswers {
    body: RecvStream,
    /// Bytes that are not decoded yet.
    bytes: Vec<u8>,
}

impl GrpcAnswers {
    /// Returns the next answer, or `None` at the end.
    async fn next<R: Message + Default>(&mut self) -> Result<Option<R>, String> {
        const HEAD: usize = 5;
        loop {
            if let Some([_, length @ ..]) = self.bytes.first_chunk::<HEAD>() {
                let end = HEAD + u32::from_be_bytes(*length) as usize;
                if self.bytes.len() >= end {
                    let answer = R::decode(&self.bytes[HEAD..end]).map_err(|error| error.to_string())?;
                    self.bytes.drain(..end);
                    return Ok(Some(answer));
                }
            }
            let Some(more) = self.body.data().await else {
                return Ok(None);
            };
            let more = more.map_err(|error| error.to_string())?;
            let _ = self.body.flow_control().release_capacity(more.remaining());
            self.bytes.extend_from_slice(&more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_without_a_lease_does_not_expire() {
        assert_eq!(why_gone(Vec::new(), 0).await, Unasked::Deleted);
        assert_eq!(why_gone(Vec::new(), 7).await, Unasked::Unknown, "no server answers");
    }
}
