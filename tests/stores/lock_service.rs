//! A lock service over HTTP, in one file without dependencies, so that a test can compile it for a container without anything else.
//!
//! ```text
//! lock-service HOST:PORT                   serves; says `serving` when it does
//! lock-service get HOST:PORT/PATH          prints what a GET answers, as it comes
//!
//! PUT    /locks/NAME?owner=X&ttl_ms=N      200 and {"token":N}; 409 if it is taken
//! DELETE /locks/NAME?owner=X               204; 404 if this owner does not hold it
//! GET    /locks                            how many there are; nothing if there are none
//! GET    /remove?mark=X                    forgets the locks with X in their names
//! GET    /role                             leader
//! GET    /events                           grants and revocations, one JSON object a line
//! ```

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A silent observer says that it is alive this often.
const ALIVE: Duration = Duration::from_millis(200);
/// Leases are looked at this often.
const TICK: Duration = Duration::from_millis(5);

struct Hold {
    owner: String,
    token: u64,
    until: Instant,
}

#[derive(Default)]
struct Locks {
    held: BTreeMap<String, Hold>,
    /// By name, also of locks that are free: tokens go up.
    tokens: BTreeMap<String, u64>,
    observers: Vec<Sender<String>>,
}

impl Locks {
    fn tell(&mut self, line: String) {
        self.observers.retain(|observer| observer.send(line.clone()).is_ok());
    }

    fn granted(name: &str, hold: &Hold) -> String {
        format!(r#"{{"f":"granted","lock":"{name}","owner":"{}","token":{}}}"#, hold.owner, hold.token)
    }

    fn end(&mut self, name: &str, cause: &str) {
        if let Some(hold) = self.held.remove(name) {
            let (owner, token) = (hold.owner, hold.token);
            self.tell(format!(
                r#"{{"f":"revoked","lock":"{name}","owner":"{owner}","token":{token},"cause":"{cause}"}}"#
            ));
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        let over: Vec<String> = self.held.iter().filter(|(_, hold)| hold.until <= now).map(|(name, _)| name.clone()).collect();
        for name in over {
            self.end(&name, "expired");
        }
    }

    /// The token, if the lock is free or this owner's; its lease begins again.
    fn put(&mut self, name: &str, owner: &str, ttl: Duration) -> Option<u64> {
        self.expire();
        let until = Instant::now() + ttl;
        if let Some(hold) = self.held.get_mut(name) {
            let own = hold.owner == owner;
            if own {
                hold.until = until;
            }
            return own.then_some(hold.token);
        }
        let token = self.tokens.entry(name.to_owned()).or_default();
        *token += 1;
        let hold = Hold {
            owner: owner.to_owned(),
            token: *token,
            until,
        };
        let (line, token) = (Self::granted(name, &hold), hold.token);
        self.held.insert(name.to_owned(), hold);
        self.tell(line);
        Some(token)
    }

    fn delete(&mut self, name: &str, owner: &str) -> bool {
        self.expire();
        let own = self.held.get(name).is_some_and(|hold| hold.owner == owner);
        if own {
            self.end(name, "deleted");
        }
        own
    }

    fn observe(&mut self) -> Receiver<String> {
        let (sender, lines) = channel();
        for (name, hold) in &self.held {
            let _ = sender.send(Self::granted(name, hold));
        }
        self.observers.push(sender);
        lines
    }
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match &words[1..] {
        [get, url] if get == "get" => print(url),
        [address] => serve(address),
        _ => panic!("lock-service HOST:PORT, or lock-service get HOST:PORT/PATH"),
    }
}

fn serve(address: &str) {
    let listener = TcpListener::bind(address).expect("the address is free");
    let locks = Arc::new(Mutex::new(Locks::default()));
    let expiring = Arc::clone(&locks);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(TICK);
            expiring.lock().unwrap().expire();
        }
    });
    println!("serving");
    for stream in listener.incoming().flatten() {
        let locks = Arc::clone(&locks);
        std::thread::spawn(move || while answer(&stream, &locks).is_some() {});
    }
}

/// Answers one request; `None` when the connection is over.
fn answer(stream: &TcpStream, locks: &Mutex<Locks>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut head = String::new();
    let mut reader = BufReader::new(stream);
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut words = head.split_whitespace();
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let value = |name: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|(key, _)| *key == name);
    let value = |name: &str| value(name).map_or("", |(_, value)| value);
    match (method, path.strip_prefix("/locks/")) {
        ("PUT", Some(name)) => {
            let ttl = Duration::from_millis(value("ttl_ms").parse().unwrap_or(0));
            match locks.lock().unwrap().put(name, value("owner"), ttl) {
                Some(token) => reply(stream, "200 OK", &format!("{{\"token\":{token}}}")),
                None => reply(stream, "409 Conflict", "{}"),
            }
        }
        ("DELETE", Some(name)) => match locks.lock().unwrap().delete(name, value("owner")) {
            true => reply(stream, "204 No Content", ""),
            false => reply(stream, "404 Not Found", "{}"),
        },
        _ if path == "/role" => reply(stream, "200 OK", "leader\n"),
        _ if path == "/locks" => match locks.lock().unwrap().tokens.len() {
            0 => reply(stream, "200 OK", ""),
            count => reply(stream, "200 OK", &format!("{count} locks\n")),
        },
        _ if path == "/remove" => {
            let mut locks = locks.lock().unwrap();
            let own = |name: &str| !value("mark").is_empty() && name.contains(value("mark"));
            locks.held.retain(|name, _| !own(name));
            locks.tokens.retain(|name, _| !own(name));
            reply(stream, "200 OK", "")
        }
        _ if path == "/events" => {
            let lines = locks.lock().unwrap().observe();
            events(stream, &lines)
        }
        _ => reply(stream, "404 Not Found", "{}"),
    }
}

fn reply(mut stream: &TcpStream, status: &str, body: &str) -> Option<()> {
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).ok()
}

fn events(mut stream: &TcpStream, lines: &Receiver<String>) -> Option<()> {
    stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok()?;
    loop {
        let line = match lines.recv_timeout(ALIVE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => r#"{"f":"alive"}"#.to_owned(),
            Err(RecvTimeoutError::Disconnected) => return None,
        };
        stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    }
}

/// Prints the body of an answer: to its length where it says one, else to the end of the connection.
fn print(url: &str) {
    let (address, path) = url.split_once('/').expect("HOST:PORT/PATH");
    let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    (&stream).write_all(request.as_bytes()).expect("it reads");
    let mut reader = BufReader::new(&stream);
    let mut length = None;
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).expect("it answers") > 0, "{address} closed the connection");
        length = line.strip_prefix("Content-Length: ").map_or(length, |length| length.trim().parse::<u64>().ok());
    }
    let mut out = std::io::stdout();
    let mut body = reader.take(length.unwrap_or(u64::MAX));
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = body.read(&mut part) {
        if out.write_all(&part[..read]).and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
