//! The client protocol of harness (docs/client-protocol.md) for locks written in Rust: JSON lines over stdin and stdout.
//!
//! Implement [`Lock`] and call [`serve`]; [`Attempt`] with [`serve_timed`] is for a lock that is not renewed, of a library that is asked
//! once at a time. [`Failure::Refused`] is for an operation that surely did not happen; any error that `?` passes on means that it is not
//! known whether it happened. Each client runs in a thread of its own. Nothing but the protocol may be written to stdout.

#![allow(dead_code, reason = "each client uses its part")]

use std::collections::HashMap;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

pub enum Failure {
    /// It surely did not happen: busy, timeout, not held.
    Refused(String),
    /// It is not known whether it happened.
    Unknown(String),
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Unknown(error.to_string())
    }
}

pub fn refused<T>(reason: &str) -> Result<T, Failure> {
    Err(Failure::Refused(reason.to_owned()))
}

/// A lock that was taken, as far as its library tells.
#[derive(Default)]
pub struct Grant {
    pub token: Option<i64>,
    pub owner: Option<String>,
}

/// Raises the signals of a client.
#[derive(Clone, Copy)]
pub struct Signals {
    client: u64,
}

impl Signals {
    pub fn lost(self, lock: &str, cause: &str) {
        say(&json!({
            "type": "signal", "client": self.client, "f": "lost", "lock": lock, "at": monotonic(), "cause": cause,
        }));
    }
}

/// One client.
pub trait Lock: Sized {
    /// The promises of the lock; "Contract" in docs/client-protocol.md has the fields.
    fn contract() -> Value;

    /// Fails where no server answers.
    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure>;

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure>;

    fn release(&mut self, lock: &str) -> Result<(), Failure>;

    /// Gives a held lock its whole lease again, where the contract has `extends`.
    fn extend(&mut self, _lock: &str) -> Result<(), Failure> {
        refused("its user cannot extend its lease")
    }

    /// Releases all held locks, and closes.
    fn close(self) -> Result<(), Failure>;
}

/// A lock that is not renewed, of a library that asks for it once.
pub trait Attempt: Sized {
    type Held;

    fn contract() -> Value;

    fn open(endpoints: &[String], lease: Duration) -> Result<Self, Failure>;

    /// Asks once; `None`: another one has the lock.
    fn attempt(&mut self, lock: &str) -> Result<Option<Self::Held>, Failure>;

    fn owner(_held: &Self::Held) -> Option<String> {
        None
    }

    fn release(&mut self, held: Self::Held) -> Result<(), Failure>;

    /// Gives a held lock its whole lease again, where the contract has `extends`: harness watches such a lease itself.
    fn extend(&mut self, _held: &mut Self::Held) -> Result<(), Failure> {
        refused("its user cannot extend its lease")
    }
}

/// Fails where half of the Redis servers, or more, do not answer: no lock on a majority can be had there.
pub fn ping_most(endpoints: &[String], limit: Duration) -> Result<(), Failure> {
    let ping = |endpoint: &String| -> io::Result<()> {
        let address = endpoint.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(b"PING\r\n")?;
        stream.read_exact(&mut [0])
    };
    let failed: Vec<io::Error> = endpoints.iter().filter_map(|endpoint| ping(endpoint).err()).collect();
    match failed.into_iter().nth(endpoints.len().div_ceil(2) - 1) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// A name that no other process draws.
pub fn random_name() -> String {
    let mut bytes = [0; 8];
    let drawn = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut bytes));
    drawn.expect("Linux has /dev/urandom");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A server of Redis as a URL.
pub fn redis_url(endpoint: &String) -> String {
    format!("redis://{endpoint}/")
}

/// The contract of a lock with a lease that is not renewed, whose waiters ask again and again, and of which the observer sees nothing,
/// where `own` does not say otherwise; `null` takes a field away.
pub fn leased(own: Value) -> Value {
    let mut contract = json!({
        "lease": true, "renews": false, "tries": true, "wakes": "polls", "owner": "none", "token": "none", "value": "none",
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut contract, own) {
        all.extend(own);
        all.retain(|_, value| !value.is_null());
    }
    contract
}

/// The pause of a waiter before it asks again.
const REST: Duration = Duration::from_millis(20);

/// The hold of an [`Attempt`]. When it is dropped, no loss is raised any more.
struct Hold<H> {
    held: H,
    _until: Option<Sender<()>>,
}

/// A [`Lock`] of an [`Attempt`]. The application looks at its clock: `lost` is raised when 85 % of the lease are over, counted from
/// before the request.
struct Timed<A: Attempt> {
    signals: Signals,
    lease: Duration,
    library: A,
    holds: HashMap<String, Hold<A::Held>>,
}

impl<A: Attempt> Lock for Timed<A> {
    fn contract() -> Value {
        A::contract()
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let library = A::open(endpoints, lease)?;
        Ok(Self { signals, lease, library, holds: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let deadline = Instant::now() + wait;
        loop {
            let asked = Instant::now();
            if let Some(held) = self.library.attempt(lock)? {
                let owner = A::owner(&held);
                let left = (self.lease * 85 / 100).saturating_sub(asked.elapsed());
                let until = (A::contract()["extends"] != true).then(|| tell_when_over(self.signals, lock, left));
                self.holds.insert(lock.to_owned(), Hold { held, _until: until });
                return Ok(Grant { token: None, owner });
            }
            if Instant::now() >= deadline {
                return refused(if wait.is_zero() { "busy" } else { "timeout" });
            }
            thread::sleep(REST);
        }
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        match self.holds.remove(lock) {
            Some(hold) => self.library.release(hold.held),
            None => refused("not held"),
        }
    }

    fn extend(&mut self, lock: &str) -> Result<(), Failure> {
        match self.holds.get_mut(lock) {
            Some(hold) => self.library.extend(&mut hold.held),
            None => refused("not held"),
        }
    }

    fn close(mut self) -> Result<(), Failure> {
        for (_, hold) in self.holds.drain() {
            self.library.release(hold.held)?;
        }
        Ok(())
    }
}

fn tell_when_over(signals: Signals, lock: &str, left: Duration) -> Sender<()> {
    let (until, ended) = mpsc::channel::<()>();
    let lock = lock.to_owned();
    thread::spawn(move || {
        if ended.recv_timeout(left) == Err(RecvTimeoutError::Timeout) {
            signals.lost(&lock, "the lease ends");
        }
    });
    until
}

/// `CLOCK_MONOTONIC` in nanoseconds.
fn monotonic() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

fn say(message: &Value) {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{message}").and_then(|()| out.flush());
    written.expect("harness reads the replies");
}

fn answer(request: &Value, outcome: Result<Value, Failure>) {
    let (kind, mut reply) = match outcome {
        Ok(fields) => ("ok", fields),
        Err(Failure::Refused(error)) => ("fail", json!({ "error": error })),
        Err(Failure::Unknown(error)) => ("info", json!({ "error": error })),
    };
    reply["type"] = kind.into();
    reply["id"] = request["id"].clone();
    say(&reply);
}

fn milliseconds(request: &Value, field: &str) -> Duration {
    Duration::from_millis(request[field].as_u64().unwrap_or_default())
}

fn opened<L: Lock>(request: &Value) -> Result<L, Failure> {
    let signals = Signals { client: request["client"].as_u64().unwrap_or_default() };
    let endpoints = request["endpoints"].as_array().into_iter().flatten();
    let endpoints: Vec<String> = endpoints.filter_map(|endpoint| endpoint.as_str().map(str::to_owned)).collect();
    L::open(signals, &endpoints, milliseconds(request, "lease_ms"))
}

fn granted(grant: Grant) -> Value {
    let mut reply = json!({});
    if let Some(token) = grant.token {
        reply["token"] = token.into();
    }
    if let Some(owner) = grant.owner {
        reply["owner"] = owner.into();
    }
    reply
}

fn perform<L: Lock>(lock: &mut L, request: &Value) -> Result<Value, Failure> {
    let name = request["lock"].as_str().unwrap_or_default();
    match request["op"].as_str().unwrap_or_default() {
        "acquire" => lock.acquire(name, milliseconds(request, "wait_ms")).map(granted),
        "release" => lock.release(name).map(|()| json!({})),
        "extend" => lock.extend(name).map(|()| json!({})),
        other => refused(&format!("no such operation: {other}")),
    }
}

/// One client from `open`, the first request, to `close` or the end of stdin.
fn run<L: Lock>(requests: &Receiver<Value>) {
    let Ok(open) = requests.recv() else { return };
    let mut lock = match opened::<L>(&open) {
        Ok(lock) => lock,
        Err(failure) => return answer(&open, Err(failure)),
    };
    answer(&open, Ok(json!({ "contract": L::contract() })));
    for request in requests {
        if request["op"] == "close" {
            return answer(&request, lock.close().map(|()| json!({})));
        }
        answer(&request, perform(&mut lock, &request));
    }
    if let Err(Failure::Refused(why) | Failure::Unknown(why)) = lock.close() {
        eprintln!("what is held stays for its lease: {why}");
    }
}

/// Serves until stdin ends.
pub fn serve<L: Lock>() {
    let mut served = HashMap::new();
    for line in io::stdin().lines().map_while(Result::ok) {
        let request = serde_json::from_str(&line).unwrap_or(Value::Null);
        if ["id", "client", "op"].iter().any(|field| request[field].is_null()) {
            eprintln!("no request: {line}"); // it has no number to answer with
            continue;
        }
        let number = request["client"].as_u64().unwrap_or_default();
        if request["op"] == "open" {
            let (sender, requests) = mpsc::channel();
            served.insert(number, (sender, thread::spawn(move || run::<L>(&requests))));
        }
        let sent = served.get(&number).is_some_and(|(sender, _)| sender.send(request.clone()).is_ok());
        if !sent {
            answer(&request, refused("this client is not open"));
        }
    }
    for (sender, thread) in served.into_values() {
        drop(sender);
        if thread.join().is_err() {
            eprintln!("a client has panicked");
        }
    }
}

/// [`serve`] for a lock that is not renewed.
pub fn serve_timed<A: Attempt>() {
    serve::<Timed<A>>();
}
