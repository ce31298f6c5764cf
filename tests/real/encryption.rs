//! Encryption (`--tls`): servers that speak TLS have the same faults and verdicts, refuse strangers, and no output has a key.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::scope;
use std::time::Duration;

use super::authentication::{GuardedRun, each_file};
use super::foreign::page_client;
use crate::command::{Answer, Harness};
use crate::machine::until_ok;

/// Python's own TLS, which shares no code with that of harness: sends a request to a server, and prints the answer up to this text.
const STRANGER: &str = r#"
import socket, ssl, sys
host, port, ca, wanted, *identity = sys.argv[1:]
tls = ssl.create_default_context(cafile=ca)
if identity:
    tls.load_cert_chain(*identity)
stream = tls.wrap_socket(socket.create_connection((host, int(port)), timeout=10), server_hostname=host)
stream.sendall(sys.stdin.buffer.read())
answer = more = stream.recv(4096)
while more and wanted.encode() not in answer:
    answer += (more := stream.recv(4096))
sys.stdout.buffer.write(answer)
sys.exit(not answer)
"#;

/// The files of the clients of a run.
struct ClientFiles {
    ca: PathBuf,
    identity: [PathBuf; 2],
}

impl ClientFiles {
    fn of(run: &GuardedRun) -> Self {
        // the environment of a process is empty for a moment during `execve`
        let given = |name: &str| {
            PathBuf::from(until_ok(|| {
                run.given(name).ok_or_else(|| format!("clients have no {name}"))
            }))
        };
        Self {
            ca: given("HARNESS_TLS_CA"),
            identity: ["HARNESS_TLS_CERT", "HARNESS_TLS_KEY"].map(given),
        }
    }

    /// Returns the answer of a server to this question; `None` if it refuses the connection.
    fn ask(&self, server: SocketAddr, with_certificate: bool, question: &[u8], wanted: &str) -> Option<String> {
        let mut python = Command::new("python3");
        python.args(["-c", STRANGER, "127.0.0.1", &server.port().to_string()]);
        python.arg(&self.ca).arg(wanted);
        if with_certificate {
            python.args(&self.identity);
        }
        let mut asking = python
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("Python is installed");
        asking.stdin.take().unwrap().write_all(question).unwrap();
        let answered = asking.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&answered.stdout).into_owned();
        answered.status.success().then_some(said)
    }
}

/// Returns the answer of a server to plain text.
fn answer_to_plain_text(server: SocketAddr, question: &[u8]) -> Vec<u8> {
    // a fault may have killed it, and it restarts
    let mut stream = until_ok(|| TcpStream::connect(server));
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream.write_all(question).unwrap();
    let mut said = Vec::new();
    // the connection may be reset
    let _ = stream.read_to_end(&mut said);
    said
}

/// Sends a question to a server of a run in three ways, of which one is answered; then checks the findings and files of the run.
fn check(run: GuardedRun, server_after: &str, question: &[u8], answer: &str, exit: i32) -> Answer {
    let server = run.port(server_after);
    let files = ClientFiles::of(&run);
    let refused = "a client with a certificate was refused";
    // all at once, since the run continues meanwhile
    let (said, uncertified, plain) = scope(|scope| {
        let certified = scope.spawn(|| until_ok(|| files.ask(server, true, question, answer).ok_or(refused)));
        let uncertified = scope.spawn(|| files.ask(server, false, question, answer));
        let plain = String::from_utf8_lossy(&answer_to_plain_text(server, question)).into_owned();
        (certified.join().unwrap(), uncertified.join().unwrap(), plain)
    });
    assert!(said.contains(answer), "{said:?}");
    assert_eq!(uncertified, None, "a client without a certificate was answered");
    assert!(!plain.contains(answer), "plain text was answered: {plain:?}");
    let folder = run.harness.results();
    let answered = run.end();
    answered.assert_exit(exit);
    each_file(&folder, &mut |path, bytes| {
        let mark = b"PRIVATE KEY";
        let is_there = bytes.windows(mark.len()).any(|window| window == mark);
        assert!(!is_there, "{} has a key", path.display());
    });
    for file in files.identity {
        assert!(!file.exists(), "{} was left behind", file.display());
    }
    answered
}

/// The reply to the first `SET` of the client of the protocol's page is lost: the tap reads the decrypted messages.
#[test]
fn the_messages_of_a_foreign_client_of_redis_are_found_behind_tls() {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    let words = "--tls --backend redis --clients 1 --fault drop-reply=SET:1 --lease 1s --window 1s --time 7s --seed 1";
    let run = GuardedRun::start(harness, &format!("{words} --client '{client}'"), "REDISCLI_AUTH");
    let run = check(run, "redis-server 127.0.0.1:", b"PING\r\n", "NOAUTH", 0);
    assert_eq!(run.windows_with_effect(), (1, 1));
}

#[test]
fn servers_of_zookeeper_are_killed_and_messages_dropped_behind_tls() {
    let words = "--tls --backend zk --recipe zk-predecessor-watch --fault drop-request,server-kill --nodes 1 --lease 3s --time 15s --seed 1";
    let run = GuardedRun::start(Harness::new(), words, "ZK_PASSWORD");
    run.wait_for_grants(5);
    let run = check(run, "secureClientPort=", b"ruok", "imok", 0);
    assert!(run.windows_with_effect().0 > 1, "{:?}", run.windows_with_effect());
}

mod nightly {
    use super::*;

    #[test]
    fn a_lease_that_redis_forgets_is_caught_behind_tls() {
        let broken =
            "--tls --backend redis --recipe redis-set-px-lua --holder naive --hold 3s --lease 1s --time 8s --seed 1";
        let run = GuardedRun::start(Harness::new(), broken, "REDISCLI_AUTH");
        check(run, "redis-server 127.0.0.1:", b"PING\r\n", "NOAUTH", 1);
    }

    #[test]
    fn members_of_etcd_are_killed_and_messages_dropped_behind_tls() {
        let words = "--tls --backend etcd --recipe etcd-mutex --fault drop-request,server-kill --time 13s --seed 1";
        let run = GuardedRun::start(Harness::new(), words, "ETCDCTL_PASSWORD");
        run.wait_for_grants(20);
        let question =
            b"POST /v3/kv/range HTTP/1.1\r\nHost: n1\r\nContent-Length: 14\r\nConnection: close\r\n\r\n{\"key\":\"bDA=\"}";
        let run = check(
            run,
            "--listen-client-urls\0https://127.0.0.1:",
            question,
            "403 Forbidden",
            0,
        );
        assert!(run.windows_with_effect().0 > 1, "{:?}", run.windows_with_effect());
    }
}
