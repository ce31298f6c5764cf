//! The vocabulary of a history: what one line says. Jepsen's words, and `signal`, our one addition.
//!
//! Both directions live here: the recorder serialises these types, the reader parses them. No line is interpreted
//! here; what a sequence of lines means is decided in `holds` and the properties.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The value of `format` in a header.
pub const FORMAT: &str = "harness-history";
/// The one version this crate writes and reads.
pub const VERSION: u32 = 1;

/// Line 1 of a history: what was recorded, and what the lock promised. Unknown fields are kept in `extra`.
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
    /// Names of the locks. Lines need not name the only one.
    #[serde(default)]
    pub locks: Vec<String>,
    /// Session timeout or time to live that the clients asked for, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The lock implementation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recipe: Option<String>,
    /// The store: `zk`, `etcd`, `redis`, `valkey`, `postgres`, `mariadb`, `nats`, or the name of another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Clients that share a process: client c is of process number c / `per_process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_process: Option<u32>,
    /// What the lock promises.
    #[serde(default)]
    pub promises: Promises,
    /// The limits that it is judged by.
    #[serde(default)]
    pub bounds: Bounds,
    /// Fields that have no meaning here.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl Default for Header {
    /// The header of a mutex of which nothing else is known.
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
    /// The header of a history of these locks, for a mutex. Events need not name the only one.
    pub fn of_locks<Name: Into<String>>(locks: impl IntoIterator<Item = Name>) -> Self {
        Self {
            locks: locks.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// The same with a model, by the name that `--model` takes: `read-write`, `semaphore=3`.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = model.into();
        self
    }

    /// The same with the session timeout or time to live that the clients asked for.
    #[must_use]
    pub fn with_lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }
}

fn default_model() -> String {
    "mutex".to_owned()
}

/// What the recipe says of itself, so that a stored history can be judged without knowing the recipe.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Promises {
    /// How waiters learn of a release; `None` when the header does not say (a foreign client, an imported history).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wakes: Option<Wakes>,
    /// Whether tokens order the grants in the order of asking, so that HL006 is a promise and not a statistic.
    #[serde(default)]
    pub fifo: bool,
    /// Whether an acquire that was answered `ok` carries a fencing token.
    #[serde(default)]
    pub tokens: bool,
    /// Whether the store takes the lock back by itself from a holder that says nothing for a lease; `None` when
    /// the header does not say. A lock without a lease is not broken by a pause of its holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<bool>,
    /// Whether another client gets the lock of a holder that died though there is no lease; `None`: as `lease` says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<bool>,
    /// Whether a holder's lease is renewed for as long as it holds; `None` when the header does not say. A lock that
    /// promises `false` may end a hold after one lease without any fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renews: Option<bool>,
    /// Whether an owner may acquire again what it holds; `None` when the header does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reentrant: Option<bool>,
    /// Whose names the clients' `owner`s are; `None` when the header does not say: then the history itself shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Origin>,
    /// Whose numbers the clients' `token`s are; `None` when the header does not say: then the history itself shows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Origin>,
    /// Whether the observer knows where this lock is kept. `false`: what it saw, or did not see, says nothing of this
    /// lock. `None` when the header does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<bool>,
}

impl Promises {
    /// Whether a later token is to be larger: tokens of the server are taken for fencing tokens, and a lock's own if it promises
    /// that.
    pub(crate) fn orders_tokens(&self) -> bool {
        self.tokens || matches!(self.token, None | Some(Origin::Server))
    }
}

/// Where the owners or tokens that clients answer with come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// They are the server's, so that they can be compared with what the observer saw.
    Server,
    /// The lock makes them itself: a counter, a name. They are compared among themselves only.
    Own,
    /// There are none.
    None,
}

/// How waiters learn of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wakes {
    /// The server notifies them: `woken` signals are expected.
    Notified,
    /// They ask again and again, none is woken, and HL004 does not apply.
    Polls,
}

/// The limits that verdicts refer to. `None` leaves the checker's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// HL004: waiters that one release may wake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub herd: Option<u32>,
    /// HL004: requests that a hand-over may cost where waiters poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<u32>,
    /// HL005: milliseconds after the last heal within which a free lock must be acquired by a live waiter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_ms: Option<u64>,
    /// HL009: milliseconds that a holder may go on believing after the server revoked its lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// HL006: times that a waiter may be passed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed_over: Option<u32>,
    /// HL006: milliseconds for which a client may ask for a lock in vain while others get it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starvation_ms: Option<u64>,
}

/// Who a line speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// One incarnation of a client.
    Client(u32),
    /// The server, as the observer saw it.
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
    /// It surely did not happen.
    Fail,
    /// Whether it happened cannot be known.
    Info,
    /// What was said without being asked.
    Signal,
}

impl Kind {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 5] = [Self::Invoke, Self::Ok, Self::Fail, Self::Info, Self::Signal];

    /// The word that a history has for it.
    pub(crate) fn name(self) -> &'static str {
        const NAMES: [&str; Kind::ALL.len()] = ["invoke", "ok", "fail", "info", "signal"];
        NAMES[self as usize]
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The guarded register that checks tokens: what it did with the write of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fenced {
    /// It was done.
    Accepted,
    /// It was not done: a larger token came before.
    Refused,
}

/// One line of a history as it is written. Fields that do not apply are left out of the line.
///
/// `f` is one of `acquire`, `release`, `extend`, `read`, `write` for operations; `lost`, `woken`, `died`, `notified`, `granted`,
/// `revoked` for signals; and for the nemesis the name of a fault, or `phase`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line<'a> {
    /// The number of the line; it is found by it.
    pub index: u64,
    /// Nanoseconds since the recorder started, by `CLOCK_MONOTONIC`.
    pub time: u64,
    /// Who it is about.
    pub process: Process,
    /// The client that the process is an incarnation of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<u32>,
    /// Call, answer or signal.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// What it is about.
    pub f: &'a str,
    /// What else operations and signals carry.
    #[serde(flatten)]
    pub fields: Fields<'a>,
    /// Whatever else belongs to the line: a window's number, phase, targets and evidence.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// The fields that operations and signals carry.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Fields<'a> {
    /// The lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<&'a str>,
    /// The fencing token that came with a grant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<&'a str>,
    /// What the guarded register was read to be, or was set to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u64>,
    /// What a register that checks tokens did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced: Option<Fenced>,
    /// `read` where an acquire shares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<&'a str>,
    /// Permits of a semaphore.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permits: Option<u32>,
    /// How long the caller is ready to wait, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// How long before the call the acquire was due, in microseconds, where acquires come due at a rate and no client was free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_us: Option<u32>,
    /// Why a grant or a hold ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<&'a str>,
    /// Why an operation failed, or why its outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// On the call of a release: requests, replies, notifications and retries that had passed all links by then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<[u64; 4]>,
    /// On the reply to an acquire: the server that the client was connected to, where it was exactly one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<&'a str>,
}

impl<'a> Fields<'a> {
    /// Those of an event of this lock, and no others.
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
