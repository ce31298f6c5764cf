//! Fake Redis servers for tests: keys with a time to live in memory, and faults on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::SessionError;
use crate::session::redis::{CompareBy, RedisConnect, RedisSession, Subscription};
use crate::testing::{CallFaults, FakeStore, LEASE};

/// Any number of servers, independent of each other.
#[derive(Clone)]
pub(super) struct FakeRedis(Rc<Vec<FakeServer>>, CompareBy);

struct FakeServer {
    keys: RefCell<BTreeMap<String, (String, Option<Instant>)>>,
    faults: CallFaults,
    down: Cell<bool>,
    commands: RefCell<Vec<&'static str>>,
    channel: broadcast::Sender<String>,
}

impl FakeRedis {
    pub(super) fn new(servers: usize) -> Self {
        let server = |_| FakeServer {
            keys: RefCell::default(),
            faults: CallFaults::default(),
            down: Cell::new(false),
            commands: RefCell::default(),
            channel: broadcast::channel(16).0,
        };
        FakeRedis(Rc::new((0..servers).map(server).collect()), CompareBy::Script)
    }

    pub(super) fn set_down(&self, server: usize, down: bool) {
        self.0[server].down.set(down);
    }

    /// Returns the value of the lock `l` on the first server.
    pub(super) fn value(&self) -> Option<String> {
        self.0[0].get("harness:l")
    }

    pub(super) fn set(&self, value: &str) {
        self.0[0]
            .keys
            .borrow_mut()
            .insert("harness:l".into(), (value.into(), None));
    }

    pub(super) fn commands(&self) -> Vec<&'static str> {
        self.0[0].commands.take()
    }
}

impl FakeServer {
    fn get(&self, key: &str) -> Option<String> {
        let mut keys = self.keys.borrow_mut();
        keys.retain(|_, (_, end)| end.is_none_or(|end| end > Instant::now()));
        keys.get(key).map(|(value, _)| value.clone())
    }

    fn set(&self, key: &str, value: &str, ttl: Option<Duration>) {
        let end = ttl.map(|ttl| Instant::now() + ttl);
        self.keys.borrow_mut().insert(key.to_owned(), (value.to_owned(), end));
    }

    fn expire(&self, key: &str, ttl: Duration) -> bool {
        let value = self.get(key);
        value.map(|value| self.set(key, &value, Some(ttl))).is_some()
    }

    fn del(&self, key: &str) -> bool {
        self.get(key).is_some() && self.keys.borrow_mut().remove(key).is_some()
    }
}

impl FakeStore for FakeRedis {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Redis(make, compare) = options.recipe.constructor else {
            panic!("not a redis recipe")
        };
        options.build(make, Rc::new(Self(self.0.clone(), compare)), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.0[0].faults
    }
}

#[async_trait(?Send)]
impl RedisConnect for FakeRedis {
    fn servers(&self) -> usize {
        self.0.len()
    }

    async fn connect(&self, server: usize) -> Result<Rc<dyn RedisSession>, SessionError> {
        if self.0[server].down.get() {
            return Err(SessionError::Definite("connection refused".into()));
        }
        Ok(Rc::new(FakeRedisSession {
            redis: self.clone(),
            server,
            broken: Cell::new(false),
        }))
    }
}

struct FakeRedisSession {
    redis: FakeRedis,
    server: usize,
    broken: Cell<bool>,
}

impl FakeRedisSession {
    async fn call<T>(&self, name: &'static str, work: impl FnOnce(&FakeServer) -> T) -> Result<T, SessionError> {
        let server = &self.redis.0[self.server];
        server.commands.borrow_mut().push(name);
        let lose = || self.broken.set(true);
        let arrives = || match server.down.get() || self.broken.get() {
            true => {
                lose();
                Err(SessionError::Indefinite(format!("{name}: the connection ended")))
            }
            false => Ok(()),
        };
        server.faults.call(name, arrives, async { work(server) }, lose).await
    }
}

#[async_trait(?Send)]
impl RedisSession for FakeRedisSession {
    fn is_broken(&self) -> bool {
        self.broken.get()
    }

    async fn set_nx(&self, key: &str, value: &str, ttl: Option<Duration>) -> Result<bool, SessionError> {
        let set = |server: &FakeServer| {
            let free = server.get(key).is_none();
            if free {
                server.set(key, value, ttl);
            }
            free
        };
        self.call("SET", set).await
    }

    async fn get(&self, key: &str) -> Result<Option<String>, SessionError> {
        self.call("GET", |server| server.get(key)).await
    }

    async fn get_set(&self, key: &str, value: &str) -> Result<Option<String>, SessionError> {
        let get_set = |server: &FakeServer| {
            let before = server.get(key);
            server.set(key, value, None);
            before
        };
        self.call("GETSET", get_set).await
    }

    async fn expire(&self, key: &str, ttl: Duration) -> Result<bool, SessionError> {
        self.call("PEXPIRE", |server| server.expire(key, ttl)).await
    }

    async fn del(&self, key: &str) -> Result<bool, SessionError> {
        self.call("DEL", |server| server.del(key)).await
    }

    async fn del_if(&self, key: &str, value: &str) -> Result<bool, SessionError> {
        let name = match self.redis.1 {
            CompareBy::Script => "EVALSHA",
            CompareBy::Command => "DELIFEQ",
        };
        let release = |server: &FakeServer| server.get(key).as_deref() == Some(value) && server.del(key);
        self.call(name, release).await
    }

    async fn del_if_and_publish(&self, key: &str, value: &str, _channel: &str) -> Result<bool, SessionError> {
        let release = |server: &FakeServer| {
            let deleted = server.get(key).as_deref() == Some(value) && server.del(key);
            if deleted {
                let _ = server.channel.send(value.to_owned());
            }
            deleted
        };
        self.call("EVALSHA", release).await
    }

    async fn expire_if(&self, key: &str, value: &str, ttl: Duration) -> Result<bool, SessionError> {
        let renew = |server: &FakeServer| server.get(key).as_deref() == Some(value) && server.expire(key, ttl);
        let name = match self.redis.1 {
            CompareBy::Script => "RENEW",
            CompareBy::Command => "SET IFEQ",
        };
        self.call(name, renew).await
    }

    async fn subscribe(&self, _channel: &str) -> Result<Box<dyn Subscription>, SessionError> {
        Ok(Box::new(FakeSubscription(
            self.redis.0[self.server].channel.subscribe(),
        )))
    }
}

struct FakeSubscription(broadcast::Receiver<String>);

#[async_trait(?Send)]
impl Subscription for FakeSubscription {
    async fn next(&mut self) -> Option<String> {
        self.0.recv().await.ok()
    }
}
