//! Keyspace events of a Redis server, and the values of the keys they tell of, over one connection.
//!
//! <https://redis.io/docs/latest/develop/pubsub/keyspace-notifications/>
//!
//! An event does not carry the value, so it is asked for; events and the answer come over one connection, in order. If
//! another event of the key came before the answer, the answer is about a later owner, and the first one stays unnamed.

use std::collections::VecDeque;
use std::net::SocketAddr;

use super::connection::RespConnection;
use super::resp::RespValue;

/// What every lock's key begins with.
const KEY_PREFIX: &str = "harness:";

pub struct KeyspaceConnection {
    connection: RespConnection,
    /// Events that came while an answer was waited for: lock and what happened to its key.
    waiting: VecDeque<(String, String)>,
}

impl KeyspaceConnection {
    pub async fn open(address: SocketAddr) -> Result<Self, String> {
        let mut connection = RespConnection::open(address).await?;
        let events = ["CONFIG", "SET", "notify-keyspace-events", "Kg$x"];
        connection.ask(&events).await?;
        let pattern = format!("__keyspace@*__:{KEY_PREFIX}*");
        connection.send(&["PSUBSCRIBE", &pattern]).await?;
        Ok(Self {
            connection,
            waiting: VecDeque::new(),
        })
    }

    /// The next event: lock and what happened to its key.
    pub async fn event(&mut self) -> Result<(String, String), String> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Ok(event);
            }
            let push = self.connection.push().await?;
            self.waiting.extend(event_of(&push));
        }
    }

    /// The value of a lock's key as its last known event left it; `None` when it is gone, or when more happened to it
    /// before the answer.
    pub async fn value_of(&mut self, lock: &str) -> Result<Option<String>, String> {
        let answer = self.ask(&["GET", &format!("{KEY_PREFIX}{lock}")]).await?;
        let overtaken = self.waiting.iter().any(|(other, _)| other == lock);
        match answer {
            RespValue::Text(value) if !overtaken => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// The locks that are held, and by which value; a server that came back empty holds none.
    pub async fn held(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut held = Vec::new();
        for key in self.ask(&["KEYS", &format!("{KEY_PREFIX}*")]).await?.texts() {
            let Some(lock) = key.strip_prefix(KEY_PREFIX) else {
                continue;
            };
            // the list of keys does not say that the key still exists; its value does
            if let Some(owner) = self.value_of(lock).await? {
                held.push((lock.to_owned(), owner));
            }
        }
        Ok(held)
    }

    async fn ask(&mut self, words: &[&str]) -> Result<RespValue, String> {
        let answer = self.connection.ask(words).await;
        let pushes = self.connection.pushes.drain(..);
        self.waiting.extend(pushes.filter_map(|push| event_of(&push)));
        answer
    }
}

/// `pmessage, pattern, __keyspace@0__:<key>, <event>`
fn event_of(push: &[RespValue]) -> Option<(String, String)> {
    match push {
        [
            RespValue::Text(kind),
            _,
            RespValue::Text(channel),
            RespValue::Text(event),
        ] if kind == "pmessage" => {
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
    fn an_event_names_its_lock() {
        let text = |text: &str| RespValue::Text(text.into());
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
