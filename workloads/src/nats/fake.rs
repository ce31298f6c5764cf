//! A fake NATS cluster for tests: a bucket of keys in memory, and faults on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use super::api::JetStreamError;
use super::{KeyAnswer, KeyDial, KeyLine, KeyMessage, KeyOutcome, KeyRequest, NatsError, NatsServers};
use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::{CALLS_A_LEASE, SessionError};
use crate::testing::{CallFaults, FakeStore, LEASE};

/// One bucket.
#[derive(Clone, Default)]
pub(super) struct FakeNats(Rc<FakeBucket>);

#[derive(Default)]
struct FakeBucket {
    revision: Cell<u64>,
    /// The message of each key, with the time at which it ends.
    messages: RefCell<BTreeMap<String, (KeyMessage, Instant)>>,
    faults: CallFaults,
    is_down: Cell<bool>,
}

impl FakeNats {
    /// Sets whether calls stay without an answer.
    pub(super) fn set_down(&self, is_down: bool) {
        self.0.is_down.set(is_down);
    }

    /// Returns the value of the key `l`, if it has one.
    pub(super) fn value(&self) -> Option<String> {
        let message = self.0.last("l").filter(|message| !message.deleted)?;
        Some(message.value)
    }

    pub(super) fn is_marked(&self) -> bool {
        self.0.last("l").is_some_and(|message| message.deleted)
    }
}

impl FakeBucket {
    fn last(&self, key: &str) -> Option<KeyMessage> {
        let messages = self.messages.borrow();
        let (message, ends) = messages.get(key)?;
        (*ends > Instant::now()).then(|| message.clone())
    }

    fn put(&self, key: &str, value: Option<&str>, last: Option<u64>) -> Option<u64> {
        let there = self.last(key).map_or(0, |message| message.revision);
        if last.is_some_and(|last| last != there) {
            return None;
        }
        let revision = self.revision.get() + 1;
        self.revision.set(revision);
        let message = KeyMessage {
            revision,
            value: value.unwrap_or_default().to_owned(),
            deleted: value.is_none(),
        };
        let ends = Instant::now() + LEASE;
        self.messages.borrow_mut().insert(key.to_owned(), (message, ends));
        Some(revision)
    }

    fn remove(&self, revision: u64) -> bool {
        let mut messages = self.messages.borrow_mut();
        messages.retain(|_, (_, ends)| *ends > Instant::now());
        let before = messages.len();
        messages.retain(|_, (message, _)| message.revision != revision);
        messages.len() < before
    }

    fn answer(&self, request: &KeyRequest) -> KeyOutcome {
        let other = || JetStreamError::new(400, 10071, "wrong last sequence");
        match request {
            KeyRequest::Make { age, .. } => {
                assert_eq!(*age, LEASE);
                Ok(KeyAnswer::Done)
            }
            KeyRequest::Read { key } => Ok(KeyAnswer::Last(self.last(key))),
            KeyRequest::Put { key, value, last } => {
                let put = self.put(key, value.as_deref(), *last);
                put.map(KeyAnswer::Number).ok_or_else(other)
            }
            KeyRequest::Remove { revision } => {
                let removed = self.remove(*revision);
                removed.then_some(KeyAnswer::Done).ok_or_else(other)
            }
            KeyRequest::Purge { key } => {
                let there = self.last(key).is_some();
                self.messages.borrow_mut().remove(key);
                Ok(KeyAnswer::Number(u64::from(there)))
            }
        }
    }
}

impl FakeStore for FakeNats {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Nats(make) = options.recipe.constructor else {
            panic!("not a recipe for NATS")
        };
        let (dial, host) = (Box::new(self.clone()), signals.host().clone());
        // an answer may be as late as its lease
        let servers = NatsServers::over(dial, LEASE * CALLS_A_LEASE, host);
        options.build(make, Rc::new(servers), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.0.faults
    }
}

#[async_trait(?Send)]
impl KeyDial for FakeNats {
    fn names(&self) -> &[String] {
        static NAMES: [String; 1] = [String::new()];
        &NAMES
    }

    async fn dial(&self, _server: usize) -> Result<Box<dyn KeyLine>, String> {
        sleep(Duration::from_millis(1)).await;
        match self.0.is_down.get() {
            true => Err("it is down".to_owned()),
            false => Ok(Box::new(self.clone())),
        }
    }
}

#[async_trait(?Send)]
impl KeyLine for FakeNats {
    async fn call(&mut self, request: &KeyRequest) -> Result<KeyOutcome, NatsError> {
        let name = match request {
            KeyRequest::Make { .. } => "make_bucket",
            KeyRequest::Read { .. } => "read",
            KeyRequest::Put { value: Some(_), .. } => "put",
            KeyRequest::Put { value: None, .. } => "mark_deleted",
            KeyRequest::Remove { .. } => "remove",
            KeyRequest::Purge { .. } => "purge",
        };
        let bucket = &*self.0;
        let work = async {
            if bucket.is_down.get() {
                sleep(LEASE / 3).await;
                return None;
            }
            Some(bucket.answer(request))
        };
        // its session does not ask again over a connection that was lost
        match bucket.faults.call(name, || Ok(()), work, || {}).await {
            Ok(Some(outcome)) => Ok(outcome),
            Ok(None) => Err(NatsError::Unanswered("no answer".to_owned())),
            Err(SessionError::Definite(why)) => Ok(Err(JetStreamError::new(503, 0, why))),
            Err(SessionError::Indefinite(why)) => Err(NatsError::Unanswered(why)),
            Err(SessionError::Lost(why)) => Err(NatsError::Unsent(why)),
        }
    }
}
