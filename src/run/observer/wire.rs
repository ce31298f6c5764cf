//! One connection of the observer to a Redis server, read in order: keyspace events, and the answers to its questions.
//!
//! An event does not carry the value, so it is asked for; events and the answer come over one connection, in order. If
//! another event of the key came before the answer, the answer is about a later owner, and the first one stays unnamed.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::resp::{self, Value};

/// What every lock's key begins with.
const KEY_PREFIX: &str = "harness:";

/// One connection, read in order.
pub struct Wire {
    stream: TcpStream,
    bytes: Vec<u8>,
    /// Events that came while an answer was waited for.
    waiting: VecDeque<(String, String)>,
}

impl Wire {
    pub async fn open(address: SocketAddr) -> Result<Self, String> {
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
    pub async fn event(&mut self) -> Result<(String, String), String> {
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
    pub async fn value_of(&mut self, lock: &str) -> Result<Option<String>, String> {
        let answer = self.ask(&["GET", &format!("{KEY_PREFIX}{lock}")]).await?;
        let overtaken = self.waiting.iter().any(|(other, _)| other == lock);
        match answer {
            Value::Text(value) if !overtaken => Ok(Some(value)),
            _ => Ok(None),
        }
    }

    /// The locks that are held, and by which value; a server that came back empty holds none.
    pub async fn held(&mut self) -> Result<Vec<(String, String)>, String> {
        let mut held = Vec::new();
        let Value::Array(there) = self.ask(&["KEYS", &format!("{KEY_PREFIX}*")]).await? else {
            return Ok(held);
        };
        for key in there {
            let Value::Text(key) = key else { continue };
            let Some(lock) = key.strip_prefix(KEY_PREFIX) else {
                continue;
            };
            // its value alone would not say that it is still there
            if let Some(owner) = self.value_of(lock).await? {
                held.push((lock.to_owned(), owner));
            }
        }
        Ok(held)
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
