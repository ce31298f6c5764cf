//! One client process under `harness client-check`: requests with the time of their answers, and its signals.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use harness_workloads::Contract;
use harness_workloads::protocol::{AcquireRequest, ClientOp, LockSignal, Message, OpenRequest};
use tokio::sync::SetOnce;

use super::{CheckPlace, ClientCheck, in_words};
use crate::clock::GroundClock;
use crate::run::clients::child::{ChildEvent, ClientChild, OnChildEvent};

/// Time until a child's end is noticed.
const END: Duration = Duration::from_secs(5);

pub struct CheckedClient {
    pub number: u32,
    clock: GroundClock,
    child: Arc<dyn ClientChild>,
    open: OpenRequest,
    limit: Duration,
    patience: Duration,
    /// Its answer to `open`.
    pub contract: Option<Contract>,
    signals: Arc<Mutex<Vec<LockSignal>>>,
    /// The reason for which its process ended by itself.
    over: Arc<SetOnce<String>>,
    started_ns: u64,
    /// It left a request without an answer, and gets no further one.
    silent: AtomicBool,
}

/// A grant as its client reported it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedGrant {
    pub token: Option<u64>,
    pub owner: Option<String>,
}

impl ReportedGrant {
    /// Returns `owner 0x1, token 7`; `nobody` takes the place of a missing owner.
    pub fn in_words(&self, nobody: &str) -> String {
        let owner = self.owner.as_deref().unwrap_or(nobody);
        let token = self.token.map_or("none".into(), |token| token.to_string());
        format!("owner {owner}, token {token}")
    }
}

/// The answer to a request, with the time that it took.
#[derive(Debug)]
pub struct TimedAnswer {
    pub answer: Result<ReportedGrant, CheckRefusal>,
    pub after: Duration,
}

/// An answer that is not `ok`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckRefusal {
    #[error("`fail` with `{0}`")]
    Fail(String),
    #[error("`info` with `{0}`")]
    Info(String),
    /// There was no answer, for this reason.
    #[error("{0}")]
    None(String),
}

impl TimedAnswer {
    /// Returns the answer and its time in words.
    pub fn in_words(&self) -> String {
        let after = in_words(self.after);
        match &self.answer {
            Ok(_) => format!("`ok` after {after}"),
            Err(refusal) => format!("{refusal} after {after}"),
        }
    }

    pub fn is_ok(&self) -> bool {
        self.answer.is_ok()
    }
}

impl CheckedClient {
    /// Starts a client process for the servers at `endpoints`.
    pub async fn start(
        check: &ClientCheck,
        place: &CheckPlace,
        number: u32,
        endpoints: Vec<String>,
    ) -> Result<Self, String> {
        let signals: Arc<Mutex<Vec<LockSignal>>> = Arc::default();
        let over: Arc<SetOnce<String>> = Arc::default();
        let (raised, ended) = (Arc::clone(&signals), Arc::clone(&over));
        let on_event: OnChildEvent = Arc::new(move |event| match event {
            ChildEvent::Signal(signal) => raised.lock().unwrap_or_else(PoisonError::into_inner).push(signal),
            ChildEvent::Over { error, .. } => drop(ended.set(error.to_string())),
        });
        let clock = place.clock;
        let started_ns = clock.now_ns();
        let child = place.spawner.start(number, &check.log, on_event).await;
        Ok(Self {
            number,
            clock,
            child: child.map_err(|error| error.to_string())?,
            open: OpenRequest::plain(check.config.backend.name(), endpoints, check.config.lease),
            limit: check.config.open_limit,
            patience: check.config.patience(),
            contract: None,
            signals,
            over,
            started_ns,
            silent: AtomicBool::new(false),
        })
    }

    pub async fn open(&mut self) -> TimedAnswer {
        let open = ClientOp::Open(self.open.clone());
        let mut answered = None;
        let asking = async {
            let reply = self.child.ask(self.number, open).await;
            if let Some(Message::Ok { contract, .. }) = &reply {
                answered = contract.as_deref().cloned();
            }
            reply
        };
        let answer = self.timed(self.limit, asking).await;
        self.contract = answered;
        answer
    }

    pub async fn acquire(&self, lock: &str, wait: Duration, read: bool) -> TimedAnswer {
        let permits = self.contract.as_ref().and_then(|contract| contract.permits);
        let op = ClientOp::Acquire(AcquireRequest {
            lock: lock.to_owned(),
            wait_ms: wait.as_millis() as u64,
            mode: read.then(|| "read".to_owned()),
            permits: permits.map(|_| 1),
        });
        self.ask(op, wait + self.patience).await
    }

    pub async fn release(&self, lock: &str) -> TimedAnswer {
        self.ask(ClientOp::Release { lock: lock.to_owned() }, self.patience)
            .await
    }

    pub async fn extend(&self, lock: &str) -> TimedAnswer {
        self.ask(ClientOp::Extend { lock: lock.to_owned() }, self.patience)
            .await
    }

    /// Releases a lock that it should not have got.
    pub async fn give_back(&self, answer: &TimedAnswer, lock: &str) {
        if answer.is_ok() {
            self.release(lock).await;
        }
    }

    pub async fn close(&self) -> TimedAnswer {
        self.ask(ClientOp::Close, self.patience).await
    }

    /// Requests an operation that does not exist.
    pub async fn request_unknown_operation(&self) -> TimedAnswer {
        let client = self.number;
        let words = move |id| format!(r#"{{"id":{id},"client":{client},"op":"no-such-operation"}}"#).into_bytes();
        let asking = self.child.ask_in_words(Box::new(words));
        self.timed(self.patience, asking).await
    }

    /// Sends a line as it is.
    pub async fn send(&self, line: &str) {
        // the next request notices a client that reads no more
        let _ = self.child.write_line(line.as_bytes().to_vec()).await;
    }

    /// Whether it left a request without an answer.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Relaxed)
    }

    /// Returns the reason for which its process ended by itself, if it did.
    pub fn ended(&self) -> Option<String> {
        self.over.get().cloned()
    }

    async fn ask(&self, op: ClientOp, within: Duration) -> TimedAnswer {
        if self.is_silent() {
            let why = "it left an earlier request without an answer".to_owned();
            let (answer, after) = (Err(CheckRefusal::None(why)), Duration::ZERO);
            return TimedAnswer { answer, after };
        }
        self.timed(within, self.child.ask(self.number, op)).await
    }

    /// Waits for the reply to a request; returns it with the time that it took.
    async fn timed(&self, within: Duration, asking: impl Future<Output = Option<Message>>) -> TimedAnswer {
        let asked = self.clock.now_ns();
        let reply = self.clock.within(within, asking).await;
        let after = Duration::from_nanos(self.clock.now_ns().saturating_sub(asked));
        self.silent.fetch_or(!matches!(reply, Some(Some(_))), Relaxed);
        let answer = match reply {
            Some(Some(Message::Ok { token, owner, .. })) => Ok(ReportedGrant { token, owner }),
            Some(Some(Message::Fail { error, .. })) => Err(CheckRefusal::Fail(error.to_string())),
            Some(Some(Message::Info { error, .. })) => Err(CheckRefusal::Info(error)),
            Some(Some(Message::Signal(_))) => unreachable!("a signal is never a reply"),
            Some(None) => {
                let why = self.why_it_is_over().await;
                Err(CheckRefusal::None(
                    why.unwrap_or_else(|| "it closed its input".to_owned()),
                ))
            }
            None => Err(CheckRefusal::None(format!("no answer within {}", in_words(within)))),
        };
        TimedAnswer { answer, after }
    }

    /// Returns the reason for the end of the process, after that end.
    async fn why_it_is_over(&self) -> Option<String> {
        self.clock.within(END, self.over.wait()).await.cloned()
    }

    /// Kills it, with all processes that it started.
    pub fn kill(&self) {
        self.child.kill();
    }

    /// Ends its input; returns whether it ends by itself.
    pub async fn end_input(&self) -> bool {
        self.child.close_input().await;
        self.why_it_is_over().await.is_some()
    }

    pub async fn end(self) {
        self.child.end().await;
    }

    /// Returns the signals so far, or a sentence about the first with a wrong client or time.
    pub fn signals(&self) -> Result<Vec<LockSignal>, String> {
        let signals = self.signals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let now = self.clock.now_ns();
        for signal in &signals {
            if signal.client != self.number {
                return Err(format!(
                    "a signal names client {}, which it does not serve",
                    signal.client
                ));
            }
            if !(self.started_ns..=now).contains(&signal.at) {
                return Err(format!(
                    "a signal has the time {}, which is not a CLOCK_MONOTONIC time of this machine in nanoseconds (now {now})",
                    signal.at
                ));
            }
        }
        Ok(signals)
    }
}
