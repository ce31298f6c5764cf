//! A master and its replica: which is which, and what one has of the other.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::Hand;
use crate::limits::{PROBE, READY_POLL};

impl Hand {
    /// The node that clients are not led to.
    pub fn replica(&self) -> Option<u32> {
        let places = self.places();
        let front = places.front()?;
        (0..places.nodes().len() as u32).find(|node| *node != front)
    }

    /// The keys that a node has; `None` when it does not answer.
    pub async fn keys(&self, node: u32) -> Option<Vec<String>> {
        let answer = self.ask(node, "KEYS *").await?;
        Some(keys_in(&answer))
    }

    /// Waits until a replica has everything that its master has written by now; returns whether it does.
    pub async fn in_step(&self, replica: u32, master: u32, within: Duration) -> bool {
        let deadline = Instant::now() + within;
        let written = self.offset(master, "master_repl_offset:").await;
        let Some(written) = written else { return false };
        while self
            .offset(replica, "slave_repl_offset:")
            .await
            .is_none_or(|read| read < written)
        {
            if Instant::now() >= deadline {
                return false;
            }
            sleep(READY_POLL / 10).await;
        }
        true
    }

    async fn offset(&self, node: u32, which: &str) -> Option<u64> {
        let answer = self.ask(node, "INFO replication").await?;
        answer
            .lines()
            .find_map(|line| line.strip_prefix(which))?
            .trim()
            .parse()
            .ok()
    }

    async fn ask(&self, node: u32, question: &str) -> Option<String> {
        let address = self.address(node);
        let asked = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all(format!("{question}\r\nQUIT\r\n").as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.map(|_| answer)
        };
        timeout(PROBE, asked).await.ok()?.ok()
    }
}

/// The strings of an array: what follows each line that gives a length.
fn keys_in(answer: &str) -> Vec<String> {
    let mut lines = answer.lines();
    let mut keys = Vec::new();
    while let Some(line) = lines.next() {
        if line.starts_with('$') {
            keys.extend(lines.next().map(str::to_owned));
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_what_the_server_lists() {
        assert_eq!(keys_in("*2\r\n$2\r\nl0\r\n$1\r\nx\r\n+OK\r\n"), ["l0", "x"]);
        assert_eq!(keys_in("*0\r\n+OK\r\n"), Vec::<String>::new());
    }
}
