//! Observes Redis: the keyspace events of the locks' keys, and the value that each set wrote.
//!
//! An event does not carry the value, so it is asked for; events and the answer come over one connection, in order. If
//! another event of the key came before the answer, the answer is about a later owner, and the first one stays unnamed.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::queue::{Change, Contender};
use super::resp::{self, Value};
use super::{Addresses, Sight, Unasked};

/// How long a new connection may take before another one is tried: the first try at a container that is not up yet is
/// repeated by the kernel only after a second, and what happens meanwhile is not seen.
const REOPEN: Duration = Duration::from_millis(100);
/// What every lock's key begins with.
const KEY_PREFIX: &str = "harness:";

pub struct Redis {
    addresses: Addresses,
    wire: Wire,
}

/// What a key is known to hold: nothing, or somebody's value. An unnamed owner is `Some(None)`.
type Keys = HashMap<String, Option<String>>;

impl Redis {
    pub async fn connect(addresses: Addresses) -> Result<Self, String> {
        let wire = Wire::open(first(&addresses))
            .await
            .map_err(|error| format!("the observer: {error}"))?;
        Ok(Self { addresses, wire })
    }

    pub async fn run(mut self, sight: Sight) {
        let mut keys = Keys::new();
        loop {
            while let Ok((lock, event)) = self.wire.event().await {
                if self.saw(&lock, &event, &mut keys, &sight).await.is_err() {
                    break;
                }
            }
            for (lock, owner) in keys.drain() {
                sight.revoked(&lock, &Contender { owner, token: None }, None);
            }
            loop {
                sight.lost_its_connection().await;
                if let Ok(Ok(wire)) = timeout(REOPEN, Wire::open(first(&self.addresses))).await {
                    self.wire = wire;
                    break;
                }
            }
            // the next error is met by the next event
            let _ = self.catch_up(&mut keys, &sight).await;
        }
    }

    /// Reads which locks are held, after a connection was made; a server that came back empty holds none.
    async fn catch_up(&mut self, keys: &mut Keys, sight: &Sight) -> Result<(), String> {
        let Value::Array(there) = self.wire.ask(&["KEYS", &format!("{KEY_PREFIX}*")]).await? else {
            return Ok(());
        };
        for key in there {
            let Value::Text(key) = key else { continue };
            let Some(lock) = key.strip_prefix(KEY_PREFIX) else {
                continue;
            };
            // its value alone would not say that it is still there
            if let Some(owner) = self.wire.value_of(lock).await? {
                keys.insert(lock.to_owned(), Some(owner.clone()));
                let owner = Some(owner);
                sight.granted(lock, &Contender { owner, token: None });
            }
        }
        Ok(())
    }

    async fn saw(&mut self, lock: &str, event: &str, keys: &mut Keys, sight: &Sight) -> Result<(), String> {
        match event {
            "set" => {
                let owner = self.wire.value_of(lock).await?;
                if owner.is_some() && keys.get(lock) == Some(&owner) {
                    return Ok(());
                }
                let why = match overwrites(keys.get(lock), owner.as_deref(), since_1970()) {
                    Overwrite::Nothing => return Ok(()),
                    Overwrite::Expired => Unasked::Expired,
                    Overwrite::Taken => Unasked::Deleted,
                };
                let replaced = keys.insert(lock.to_owned(), owner.clone());
                if let Some(owner) = replaced {
                    self.gone(lock, owner, why, sight).await;
                }
                sight.granted(lock, &Contender { owner, token: None });
            }
            "del" | "expired" => {
                let why = if event == "expired" {
                    Unasked::Expired
                } else {
                    Unasked::Deleted
                };
                if let Some(owner) = keys.remove(lock) {
                    self.gone(lock, owner, why, sight).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn gone(&self, lock: &str, owner: Option<String>, why: Unasked, sight: &Sight) {
        let why = if owner.is_none() && why == Unasked::Deleted {
            Unasked::Unknown
        } else {
            why
        };
        let contender = Contender { owner, token: None };
        sight
            .record(lock, vec![Change::Revoked(contender)], |_| async move { why })
            .await;
    }
}

/// What it means that a key which is there is set again.
#[derive(Debug, PartialEq, Eq)]
enum Overwrite {
    /// The owner stays: whoever overwrote it has lost, and knows.
    Nothing,
    /// The owner's time was over, and the new value is the next owner's.
    Expired,
    Taken,
}

/// Locks whose value is a deadline are taken over by GETSET. All who see that the deadline has passed overwrite it, and the
/// first of them has the lock: those after it overwrite a deadline that has not passed.
fn overwrites(known: Option<&Option<String>>, new: Option<&str>, now: Duration) -> Overwrite {
    match (known, new.and_then(deadline)) {
        (Some(Some(old)), Some(_)) => match deadline(old) {
            Some(deadline) if deadline < now => Overwrite::Expired,
            Some(_) => Overwrite::Nothing,
            None => Overwrite::Taken,
        },
        // whose value it was is not known, so neither is whether its time was over
        (Some(None), Some(_)) => Overwrite::Nothing,
        _ => Overwrite::Taken,
    }
}

/// The deadline in a value such as `1795263846123:5eed`, since 1970.
fn deadline(value: &str) -> Option<Duration> {
    let (digits, _) = value.split_once(':')?;
    digits.parse().ok().map(Duration::from_millis)
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A plain lock lives on the first server.
fn first(addresses: &Addresses) -> SocketAddr {
    addresses.borrow()[0]
}

/// One connection, read in order.
struct Wire {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Events that came while an answer was waited for.
    waiting: VecDeque<(String, String)>,
}

impl Wire {
    async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        let mut wire = Self {
            stream,
            bytes: Vec::new(),
            waiting: VecDeque::new(),
        };
        wire.ask(&["HELLO", "3"]).await?;
        wire.ask(&["CONFIG", "SET", "notify-keyspace-events", "Kg$x"]).await?;
        wire.send(&["PSUBSCRIBE", &format!("__keyspace@*__:{KEY_PREFIX}*")])
            .await?;
        Ok(wire)
    }

    /// The next event: lock and what happened to its key.
    async fn event(&mut self) -> Result<(String, String), String> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            if let Value::Push(push) = self.next().await? {
                self.waiting.extend(event_of(&push));
            }
        }
    }

    /// The value of a lock's key as its last known event left it; `None` when it is gone, or when more happened to it
    /// before the answer.
    async fn value_of(&mut self, lock: &str) -> Result<Option<String>, String> {
        let answer = self.ask(&["GET", &format!("{KEY_PREFIX}{lock}")]).await?;
        let overtaken = self.waiting.iter().any(|(other, _)| other == lock);
        match answer {
            Value::Text(value) if !overtaken => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    async fn ask(&mut self, words: &[&str]) -> Result<Value, String> {
        self.send(words).await?;
        loop {
            match self.next().await? {
                Value::Push(push) => self.waiting.extend(event_of(&push)),
                Value::Error(error) => return Err(error),
                answer => return Ok(answer),
            }
        }
    }

    async fn send(&mut self, words: &[&str]) -> Result<(), String> {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream
            .write_all(command.as_bytes())
            .await
            .map_err(|error| error.to_string())
    }

    async fn next(&mut self) -> Result<Value, String> {
        loop {
            if let Some((value, length)) = resp::take(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(value);
            }
            if self
                .stream
                .read_buf(&mut self.bytes)
                .await
                .map_err(|error| error.to_string())?
                == 0
            {
                return Err("the server closed the connection".into());
            }
        }
    }
}

/// `pmessage, pattern, __keyspace@0__:<key>, <event>`
fn event_of(push: &[Value]) -> Option<(String, String)> {
    match push {
        [Value::Text(kind), _, Value::Text(channel), Value::Text(event)] if kind == "pmessage" => {
            let key = channel.split_once("__:")?.1;
            // SET with PX raises `expire` as well, which says nothing of the owner
            let tells = matches!(event.as_str(), "set" | "del" | "expired");
            tells.then_some((key.strip_prefix(KEY_PREFIX)?.to_owned(), event.clone()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_is_a_key_with_the_observed_prefix() {
        assert_eq!(harness_workloads::redis::lock_key("l0"), format!("{KEY_PREFIX}l0"));
    }

    #[test]
    fn only_the_first_to_overwrite_a_deadline_that_has_passed_owns_the_lock() {
        let now = Duration::from_millis(5_000);
        let known = |value: &str| Some(Some(value.to_owned()));
        let of = |known: Option<Option<String>>, new| overwrites(known.as_ref(), Some(new), now);
        assert_eq!(of(known("4000:a"), "7000:b"), Overwrite::Expired);
        assert_eq!(of(known("7000:b"), "7001:c"), Overwrite::Nothing);
        assert_eq!(of(Some(None), "7001:c"), Overwrite::Nothing);
        assert_eq!(
            of(known("5eed"), "beef"),
            Overwrite::Taken,
            "a plain value says nothing of time"
        );
        assert_eq!(of(None, "7000:b"), Overwrite::Taken, "nobody was there");
    }

    #[test]
    fn an_event_names_its_lock() {
        let text = |text: &str| Value::Text(text.into());
        let push = [
            text("pmessage"),
            text("x"),
            text("__keyspace@0__:harness:l0"),
            text("expired"),
        ];
        assert_eq!(event_of(&push), Some(("l0".into(), "expired".into())));
        assert_eq!(event_of(&push[..3]), None);
    }
}
