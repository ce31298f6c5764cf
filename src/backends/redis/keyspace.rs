//! Keyspace events of a Redis server, and the owners in their keys, over one connection.
//!
//! <https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>
//!
//! An event does not have the owner, so the key is read; events and the answer come over one connection, in order. If another
//! event of the key came before the answer, the answer is about a later owner, and the first one stays unknown.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::KeyValue;

use super::connection::RespConnection;
use super::resp::RespValue;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::Unasked;
use crate::clock::GroundClock;
use crate::cluster::{BoxFuture, Endpoints};

/// Keyspace events, `K`, of general commands, strings, hashes and lists, and of expired keys.
pub const EVENTS: &str = "Kg$hlx";

/// The time without a message after which a server is pinged.
const QUIET: Duration = Duration::from_secs(1);
/// The time of its answer before the connection counts as lost. A server that a fault pauses for a shorter time keeps it.
const SILENT: Duration = Duration::from_secs(10);

/// Whether a server with this setting sends all of [`EVENTS`]; `A` includes all kinds but `K`.
pub fn sends_events(setting: &str) -> bool {
    let told = |kind: char| setting.contains(kind) || (kind != 'K' && setting.contains('A'));
    EVENTS.chars().all(told)
}

/// The key events of locks on one server, in their order.
#[async_trait]
pub trait Keyspace: Send + Sync {
    /// Returns the next event: the lock and the change of its key. It is not lost when the future is dropped.
    async fn event(&mut self) -> Result<(String, KeyChange), String>;

    /// Returns the owner in a lock's key after its last event, or `None` if the key is gone, or changed again before the answer.
    async fn owner_of(&mut self, lock: &str) -> Result<Option<String>, String>;

    /// Returns the held locks with their owners; a server that restarted empty holds none.
    async fn held(&mut self) -> Result<Vec<(String, String)>, String>;
}

/// The keyspace of a server that is being opened; the error has the reason for a failure.
pub type OpeningKeyspace = BoxFuture<'static, Result<Box<dyn Keyspace>, String>>;

/// Opens the keyspace of the server at an address.
pub type OpenKeyspace = Arc<dyn Fn(SocketAddr, &LockKeys) -> OpeningKeyspace + Send + Sync>;

/// Opens connections to Redis servers, over their streams.
pub fn opening(servers: Endpoints) -> OpenKeyspace {
    Arc::new(move |address, keys| {
        let (server, keys) = (servers.access(address), keys.clone());
        Box::pin(async move {
            let connection = RespConnection::open(&server).await?;
            let keyspace = KeyspaceConnection::open(connection, keys, server.clock()).await?;
            Ok(Box::new(keyspace) as Box<dyn Keyspace>)
        })
    })
}

struct KeyspaceConnection {
    connection: RespConnection,
    keys: LockKeys,
    clock: GroundClock,
    /// Events that were read and not returned yet.
    waiting: VecDeque<HeardEvent>,
    /// The last event that was returned.
    told: Option<HeardEvent>,
    /// The pending queries, in order.
    asked: VecDeque<Question>,
    /// The number of the next event.
    next: u64,
    /// The answer to the last [`Question::Key`].
    answer: Option<RespValue>,
}

/// An event, with the query that was sent when it was read: the owner is queried at once and not when the event is returned, so
/// that many events wait for one round trip together.
struct HeardEvent {
    number: u64,
    lock: String,
    change: KeyChange,
    owner: Option<Result<Option<String>, String>>,
}

/// The query of a reply.
enum Question {
    /// The owner in the key of this event.
    Event(u64),
    /// A key that was queried by itself.
    Key,
    /// Whether the server is there.
    Ping,
}

/// The change of a lock's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyChange {
    /// It was written.
    Written,
    Gone(Unasked),
}

impl KeyspaceConnection {
    async fn open(mut connection: RespConnection, keys: LockKeys, clock: GroundClock) -> Result<Self, String> {
        if keys.mark.is_none() {
            connection
                .ask(&["CONFIG", "SET", "notify-keyspace-events", EVENTS])
                .await?;
        }
        let pattern = format!("__keyspace@*__:{}", glob(&keys));
        connection.send(&["PSUBSCRIBE", &pattern]).await?;
        Ok(Self {
            connection,
            keys,
            clock,
            waiting: VecDeque::new(),
            told: None,
            asked: VecDeque::new(),
            next: 0,
            answer: None,
        })
    }

    /// Reads one reply or push, and queries the owner if the push is a write of a key.
    async fn read_one(&mut self) -> Result<(), String> {
        match self.connection.next().await? {
            RespValue::Push(push) => self.heard(&push),
            reply => match self.asked.pop_front() {
                Some(Question::Event(number)) => self.answered(number, reply),
                Some(Question::Key) => self.answer = Some(reply),
                Some(Question::Ping) | None => {}
            },
        }
        Ok(())
    }

    /// Reads one reply or push, of a server that must answer a ping if it sends none: one that is gone without a sign, and a
    /// connection that a router has forgotten, are as quiet as locks that no client uses.
    async fn read_in_time(&mut self) -> Result<(), String> {
        let clock = self.clock;
        if let Some(read) = clock.within_real(QUIET, self.read_one()).await {
            return read;
        }
        self.connection.queue(&["PING"]);
        self.asked.push_back(Question::Ping);
        let read = clock.within_real(SILENT, self.read_one()).await;
        read.unwrap_or_else(|| Err("it does not answer".to_owned()))
    }

    fn heard(&mut self, push: &[RespValue]) {
        let Some((lock, change)) = event_of(&self.keys, push) else {
            return;
        };
        let number = self.next;
        self.next += 1;
        if change == KeyChange::Written {
            self.ask_for_owner(&lock);
            self.asked.push_back(Question::Event(number));
        }
        self.waiting.push_back(HeardEvent {
            number,
            lock,
            change,
            owner: None,
        });
    }

    fn ask_for_owner(&mut self, lock: &str) {
        let key = self.keys.pattern.key(lock);
        let words: &[&str] = match self.keys.value {
            KeyValue::Hash => &["HKEYS", &key],
            KeyValue::List => &["LINDEX", &key, "0"],
            _ => &["GET", &key],
        };
        self.connection.queue(words);
    }

    /// Stores the answer to an event's query. It is about a later owner if another event of the key came before it.
    fn answered(&mut self, number: u64, reply: RespValue) {
        let mut events = self.told.iter_mut().chain(&mut self.waiting);
        let Some(event) = events.find(|event| event.number == number) else {
            return;
        };
        let overtaken = events.any(|later| later.lock == event.lock);
        event.owner = Some(owner_in(reply).map(|owner| owner.filter(|_| !overtaken)));
    }

    /// Returns the current owner in a key.
    async fn read_key(&mut self, lock: &str) -> Result<Option<String>, String> {
        self.ask_for_owner(lock);
        self.asked.push_back(Question::Key);
        self.answer = None;
        loop {
            if let Some(reply) = self.answer.take() {
                let overtaken = self.waiting.iter().any(|event| event.lock == lock);
                return Ok(owner_in(reply)?.filter(|_| !overtaken));
            }
            self.read_in_time().await?;
        }
    }
}

#[async_trait]
impl Keyspace for KeyspaceConnection {
    async fn event(&mut self) -> Result<(String, KeyChange), String> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                let told = (event.lock.clone(), event.change);
                self.told = Some(event);
                return Ok(told);
            }
            self.read_in_time().await?;
        }
    }

    async fn owner_of(&mut self, lock: &str) -> Result<Option<String>, String> {
        let is_asked = |told: &HeardEvent| told.lock == lock && told.change == KeyChange::Written;
        if !self.told.as_ref().is_some_and(is_asked) {
            return self.read_key(lock).await;
        }
        loop {
            if let Some(owner) = self.told.as_mut().and_then(|told| told.owner.take()) {
                return owner;
            }
            self.read_in_time().await?;
        }
    }

    async fn held(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut held = Vec::new();
        let keys = self.connection.scan(&glob(&self.keys)).await?;
        for push in std::mem::take(&mut self.connection.pushes) {
            self.heard(&push);
        }
        for key in keys {
            let Some(lock) = self.keys.lock_at(&key) else {
                continue;
            };
            // the key may be gone since the scan; its value shows that
            if let Some(owner) = self.read_key(&lock).await? {
                held.push((lock, owner));
            }
        }
        Ok(held)
    }
}

/// Returns the owner in a reply about a key. The error is the server's.
fn owner_in(reply: RespValue) -> Result<Option<String>, String> {
    match reply {
        // it is no lock of the kind that the contract names
        RespValue::Error(error) if error.starts_with("WRONGTYPE") => Ok(None),
        RespValue::Error(error) => Err(error),
        RespValue::Text(owner) => Ok(Some(owner)),
        fields => Ok(fields.texts().into_iter().next()),
    }
}

/// Returns the keys of all locks as a pattern of Redis.
fn glob(keys: &LockKeys) -> String {
    let literally = |text: &str| {
        let special = |c: char| "*?[]\\".contains(c);
        let escaped = text
            .chars()
            .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]));
        escaped.collect::<String>()
    };
    format!(
        "{}*{}",
        literally(keys.pattern.before()),
        literally(keys.pattern.after())
    )
}

/// Parses `pmessage, pattern, __keyspace@0__:<key>, <event>`.
fn event_of(keys: &LockKeys, push: &[RespValue]) -> Option<(String, KeyChange)> {
    let texts = push.iter().map(|part| match part {
        RespValue::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let [Some("pmessage"), _, Some(channel), Some(event)] = texts.collect::<Vec<_>>()[..] else {
        return None;
    };
    let change = match (event, keys.value) {
        ("expired", _) => KeyChange::Gone(Unasked::Expired),
        ("del", _) => KeyChange::Gone(Unasked::Deleted),
        // SET with PX raises `expire` as well, which says nothing of the owner
        ("set" | "incrby", KeyValue::String)
        | ("hset" | "hincrby" | "hdel", KeyValue::Hash)
        | ("lpush" | "rpush" | "lpop" | "rpop" | "lset" | "lrem" | "linsert" | "ltrim", KeyValue::List) => {
            KeyChange::Written
        }
        _ => return None,
    };
    let key = channel.split_once("__:")?.1;
    Some((keys.lock_at(key)?, change))
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::backends;

    fn keys(pattern: &str, value: KeyValue) -> LockKeys {
        let default = LockKeys::default_of(backends::of(BackendId::Redis));
        let pattern = pattern.parse().unwrap();
        LockKeys {
            pattern,
            value,
            ..default
        }
    }

    fn event(keys: &LockKeys, key: &str, event: &str) -> Option<(String, KeyChange)> {
        let push = ["pmessage", "x", &format!("__keyspace@0__:{key}"), event].map(|text| RespValue::Text(text.into()));
        assert_eq!(event_of(keys, &push[..3]), None);
        event_of(keys, &push)
    }

    #[test]
    fn an_event_names_its_lock() {
        let keys = keys("harness:{lock}", KeyValue::String);
        let l0 = |change| Some(("l0".to_owned(), change));
        for (word, change) in [
            ("expired", l0(KeyChange::Gone(Unasked::Expired))),
            ("del", l0(KeyChange::Gone(Unasked::Deleted))),
            ("set", l0(KeyChange::Written)),
            ("expire", None),
        ] {
            assert_eq!(event(&keys, "harness:l0", word), change);
        }
        let other = event(&keys, "harness:l0:waiters", "set");
        assert_eq!(other, None, "the key of something else");
    }

    #[test]
    fn a_key_is_written_by_the_commands_of_its_kind_of_value() {
        let hash = keys("{lock}", KeyValue::Hash);
        assert_eq!(event(&hash, "l0", "hincrby"), Some(("l0".into(), KeyChange::Written)));
        assert_eq!(event(&hash, "l0", "set"), None);
        let list = keys("{lock}", KeyValue::List);
        assert_eq!(event(&list, "l0", "lpush"), Some(("l0".into(), KeyChange::Written)));
        assert_eq!(event(&list, "l0", "hset"), None);
    }

    /// A server that the test plays.
    struct PlayedServer(BufReader<TcpStream>);

    impl PlayedServer {
        /// Accepts a connection, and has its notifications turned on.
        async fn greeted(listener: TcpListener) -> Self {
            let mut server = Self(BufReader::new(listener.accept().await.unwrap().0));
            server.answer("HELLO 3", "%1\r\n+server\r\n+redis\r\n").await;
            let set = format!("CONFIG SET notify-keyspace-events {EVENTS}");
            server.answer(&set, "+OK\r\n").await;
            server
        }

        async fn line(&mut self) -> String {
            let mut line = String::new();
            self.0.read_line(&mut line).await.unwrap();
            line.trim_end().to_owned()
        }

        /// Reads the words of the next command.
        async fn command(&mut self) -> String {
            let words = self.line().await[1..].parse().unwrap();
            let mut command = Vec::new();
            for _ in 0..words {
                self.line().await;
                command.push(self.line().await);
            }
            command.join(" ")
        }

        async fn answer(&mut self, expected: &str, reply: &str) {
            assert_eq!(self.command().await, expected);
            self.say(reply).await;
        }

        async fn say(&mut self, text: &str) {
            self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
        }
    }

    fn push(key: &str, event: &str) -> String {
        let channel = format!("__keyspace@0__:{key}");
        let words = ["pmessage", "x", &channel, event].map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!(">4\r\n{}", words.concat())
    }

    #[tokio::test]
    async fn owners_are_asked_for_together_and_an_answer_is_about_the_last_event() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let mut server = PlayedServer::greeted(listener).await;
            let events = [("0", "set"), ("1", "set"), ("0", "del"), ("0", "set")];
            let pushes = events.map(|(lock, event)| push(&format!("harness:l{lock}"), event));
            server
                .answer("PSUBSCRIBE __keyspace@*__:harness:*", &pushes.concat())
                .await;
            // no answer before all queries
            for lock in ["l0", "l1", "l0"] {
                assert_eq!(server.command().await, format!("GET harness:{lock}"));
            }
            server.say("$1\r\nb\r\n$1\r\nc\r\n$1\r\nb\r\n").await;
            server
        });
        let following = async {
            let open = opening(Endpoints::new(Vec::new(), None));
            let keys = keys("harness:{lock}", KeyValue::String);
            let mut keyspace = open(address, &keys).await.unwrap();
            let mut told = Vec::new();
            for _ in 0..4 {
                let (lock, change) = keyspace.event().await.unwrap();
                let owner = match change {
                    KeyChange::Written => keyspace.owner_of(&lock).await.unwrap(),
                    KeyChange::Gone(_) => Some("gone".to_owned()),
                };
                told.push(format!("{lock} {}", owner.unwrap_or_else(|| "unnamed".to_owned())));
            }
            told
        };
        let waited = tokio::time::timeout(Duration::from_secs(30), following).await;
        let told = waited.expect("the questions wait for answers to earlier ones");
        assert_eq!(told, ["l0 unnamed", "l1 c", "l0 gone", "l0 b"]);
        drop(serving.await.unwrap());
    }

    #[tokio::test]
    async fn a_quiet_server_is_pinged_and_its_answer_is_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move {
            let mut server = PlayedServer::greeted(listener).await;
            server.command().await;
            let written = push("harness:l0", "set");
            server.answer("PING", &format!("+PONG\r\n{written}")).await;
            server.answer("GET harness:l0", "$1\r\na\r\n").await;
            server
        });
        let open = opening(Endpoints::new(Vec::new(), None));
        let keys = keys("harness:{lock}", KeyValue::String);
        let mut keyspace = open(address, &keys).await.unwrap();
        let told = keyspace.event().await.unwrap();
        assert_eq!(told, ("l0".to_owned(), KeyChange::Written));
        assert_eq!(keyspace.owner_of("l0").await, Ok(Some("a".to_owned())));
        drop(serving.await.unwrap());
    }

    #[test]
    fn a_pattern_is_found_literally() {
        assert_eq!(glob(&keys("a[*]:{lock}?", KeyValue::String)), r"a\[\*\]:*\?");
    }
}
