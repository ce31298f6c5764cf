//! The contract of a lock client ([`Contract`]): its promises, and the place of its lock on the servers.
//!
//! A client gives it in its answer to `open`; options of `harness run` complete or replace the answer. A promise that is missing in a
//! contract is not judged. `docs/client-protocol.md` has the table.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The promises of a client. Every field is optional; a name that is no field is an error, since a promise that is misspelt would silently
/// not be judged.
///
/// ```
/// use harness_workloads::{Contract, IssuedBy};
///
/// let answer = r#"{"renews":true,"owner":"server","token":"none","keys":"my-lock:{lock}","value":"hash"}"#;
/// let contract: Contract = serde_json::from_str(answer).unwrap();
/// assert_eq!(contract.owner, Some(IssuedBy::Server));
/// assert_eq!(contract.to_string(), answer);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Contract {
    /// Whether the store takes the lock back by itself from a holder that is silent for a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<bool>,
    /// Whether the client renews the lease while it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renews: Option<bool>,
    /// Whether a holder may be asked to extend its lease, which the application then does while it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extends: Option<bool>,
    /// Whether waiters get the lock in the order in which they asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fifo: Option<bool>,
    /// Whether an acquire may have the mode `read`, which is held together with other readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read: Option<bool>,
    /// Whether a client may take a lock again that it holds, and gives it back as often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reentrant: Option<bool>,
    /// The number of clients that may hold a lock at once: it is a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// Whether an acquire with `wait_ms` 0 is a try-lock, which is answered `busy` when the lock is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tries: Option<bool>,
    /// The way in which a waiter learns that it may try again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wakes: Option<Wakeup>,
    /// The origin of the names that the `owner` of a grant has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<IssuedBy>,
    /// The origin of the numbers that the `token` of a grant has. Numbers of either origin increase from grant to grant of a lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<IssuedBy>,
    /// Whether a process serves several clients at once, each as a thread of one application.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<bool>,
    /// Whether nothing that a process draws at random before its first request, and no number of its process that it has asked for by then,
    /// is used later: it may be a fork of a process that has begun before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forks: Option<bool>,
    /// Whether it compares times of the wall clock, so that a stepped one concerns it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_clock: Option<bool>,
    /// The place of the lock on the servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyPattern>,
    /// The data at that place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<KeyValue>,
    /// Whether a holder writes another value while it holds, so that a new value is not a new owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rewrites: Option<bool>,
}

/// The way in which a waiter learns that it may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wakeup {
    /// The server notifies it, and the client raises `woken`.
    Notified,
    /// It asks at intervals; `woken` is never raised.
    #[serde(rename = "polls")]
    Polling,
    /// The server or a library waits on its behalf and does not report it; `woken` is never raised.
    Unreported,
}

/// The origin of the names or numbers of grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IssuedBy {
    /// The observer reads them on the servers.
    Server,
    /// The client makes them, and the servers do not show them.
    Own,
    /// There are none.
    None,
}

/// The data under a lock's key, and the place of the owner in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyValue {
    /// Redis: a string. NATS: a key of a bucket. The owner is its value.
    String,
    /// Redis: a hash. The owner is the name of its first field.
    Hash,
    /// Redis: a list. The owner is its first element.
    List,
    /// etcd: one key a contender, at or below the pattern. The owner is the lease of the key with the smallest create
    /// revision.
    Revision,
    /// ZooKeeper: a node with one child a contender. The owner is the session of the child with the smallest number.
    Sequential,
    /// ZooKeeper: one node without contenders. The owner is its session.
    Node,
    /// Nothing that an observer can read: the lock is kept elsewhere.
    None,
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Contract {
    /// Whether a lock can be held for longer than its lease: the client or the application renews that.
    pub fn outlasts_its_lease(&self) -> bool {
        self.renews == Some(true) || self.extends == Some(true)
    }

    /// Returns this contract with the fields of `other` in its place.
    #[must_use]
    pub fn completed_by(&self, other: &Contract) -> Contract {
        let mut fields = self.fields();
        fields.extend(other.fields());
        Self::of_fields(fields).expect("the fields of two contracts make one")
    }

    /// Reads promises as they are typed, such as `token=own`.
    ///
    /// # Errors
    ///
    /// A sentence, if there is no such field or its value is none that the field takes.
    pub fn promised(texts: &[impl AsRef<str>]) -> Result<Contract, String> {
        let mut texts = texts.iter();
        texts.try_fold(Self::default(), |contract, text| contract.promise(text.as_ref()))
    }

    /// Reads one promise, and adds it.
    fn promise(&self, text: &str) -> Result<Contract, String> {
        let (field, value) = text.split_once('=').ok_or("expected NAME=VALUE, such as token=own")?;
        let value = match value.parse() {
            Ok(flag) => Value::Bool(flag),
            Err(_) => value.parse::<u32>().map_or_else(|_| value.into(), Value::from),
        };
        let mut fields = self.fields();
        fields.insert(field.to_owned(), value);
        Self::of_fields(fields).map_err(|error| format!("{text}: {error}"))
    }

    fn fields(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            _ => unreachable!("a contract is plain data with names"),
        }
    }

    fn of_fields(fields: Map<String, Value>) -> serde_json::Result<Self> {
        serde_json::from_value(Value::Object(fields))
    }
}

/// As it stands on the wire.
impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).expect("a contract is plain data"))
    }
}

/// The word for the lock's name in a pattern.
const PLACEHOLDER: &str = "{lock}";

/// The key or node of a lock, with `{lock}` for the lock's name: `my-lock:{lock}`, `/locks/{lock}`.
///
/// ```
/// use harness_workloads::KeyPattern;
///
/// let pattern: KeyPattern = "locks/{lock}/".parse().unwrap();
/// assert_eq!(pattern.key("l7"), "locks/l7/");
/// assert_eq!(pattern.lock_of("locks/l7/694d"), Some(("l7", "694d")));
/// assert_eq!(pattern.lock_of("locks/mine"), None);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyPattern {
    before: String,
    after: String,
}

impl KeyPattern {
    /// Returns the text before the lock's name.
    pub fn before(&self) -> &str {
        &self.before
    }

    /// Returns the text after the lock's name.
    pub fn after(&self) -> &str {
        &self.after
    }

    /// Returns the pattern of locks whose names begin with `mark` in the store.
    #[must_use]
    pub fn below(&self, mark: &str) -> Self {
        Self {
            before: format!("{}{mark}", self.before),
            after: self.after.clone(),
        }
    }

    /// Returns the key of a lock.
    pub fn key(&self, lock: &str) -> String {
        [&*self.before, lock, &*self.after].concat()
    }

    /// Returns the lock whose key `key` is or begins with, and the rest of the key. The names of locks are `l0`, `l1`, …
    pub fn lock_of<'a>(&self, key: &'a str) -> Option<(&'a str, &'a str)> {
        let from = key.strip_prefix(&self.before)?;
        let digits = from.strip_prefix('l')?;
        let length = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (lock, rest) = from.split_at(1 + length);
        (length > 0).then_some((lock, rest.strip_prefix(&self.after)?))
    }
}

impl FromStr for KeyPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(PLACEHOLDER) {
            Some((before, after)) if !after.contains(PLACEHOLDER) => Ok(KeyPattern {
                before: before.to_owned(),
                after: after.to_owned(),
            }),
            _ => Err(format!(
                "{text:?} must contain {PLACEHOLDER} once, as in my-lock:{PLACEHOLDER}"
            )),
        }
    }
}

impl TryFrom<String> for KeyPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<KeyPattern> for String {
    fn from(pattern: KeyPattern) -> Self {
        pattern.to_string()
    }
}

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key(PLACEHOLDER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_is_typed_is_the_one_that_is_answered() {
        let typed = Contract::promised(&[
            "renews=false",
            "permits=3",
            "token=own",
            "wakes=polls",
            "keys=a:{lock}:b",
            "value=list",
        ]);
        let answer = r#"{"renews":false,"permits":3,"wakes":"polls","token":"own","keys":"a:{lock}:b","value":"list"}"#;
        assert_eq!(typed.unwrap().to_string(), answer);
    }

    #[test]
    fn a_promise_that_is_misspelt_is_refused_with_the_words_that_are_known() {
        for (word, named) in [
            ("renew=true", "`renews`"),
            ("token=mine", "`own`"),
            ("renews=maybe", "boolean"),
            ("keys=my-lock", "{lock} once"),
            ("keys={lock}{lock}", "{lock} once"),
            ("renews", "NAME=VALUE"),
        ] {
            let sentence = Contract::promised(&[word]).unwrap_err();
            assert!(sentence.contains(named), "{word}: {sentence}");
        }
    }

    #[test]
    fn what_is_typed_is_put_in_place_of_what_is_answered_and_the_rest_stays() {
        let answered = Contract::promised(&["lease=true", "owner=server"]).unwrap();
        let typed = Contract::promised(&["owner=own"]).unwrap();
        assert_eq!(
            answered.completed_by(&typed),
            Contract::promised(&["lease=true", "owner=own"]).unwrap()
        );
        assert_eq!(answered.completed_by(&Contract::default()), answered);
    }

    #[test]
    fn a_key_is_of_the_lock_whose_whole_number_it_has() {
        let pattern: KeyPattern = "harness:{lock}".parse().unwrap();
        assert_eq!(pattern.lock_of("harness:l12"), Some(("l12", "")));
        assert_eq!(pattern.lock_of("harness:l1:waiters"), Some(("l1", ":waiters")));
        for other in ["harness:", "harness:l", "harness:lock1", "other:l1"] {
            assert_eq!(pattern.lock_of(other), None, "{other}");
        }
        let bare: KeyPattern = "{lock}.lock".parse().unwrap();
        assert_eq!(bare.lock_of("l3.lock"), Some(("l3", "")));
        assert_eq!(bare.lock_of("l3"), None);
    }
}
