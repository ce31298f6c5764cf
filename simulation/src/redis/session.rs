//! The session of a client with simulated servers ([`RedisRoutes`]), with the timing of the `redis` crate, version 1.8, as
//! `harness_workloads::redis::RedisServers` uses it.
//!
//! Its steps, with their places in that session and crate:
//!
//! - a connect is a TCP connect and `HELLO 3`, both within the limit (`get_multiplexed_async_connection_inner_with_timeout`,
//!   redis `client.rs:571`); whatever goes wrong is definite (workloads `redis/client_session.rs`, `connect`);
//! - a call that takes longer than the limit is indefinite, and its answer is thrown away when it comes (redis
//!   `aio/multiplexed_connection.rs:1010`, `send_recv` with the response timeout); two such in a row break the connection;
//! - when the connection ends, each call without an answer is indefinite, and so is each later call (`PipelineSink`,
//!   `multiplexed_connection.rs`); the session is broken at once;
//! - an error of the server is definite, and `NOSCRIPT` loads the script and calls it again (redis `script.rs`, `invoke_async`), each of
//!   the three with a limit of its own; `READONLY`, of a server that is no longer a master, breaks the session (workloads
//!   `redis/node_connection.rs`, `judge`);
//! - a subscription is a connection of its own, whose end is the end of its messages.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::redis::{CompareBy, RedisConnect, RedisSession, Subscription};
use harness_workloads::{CALLS_A_LEASE, SessionError};

use super::request::{RedisCommand, RedisMessage, RedisRequest, RedisScript, RedisValue, ScriptCall};
use super::server::SimulatedRedis;
use crate::network::{ClientSide, ConnectionEnding, SimulatedLink, keep_waker};
use crate::world::{SimulatedProcess, World, WorldSleep, first_of};

/// A connection is closed after this number of unanswered calls in a row: `SILENCES`, workloads `redis/node_connection.rs`.
const SILENCES: u32 = 2;
/// The error of a server that was a master and became a replica: `READ_ONLY` there.
const READ_ONLY: &str = "READONLY";

/// The way of one client to all servers: one link to each.
#[derive(Clone)]
pub struct RedisRoutes {
    redis: SimulatedRedis,
    links: Vec<SimulatedLink>,
    world: World,
    /// The time that a call may take.
    limit: Duration,
    compare: CompareBy,
}

impl RedisRoutes {
    /// Makes the routes. `links` has one link for each address of `redis`, in their order; the session runs in `process`.
    pub fn new(
        redis: SimulatedRedis,
        links: Vec<SimulatedLink>,
        process: SimulatedProcess,
        lease: Duration,
        compare: CompareBy,
    ) -> Self {
        RedisRoutes {
            redis,
            links,
            world: process.world(),
            limit: lease / CALLS_A_LEASE,
            compare,
        }
    }

    /// Begins the time of a call.
    fn limit(&self) -> WorldSleep {
        self.world.sleep(self.limit)
    }

    /// Connects to the server behind this address, and greets it.
    async fn dial(&self, server: usize) -> Result<Rc<Multiplexed>, SessionError> {
        let refused = |why: &str| SessionError::Definite(format!("no connection: {why}"));
        let connecting = async {
            let end = self.links[server].connect(self.redis.port(server)).await;
            let end = end.map_err(|_| "connection refused")?;
            let line = Multiplexed::begin(end);
            match line.ask(RedisCommand::Hello).await {
                Ok(_) => Ok(line),
                Err(ConnectionEnding::Reset) => Err("connection reset by peer"),
                Err(ConnectionEnding::Closed) => Err("the server closed the connection"),
            }
        };
        match first_of(connecting, self.limit()).await {
            Some(line) => line.map_err(refused),
            None => Err(refused("timed out")),
        }
    }
}

#[async_trait(?Send)]
impl RedisConnect for RedisRoutes {
    fn servers(&self) -> usize {
        self.links.len()
    }

    async fn connect(&self, server: usize) -> Result<Rc<dyn RedisSession>, SessionError> {
        Ok(Rc::new(RoutedSession {
            line: self.dial(server).await?,
            routes: self.clone(),
            server,
            silences: Cell::new(0),
        }))
    }
}

/// A connection with calls in order on it. A caller that waits for an answer reads what comes, for all callers.
struct Multiplexed {
    end: ClientSide<RedisRequest, RedisMessage>,
    state: RefCell<LineState>,
}

#[derive(Default)]
struct LineState {
    /// Requests so far.
    count: u64,
    /// Requests without an answer, by number, with the task that waits, and answers that were not taken yet; there are few.
    waiting: Vec<(u64, Option<Waker>)>,
    answers: Vec<(u64, RedisValue)>,
    published: VecDeque<String>,
    ending: Option<ConnectionEnding>,
}

/// Takes out the entry of the request with this number.
fn remove<T>(kept: &mut Vec<(u64, T)>, number: u64) -> Option<T> {
    let place = kept.iter().position(|(of, _)| *of == number)?;
    Some(kept.remove(place).1)
}

impl LineState {
    /// Takes a message; returns the waker of the task that waits for it.
    fn take(&mut self, message: RedisMessage) -> Option<Waker> {
        match message {
            RedisMessage::Reply { number, value, .. } => {
                let waiter = remove(&mut self.waiting, number)?;
                self.answers.push((number, value));
                waiter
            }
            RedisMessage::Published { message, .. } => {
                self.published.push_back(message);
                None
            }
            RedisMessage::Snapshot(..) | RedisMessage::Effect(_) => None,
        }
    }
}

impl Multiplexed {
    fn begin(end: ClientSide<RedisRequest, RedisMessage>) -> Rc<Self> {
        Rc::new(Multiplexed {
            end,
            state: RefCell::default(),
        })
    }

    /// Takes the messages that have arrived. The task is woken when more arrive.
    fn read(&self, task: &mut Context<'_>) {
        while let Poll::Ready(received) = self.end.poll_receive(task) {
            let mut state = self.state.borrow_mut();
            match received {
                Ok(message) => {
                    let waiter = state.take(message);
                    drop(state);
                    waiter.into_iter().for_each(Waker::wake);
                }
                Err(ending) => {
                    state.ending = Some(ending);
                    let waiting = std::mem::take(&mut state.waiting);
                    drop(state);
                    waiting.into_iter().filter_map(|(_, waker)| waker).for_each(Waker::wake);
                    return;
                }
            }
        }
    }

    /// Sends a command and waits for its answer. A caller that gives up leaves the command to happen.
    async fn ask(&self, command: RedisCommand) -> Result<RedisValue, ConnectionEnding> {
        self.read(&mut Context::from_waker(Waker::noop()));
        let number = {
            let mut state = self.state.borrow_mut();
            if let Some(ending) = state.ending {
                return Err(ending);
            }
            state.count += 1;
            let number = state.count;
            state.waiting.push((number, None));
            number
        };
        let _forgetting = Forgetting { line: self, number };
        self.end.send(RedisRequest { number, command });
        poll_fn(|task| {
            self.read(task);
            let mut state = self.state.borrow_mut();
            if let Some(answer) = remove(&mut state.answers, number) {
                return Poll::Ready(Ok(answer));
            }
            if let Some(ending) = state.ending {
                return Poll::Ready(Err(ending));
            }
            if let Some((_, waker)) = state.waiting.iter_mut().find(|(waits, _)| *waits == number) {
                keep_waker(waker, task);
            }
            Poll::Pending
        })
        .await
    }

    async fn next_message(&self) -> Option<String> {
        poll_fn(|task| {
            self.read(task);
            let mut state = self.state.borrow_mut();
            match (state.published.pop_front(), state.ending) {
                (None, None) => Poll::Pending,
                (message, _) => Poll::Ready(message),
            }
        })
        .await
    }
}

/// Forgets an answer that nobody waits for any more. One who still waits for another one reads from then on.
struct Forgetting<'a> {
    line: &'a Multiplexed,
    number: u64,
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        let mut state = self.line.state.borrow_mut();
        remove(&mut state.waiting, self.number);
        remove(&mut state.answers, self.number);
        let next = state.waiting.iter().find_map(|(_, waker)| waker.clone());
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

struct RoutedSession {
    routes: RedisRoutes,
    server: usize,
    line: Rc<Multiplexed>,
    /// Unanswered calls in a row.
    silences: Cell<u32>,
}

impl RoutedSession {
    async fn call(&self, command: RedisCommand) -> Result<RedisValue, SessionError> {
        let name = command.name();
        match first_of(self.line.ask(command), self.routes.limit()).await {
            Some(Ok(RedisValue::Error { code, text })) => {
                if code == READ_ONLY {
                    self.silences.set(SILENCES);
                }
                Err(SessionError::Definite(format!("{code}: {text}")))
            }
            Some(Ok(value)) => {
                self.silences.set(0);
                Ok(value)
            }
            Some(Err(ending)) => {
                self.silences.set(SILENCES);
                let how = match ending {
                    ConnectionEnding::Closed => "closed",
                    ConnectionEnding::Reset => "reset",
                };
                Err(SessionError::Indefinite(format!("{name}: the connection was {how}")))
            }
            None => {
                self.silences.set(self.silences.get() + 1);
                Err(SessionError::Indefinite(format!("{name}: timed out")))
            }
        }
    }

    async fn script(
        &self,
        script: RedisScript,
        key: &str,
        value: &str,
        ttl: u64,
        channel: &str,
    ) -> Result<bool, SessionError> {
        let call = RedisCommand::EvalSha(ScriptCall {
            script,
            key: key.to_owned(),
            value: value.to_owned(),
            ttl,
            channel: channel.to_owned(),
        });
        let answer = match self.call(call.clone()).await {
            Err(SessionError::Definite(error)) if error.starts_with("NOSCRIPT") => {
                self.call(RedisCommand::ScriptLoad(script)).await?;
                self.call(call).await?
            }
            answer => answer?,
        };
        is_one(&answer)
    }
}

fn is_one(answer: &RedisValue) -> Result<bool, SessionError> {
    match answer {
        RedisValue::Integer(number) => Ok(*number != 0),
        other => Err(SessionError::Definite(format!("an answer of another type: {other:?}"))),
    }
}

fn text(answer: RedisValue) -> Result<Option<String>, SessionError> {
    match answer {
        RedisValue::Nil => Ok(None),
        RedisValue::Text(text) => Ok(Some(text)),
        other => Err(SessionError::Definite(format!("an answer of another type: {other:?}"))),
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[async_trait(?Send)]
impl RedisSession for RoutedSession {
    fn is_broken(&self) -> bool {
        self.silences.get() >= SILENCES
    }

    async fn set_nx(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, SessionError> {
        let answer = self.call(RedisCommand::SetNx {
            key: key.to_owned(),
            value: value.to_owned(),
            ttl: ttl.map(ms),
        });
        Ok(answer.await? != RedisValue::Nil)
    }

    async fn get(&self, key: &str) -> Result<Option<String>, SessionError> {
        text(self.call(RedisCommand::Get { key: key.to_owned() }).await?)
    }

    async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>, SessionError> {
        let (key, value) = (key.to_owned(), value.to_owned());
        text(self.call(RedisCommand::GetSet { key, value }).await?)
    }

    async fn expire(&self, key: &str, ttl: Duration) -> Result<bool, SessionError> {
        let (key, ttl) = (key.to_owned(), ms(ttl));
        is_one(&self.call(RedisCommand::Pexpire { key, ttl }).await?)
    }

    async fn del(&self, key: &str) -> Result<bool, SessionError> {
        is_one(&self.call(RedisCommand::Del { key: key.to_owned() }).await?)
    }

    async fn del_if(&self, key: &str, value: &str) -> Result<bool, SessionError> {
        let CompareBy::Command = self.routes.compare else {
            return self.script(RedisScript::DelIf, key, value, 0, "").await;
        };
        let (key, value) = (key.to_owned(), value.to_owned());
        is_one(&self.call(RedisCommand::DelIfEq { key, value }).await?)
    }

    async fn del_if_and_publish(&self, key: &str, value: &str, channel: &str) -> Result<bool, SessionError> {
        self.script(RedisScript::DelIfAndPublish, key, value, 0, channel).await
    }

    async fn expire_if(&self, key: &str, value: &str, ttl: Duration) -> Result<bool, SessionError> {
        let CompareBy::Command = self.routes.compare else {
            return self.script(RedisScript::ExpireIf, key, value, ms(ttl), "").await;
        };
        let (key, value, ttl) = (key.to_owned(), value.to_owned(), ms(ttl));
        let answer = self.call(RedisCommand::SetIfEq { key, value, ttl });
        Ok(answer.await? != RedisValue::Nil)
    }

    async fn subscribe(&self, channel: &str) -> Result<Box<dyn Subscription>, SessionError> {
        let line = self.routes.dial(self.server).await?;
        let channel = channel.to_owned();
        let asked = line.ask(RedisCommand::Subscribe { channel });
        match first_of(asked, self.routes.limit()).await {
            Some(Ok(_)) => Ok(Box::new(RoutedSubscription(line))),
            _ => Err(SessionError::Indefinite("subscribe: no answer".into())),
        }
    }
}

struct RoutedSubscription(Rc<Multiplexed>);

#[async_trait(?Send)]
impl Subscription for RoutedSubscription {
    async fn next(&mut self) -> Option<String> {
        self.0.next_message().await
    }
}
