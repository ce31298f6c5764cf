//! A connection to a Redis server by RESP3, read in the order of the server: replies and pushes.

use std::collections::VecDeque;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::resp::{self, RespValue};
use crate::cluster::{ByteStream, ServerAccess};

/// The number of keys that a server scans for one answer.
const PORTION: &str = "1000";

pub struct RespConnection {
    stream: Box<dyn ByteStream>,
    read: BytesMut,
    /// Commands that are not sent yet.
    unsent: BytesMut,
    /// Pushes that came during the wait for a reply.
    pub pushes: VecDeque<Vec<RespValue>>,
}

impl RespConnection {
    /// Opens a connection and logs in, if the server needs that.
    pub async fn open(server: &ServerAccess) -> Result<Self, String> {
        let mut connection = Self {
            stream: server.connect().await?,
            read: BytesMut::new(),
            unsent: BytesMut::new(),
            pushes: VecDeque::new(),
        };
        let mut hello = vec!["HELLO", "3"];
        if let Some(login) = server.login() {
            hello.extend(["AUTH", &login.user, &login.password]);
        }
        connection.ask(&hello).await?;
        Ok(connection)
    }

    /// Sends a command and waits for its reply; the error is the server's.
    pub async fn ask(&mut self, words: &[&str]) -> Result<RespValue, String> {
        self.send(words).await?;
        loop {
            match self.next().await? {
                RespValue::Push(push) => self.pushes.push_back(push),
                RespValue::Error(error) => return Err(error),
                reply => return Ok(reply),
            }
        }
    }

    /// Returns the answer to `INFO`, or to `INFO` for one section.
    pub async fn info(&mut self, section: Option<&str>) -> Result<String, String> {
        let words: Vec<&str> = ["INFO"].into_iter().chain(section).collect();
        match self.ask(&words).await? {
            RespValue::Text(text) => Ok(text),
            _ => Err("its answer to INFO is not text".into()),
        }
    }

    /// Returns the keys that match a pattern, in several requests.
    pub async fn scan(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let mut cursor = "0".to_owned();
        let mut keys = Vec::new();
        loop {
            let answer = self.ask(&["SCAN", &cursor, "MATCH", pattern, "COUNT", PORTION]).await?;
            let RespValue::Array(parts) = answer else {
                return Err("its answer to SCAN is not a list".into());
            };
            let mut parts = parts.into_iter();
            let next = parts.next().map(RespValue::texts).unwrap_or_default();
            keys.extend(parts.next().map(RespValue::texts).unwrap_or_default());
            match next.into_iter().next() {
                Some(next) if next != "0" => cursor = next,
                _ => break,
            }
        }
        // a scan may return a key twice
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Sends a command without waiting for its reply.
    pub async fn send(&mut self, words: &[&str]) -> Result<(), String> {
        self.queue(words);
        self.flush().await
    }

    /// Queues a command for [`Self::flush`].
    pub fn queue(&mut self, words: &[&str]) {
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.unsent.extend_from_slice(command.as_bytes());
    }

    /// Sends the queue. The next call sends the rest after the future is dropped.
    pub async fn flush(&mut self) -> Result<(), String> {
        while !self.unsent.is_empty() {
            let sent = self.stream.write_buf(&mut self.unsent).await;
            sent.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Returns the next reply or push. No bytes are lost when the future is dropped.
    pub async fn next(&mut self) -> Result<RespValue, String> {
        self.flush().await?;
        loop {
            if let Some((value, length)) = resp::take(&self.read)? {
                self.read.advance(length);
                return Ok(value);
            }
            let read = self.stream.read_buf(&mut self.read).await;
            if read.map_err(|error| error.to_string())? == 0 {
                return Err("the server closed the connection".into());
            }
        }
    }
}
