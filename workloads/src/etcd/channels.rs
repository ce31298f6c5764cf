//! The lines to real servers ([`lines`]): a channel each, and the token of a login.
//!
//! A call that was refused because its token is not known is sent once more, with a new one.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use async_trait::async_trait;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, ConnectError, Status};

use super::call::{EtcdCall, EtcdFailure, EtcdFailureKind, EtcdLine, EtcdReply};
use super::login::{is_stale, log_in};
use super::messages::send;
use super::methods::LoginToken;
use crate::login::Login;
use crate::protocol::OpenRequest;

/// An attempt to connect may take this part of the lease, so that a call has time for another server.
pub const CONNECTS_A_LEASE: u32 = 6;
/// An idle connection is pinged this often in a lease, and has as long to answer.
pub const PINGS_A_LEASE: u32 = 6;

/// The channel to one server.
struct ServerChannel {
    channel: Channel,
    login: Option<Login>,
    token: RefCell<Option<LoginToken>>,
}

/// Returns the lines of a client, one for each server.
pub(super) fn lines(open: &OpenRequest, login: Option<&Login>) -> Result<Vec<Box<dyn EtcdLine>>, String> {
    let lease = Duration::from_millis(open.lease_ms);
    let line = |endpoint: &String| -> Result<Box<dyn EtcdLine>, tonic::transport::Error> {
        Ok(Box::new(ServerChannel {
            channel: channel(endpoint, lease)?,
            login: login.cloned(),
            token: RefCell::default(),
        }))
    };
    let lines: Result<_, _> = open.endpoints.iter().map(line).collect();
    lines.map_err(|error| format!("etcd endpoints {:?}: {error}", open.endpoints))
}

impl ServerChannel {
    /// Sends a call with the token of the login.
    async fn sent(&self, call: &EtcdCall) -> Result<EtcdReply, Status> {
        let channel = || self.channel.clone();
        let Some(login) = &self.login else {
            return send(LoginToken::default().on(channel()), call).await;
        };
        let known = self.token.borrow().clone();
        if let Some(token) = known {
            match send(token.on(channel()), call).await {
                Err(status) if is_stale(&status) => {}
                reply => return reply,
            }
        }
        let token = log_in(channel(), login).await?;
        self.token.replace(Some(token.clone()));
        send(token.on(channel()), call).await
    }
}

#[async_trait(?Send)]
impl EtcdLine for ServerChannel {
    async fn call(&self, call: EtcdCall) -> Result<EtcdReply, EtcdFailure> {
        self.sent(&call).await.map_err(|status| failure(&status))
    }
}

fn failure(status: &Status) -> EtcdFailure {
    if was_not_sent(status) {
        return EtcdFailure::new(EtcdFailureKind::NotSent, status.message());
    }
    let kind = match status.code() {
        Code::NotFound => EtcdFailureKind::NotFound,
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::ResourceExhausted
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => EtcdFailureKind::Refused,
        _ => EtcdFailureKind::Unknown,
    };
    EtcdFailure::new(kind, format!("{} ({})", status.message(), status.code()))
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
