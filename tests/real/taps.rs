//! Taps beside a server's own counters: what a tap counts on its links is what the server says it was asked.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::client_role::LABELS;
use harness_proxy::tap::Protocol;
use harness_proxy::{LinkTap, Proxy, TapHub};

const SOON: Duration = Duration::from_secs(60);

struct RedisServer {
    child: Child,
    address: SocketAddr,
}

impl RedisServer {
    fn start() -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.expect("a free port");
        let port = address.port().to_string();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--loglevel",
            "warning",
        ]);
        let child = command.stdout(Stdio::null()).spawn().expect("`make test` provides it");
        let server = Self { child, address };
        let end = Instant::now() + SOON;
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "redis-server takes connections");
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }

    /// How many commands it carried out since they were last reset, besides those of this connection.
    fn calls(&self) -> u64 {
        let mut asking = RedisConnection::to(self.address);
        let stats = asking.ask("INFO commandstats\r\n", "\r\n\r\n");
        let own = |line: &&str| !line.starts_with("cmdstat_info:") && !line.starts_with("cmdstat_config|resetstat:");
        let calls = stats.lines().filter(own).filter_map(|line| line.split_once(":calls="));
        calls
            .map(|(_, counts)| {
                counts
                    .split(',')
                    .next()
                    .expect("a number")
                    .parse::<u64>()
                    .expect("a number")
            })
            .sum()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct RedisConnection(TcpStream);

impl RedisConnection {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it takes connections");
        stream.set_read_timeout(Some(SOON)).expect("a socket option");
        Self(stream)
    }

    /// Sends commands, and reads until the answer to the last one is there: it ends so.
    fn ask(&mut self, commands: &str, end: &str) -> String {
        self.0.write_all(commands.as_bytes()).expect("sent");
        self.until(end)
    }

    fn until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            let mut part = [0; 4096];
            let length = self.0.read(&mut part).expect("an answer");
            assert!(length > 0, "it goes on: {}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&part[..length]);
        }
        String::from_utf8(text).expect("text")
    }
}

/// A command as clients send it: an array of bulk strings.
fn bulk(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

/// Pipelines, a transaction, and a connection that subscribes and is used for commands again, whose list begins with
/// `message`.
fn speak_resp2(connection: &mut RedisConnection, other: &mut RedisConnection) {
    let pipeline: String = (0..500)
        .map(|number| bulk(&["SET", &format!("k{number}"), "v"]))
        .collect();
    connection.ask(&(pipeline + &bulk(&["ECHO", "piped"])), "piped\r\n");
    let transaction = [
        bulk(&["MULTI"]),
        bulk(&["SET", "a", "1"]),
        bulk(&["INCR", "a"]),
        bulk(&["EXEC"]),
    ]
    .concat();
    connection.ask(&transaction, ":2\r\n");
    connection.ask(&bulk(&["SUBSCRIBE", "news"]), ":1\r\n");
    for number in 0..3 {
        other.ask(&bulk(&["PUBLISH", "news", &format!("number {number}")]), ":1\r\n");
    }
    connection.until("number 2\r\n");
    connection.ask(&bulk(&["UNSUBSCRIBE", "news"]), ":0\r\n");
    connection.ask(&bulk(&["RPUSH", "list", "message", "news", "text"]), ":3\r\n");
    connection.ask(&bulk(&["LRANGE", "list", "0", "-1"]), "text\r\n");
    connection.ask("GET k1\r\n", "v\r\n");
}

/// Pushes of its own messages between the answers.
fn speak_resp3(connection: &mut RedisConnection) {
    connection.ask(&bulk(&["HELLO", "3"]), "modules\r\n*0\r\n");
    connection.ask(&bulk(&["SUBSCRIBE", "other"]), ":1\r\n");
    let published = [
        bulk(&["PUBLISH", "other", "one"]),
        bulk(&["PUBLISH", "other", "two"]),
        bulk(&["ECHO", "after"]),
    ];
    connection.ask(&published.concat(), "after\r\n");
}

#[test]
fn a_tap_counts_the_commands_that_redis_counts() {
    let server = RedisServer::start();
    let proxy = Proxy::start().expect("a thread");
    let (notices, _heard) = tokio::sync::mpsc::channel(64);
    let hub = TapHub::new(Protocol::Resp, LABELS, 1, notices);
    let tap = LinkTap::new(&hub, 0, "c0->n1".into());
    let link = proxy
        .tapped("c0->n1".into(), server.address, 1, Arc::clone(&tap))
        .expect("a link");
    RedisConnection::to(server.address).ask("CONFIG RESETSTAT\r\n", "+OK\r\n");
    let connect = || RedisConnection::to(link.listen());
    let (mut one, mut other, mut newer) = (connect(), connect(), connect());
    speak_resp2(&mut one, &mut other);
    assert_eq!(tap.counts().requests, server.calls(), "RESP2");
    speak_resp3(&mut newer);
    let counts = tap.counts();
    assert_eq!(counts.requests, server.calls(), "and RESP3");
    assert_eq!(counts.notifications, 5, "three and two messages");
    assert_eq!(hub.lost().0, 0, "{:?}", hub.lost().1);
}
