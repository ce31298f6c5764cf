//! The vocabulary of a history: the fields of its lines. The words are Jepsen's, and `signal`, our one addition.
//!
//! The recorder serialises these types, and the reader parses them. The meaning of a sequence of lines is decided in `holds` and the
//! properties.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The value of `format` in a header.
pub const FORMAT: &str = "harness-history";
/// The only version that this crate writes and reads.
pub const VERSION: u32 = 1;

/// Line 1 of a history: the subject of the recording, and the contract of the lock. Unknown fields are in `extra`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// [`VERSION`].
    pub version: u32,
    /// The run's name, `<yyyymmdd-hhmm>-<backend>-<fault>-<seed4>`.
    #[serde(default)]
    pub run: String,
    /// The lock model, by the name that `--model` takes.
    #[serde(default = "default_model")]
    pub model: String,
    /// Names of the locks. If there is only one, lines need not name it.
    #[serde(default)]
    pub locks: Vec<String>,
    /// Session timeout or time to live of the clients, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The lock implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// The store: `zk`, `etcd`, `redis`, `valkey`, `postgres`, `mariadb`, `nats`, or the name of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Clients that share a process: client c runs in process c / `per_process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_process: Option<u32>,
    /// The contract of the lock.
    #[serde(default)]
    pub promises: Promises,
    /// The limits for the verdicts.
    #[serde(default)]
    pub bounds: Bounds,
    /// Fields without a meaning for this crate.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for Header {
    /// Returns the header of a mutex without further fields.
    fn default() -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            run: String::new(),
            model: default_model(),
            locks: Vec::new(),
            lease_ms: None,
            recipe: None,
            backend: None,
            per_process: None,
            promises: Promises::default(),
            bounds: Bounds::default(),
            extra: Map::new(),
        }
    }
}

impl Header {
    /// Creates the header of a history of these locks, for a mutex. If there is only one, events need not name it.
    pub fn of_locks<Name: Into<String>>(locks: impl IntoIterator<Item = Name>) -> Self {
        Self {
            locks: locks.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Sets the model, by the name that `--model` takes: `read-write`, `semaphore=3`.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// Sets the session timeout or time to live of the clients.
    #[must_use]
    pub fn with_lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    /// Returns whether the store may end a grant by itself: the header has a lease, or does not say that there is none.
    pub(crate) fn may_have_lease(&self) -> bool {
        self.lease_ms.is_some() || self.promises.lease != Some(false)
    }
}

fn default_model() -> String {
    "mutex".to_owned()
}

/// The contract of the recipe, so that a stored history can be judged without the recipe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Promises {
    /// The way in which waiters learn of a release; `None` if the header does not say it (a foreign client, an imported history).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<Wakes>,
    /// Whether tokens are in the order of the calls, so that HL006 is a promise and not a statistic.
    #[serde(default)]
    pub fifo: bool,
    /// Whether an acquire that was answered `ok` has a fencing token.
    #[serde(default)]
    pub tokens: bool,
    /// Whether the store ends the grant of a silent owner by itself after a lease; `None` if the header does not say it. A lock without a
    /// lease is not broken by a pause of its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<bool>,
    /// Whether another client gets the lock of a dead holder although there is no lease; `None`: as `lease`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<bool>,
    /// Whether a holder's lease is renewed during the whole hold; `None` if the header does not say it. A lock with `false` may end a hold
    /// after one lease without a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<bool>,
    /// Whether an owner may acquire its lock again; `None` if the header does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reentrant: Option<bool>,
    /// The origin of the clients' `owner`s; `None` if the header does not say it: then the history shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Origin>,
    /// The origin of the clients' `token`s; `None` if the header does not say it: then the history shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Origin>,
    /// Whether the observer knows the place of this lock. With `false`, its lines are no evidence about this lock. `None` if the header
    /// does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<bool>,
}

impl Promises {
    /// Returns whether a later token must be larger: the server's tokens count as fencing tokens, a lock's own only if it promises that.
    pub(crate) fn orders_tokens(&self) -> bool {
        self.tokens || matches!(self.token, None | Some(Origin::Server))
    }
}

/// The origin of the owners or tokens in clients' answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The server: they can be compared with the observer's lines.
    Server,
    /// The lock itself: a counter, a name. They are compared among themselves only.
    Own,
    /// Nothing: there are none.
    None,
}

/// The way in which waiters learn of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wakes {
    /// The server notifies them: `woken` signals are expected.
    Notified,
    /// They poll, none is woken, and HL004 does not apply.
    Polls,
}

/// The limits for the verdicts. `None` is the checker's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// HL004: waiters that one release may wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub herd: Option<u32>,
    /// HL004: requests that a hand-over may cost with waiters that poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// HL005: milliseconds after the last heal within which a free lock must be acquired by a live waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
    /// HL009: milliseconds for which a hold may outlive its grant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// HL006: times that a waiter may be passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<u32>,
    /// HL006: milliseconds for which a client may ask for a lock in vain while others get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starvation_ms: Option<u64>,
}

/// The process of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// One incarnation of a client.
    Client(u32),
    /// The server, by the observer.
    Server,
    /// The fault schedule.
    Nemesis,
}

impl Serialize for Process {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Client(number) => serializer.serialize_u32(*number),
            Self::Server => serializer.serialize_str("server"),
            Self::Nemesis => serializer.serialize_str("nemesis"),
        }
    }
}

/// The `type` of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A call.
    Invoke,
    /// It happened.
    Ok,
    /// It certainly did not happen.
    Fail,
    /// It is unknown whether it happened.
    Info,
    /// A message that no call asked for.
    Signal,
}

impl Kind {
    /// All types, in their order.
    pub(crate) const ALL: [Self; 5] = [Self::Invoke, Self::Ok, Self::Fail, Self::Info, Self::Signal];

    /// Returns the word that histories have for it.
    pub(crate) fn name(self) -> &'static str {
        const NAMES: [&str; Kind::ALL.len()] = ["invoke", "ok", "fail", "info", "signal"];
        NAMES[self as usize]
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The answer of the guarded register that checks tokens to a holder's write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fenced {
    /// The write was executed.
    Accepted,
    /// The write was not executed: a larger token came before.
    Refused,
}

/// One line of a history. Fields that do not apply are left out.
///
/// `f` is one of `acquire`, `release`, `extend`, `read`, `write` for operations; `lost`, `woken`, `died`, `notified`, `granted`,
/// `revoked` for signals; and for the nemesis the name of a fault, or `phase`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line<'a> {
    /// The number of the line.
    pub index: u64,
    /// Nanoseconds since the recorder started, by `CLOCK_MONOTONIC`.
    pub time: u64,
    /// The process.
    pub process: Process,
    /// The client of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// The type: call, answer or signal.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The operation, the signal or the fact.
    pub f: &'a str,
    /// The fields of operations and signals.
    #[serde(flatten)]
    pub fields: Fields<'a>,
    /// All other fields: a window's number, phase, targets and evidence.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The fields of operations and signals.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fields<'a> {
    /// The lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<&'a str>,
    /// The fencing token of a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<&'a str>,
    /// The value that the guarded register returned or was set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// The answer of a register that checks tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced: Option<Fenced>,
    /// `read` for a shared acquire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'a str>,
    /// Permits of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// The longest wait of the call, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The delay of an acquire's call, in microseconds, if acquires are due at a rate and no client was free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_us: Option<u32>,
    /// The reason for the end of a grant or a hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'a str>,
    /// The reason why an operation failed, or why its outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// On the call of a release: requests, replies, notifications and retries that had passed all links by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<[u64; 4]>,
    /// On the reply to an acquire: the server to which the client was connected, if it was exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Returns the fields of an event of this lock, without others.
    pub fn of(lock: &'a str) -> Self {
        Fields {
            lock: Some(lock),
            ..Fields::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_header_does_not_promise_is_neither_read_nor_written() {
        let none: Promises = serde_json::from_str("{}").unwrap();
        assert_eq!(none, Promises::default());
        assert_eq!(
            serde_json::to_string(&none).unwrap(),
            r#"{"fifo":false,"tokens":false}"#
        );
    }

    #[test]
    fn a_contract_is_written_as_it_is_read() {
        let text = r#"{"fifo":true,"tokens":true,"lease":true,"renews":false,"reentrant":false,"owner":"own","token":"none","watched":false}"#;
        let contract: Promises = serde_json::from_str(text).unwrap();
        assert_eq!(
            (contract.owner, contract.token),
            (Some(Origin::Own), Some(Origin::None))
        );
        assert_eq!(serde_json::to_string(&contract).unwrap(), text);
        assert!(serde_json::from_str::<Promises>(r#"{"owner":"mine"}"#).is_err());
    }
}
