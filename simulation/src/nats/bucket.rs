//! The bucket of one server ([`NatsBucket`]): the last message of each key, and the end of messages by their age.
//!
//! A message has the time at which the leader took it, and each server ends it by its own clock, unasked (`expireMsgs`,
//! `server/filestore.go`). A message whose age is over is read until then.

use std::collections::BTreeMap;

use harness_workloads::nats::api::JetStreamError;
use harness_workloads::nats::{KeyAnswer, KeyMessage, KeyOutcome};

use crate::mutants::is_mutant;

/// The least time between two looks for messages that are too old: `resetAgeChk`, `server/filestore.go` of 2.10 and later.
const AGE_LOOK: u64 = 250_000_000;

/// A change of a bucket that servers have agreed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BucketChange {
    /// `written` is the time at which the leader took it, in nanoseconds since 1970.
    Put {
        key: String,
        message: KeyMessage,
        written: u64,
    },
    Remove {
        revision: u64,
    },
    Purge {
        key: String,
    },
}

#[derive(Debug)]
struct AgedMessage {
    message: KeyMessage,
    written: u64,
}

/// The data of one server. Times are of a wall clock, in nanoseconds since 1970.
#[derive(Debug, Default)]
pub struct NatsBucket {
    /// By key.
    messages: BTreeMap<String, AgedMessage>,
    /// The age at which a message ends; 0: there is no bucket.
    max_age: u64,
    /// The time of its next look, if it has messages.
    looks_at: Option<u64>,
}

impl NatsBucket {
    /// Makes the bucket.
    pub fn make(&mut self, max_age: u64) {
        self.max_age = max_age;
    }

    /// Applies a change that was agreed on, and returns the leader's answer.
    pub fn apply(&mut self, now: u64, change: &BucketChange) -> KeyOutcome {
        match change {
            BucketChange::Put { key, message, written } => {
                self.put(now, key, message, *written);
                Ok(KeyAnswer::Number(message.revision))
            }
            BucketChange::Remove { revision } => {
                let is_it = |aged: &AgedMessage| aged.message.revision == *revision;
                let is_there = self.messages.values().any(is_it);
                if !is_mutant("nats: a removed message stays") {
                    self.messages.retain(|_, aged| !is_it(aged));
                }
                is_there.then_some(KeyAnswer::Done).ok_or_else(no_message)
            }
            BucketChange::Purge { key } => {
                let there = self.messages.remove(key).is_some();
                let counted = there || is_mutant("nats: a purge of nothing counts");
                Ok(KeyAnswer::Number(u64::from(counted)))
            }
        }
    }

    fn put(&mut self, now: u64, key: &str, message: &KeyMessage, written: u64) {
        let before = self.messages.get(key).map(|aged| aged.written);
        let kept = before.filter(|_| is_mutant("nats: a write over another keeps its age"));
        let aged = AgedMessage {
            message: message.clone(),
            written: kept.unwrap_or(written),
        };
        self.messages.insert(key.to_owned(), aged);
        // `startAgeChk`
        self.looks_at.get_or_insert(now + self.max_age);
    }

    /// Returns the last message of a key.
    pub fn last(&self, key: &str) -> Option<&KeyMessage> {
        let aged = self.messages.get(key)?;
        let hidden = aged.message.deleted && is_mutant("nats: a delete marker is no message");
        (!hidden).then_some(&aged.message)
    }

    /// Returns all messages by key.
    pub fn messages(&self) -> impl Iterator<Item = (&str, &KeyMessage)> {
        let all = self.messages.iter();
        all.map(|(key, aged)| (key.as_str(), &aged.message))
    }

    /// Ends messages that are too old, if it looks now; returns whether it does.
    pub fn expire(&mut self, now: u64) -> bool {
        if self.looks_at.is_none_or(|at| at > now) {
            return false;
        }
        let max_age = self.max_age;
        if !is_mutant("nats: messages stay past their age") {
            self.messages.retain(|_, aged| aged.written + max_age > now);
        }
        // `resetAgeChk`
        let next = self.messages.values().map(|aged| aged.written + max_age).min();
        self.looks_at = next.map(|next| next.max(now + AGE_LOOK));
        true
    }

    /// Returns the time at which it looks for messages that are too old.
    pub fn looks_at(&self) -> Option<u64> {
        self.looks_at
    }
}

fn no_message() -> JetStreamError {
    JetStreamError::new(400, 10057, "no message found")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn put(bucket: &mut NatsBucket, now: u64, key: &str, revision: u64) {
        let message = KeyMessage {
            revision,
            value: "v".into(),
            deleted: false,
        };
        let change = BucketChange::Put {
            key: key.into(),
            message,
            written: now,
        };
        assert_eq!(bucket.apply(now, &change), Ok(KeyAnswer::Number(revision)));
    }

    #[test]
    fn a_message_ends_by_its_age_and_a_later_one_a_quarter_of_a_second_after_it_at_the_earliest() {
        let mut bucket = NatsBucket::default();
        bucket.make(1_000 * MS);
        put(&mut bucket, 0, "a", 1);
        put(&mut bucket, 100 * MS, "b", 2);
        assert_eq!(bucket.looks_at(), Some(1_000 * MS));
        bucket.expire(999 * MS);
        assert!(bucket.last("a").is_some());
        bucket.expire(1_000 * MS);
        assert!(bucket.last("a").is_none() && bucket.last("b").is_some());
        assert_eq!(bucket.looks_at(), Some(1_250 * MS));
        bucket.expire(1_250 * MS);
        assert!(bucket.messages().next().is_none() && bucket.looks_at().is_none());
    }

    #[test]
    fn a_message_is_removed_by_its_revision_and_once() {
        let mut bucket = NatsBucket::default();
        bucket.make(1_000 * MS);
        put(&mut bucket, 0, "a", 1);
        put(&mut bucket, 0, "a", 2);
        let remove = |revision| BucketChange::Remove { revision };
        assert!(bucket.apply(0, &remove(1)).is_err_and(|error| error.is_other_message()));
        assert_eq!(bucket.apply(0, &remove(2)), Ok(KeyAnswer::Done));
        assert!(bucket.apply(0, &remove(2)).is_err());
        let purge = BucketChange::Purge { key: "a".into() };
        assert_eq!(bucket.apply(0, &purge), Ok(KeyAnswer::Number(0)));
    }
}
