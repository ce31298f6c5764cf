//! A lock client for harness: put your lock in the place of the calls to Redis. `harness_client.rs` is the protocol.

mod harness_client;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use harness_client::{random_name, refused, serve, Failure, Grant, Lock, Signals};
use serde_json::{json, Value};

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const COMPARE_AND_EXTEND: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

enum Answer {
    Nothing,
    Number(i64),
    Text,
}

/// One connection; a call that fails or times out closes it, so that no answer is taken for another's.
struct Redis {
    stream: BufReader<TcpStream>,
}

impl Redis {
    fn connect(endpoint: &str, timeout: Duration) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::NotFound, "the endpoint has no address");
        let address = endpoint.to_socket_addrs()?.next().ok_or_else(none)?;
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    fn call(&mut self, words: &[&str]) -> Result<Answer, Failure> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(Failure::Unknown("the server closed the connection".into()));
        };
        let number = |text: &str| text.parse().map_err(|_| Failure::Unknown(format!("an answer that is none: {line}")));
        match line.split_at(1) {
            (":", text) => Ok(Answer::Number(number(text)?)),
            ("-", text) => refused(text),
            ("$", "-1") => Ok(Answer::Nothing),
            ("$", size) => {
                let mut value = vec![0; number(size)? as usize + 2];
                self.stream.read_exact(&mut value)?;
                Ok(Answer::Text)
            }
            _ => Ok(Answer::Text),
        }
    }
}

/// A lock that is held: its value on the server. When this is dropped, there is no lost signal any more.
struct Hold {
    value: String,
    _until: Sender<()>,
}

struct MyLock {
    signals: Signals,
    endpoint: String,
    lease: Duration,
    redis: Option<Redis>,
    held: HashMap<String, Hold>,
    /// Locks and values of unknown operations.
    leftovers: Vec<(String, String)>,
}

impl MyLock {
    fn call(&mut self, words: &[&str]) -> Result<Answer, Failure> {
        let mut redis = match self.redis.take() {
            Some(redis) => redis,
            None => Redis::connect(&self.endpoint, self.lease / 3)?,
        };
        let answer = redis.call(words);
        if !matches!(answer, Err(Failure::Unknown(_))) {
            self.redis = Some(redis);
        }
        answer
    }

    fn delete(&mut self, lock: &str, value: &str) -> Result<bool, Failure> {
        match self.call(&["EVAL", COMPARE_AND_DELETE, "1", &format!("harness:{lock}"), value]) {
            Ok(answer) => Ok(matches!(answer, Answer::Number(1))),
            Err(failure) => {
                if let Failure::Unknown(_) = failure {
                    self.leftovers.push((lock.to_owned(), value.to_owned())); // it may have happened or not
                }
                Err(failure)
            }
        }
    }

    fn hold(&mut self, lock: &str, value: String, asked: Instant) -> Result<Grant, Failure> {
        if self.believe(lock, &value, asked) {
            return Ok(Grant { token: None, owner: Some(value) });
        }
        self.delete(lock, &value)?;
        refused("timeout")
    }

    fn believe(&mut self, lock: &str, value: &str, asked: Instant) -> bool {
        // counted from before the request was sent, so that it ends earlier here than on the server
        let left = (self.lease * 85 / 100).saturating_sub(asked.elapsed());
        if left.is_zero() {
            return false;
        }
        let (until, ended) = mpsc::channel::<()>();
        let (signals, name) = (self.signals, lock.to_owned());
        thread::spawn(move || {
            if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
                signals.lost(&name, "lease ends");
            }
        });
        self.held.insert(lock.to_owned(), Hold { value: value.to_owned(), _until: until });
        true
    }
}

impl Lock for MyLock {
    /// The promises of this lock: docs/client-protocol.md has the words.
    fn contract() -> Value {
        json!({
            "lease": true, "renews": false, "extends": true, "fifo": false, "tries": true, "wakes": "polls",
            "owner": "server", "token": "none", "keys": "harness:{lock}", "value": "string",
        })
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let endpoint = endpoints.first().cloned().unwrap_or_default();
        let mut client = Self { signals, endpoint, lease, redis: None, held: HashMap::new(), leftovers: Vec::new() };
        client.call(&["PING"])?; // `open` fails if there is no connection
        Ok(client)
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let deadline = Instant::now() + wait;
        while let Some((lock, value)) = self.leftovers.pop() {
            if let Err(Failure::Unknown(why) | Failure::Refused(why)) = self.delete(&lock, &value) {
                return refused(&format!("cleaning up first: {why}")); // the lock was not asked for yet
            }
        }
        let value = random_name();
        let lease = self.lease.as_millis().to_string();
        loop {
            let asked = Instant::now();
            match self.call(&["SET", &format!("harness:{lock}"), &value, "NX", "PX", &lease]) {
                Ok(Answer::Nothing) => {}
                Ok(_) => return self.hold(lock, value, asked),
                Err(failure) => {
                    if let Failure::Unknown(_) = failure {
                        self.leftovers.push((lock.to_owned(), value)); // it may have happened or not
                    }
                    return Err(failure);
                }
            }
            if Instant::now() >= deadline {
                return refused(if wait.is_zero() { "busy" } else { "timeout" });
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn extend(&mut self, lock: &str) -> Result<(), Failure> {
        let Some(value) = self.held.get(lock).map(|hold| hold.value.clone()) else {
            return refused("not held");
        };
        let (asked, lease) = (Instant::now(), self.lease.as_millis().to_string());
        match self.call(&["EVAL", COMPARE_AND_EXTEND, "1", &format!("harness:{lock}"), &value, &lease])? {
            Answer::Number(1) => {
                self.believe(lock, &value, asked);
                Ok(())
            }
            _ => refused("not held: it expired"),
        }
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some(hold) = self.held.remove(lock) else {
            return refused("not held");
        };
        if self.delete(lock, &hold.value)? {
            Ok(())
        } else {
            refused("not held: it expired")
        }
    }

    fn close(mut self) -> Result<(), Failure> {
        let locks: Vec<String> = self.held.keys().cloned().collect();
        locks.iter().try_for_each(|lock| self.release(lock))
    }
}

fn main() {
    serve::<MyLock>();
}
