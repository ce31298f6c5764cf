//! The NATS session for real servers, on the few messages of [`api`](super::api). The official client library connects again by
//! itself and keeps requests meanwhile, so that it is not known when one was sent.
//!
//! It is the session for simulated servers, too: they are dialled in another way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::api::{BUCKET, JetStreamError};
use super::connection::{NatsConnection, NatsError};
use super::key_request::{KeyAnswer, KeyDial, KeyLine, KeyOutcome, KeyRequest};
use crate::host::{RecipeHost, within};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::nats::{KeyMessage, NatsConnect, NatsSession};
use crate::session::{CALLS_A_LEASE, SessionError};

/// The most copies that a stream can have.
const MOST_COPIES: usize = 5;

/// A cluster.
pub struct NatsServers {
    dial: Box<dyn KeyDial>,
    limit: Duration,
    host: Rc<dyn RecipeHost>,
    /// The server that is next.
    next: Cell<usize>,
}

impl NatsServers {
    /// Makes a real cluster.
    pub fn new(open: &OpenRequest, login: Option<&Login>, host: Rc<dyn RecipeHost>) -> Self {
        let endpoints = NatsEndpoints {
            endpoints: open.endpoints.clone(),
            login: login.cloned(),
            host: host.clone(),
        };
        Self::over(Box::new(endpoints), Duration::from_millis(open.lease_ms), host)
    }

    /// Makes a cluster that `dial` leads to. Clients begin at different servers.
    pub fn over(dial: Box<dyn KeyDial>, lease: Duration, host: Rc<dyn RecipeHost>) -> Self {
        NatsServers {
            next: Cell::new((host.random() % dial.names().len() as u64) as usize),
            dial,
            limit: lease / CALLS_A_LEASE,
            host,
        }
    }
}

#[async_trait(?Send)]
impl NatsConnect for NatsServers {
    async fn connect(&self) -> Result<Rc<dyn NatsSession>, SessionError> {
        let names = self.dial.names();
        let server = self.next.get() % names.len();
        self.next.set(self.next.get() + 1);
        let why = match within(&*self.host, self.limit, self.dial.dial(server)).await {
            Some(Ok(line)) => {
                return Ok(Rc::new(NatsClientSession {
                    line: Mutex::new(line),
                    host: self.host.clone(),
                    limit: self.limit,
                    copies: names.len().min(MOST_COPIES),
                    is_over: Cell::new(false),
                }));
            }
            Some(Err(error)) => error,
            None => "it does not answer".to_owned(),
        };
        Err(SessionError::Definite(format!(
            "no connection to {}: {why}",
            names[server]
        )))
    }
}

/// The addresses of real servers.
struct NatsEndpoints {
    endpoints: Vec<String>,
    login: Option<Login>,
    host: Rc<dyn RecipeHost>,
}

#[async_trait(?Send)]
impl KeyDial for NatsEndpoints {
    fn names(&self) -> &[String] {
        &self.endpoints
    }

    async fn dial(&self, server: usize) -> Result<Box<dyn KeyLine>, String> {
        let stream = TcpStream::connect(&self.endpoints[server]).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let greeted = NatsConnection::greet(stream, self.login.as_ref(), self.host.random()).await;
        Ok(Box::new(greeted?))
    }
}

struct NatsClientSession {
    /// The connection of a client, one of whose locks may be renewed while it asks for another.
    line: Mutex<Box<dyn KeyLine>>,
    host: Rc<dyn RecipeHost>,
    limit: Duration,
    copies: usize,
    is_over: Cell<bool>,
}

impl NatsClientSession {
    async fn ask(&self, request: KeyRequest) -> Result<KeyOutcome, SessionError> {
        let asked = async { self.line.lock().await.call(&request).await };
        let error = match within(&*self.host, self.limit, asked).await {
            Some(Ok(outcome)) => return Ok(outcome),
            Some(Err(NatsError::Unsent(reason))) => SessionError::Lost(reason),
            Some(Err(NatsError::Unanswered(reason))) => SessionError::Indefinite(reason),
            None => SessionError::Indefinite("no answer".to_owned()),
        };
        self.is_over.set(true);
        Err(error)
    }

    /// Returns the answer to a request that changes something; `None`: the message to change is not the one that is there.
    async fn change(&self, request: KeyRequest) -> Result<Option<KeyAnswer>, SessionError> {
        match self.ask(request).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.is_other_message() => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }
}

fn failed(error: &JetStreamError) -> SessionError {
    match error.is_definite() {
        true => SessionError::Definite(error.to_string()),
        false => SessionError::Indefinite(error.to_string()),
    }
}

#[async_trait(?Send)]
impl NatsSession for NatsClientSession {
    fn is_broken(&self) -> bool {
        self.is_over.get()
    }

    async fn make_bucket(&self, lease: Duration) -> Result<(), SessionError> {
        let copies = self.copies;
        match self.ask(KeyRequest::Make { age: lease, copies }).await? {
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
        let key = key.to_owned();
        match self.ask(KeyRequest::Read { key }).await? {
            Ok(KeyAnswer::Last(message)) => Ok(message),
            Ok(KeyAnswer::Done | KeyAnswer::Number(_)) => Ok(None),
            Err(error) => Err(SessionError::Definite(error.to_string())),
        }
    }

    async fn put(&self, key: &str, value: &str, last: Option<u64>) -> Result<Option<u64>, SessionError> {
        let (key, value) = (key.to_owned(), Some(value.to_owned()));
        let put = self.change(KeyRequest::Put { key, value, last }).await?;
        Ok(put.map(|answer| answer.number()))
    }

    async fn mark_deleted(&self, key: &str, revision: u64) -> Result<bool, SessionError> {
        let marked = self.change(KeyRequest::Put {
            key: key.to_owned(),
            value: None,
            last: Some(revision),
        });
        Ok(marked.await?.is_some())
    }

    async fn remove(&self, revision: u64) -> Result<bool, SessionError> {
        Ok(self.change(KeyRequest::Remove { revision }).await?.is_some())
    }

    async fn purge(&self, key: &str) -> Result<bool, SessionError> {
        let key = key.to_owned();
        let purged = self.change(KeyRequest::Purge { key }).await?;
        Ok(purged.is_some_and(|answer| answer.number() > 0))
    }
}
