//! Keyspaces of simulated Redis servers for the observers ([`ModelKeyspaces`]).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use harness_simulation::SimulatedServers;
use harness_simulation::redis::model::RedisKeyEvent;
use harness_simulation::redis::{RedisKeyChange, SimulatedRedis};
use tokio::sync::mpsc;

use super::ground::server_at;
use crate::backends::keyspace::{KeyChange, Keyspace, OpeningKeyspace};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::Unasked;

/// The keyspaces of all servers.
#[derive(Clone)]
pub struct ModelKeyspaces {
    redis: SimulatedRedis,
    listening: Arc<Mutex<Vec<Listener>>>,
}

/// An observer that receives the changes on one server.
struct Listener {
    server: usize,
    changes: mpsc::UnboundedSender<(String, RedisKeyEvent)>,
}

impl ModelKeyspaces {
    /// Receives every change from now on.
    pub fn of(redis: SimulatedRedis) -> Self {
        let listening: Arc<Mutex<Vec<Listener>>> = Arc::default();
        let told = Arc::clone(&listening);
        redis.on_change(move |change: &RedisKeyChange| {
            let mut listening = told.lock().expect("no one panics while telling of a change");
            let heard = || (change.key.clone(), change.event.clone());
            // a dropped receiver is removed
            listening.retain(|to| to.server != change.server || to.changes.send(heard()).is_ok());
        });
        Self { redis, listening }
    }

    /// Ends the observers of a server.
    pub fn close(&self, server: usize) {
        let mut listening = self.listening.lock().expect("no one panics while telling of a change");
        listening.retain(|listener| listener.server != server);
    }

    /// Opens the keyspace of the server at this address.
    pub fn open(&self, server: SocketAddr, keys: &LockKeys) -> OpeningKeyspace {
        let runs = |server: &usize| *server < self.redis.count() && self.redis.is_running(*server);
        let running = server_at(server).filter(runs);
        let running = running.ok_or_else(|| "the server does not run".to_owned());
        let opened = running.map(|server| {
            let (changes, heard) = mpsc::unbounded_channel();
            let mut listening = self.listening.lock().expect("no one panics while telling of a change");
            listening.push(Listener { server, changes });
            let keys = keys.clone();
            Box::new(ModelKeyspace {
                redis: self.redis,
                server,
                keys,
                heard,
                ahead: VecDeque::new(),
            }) as Box<dyn Keyspace>
        });
        Box::pin(std::future::ready(opened))
    }
}

/// The keyspace of one server, as long as it runs.
struct ModelKeyspace {
    redis: SimulatedRedis,
    server: usize,
    keys: LockKeys,
    heard: mpsc::UnboundedReceiver<(String, RedisKeyEvent)>,
    /// Events that came before the answer to a query.
    ahead: VecDeque<(String, KeyChange)>,
}

impl ModelKeyspace {
    /// Returns the meaning of an event for a lock, if its key is that of one.
    fn change(&self, key: &str, event: &RedisKeyEvent) -> Option<(String, KeyChange)> {
        let change = match event {
            RedisKeyEvent::Set { .. } => KeyChange::Written,
            RedisKeyEvent::Expire => return None,
            RedisKeyEvent::Deleted => KeyChange::Gone(Unasked::Deleted),
            RedisKeyEvent::Expired => KeyChange::Gone(Unasked::Expired),
        };
        Some((self.keys.lock_at(key)?, change))
    }

    fn owner(&mut self, lock: &str) -> Option<String> {
        while let Ok((key, event)) = self.heard.try_recv() {
            self.ahead.extend(self.change(&key, &event));
        }
        let overtaken = self.ahead.iter().any(|(other, _)| other == lock);
        let owner = self.redis.value(self.server, &self.keys.pattern.key(lock));
        owner.filter(|_| !overtaken)
    }
}

#[async_trait]
impl Keyspace for ModelKeyspace {
    async fn event(&mut self) -> Result<(String, KeyChange), String> {
        loop {
            if let Some(event) = self.ahead.pop_front() {
                return Ok(event);
            }
            let (key, event) = self.heard.recv().await.ok_or("the server went")?;
            self.ahead.extend(self.change(&key, &event));
        }
    }

    async fn owner_of(&mut self, lock: &str) -> Result<Option<String>, String> {
        Ok(self.owner(lock))
    }

    async fn held(&mut self) -> Result<Vec<(String, String)>, String> {
        let keys = self.redis.keys(self.server);
        let locks: Vec<String> = keys.iter().filter_map(|key| self.keys.lock_at(key)).collect();
        let held = locks.into_iter().filter_map(|lock| {
            let owner = self.owner(&lock)?;
            Some((lock, owner))
        });
        Ok(held.collect())
    }
}
