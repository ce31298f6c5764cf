//! The NATS session for real servers, on the few messages of [`api`](super::api). The official client library connects again by
//! itself and keeps requests meanwhile, so that it is not known when one was sent.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::api::{self, BUCKET, JetStreamError, PurgeAnswer, PutAnswer};
use super::connection::{NatsConnection, NatsError, NatsReply, NatsRequest};
use crate::host::RecipeHost;
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::SessionError;
use crate::session::nats::{KeyMessage, NatsConnect, NatsSession};

/// One call, and one attempt to connect, may take the lease divided by this.
const CALLS_A_LEASE: u32 = 3;
/// The most copies that a stream can have.
const MOST_COPIES: usize = 5;

/// A real cluster.
pub struct NatsServers {
    endpoints: Vec<String>,
    login: Option<Login>,
    limit: Duration,
    host: Rc<dyn RecipeHost>,
    /// The endpoint that is next.
    next: Cell<usize>,
}

impl NatsServers {
    /// Clients begin at different servers.
    pub fn new(open: &OpenRequest, login: Option<&Login>, host: Rc<dyn RecipeHost>) -> Self {
        NatsServers {
            endpoints: open.endpoints.clone(),
            login: login.cloned(),
            limit: Duration::from_millis(open.lease_ms) / CALLS_A_LEASE,
            next: Cell::new((host.random() % open.endpoints.len() as u64) as usize),
            host,
        }
    }

    async fn dial(&self, endpoint: &str) -> Result<NatsConnection<TcpStream>, String> {
        let stream = TcpStream::connect(endpoint).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        NatsConnection::greet(stream, self.login.as_ref(), self.host.random()).await
    }
}

#[async_trait(?Send)]
impl NatsConnect for NatsServers {
    async fn connect(&self) -> Result<Rc<dyn NatsSession>, SessionError> {
        let endpoint = &self.endpoints[self.next.get() % self.endpoints.len()];
        self.next.set(self.next.get() + 1);
        let why = match timeout(self.limit, self.dial(endpoint)).await {
            Ok(Ok(connection)) => {
                return Ok(Rc::new(NatsClientSession {
                    connection: Mutex::new(connection),
                    limit: self.limit,
                    copies: self.endpoints.len().min(MOST_COPIES),
                    is_over: Cell::new(false),
                }));
            }
            Ok(Err(error)) => error,
            Err(_) => "it does not answer".to_owned(),
        };
        Err(SessionError::Definite(format!("no connection to {endpoint}: {why}")))
    }
}

struct NatsClientSession {
    /// Of a client, one of whose locks may be renewed while it asks for another.
    connection: Mutex<NatsConnection<TcpStream>>,
    limit: Duration,
    copies: usize,
    is_over: Cell<bool>,
}

impl NatsClientSession {
    async fn ask(&self, request: NatsRequest) -> Result<NatsReply, SessionError> {
        let asked = async { self.connection.lock().await.ask(&request).await };
        let error = match timeout(self.limit, asked).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(NatsError::Unsent(reason))) => SessionError::Lost(reason),
            Ok(Err(NatsError::Unanswered(reason))) => SessionError::Indefinite(reason),
            Err(_) => SessionError::Indefinite("no answer".to_owned()),
        };
        self.is_over.set(true);
        Err(error)
    }

    /// The answer to a request that changes something.
    async fn change<T: DeserializeOwned>(&self, request: NatsRequest) -> Result<T, ChangeError> {
        let reply = self.ask(request).await.map_err(ChangeError::Session)?;
        api::answer(&reply).map_err(|error| match error.is_other_message() {
            true => ChangeError::OtherMessage,
            false => ChangeError::Session(failed(&error)),
        })
    }
}

/// Why nothing was changed, as far as that is known.
enum ChangeError {
    /// The message to change is not the one that is there.
    OtherMessage,
    Session(SessionError),
}

fn failed(error: &JetStreamError) -> SessionError {
    match error.is_definite() {
        true => SessionError::Definite(error.to_string()),
        false => SessionError::Indefinite(error.to_string()),
    }
}

/// `None` where another message is there.
fn unless_other<T>(changed: Result<T, ChangeError>) -> Result<Option<T>, SessionError> {
    match changed {
        Ok(answer) => Ok(Some(answer)),
        Err(ChangeError::OtherMessage) => Ok(None),
        Err(ChangeError::Session(error)) => Err(error),
    }
}

#[async_trait(?Send)]
impl NatsSession for NatsClientSession {
    fn is_broken(&self) -> bool {
        self.is_over.get()
    }

    async fn make_bucket(&self, lease: Duration) -> Result<(), SessionError> {
        let reply = self.ask(api::make_bucket(BUCKET, lease, self.copies)).await?;
        match api::answer::<IgnoredAny>(&reply) {
            Ok(_) => Ok(()),
            Err(error) if error.is_other_stream() => {
                let why = format!("the bucket {BUCKET} has other settings than a lease of {lease:?}");
                Err(SessionError::Definite(why))
            }
            // one that is refused now may be made later
            Err(error) => Err(SessionError::Indefinite(error.to_string())),
        }
    }

    async fn read(&self, key: &str) -> Result<Option<KeyMessage>, SessionError> {
        let reply = self.ask(api::last_message(BUCKET, key)).await?;
        api::message(&reply).map_err(|error| SessionError::Definite(error.to_string()))
    }

    async fn put(&self, key: &str, value: &str, last: Option<u64>) -> Result<Option<u64>, SessionError> {
        let put = self.change::<PutAnswer>(api::put(BUCKET, key, Some(value), last)).await;
        Ok(unless_other(put)?.map(|answer| answer.seq))
    }

    async fn mark_deleted(&self, key: &str, revision: u64) -> Result<bool, SessionError> {
        let marked = self
            .change::<PutAnswer>(api::put(BUCKET, key, None, Some(revision)))
            .await;
        Ok(unless_other(marked)?.is_some())
    }

    async fn remove(&self, revision: u64) -> Result<bool, SessionError> {
        let removed = self.change::<IgnoredAny>(api::remove(BUCKET, revision)).await;
        Ok(unless_other(removed)?.is_some())
    }

    async fn purge(&self, key: &str) -> Result<bool, SessionError> {
        let purged = self.change::<PurgeAnswer>(api::purge(BUCKET, key)).await;
        Ok(unless_other(purged)?.is_some_and(|answer| answer.purged > 0))
    }
}
