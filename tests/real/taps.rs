//! Taps compared with a server's own counters: the messages that a tap counts on its links are those that the server counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use harness::client_role::LABELS;
use harness::cluster::find_program;
use harness_proxy::tap::Protocol;
use harness_proxy::{Link, LinkControl, LinkTap, Proxy, TapCounts, TapHub, TapNotification};
use harness_workloads::BackendId;
use nix::sys::signal::Signal;

use crate::machine::{LIMIT, OneServer, OwnServer, ask, send, succeeds, until, until_ok};

mod mysql;

impl OwnServer {
    /// Returns the number of commands that it executed since the last reset, without those of this connection and `others`.
    fn calls_without(&self, others: &[&str]) -> u64 {
        let mut asking = RedisConnection::to(self.address);
        let stats = asking.ask("INFO commandstats\r\n", "\r\n\r\n");
        let calls = stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(":calls="));
        let calls = calls.filter(|(name, _)| !["info", "config|resetstat"].contains(name) && !others.contains(name));
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

struct RedisConnection(TcpStream);

impl RedisConnection {
    fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it takes connections");
        stream.set_read_timeout(Some(LIMIT)).expect("a socket option");
        Self(stream)
    }

    /// Sends commands, and reads until the answer to the last one, which ends like this.
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

/// Returns a command as clients send it: an array of bulk strings.
fn bulk(words: &[&str]) -> String {
    let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), words.collect::<String>())
}

/// Sends pipelines, a transaction, and on one connection a subscription and then commands, one of which returns a list
/// that begins with `message`.
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

/// Receives pushes of its own messages between the answers.
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

/// A server behind a link with a tap.
struct TappedLink {
    hub: Arc<TapHub>,
    tap: Arc<LinkTap>,
    link: Arc<Link>,
    _proxy: Proxy,
    _heard: tokio::sync::mpsc::Receiver<TapNotification>,
}

impl TappedLink {
    fn to(server: SocketAddr, protocol: Protocol) -> Self {
        let proxy = Proxy::start().expect("a thread");
        let (notices, heard) = tokio::sync::mpsc::channel(10_000);
        let hub = TapHub::new(protocol, LABELS, 1, notices);
        let tap = LinkTap::new(&hub, 0, "c0->n1".into());
        let link = proxy.tapped("c0->n1".into(), server, 1, Arc::clone(&tap));
        Self {
            hub,
            tap,
            link: link.expect("a link"),
            _proxy: proxy,
            _heard: heard,
        }
    }

    /// Returns the counts after the end of all connections: the last message of a client may still be under way.
    fn counts(&self) -> TapCounts {
        until("the end of all connections", || self.link.live() == 0);
        assert_eq!(self.hub.lost().0, 0, "{:?}", self.hub.lost().1);
        self.tap.counts()
    }

    /// Runs a program of Python with this link's port, with the interpreter of the adapter's libraries. Returns `None`
    /// if they are not installed.
    fn python(&self, adapter: &str, program: &str) -> Option<String> {
        let adapter = harness::adapters::typed(adapter).expect("the list can be read");
        let adapter = adapter.expect("it is in the list");
        let Ok(command) = adapter.command() else {
            eprintln!(
                "left out: `harness adapters {}` installs {}",
                adapter.name, adapter.library
            );
            return None;
        };
        // both are quoted for a shell
        let (interpreter, _) = command.split_once(' ').expect("an interpreter and a file");
        let started = format!(r#"{interpreter} -c "$0" "$1""#);
        let port = self.link.listen().port().to_string();
        Some(succeeds(Command::new("sh").args(["-c", &started, program, &port])))
    }
}

#[test]
fn a_tap_counts_the_commands_that_redis_counts() {
    let server = OwnServer::redis(&["--loglevel", "warning"]);
    let tapped = TappedLink::to(server.address, Protocol::Resp);
    RedisConnection::to(server.address).ask("CONFIG RESETSTAT\r\n", "+OK\r\n");
    let connect = || RedisConnection::to(tapped.link.listen());
    let (mut one, mut other, mut newer) = (connect(), connect(), connect());
    speak_resp2(&mut one, &mut other);
    assert_eq!(tapped.tap.counts().requests, server.calls_without(&[]), "RESP2");
    speak_resp3(&mut newer);
    let counts = tapped.tap.counts();
    assert_eq!(counts.requests, server.calls_without(&[]), "and RESP3");
    assert_eq!(counts.notifications, 5, "three and two messages");
    assert_eq!(tapped.hub.lost().0, 0, "{:?}", tapped.hub.lost().1);
}

#[test]
fn a_tap_counts_what_redis_py_asks() {
    let server = OwnServer::redis(&["--loglevel", "warning"]);
    let tapped = TappedLink::to(server.address, Protocol::Resp);
    RedisConnection::to(server.address).ask("CONFIG RESETSTAT\r\n", "+OK\r\n");
    let Some(published) = tapped.python("redis-py", include_str!("taps/redis_py.py")) else {
        return;
    };
    let counts = tapped.counts();
    // the script of its lock calls these two; clients do not send them
    assert_eq!(counts.requests, server.calls_without(&["get", "del"]));
    assert!(counts.requests > 2000, "{counts:?}");
    assert_eq!(counts.notifications.to_string(), published.trim());
}

impl OneServer {
    /// Returns the whole answer until the server closes the connection.
    fn answer(&self, question: &str) -> String {
        ask(self.address, question.as_bytes()).expect("an answer")
    }

    /// Returns the numbers of packets that ZooKeeper received and sent.
    fn packets(&self) -> [u64; 2] {
        let text = self.answer("srvr");
        ["Received: ", "Sent: "].map(|name| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.expect("a counter").parse().expect("a number")
        })
    }

    /// Returns the same numbers after it has counted all earlier requests, and the numbers that one reading adds.
    fn packets_before(&self) -> ([u64; 2], [u64; 2]) {
        let mut readings = vec![self.packets()];
        let added = |pair: &[[u64; 2]]| [0, 1].map(|way| pair[1][way].saturating_sub(pair[0][way]));
        loop {
            std::thread::sleep(Duration::from_millis(100));
            readings.push(self.packets());
            let adds: Vec<[u64; 2]> = readings.windows(2).map(added).collect();
            if let [.., first, second, third] = adds[..]
                && first == second
                && second == third
            {
                return (readings[readings.len() - 1], third);
            }
            assert!(readings.len() < 100, "one reading adds as much as another: {adds:?}");
        }
    }

    /// Returns the numbers of messages that etcd's gRPC server received and sent.
    fn messages(&self) -> [u64; 2] {
        let text = self.answer("GET /metrics HTTP/1.0\r\n\r\n");
        ["received", "sent"].map(|way| {
            let name = format!("grpc_server_msg_{way}_total{{");
            let lines = text.lines().filter(|line| line.starts_with(&name));
            let counts = lines.filter_map(|line| line.rsplit_once(' '));
            counts.map(|(_, count)| count.parse::<u64>().expect("a number")).sum()
        })
    }
}

/// Waits until the counters of a server and a tap agree: servers count a message after they sent it.
fn agrees(tap: TapCounts, server: impl FnMut() -> [u64; 2]) {
    agrees_but_for(0, tap, server);
}

/// Like [`agrees`], but for this number of messages that the server sent to clients which had just ended.
fn agrees_but_for(untaken: u64, tap: TapCounts, mut server: impl FnMut() -> [u64; 2]) {
    let tap = [tap.requests, tap.replies + tap.notifications];
    until_ok(|| {
        let counted = server();
        let agree = counted[0] == tap[0] && (tap[1]..=tap[1] + untaken).contains(&counted[1]);
        let why = || format!("the server says {counted:?}, and the tap {tap:?}");
        agree.then_some(()).ok_or_else(why)
    });
}

#[test]
fn a_tap_counts_the_packets_that_zookeeper_counts() {
    let server = OneServer::start(BackendId::Zk);
    let tapped = TappedLink::to(server.address, Protocol::Zk);
    let (before, reading) = server.packets_before();
    if tapped
        .python("kazoo-lock", include_str!("taps/kazoo_client.py"))
        .is_none()
    {
        return;
    }
    let counts = tapped.counts();
    let mut readings = 0;
    agrees(counts, || {
        readings += 1;
        let after = server.packets();
        [0, 1].map(|way| after[way].saturating_sub(before[way] + readings * reading[way]))
    });
    assert!(counts.requests > 300 && counts.notifications >= 4, "{counts:?}");
}

#[test]
fn a_tap_counts_the_messages_that_etcd_counts() {
    let server = OneServer::start(BackendId::Etcd);
    let tapped = TappedLink::to(server.address, Protocol::Grpc);
    if find_program("etcdctl").is_none() {
        eprintln!("left out: etcdctl is in Debian's package etcd-client");
        return;
    }
    let etcdctl = |words: &str| {
        let mut command = Command::new("etcdctl");
        command
            .env("ETCDCTL_API", "3")
            .arg("--endpoints")
            .arg(tapped.link.listen().to_string());
        command.args(words.split(' '));
        command
    };
    let before = server.messages();
    for words in [
        "put a 1",
        "get a",
        "get --prefix a",
        "del a",
        "endpoint status",
        "member list",
        "lease list",
    ] {
        succeeds(&mut etcdctl(words));
    }
    let granted = succeeds(&mut etcdctl("lease grant 60"));
    let lease = granted.split(' ').nth(1).expect("its id");
    succeeds(&mut etcdctl(&format!("lease keep-alive --once {lease}")));
    succeeds(&mut etcdctl(&format!("put --lease {lease} b 2")));
    succeeds(&mut etcdctl("lock l true"));
    watch_and_observe(&etcdctl);
    let counts = tapped.counts();
    agrees_but_for(UNTAKEN, counts, || {
        let after = server.messages();
        [0, 1].map(|way| after[way] - before[way])
    });
    // three keys, and the leader's next value
    assert!(counts.requests > 20 && counts.notifications >= 4, "{counts:?}");
}

/// The event of the leader's end, which may be sent to the observer that was just killed.
const UNTAKEN: u64 = 1;

/// Runs a watch that sees three events, and an observer of an election that sees a leader and its next value.
fn watch_and_observe(etcdctl: &dyn Fn(&str) -> Command) {
    let mut watching = LineReader::of(&mut etcdctl("watch --prefix key"));
    // the watch may not have begun
    let mut written = 0;
    while !watching.has_line() {
        succeeds(&mut etcdctl("put key-early x"));
        written += 1;
    }
    for line in ["key-one", "key-two"] {
        succeeds(&mut etcdctl(&format!("put {line} x")));
        watching.until(line);
    }
    assert!(written > 0);
    let mut leader = LineReader::of(&mut etcdctl("elect election first"));
    leader.until("first");
    let mut observing = LineReader::of(&mut etcdctl("elect --listen election"));
    observing.until("first");
    let key = succeeds(&mut etcdctl("get --prefix --keys-only election/"));
    succeeds(&mut etcdctl(&format!("put {} second", key.trim())));
    // the server has read the request of a watch whose event came
    observing.until("second");
    // at an interrupt, and at the end of its leader, it cancels the watch and resets the call at once: a server may not read that request,
    // which the tap counts
    observing.child.kill().expect("it runs");
    drop(observing);
}

/// A program and its output. It is interrupted when this is dropped, and ends before the drop does.
struct LineReader {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    early: bool,
}

impl LineReader {
    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        Self {
            child,
            lines,
            early: false,
        }
    }

    fn has_line(&mut self) -> bool {
        self.early |= self.lines.recv_timeout(Duration::from_millis(200)).is_ok();
        self.early
    }

    fn until(&mut self, wanted: &str) {
        loop {
            let line = self.lines.recv_timeout(LIMIT);
            if line.unwrap_or_else(|_| panic!("it prints {wanted}")) == wanted {
                return;
            }
        }
    }
}

impl Drop for LineReader {
    fn drop(&mut self) {
        send(self.child.id(), Signal::SIGINT);
        let _ = self.child.wait();
    }
}
