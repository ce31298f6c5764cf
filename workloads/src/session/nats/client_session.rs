//! The NATS session that recipes are written against ([`NatsSession`]), with no more than they need, on the few messages of
//! [`api`](super::api). The official client library connects again by itself and keeps requests meanwhile, so that it is not known when
//! one was sent.
//!
//! It is the session for simulated servers and for fake ones, too: they are dialled in another way.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use super::api::{BUCKET, KeyMessage};
use super::connection::{NatsConnection, NatsError};
use super::key_request::{KeyAnswer, KeyDial, KeyLine, KeyOutcome, KeyRequest};
use crate::host::{RecipeHost, within};
use crate::login::Login;
use crate::protocol::OpenRequest;
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

    /// Connects to one of the servers, each time to the next one. Answers within a part of the lease.
    pub async fn connect(&self) -> Result<Rc<NatsSession>, SessionError> {
        let names = self.dial.names();
        let server = self.next.get() % names.len();
        self.next.set(self.next.get() + 1);
        let why = match within(&*self.host, self.limit, self.dial.dial(server)).await {
            Some(Ok(line)) => {
                return Ok(Rc::new(NatsSession {
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

/// One connection to a server, which leads every call to the server that leads the bucket. Every call answers within a part of the
/// lease; one that does not is [`SessionError::Indefinite`] and ends the connection. No call is ever sent twice. A call that could
/// not be sent is [`SessionError::Lost`].
pub struct NatsSession {
    /// The connection of a client, one of whose locks may be renewed while it asks for another.
    line: Mutex<Box<dyn KeyLine>>,
    host: Rc<dyn RecipeHost>,
    limit: Duration,
    copies: usize,
    is_over: Cell<bool>,
}

impl NatsSession {
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
            Err(error) if error.is_definite() => Err(SessionError::Definite(error.to_string())),
            Err(error) => Err(SessionError::Indefinite(error.to_string())),
        }
    }

    /// Whether the connection is known to be over.
    pub fn is_broken(&self) -> bool {
        self.is_over.get()
    }

    /// Makes the bucket whose keys end when they were not written for a lease, unless it is there.
    pub async fn make_bucket(&self, lease: Duration) -> Result<(), SessionError> {
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

    /// Returns the last message of a key.
    pub async fn read(&self, key: &str) -> Result<Option<KeyMessage>, SessionError> {
        let key = key.to_owned();
        match self.ask(KeyRequest::Read { key }).await? {
            Ok(KeyAnswer::Last(message)) => Ok(message),
            Ok(KeyAnswer::Done | KeyAnswer::Number(_)) => Ok(None),
            Err(error) => Err(SessionError::Definite(error.to_string())),
        }
    }

    /// Writes a key whose last message has the revision `last`, 0 where there is none; any key without it. Answers the new
    /// revision, which is larger than all before it in the bucket. `None`: the last message is another one.
    pub async fn put(&self, key: &str, value: &str, last: Option<u64>) -> Result<Option<u64>, SessionError> {
        let (key, value) = (key.to_owned(), Some(value.to_owned()));
        let put = self.change(KeyRequest::Put { key, value, last }).await?;
        Ok(put.map(|answer| answer.number()))
    }

    /// Writes a delete marker over the message of this revision. `false`: the last message is another one.
    pub async fn mark_deleted(&self, key: &str, revision: u64) -> Result<bool, SessionError> {
        let marked = self.change(KeyRequest::Put {
            key: key.to_owned(),
            value: None,
            last: Some(revision),
        });
        Ok(marked.await?.is_some())
    }

    /// Removes the message of this revision, and leaves no marker. `false`: there is none.
    pub async fn remove(&self, revision: u64) -> Result<bool, SessionError> {
        Ok(self.change(KeyRequest::Remove { revision }).await?.is_some())
    }

    /// Removes the messages of a key, whatever they are. `false`: there were none.
    pub async fn purge(&self, key: &str) -> Result<bool, SessionError> {
        let key = key.to_owned();
        let purged = self.change(KeyRequest::Purge { key }).await?;
        Ok(purged.is_some_and(|answer| answer.number() > 0))
    }
}
