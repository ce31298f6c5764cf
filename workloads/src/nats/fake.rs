//! A fake NATS cluster for tests: a bucket of keys in memory, and faults on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep};

use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::SessionError;
use crate::session::nats::{KeyMessage, NatsConnect, NatsSession};
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
}

impl FakeStore for FakeNats {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Nats(make) = options.recipe.constructor else {
            panic!("not a recipe for NATS")
        };
        options.build(make, Rc::new(self.clone()), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.0.faults
    }
}

#[async_trait(?Send)]
impl NatsConnect for FakeNats {
    async fn connect(&self) -> Result<Rc<dyn NatsSession>, SessionError> {
        sleep(Duration::from_millis(1)).await;
        if self.0.is_down.get() {
            return Err(SessionError::Definite("no connection".into()));
        }
        Ok(Rc::new(FakeConnection {
            bucket: self.0.clone(),
            is_over: Cell::new(false),
        }))
    }
}

struct FakeConnection {
    bucket: Rc<FakeBucket>,
    is_over: Cell<bool>,
}

impl FakeConnection {
    async fn call<T>(&self, name: &'static str, work: impl FnOnce(&FakeBucket) -> T) -> Result<T, SessionError> {
        let bucket = &*self.bucket;
        let arrives = || match self.is_over.get() {
            true => Err(SessionError::Lost("the connection ended".into())),
            false => Ok(()),
        };
        let lose = || self.is_over.set(true);
        let work = async {
            if bucket.is_down.get() {
                sleep(LEASE / 3).await;
                lose();
                return None;
            }
            Some(work(bucket))
        };
        let answer = bucket.faults.call(name, arrives, work, lose).await?;
        answer.ok_or_else(|| SessionError::Indefinite(format!("{name}: no answer")))
    }
}

#[async_trait(?Send)]
impl NatsSession for FakeConnection {
    fn is_broken(&self) -> bool {
        self.is_over.get()
    }

    async fn make_bucket(&self, lease: Duration) -> Result<(), SessionError> {
        assert_eq!(lease, LEASE);
        self.call("make_bucket", |_| ()).await
    }

    async fn read(&self, key: &str) -> Result<Option<KeyMessage>, SessionError> {
        self.call("read", |bucket| bucket.last(key)).await
    }

    async fn put(&self, key: &str, value: &str, last: Option<u64>) -> Result<Option<u64>, SessionError> {
        self.call("put", |bucket| bucket.put(key, Some(value), last)).await
    }

    async fn mark_deleted(&self, key: &str, revision: u64) -> Result<bool, SessionError> {
        let mark = |bucket: &FakeBucket| bucket.put(key, None, Some(revision)).is_some();
        self.call("mark_deleted", mark).await
    }

    async fn remove(&self, revision: u64) -> Result<bool, SessionError> {
        let remove = |bucket: &FakeBucket| {
            let mut messages = bucket.messages.borrow_mut();
            messages.retain(|_, (_, ends)| *ends > Instant::now());
            let before = messages.len();
            messages.retain(|_, (message, _)| message.revision != revision);
            messages.len() < before
        };
        self.call("remove", remove).await
    }

    async fn purge(&self, key: &str) -> Result<bool, SessionError> {
        let purge = |bucket: &FakeBucket| {
            let there = bucket.last(key).is_some();
            bucket.messages.borrow_mut().remove(key);
            there
        };
        self.call("purge", purge).await
    }
}
