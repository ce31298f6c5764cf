//! Authentication (`--auth`): servers refuse clients without the login, verdicts stay the same, and the password is in no output.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use harness_workloads::mariadb::{MysqlConnection, MysqlError};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use super::foreign::{ends_the_run, page_client};
use crate::command::{Answer, Harness, assert_has, tests};
use crate::machine::{LIMIT, OwnServer, http, of_process, pids, until_ok};

/// The refusals of servers for connections that are not logged in, or no longer.
const REFUSALS: [&str; 6] = [
    "NOAUTH",
    "auth token",
    "not authorized",
    "password authentication",
    "Access denied",
    "Authorization Violation",
];

/// A run on servers with a login, examined from outside while it is active.
pub struct GuardedRun {
    pub harness: Harness,
    child: Child,
    pub password: String,
}

/// Returns the descendants of a process: their command lines, and their environments.
fn offspring(of: u32) -> Vec<(String, String)> {
    let parents: BTreeMap<u32, u32> = pids()
        .filter_map(|pid| {
            let stat = of_process(pid, "stat");
            let (_, rest) = stat.rsplit_once(") ")?;
            Some((pid, rest.split(' ').nth(1)?.parse().ok()?))
        })
        .collect();
    let below = parents.keys().filter(|pid| {
        let mut ancestors = std::iter::successors(Some(**pid), |at| parents.get(at).copied());
        ancestors.any(|at| at == of)
    });
    below
        .map(|pid| (of_process(*pid, "cmdline"), of_process(*pid, "environ")))
        .collect()
}

impl GuardedRun {
    /// Starts a run and waits for its first client; `variable` is the one with the password.
    pub fn start(harness: Harness, words: &str, variable: &str) -> Self {
        let output = |name: &str| File::create(harness.folder.path().join(name)).unwrap();
        let mut command = harness.command(&format!("run --json --auth --runtime local {words}"));
        // a login in the environment of harness is not that of the run
        command.env(variable, "not-of-the-run");
        command
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"));
        let child = command.spawn().expect("harness starts");
        let mut run = Self {
            harness,
            child,
            password: String::new(),
        };
        run.password = until_ok(|| {
            assert!(run.child.try_wait().unwrap().is_none(), "it ended:\n{}", run.said());
            run.given(variable).ok_or_else(|| format!("no client:\n{}", run.said()))
        });
        run
    }

    /// Returns the password in the environment of a client.
    pub fn given(&self, variable: &str) -> Option<String> {
        let before = format!("{variable}=");
        let values = |environment: String| {
            let value = environment
                .split('\0')
                .find_map(|line| line.strip_prefix(&before).map(str::to_owned));
            value.filter(|value| value != "not-of-the-run")
        };
        offspring(self.child.id())
            .into_iter()
            .find_map(|(_, environment)| values(environment))
    }

    /// Waits until the history has this number of successful acquires.
    pub fn wait_for_grants(&self, wanted: usize) {
        let history = self.harness.results().join("latest/history.jsonl");
        until_ok(|| {
            let text = fs::read_to_string(&history).unwrap_or_default();
            let is_grant = |line: &&str| line.contains(r#""acquire""#) && line.contains(r#""ok""#);
            let grants = text.lines().filter(is_grant).count();
            let missing = || format!("{grants} grants:\n{}", self.said());
            (grants >= wanted).then_some(()).ok_or_else(missing)
        });
    }

    fn said(&self) -> String {
        fs::read_to_string(self.harness.folder.path().join("stderr")).unwrap_or_default()
    }

    /// Returns the address of a port that follows a text in a server's command line, or in a file named there.
    pub fn port(&self, after: &str) -> SocketAddr {
        let mut texts: Vec<String> = offspring(self.child.id()).into_iter().map(|(line, _)| line).collect();
        each_file(&self.harness.results(), &mut |path, bytes| {
            if path.ends_with("zoo.cfg") || path.ends_with("nats.conf") {
                texts.push(String::from_utf8_lossy(bytes).into_owned());
            }
        });
        let found = texts.iter().find_map(|text| {
            let (_, rest) = text.split_once(after)?;
            rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
        });
        let port: u16 = found.unwrap_or_else(|| panic!("no {after} in {texts:#?}"));
        (Ipv4Addr::LOCALHOST, port).into()
    }

    /// Examines all processes until the end of the run, and then all of its files.
    pub fn end(mut self) -> Answer {
        let mut looks = 0;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            for (line, _) in offspring(self.child.id()) {
                assert!(!line.contains(&self.password), "{line}");
                looks += 1;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        assert!(looks > 0);
        let mut files = 0;
        each_file(self.harness.folder.path(), &mut |path, bytes| {
            let password = self.password.as_bytes();
            let is_there = bytes.windows(password.len()).any(|window| window == password);
            assert!(!is_there, "{} has the password", path.display());
            if path.ends_with("history.jsonl") {
                let history = String::from_utf8_lossy(bytes);
                let refused = REFUSALS.iter().find(|refusal| history.contains(*refusal));
                assert_eq!(refused, None, "a client of the run was refused");
            }
            files += 1;
        });
        assert!(files > 5, "a run has a history, reports and logs");
        let [stdout, stderr] =
            ["stdout", "stderr"].map(|name| fs::read(self.harness.folder.path().join(name)).unwrap());
        Answer::of(&Output { status, stdout, stderr })
    }
}

pub fn each_file(folder: &Path, look: &mut dyn FnMut(&Path, &[u8])) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => each_file(&path, look),
            Ok(kind) if kind.is_file() => look(&path, &fs::read(&path).unwrap_or_default()),
            _ => {}
        }
    }
}

/// Returns the answer of a server to these bytes.
fn answer(server: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(server).expect("it serves");
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut said = [0; 1024];
    let length = stream.read(&mut said).expect("it answers");
    String::from_utf8_lossy(&said[..length]).into_owned()
}

fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let answered = runtime.block_on(async { tokio::time::timeout(LIMIT, work).await });
    answered.expect("it answers")
}

/// The client of the protocol's page logs in, and the fault drops the reply to its first `SET`, whatever it requested before.
#[test]
fn redis_refuses_a_stranger_and_a_log_in_is_not_the_message_of_a_fault() {
    let harness = Harness::new();
    let client = page_client(&harness, &[]);
    let words = "--backend redis --clients 1 --fault drop-reply=SET:1 --lease 1s --window 1s --time 7s --seed 1";
    let run = GuardedRun::start(harness, &format!("{words} --client '{client}'"), "REDISCLI_AUTH");
    let server = run.port("redis-server 127.0.0.1:");
    assert!(answer(server, b"GET harness:l0\r\n").starts_with("-NOAUTH"));
    assert!(answer(server, b"AUTH default x\r\n").starts_with("-WRONGPASS"));
    let run = run.end();
    run.assert_exit(0);
    assert_eq!(run.windows_with_effect(), (1, 1));
}

/// Returns the whole answer to a request of etcd's gateway.
fn gateway(server: SocketAddr, path: &str, token: Option<&str>, body: &str) -> String {
    let token = token.map_or(String::new(), |token| format!("\r\nAuthorization: {token}"));
    let head = format!("POST /v3/{path} HTTP/1.1\r\nHost: {server}{token}");
    http(server, &head, body).expect("it answers")
}

/// Tokens become invalid when authentication is switched off, and when they were not used for long.
#[test]
fn etcd_refuses_a_stranger_and_clients_log_in_again_when_their_tokens_are_forgotten() {
    let words = "--backend etcd --recipe etcd-mutex --time 8s --seed 1";
    let run = GuardedRun::start(Harness::new(), words, "ETCDCTL_PASSWORD");
    let server = run.port("--listen-client-urls\0http://127.0.0.1:");
    // a client that opens while no login works would end the run
    run.wait_for_grants(5);
    let said = gateway(server, "kv/range", None, r#"{"key":"bDA="}"#);
    assert_has(&said, &["user name is empty"]);
    let login = format!(r#"{{"name":"root","password":"{}"}}"#, run.password);
    let entered = gateway(server, "auth/authenticate", None, &login);
    let token = entered
        .split_once(r#""token":""#)
        .and_then(|(_, rest)| rest.split('"').next());
    let token = token.unwrap_or_else(|| panic!("{entered}"));
    for (path, token) in [("auth/disable", Some(token)), ("auth/enable", None)] {
        let said = gateway(server, path, token, "{}");
        assert!(said.starts_with("HTTP/1.1 200"), "{path}: {said}");
    }
    let said = gateway(server, "kv/range", Some(token), r#"{"key":"bDA="}"#);
    assert_has(&said, &["invalid auth token"]);
    run.end().assert_exit(0);
}

tests! {
    ends_the_run:
        a_client_with_a_wrong_password_ends_the_run_with_the_servers_words(
            (r#"os.environ["REDISCLI_AUTH"]"#, r#""wrong""#), "--auth --time 8s", &["WRONGPASS", "REDIS_USER and REDISCLI_AUTH"])
}

/// Attached servers require a login of the observer, too.
#[test]
fn servers_that_were_running_before_are_entered_with_the_login_of_the_environment() {
    let harness = Harness::new();
    let server = OwnServer::redis(&["--requirepass", "sesame"]);
    let address = server.address;
    assert!(answer(address, b"AUTH sesame\r\nSET mine 1\r\n").starts_with("+OK"));
    let asked = |password: Option<&str>| {
        let mut command = harness.command(&format!("run --backend redis --servers {address} --time 8s"));
        command.env_remove("REDISCLI_AUTH").stdin(Stdio::null());
        let answer = Answer::to(command.envs(password.map(|password| ("REDISCLI_AUTH", password))));
        assert!([2, 4].contains(&answer.exit), "{}", answer.stderr);
        answer.stderr
    };
    let wanted = "REDIS_USER and REDISCLI_AUTH";
    assert_has(&asked(None), &["NOAUTH", wanted]);
    assert_has(&asked(Some("wrong")), &["WRONGPASS", wanted]);
    // the login worked
    assert_has(&asked(Some("sesame")), &["holds 1 key"]);
}

mod nightly {
    use super::*;

    #[test]
    fn zookeeper_refuses_a_stranger_and_the_nodes_are_the_runs() {
        let words = "--backend zk --lease 1s --time 6s --seed 1";
        let run = GuardedRun::start(Harness::new(), words, "ZK_PASSWORD");
        let server = run.port("clientPort=");
        wait(async {
            let stranger = Client::connect(&server.to_string())
                .await
                .expect("a session is nobody's");
            let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let made = stranger.create("/stranger", b"", &open).await;
            assert_eq!(made.map(drop), Err(Error::NoAuth));
            let made = stranger.create("/harness/l0/stranger", b"", &open).await;
            assert!(matches!(made, Err(Error::NoAuth | Error::NoNode)), "{made:?}");
        });
        // the observer reads them
        run.end().assert_is("0, HL007 holds");
    }

    /// A server sends the first message, and closes the connection of a client without the login.
    #[test]
    fn nats_refuses_a_stranger_and_the_observer_reads_its_keys() {
        let words = "--backend nats --fault none --lease 1s --time 8s --seed 1";
        let run = GuardedRun::start(Harness::new(), words, "NATS_PASSWORD");
        let mut stranger = TcpStream::connect(run.port("listen: \"127.0.0.1:")).expect("it serves");
        stranger.set_read_timeout(Some(LIMIT)).unwrap();
        stranger.write_all(b"CONNECT {}\r\n").unwrap();
        let mut said = String::new();
        stranger.read_to_string(&mut said).expect("it ends the connection");
        assert_has(&said, &["Authorization Violation"]);
        run.end().assert_is("0, HL007 holds");
    }

    #[test]
    fn postgres_refuses_a_stranger_and_a_broken_lease_is_still_caught() {
        let words = "--backend postgres --recipe pg-row-lease-read-write --clients 10 --lease 1s --time 6s --seed 5eed";
        let run = GuardedRun::start(Harness::new(), words, "PGPASSWORD");
        let server = run.port("port=");
        // a start-up message of protocol 3.0, and the reply of a server without authentication: `R` with a zero
        let parameters = b"user\0postgres\0database\0postgres\0\0";
        let head = [(8 + parameters.len() as u32).to_be_bytes(), 196_608_u32.to_be_bytes()].concat();
        let said = answer(server, &[&head[..], parameters].concat());
        assert!(
            said.starts_with("R\0\0\0") && said.contains("SCRAM-SHA-256"),
            "{said:?}"
        );
        run.end().assert_violates("HL001");
    }

    #[test]
    fn mariadb_refuses_a_stranger_and_a_broken_lease_is_still_caught() {
        let words =
            "--backend mariadb --recipe mysql-row-lease-read-write --clients 10 --lease 1s --time 6s --seed 5eed";
        let run = GuardedRun::start(Harness::new(), words, "MYSQL_PWD");
        let server = run.port("--port=");
        let entered = wait(MysqlConnection::connect(server, None));
        assert!(matches!(entered, Err(MysqlError::Refused { .. })));
        run.end().assert_violates("HL001");
    }
}
