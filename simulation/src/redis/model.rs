//! A Redis or Valkey server as a pure state machine ([`RedisModel`]): it takes the time and a command, and returns the outcome.
//!
//! Keys expire by the server's wall clock, in milliseconds: a key is gone once the clock shows more than its time
//! (`keyIsExpired` in `db.c` of Redis 7.0). A master deletes an expired key when a command touches it, or on the next turn of its cron; a
//! replica answers as if it were gone and waits for the master to delete it.
//!
//! Not modelled: every command but those of the recipes, a time to live of 0, which no lease has, eviction, persistence (a server that is
//! started again has the data that the caller chooses), partial resynchronisation (a replica always takes a snapshot), `WAIT`, Sentinel and
//! Cluster, transactions.

use std::collections::{BTreeMap, BTreeSet};

use super::request::{RedisCommand, RedisEffect, RedisScript, RedisValue, ScriptCall};
use crate::mutants::is_mutant;

/// The connections that are subscribed to each channel.
type Subscribers = BTreeMap<String, BTreeSet<u64>>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredValue {
    value: String,
    /// By the wall clock, in milliseconds since 1970.
    expires: Option<u64>,
}

/// A change of a key, as a keyspace event and the value that a set wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisKeyEvent {
    Set {
        value: String,
    },
    /// It has a new time to live.
    Expire,
    Deleted,
    Expired,
}

/// The effects of a command besides its answer.
#[derive(Debug, Default)]
pub struct RedisOutcome {
    /// For the connections of these numbers: messages of a channel.
    pub published: Vec<(u64, String, String)>,
    /// For the replicas.
    pub effects: Vec<RedisEffect>,
    /// Keys that changed, in order.
    pub changes: Vec<(String, RedisKeyEvent)>,
}

/// One server's data, scripts and subscriptions.
#[derive(Debug, Default)]
pub struct RedisModel {
    keys: BTreeMap<String, StoredValue>,
    scripts: BTreeSet<RedisScript>,
    subscribers: Subscribers,
    is_replica: bool,
    /// Changes so far, its master's among them.
    offset: u64,
}

const READ_ONLY: RedisValue = RedisValue::Error {
    code: "READONLY",
    text: "You can't write against a read only replica.",
};
const NO_SCRIPT: RedisValue = RedisValue::Error {
    code: "NOSCRIPT",
    text: "No matching script. Please use EVAL.",
};

fn integer(happened: bool) -> RedisValue {
    RedisValue::Integer(i64::from(happened))
}

impl RedisModel {
    /// Executes a command of a connection. `now` is the wall clock, in milliseconds since 1970.
    pub fn execute(&mut self, now: u64, connection: u64, command: &RedisCommand) -> (RedisValue, RedisOutcome) {
        let mut out = RedisOutcome::default();
        let answer = match command {
            RedisCommand::SetNx { .. }
            | RedisCommand::SetIfEq { .. }
            | RedisCommand::DelIfEq { .. }
            | RedisCommand::GetSet { .. }
            | RedisCommand::Pexpire { .. }
            | RedisCommand::Del { .. }
                if self.is_replica && !is_mutant("redis: a replica takes writes") =>
            {
                READ_ONLY
            }
            RedisCommand::Hello | RedisCommand::Psync => RedisValue::Okay,
            RedisCommand::SetNx { key, value, ttl } => self.set_nx(now, key, value, *ttl, &mut out),
            RedisCommand::SetIfEq { key, value, ttl } => {
                let same = self.get(now, key, &mut out) == Some(value);
                if same || is_mutant("valkey: SET IFEQ does not compare") {
                    self.set(key, value, Some(now + ttl), &mut out);
                    RedisValue::Okay
                } else {
                    RedisValue::Nil
                }
            }
            RedisCommand::DelIfEq { key, value } => {
                let same = self.get(now, key, &mut out) == Some(value);
                let deletes = same || is_mutant("valkey: DELIFEQ does not compare");
                integer(deletes && self.delete(now, key, &mut out))
            }
            RedisCommand::Get { key } => {
                let value = self.get(now, key, &mut out);
                value.map_or(RedisValue::Nil, |value| RedisValue::Text(value.to_owned()))
            }
            RedisCommand::GetSet { key, value } => self.get_set(now, key, value, &mut out),
            RedisCommand::Pexpire { key, ttl } => integer(self.expire(now, key, *ttl, &mut out)),
            RedisCommand::Del { key } => {
                let existed = self.delete(now, key, &mut out);
                integer(existed || is_mutant("redis: DEL of nothing counts"))
            }
            RedisCommand::ScriptLoad(script) => {
                self.scripts.insert(*script);
                RedisValue::Okay
            }
            RedisCommand::EvalSha(call) if !self.scripts.contains(&call.script) => NO_SCRIPT,
            RedisCommand::EvalSha(call) => self.script(now, call, &mut out),
            RedisCommand::Subscribe { channel } => {
                let subscribers = self.subscribers.entry(channel.clone()).or_default();
                subscribers.insert(connection);
                RedisValue::Okay
            }
        };
        self.offset += out.effects.len() as u64;
        (answer, out)
    }

    fn set_nx(&mut self, now: u64, key: &str, value: &str, ttl: Option<u64>, out: &mut RedisOutcome) -> RedisValue {
        if self.get(now, key, out).is_some() && !is_mutant("redis: NX is ignored") {
            return RedisValue::Nil;
        }
        let ttl = ttl.filter(|_| !is_mutant("redis: PX is ignored"));
        self.set(key, value, ttl.map(|ttl| now + ttl), out);
        RedisValue::Okay
    }

    fn get_set(&mut self, now: u64, key: &str, value: &str, out: &mut RedisOutcome) -> RedisValue {
        let expires = self.keys.get(key).and_then(|stored| stored.expires);
        let before = self.get(now, key, out).map(str::to_owned);
        let kept = expires.filter(|_| is_mutant("redis: GETSET keeps the time to live"));
        self.set(key, value, kept, out);
        before.map_or(RedisValue::Nil, RedisValue::Text)
    }

    fn script(&mut self, now: u64, call: &ScriptCall, out: &mut RedisOutcome) -> RedisValue {
        let same = self.get(now, &call.key, out) == Some(&*call.value);
        if !same && !is_mutant("redis: a script does not compare") {
            return RedisValue::Integer(0);
        }
        if self.is_replica {
            return READ_ONLY;
        }
        match call.script {
            RedisScript::DelIf => integer(self.delete(now, &call.key, out)),
            RedisScript::DelIfAndPublish => {
                self.delete(now, &call.key, out);
                self.publish(&call.channel, &call.value, out);
                RedisValue::Integer(1)
            }
            RedisScript::ExpireIf => integer(self.expire(now, &call.key, call.ttl, out)),
        }
    }

    /// Returns the value of a key that has not expired.
    fn get(&mut self, now: u64, key: &str, out: &mut RedisOutcome) -> Option<&str> {
        let is_over = is_over(self.keys.get(key)?, now);
        if is_over && !self.is_replica {
            self.drop_expired(key, out);
        }
        let stored = self.keys.get(key).filter(|_| !is_over);
        stored.map(|stored| &*stored.value)
    }

    fn set(&mut self, key: &str, value: &str, expires: Option<u64>, out: &mut RedisOutcome) {
        let stored = StoredValue {
            value: value.to_owned(),
            expires,
        };
        self.keys.insert(key.to_owned(), stored);
        out.changed(
            key,
            RedisKeyEvent::Set {
                value: value.to_owned(),
            },
        );
        out.effects.push(RedisEffect::Set {
            key: key.to_owned(),
            value: value.to_owned(),
            expires,
        });
    }

    fn expire(&mut self, now: u64, key: &str, ttl: u64, out: &mut RedisOutcome) -> bool {
        if self.get(now, key, out).is_none() {
            return false;
        }
        let expires = now + ttl;
        if is_mutant("redis: PEXPIRE changes nothing") {
            return true;
        }
        if let Some(stored) = self.keys.get_mut(key) {
            stored.expires = Some(expires);
        }
        out.changed(key, RedisKeyEvent::Expire);
        out.effects.push(RedisEffect::ExpireAt {
            key: key.to_owned(),
            expires,
        });
        true
    }

    fn delete(&mut self, now: u64, key: &str, out: &mut RedisOutcome) -> bool {
        let existed = self.get(now, key, out).is_some();
        if existed {
            self.keys.remove(key);
            out.changed(key, RedisKeyEvent::Deleted);
            out.effects.push(RedisEffect::Delete { key: key.to_owned() });
        }
        existed
    }

    fn publish(&mut self, channel: &str, message: &str, out: &mut RedisOutcome) {
        self.spread(channel, message, out);
        out.effects.push(RedisEffect::Publish {
            channel: channel.to_owned(),
            message: message.to_owned(),
        });
    }

    /// Publishes a message to the subscribers of a channel.
    fn spread(&self, channel: &str, message: &str, out: &mut RedisOutcome) {
        let subscribers = self.subscribers.get(channel).into_iter().flatten();
        let subscribers = subscribers.filter(|_| !is_mutant("redis: nothing is published"));
        out.published
            .extend(subscribers.map(|connection| (*connection, channel.to_owned(), message.to_owned())));
    }

    fn drop_expired(&mut self, key: &str, out: &mut RedisOutcome) {
        self.keys.remove(key);
        out.changed(key, RedisKeyEvent::Expired);
        out.effects.push(RedisEffect::Delete { key: key.to_owned() });
    }

    /// Deletes keys that have expired, as the cron of a master does.
    pub fn expire_due(&mut self, now: u64) -> RedisOutcome {
        let mut out = RedisOutcome::default();
        if self.is_replica {
            return out;
        }
        let due = self.keys.iter().filter(|(_, stored)| is_over(stored, now));
        let due: Vec<String> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.drop_expired(&key, &mut out);
        }
        self.offset += out.effects.len() as u64;
        out
    }

    /// Returns the time at which the next key is over, by the wall clock in milliseconds; for a replica never.
    pub fn next_deadline(&self) -> Option<u64> {
        let ends = self.keys.values().filter_map(|stored| stored.expires);
        ends.min().filter(|_| !self.is_replica).map(|end| end + 1)
    }

    /// Notes that a connection is over.
    pub fn disconnected(&mut self, connection: u64) {
        self.subscribers.retain(|_, subscribers| {
            subscribers.remove(&connection);
            !subscribers.is_empty()
        });
    }

    /// Whether it is a replica, which takes no writes but its master's.
    pub fn is_replica(&self) -> bool {
        self.is_replica
    }

    pub fn set_replica(&mut self, is_replica: bool) {
        self.is_replica = is_replica;
    }

    /// Returns how many changes it has seen: a replica that has as many as its master is in step.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// Returns all data, as effects on an empty store.
    pub fn snapshot(&self) -> Vec<RedisEffect> {
        let keys = self.keys.iter();
        keys.map(|(key, stored)| RedisEffect::Set {
            key: key.clone(),
            value: stored.value.clone(),
            expires: stored.expires,
        })
        .collect()
    }

    /// Takes a snapshot of the master in place of its own data.
    pub fn load(&mut self, snapshot: &[RedisEffect], offset: u64) {
        self.keys.clear();
        for effect in snapshot {
            self.apply(effect);
        }
        self.offset = offset;
    }

    /// Applies an effect of its master.
    pub fn apply(&mut self, effect: &RedisEffect) -> RedisOutcome {
        let mut out = RedisOutcome::default();
        match effect {
            RedisEffect::Set { key, value, expires } => self.set(key, value, *expires, &mut out),
            RedisEffect::ExpireAt { key, expires } => {
                if let Some(stored) = self.keys.get_mut(key) {
                    stored.expires = Some(*expires);
                    out.changed(key, RedisKeyEvent::Expire);
                }
            }
            RedisEffect::Delete { key } => {
                if self.keys.remove(key).is_some() {
                    out.changed(key, RedisKeyEvent::Deleted);
                }
            }
            RedisEffect::Publish { channel, message } => self.spread(channel, message, &mut out),
        }
        out.effects = vec![effect.clone()];
        self.offset += 1;
        out
    }

    /// Loses all data, as a server does that is started again without persistence; scripts and subscriptions go in any case.
    pub fn restart(&mut self, keeps_data: bool) {
        if !keeps_data {
            self.keys.clear();
            self.offset = 0;
        }
        self.scripts.clear();
        self.subscribers.clear();
    }
}

impl RedisOutcome {
    fn changed(&mut self, key: &str, event: RedisKeyEvent) {
        self.changes.push((key.to_owned(), event));
    }
}

fn is_over(stored: &StoredValue, now: u64) -> bool {
    stored.expires.is_some_and(|end| now > end)
}
