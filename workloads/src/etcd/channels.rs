//! The channels to the servers of a cluster ([`Channels`]); a call goes to one that answers.
//!
//! There is one channel a server, and calls go to the one that answered last. A call that was never sent (no
//! connection) goes to the next server at once; one that may have been sent is answered as indefinite, and only the
//! next call goes elsewhere. One that was refused because its token is not known is sent once more, with a new one. The library sets no time limits, so each call and each connection gets one here.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Request, Status};

use super::login::{EtcdChannel, LoginToken, is_stale, log_in};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::SessionError;

/// One call may take the lease divided by this.
const CALLS_A_LEASE: u32 = 3;
/// An attempt to connect may take this part of the lease, so that a call has time for another server.
const CONNECTS_A_LEASE: u32 = 6;
/// An idle connection is pinged this often in a lease, and has as long to answer.
const PINGS_A_LEASE: u32 = 6;

pub(super) struct Channels {
    servers: Vec<Channel>,
    login: Option<Login>,
    /// The token of the login at each server.
    tokens: RefCell<Vec<Option<LoginToken>>>,
    /// The number of the server that calls go to.
    current: Cell<usize>,
    limit: Duration,
}

impl Channels {
    /// Must be called inside a tokio runtime. Connects when first used.
    pub(super) fn new(open: &OpenRequest, login: Option<&Login>) -> Result<Self, String> {
        let lease = Duration::from_millis(open.lease_ms);
        let servers: Result<Vec<_>, _> = open.endpoints.iter().map(|endpoint| channel(endpoint, lease)).collect();
        let servers = servers.map_err(|error| format!("etcd endpoints {:?}: {error}", open.endpoints))?;
        Ok(Channels {
            tokens: RefCell::new(vec![None; servers.len()]),
            servers,
            login: login.cloned(),
            current: Cell::new(0),
            limit: lease / CALLS_A_LEASE,
        })
    }

    /// Makes one call within the usual time limit.
    pub(super) async fn call<T, F>(&self, what: &str, send: impl Fn(EtcdChannel) -> F) -> Result<T, SessionError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        self.call_within(what, self.limit, send).await
    }

    /// Makes one call within the time limit, on another server when it surely was not sent.
    pub(super) async fn call_within<T, F>(
        &self,
        what: &str,
        limit: Duration,
        send: impl Fn(EtcdChannel) -> F,
    ) -> Result<T, SessionError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let asked = Cell::new(self.current.get());
        let attempts = async {
            let mut last = String::new();
            for _ in &self.servers {
                let server = self.current.get();
                asked.set(server);
                match self.sent(server, &send).await {
                    Ok(answer) => return Ok(answer),
                    Err(status) if was_not_sent(&status) => last = format!("{what}: {}", status.message()),
                    Err(status) => return Err(self.judge(what, server, &status)),
                }
                self.turn_from(server);
            }
            Err(SessionError::Definite(last))
        };
        tokio::time::timeout(limit, attempts).await.unwrap_or_else(|_| {
            self.turn_from(asked.get());
            Err(SessionError::Indefinite(format!(
                "{what}: no answer in {} ms",
                limit.as_millis()
            )))
        })
    }

    /// Sends a call to a server with its token.
    async fn sent<T, F>(&self, server: usize, send: impl Fn(EtcdChannel) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let channel = || self.servers[server].clone();
        let Some(login) = &self.login else {
            return send(LoginToken::default().on(channel())).await;
        };
        let known = self.tokens.borrow()[server].clone();
        if let Some(token) = known {
            match send(token.on(channel())).await {
                Err(status) if is_stale(&status) => {}
                answer => return answer,
            }
        }
        let token = log_in(channel(), login).await?;
        self.tokens.borrow_mut()[server] = Some(token.clone());
        send(token.on(channel())).await
    }

    /// Turns to the next server, unless another call did so already.
    fn turn_from(&self, server: usize) {
        if self.current.get() == server {
            self.current.set((server + 1) % self.servers.len());
        }
    }

    fn judge(&self, what: &str, server: usize, status: &Status) -> SessionError {
        let text = format!("{what}: {} ({})", status.message(), status.code());
        match status.code() {
            Code::NotFound
            | Code::InvalidArgument
            | Code::FailedPrecondition
            | Code::OutOfRange
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated
            | Code::Unimplemented => SessionError::Definite(text),
            _ => {
                self.turn_from(server);
                SessionError::Indefinite(text)
            }
        }
    }
}

fn channel(endpoint: &str, lease: Duration) -> Result<Channel, tonic::transport::Error> {
    let ping = lease / PINGS_A_LEASE;
    let endpoint = Endpoint::from_shared(format!("http://{endpoint}"))?
        .connect_timeout(lease / CONNECTS_A_LEASE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(ping)
        .keep_alive_timeout(ping)
        .keep_alive_while_idle(true);
    Ok(endpoint.connect_lazy())
}

/// Whether the call ended before there was a connection to send it on.
fn was_not_sent(status: &Status) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = status.source();
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Returns a request for a stream that shall end when its server has lost the majority: without this it would stay silent.
pub(super) fn with_leader<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request
        .metadata_mut()
        .insert("hasleader", MetadataValue::from_static("true"));
    request
}
