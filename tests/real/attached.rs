//! Attached servers (`--servers`): runs have the same verdicts as on servers of harness, and change no other data.

use std::path::Path;
use std::process::{Command, Stdio};

use harness_workloads::redis::lock_key;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Answer, Harness, assert_has, assert_lacks, started};
use crate::machine::{OwnServer, free_address, send, succeeds, until};

/// The notifications that an observer of Redis needs.
const EVENTS: &str = "Kg$hlx";

impl OwnServer {
    /// Starts a Redis with notifications of these events.
    fn with_events(events: &str) -> Self {
        Self::redis(&["--notify-keyspace-events", events])
    }

    fn zk(folder: &Path) -> Self {
        let address = free_address();
        let data = folder.join("zk");
        std::fs::create_dir(&data).unwrap();
        let settings = format!(
            "tickTime=2000\ndataDir={}\nclientPort={}\nadmin.enableServer=false\n",
            data.display(),
            address.port()
        );
        std::fs::write(folder.join("zoo.cfg"), settings).unwrap();
        let jars = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";
        let mut java = Command::new("java");
        java.args(["-Xmx128m", "-cp", jars]);
        java.args(["org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg"]);
        Self::start(java.current_dir(folder).stderr(Stdio::null()), address)
    }

    /// Returns the words of a run on it.
    fn words(&self, more: &str) -> String {
        format!("--backend redis --servers {} {more}", self.address)
    }

    /// Returns the output of `redis-cli`.
    fn ask(&self, words: &[&str]) -> String {
        redis_cli(self.address.port(), words)
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).lines().map(str::to_owned).collect();
        keys.retain(|key| !key.is_empty());
        keys.sort();
        keys
    }
}

fn redis_cli(port: u16, words: &[&str]) -> String {
    let port = port.to_string();
    let asked = Command::new("redis-cli").args(["-p", &port]).args(words).output();
    String::from_utf8_lossy(&asked.expect("redis-cli starts").stdout)
        .trim()
        .to_owned()
}

#[test]
fn nothing_of_others_is_touched_and_nothing_of_the_run_is_left() {
    let harness = Harness::new();
    let redis = OwnServer::with_events(EVENTS);
    // a key that a run of harness on its own server would take for a lock
    redis.ask(&["SET", &lock_key("l0"), "of others"]);
    redis.ask(&["SET", "other", "1"]);
    let words = redis.words("--hold 60ms --lease 3s --window 3500ms --time 14s --fault partition --seed 1");
    harness.assert_says(&format!("run {words}"), 2, &["2 keys", "--yes"]);
    assert!(!harness.results().exists(), "it asks before it does anything");

    // the observer was active
    harness.run(&format!("{words} --yes")).assert_is("0, HL007 holds");
    let run = std::fs::read(harness.results().join("latest/run.json")).unwrap();
    let run: Value = serde_json::from_slice(&run).unwrap();
    assert_eq!(run["runtime"], "attached");
    assert!(run["mark"].as_str().unwrap().starts_with("harness-"), "{run:#}");
    assert_eq!(redis.keys(), [lock_key("l0"), "other".to_owned()]);
    assert_eq!(redis.ask(&["GET", &lock_key("l0")]), "of others");
}

#[test]
fn a_setting_is_not_changed_and_without_it_there_is_no_observer() {
    let harness = Harness::new();
    let redis = OwnServer::with_events("");
    let answer = harness.run(&redis.words("--lease 1s --time 7s"));
    answer.assert_is("0, HL001 holds, HL007 not-applicable");
    assert_has(&answer.stderr, &["no observer watches the locks"]);
    assert_eq!(
        redis.ask(&["CONFIG", "GET", "notify-keyspace-events"]),
        "notify-keyspace-events"
    );
}

#[test]
fn servers_are_touched_by_the_commands_that_were_given_and_by_nothing_else() {
    let harness = Harness::new();
    let port = free_address().port();
    let folder = harness.folder.path().display().to_string();
    let start = format!(
        "redis-server --port {port} --save '' --notify-keyspace-events '{EVENTS}' --dir {folder} --daemonize yes --pidfile {folder}/pid"
    );
    succeeds(Command::new("sh").args(["-c", &start]));
    until("redis-server", || redis_cli(port, &["PING"]) == "PONG");
    let words =
        format!("run --backend redis --servers 127.0.0.1:{port} --lease 2s --time 40s --fault server-kill --seed 1");
    let mut command = harness.command(&words);
    command.args([
        "--on-kill",
        &format!("kill -9 $(cat {folder}/pid)"),
        "--on-start",
        &start,
    ]);
    let child = started(&mut command);
    until("the server's death", || redis_cli(port, &["PING"]) != "PONG");
    send(child.id(), Signal::SIGINT);
    let answer = Answer::of_child(child);
    answer.assert_exit(130);
    until("the server's return", || redis_cli(port, &["PING"]) == "PONG");
    assert_eq!(redis_cli(port, &["KEYS", "*"]), "", "{}", answer.stderr);
    redis_cli(port, &["SHUTDOWN", "NOSAVE"]);
}

#[test]
fn a_running_server_that_dies_is_named_and_no_lock_is_blamed() {
    let harness = Harness::new();
    let mut redis = OwnServer::with_events(EVENTS);
    let words = "--yes --lease 1s --wait 2s --progress-bound 3s --time 9s --fault none --results results";
    let mut command = harness.command(&format!("run {}", redis.words(words)));
    // entries that cannot be removed from a dead server stay recorded
    let child = started(command.env("TMPDIR", harness.folder.path()));
    harness.until_history_has(r#""phase":"faults""#);
    redis.child.0.kill().unwrap();
    let answer = Answer::of_child(child);
    let blamed = "n1 did not serve to the end from";
    let advised = "read that server's log for that time";
    assert_has(&answer.said(), &["UNSURE", blamed, advised]);
    // its entries went with it, as far as harness knows
    assert_has(&answer.stderr, &["could not be removed"]);
    let blames_nobody = "3, HL001 not violated, HL005 not violated, HL007 not violated, HL011 not violated";
    harness.answer("check latest --json").assert_is(blames_nobody);
}

/// Kills a run that has a lock on this server. Returns the sentence about its entries there.
fn killed_with_a_lock(harness: &Harness, redis: &OwnServer) -> String {
    let before = redis.keys().len();
    let words = redis.words("--recipe redis-setnx --yes --hold 2s --time 60s");
    let mut child = harness.start(&format!("run {words}"));
    until("a lock", || redis.keys().len() > before);
    child.kill().unwrap();
    child.wait().unwrap();
    format!("on redis at {}", redis.address)
}

#[test]
fn what_a_killed_run_left_is_shown_and_removed() {
    let harness = Harness::new();
    let redis = OwnServer::with_events(EVENTS);
    redis.ask(&["SET", "other", "1"]);
    let at = killed_with_a_lock(&harness, &redis);
    assert_has(&harness.answer("doctor").stdout, &[&at]);
    harness.answer("doctor --clean");
    until("the end of its clients", || redis.keys() == ["other"]);
}

#[test]
fn what_is_on_a_server_that_is_gone_is_given_up_when_that_is_asked_for() {
    let harness = Harness::new();
    let redis = OwnServer::with_events(EVENTS);
    let at = killed_with_a_lock(&harness, &redis);
    drop(redis);

    let doctor = |words: &str| harness.answer(words).stdout;
    let stuck = doctor("doctor --clean");
    let of_this = |text: &str, word: &str| text.lines().any(|line| line.starts_with(word) && line.contains(&at));
    assert!(of_this(&stuck, "stuck"), "{stuck}");
    assert_has(&stuck, &["--clean --forget"]);
    let shown = doctor("doctor");
    assert!(of_this(&shown, "left"), "it is still known: {shown}");
    let forgotten = doctor("doctor --clean --forget");
    assert!(of_this(&forgotten, "forgot"), "{forgotten}");
    assert_lacks(&doctor("doctor"), &[&at]);
}

#[test]
fn a_replica_is_refused() {
    let harness = Harness::new();
    let redis = OwnServer::with_events(EVENTS);
    redis.ask(&["REPLICAOF", "127.0.0.1", "1"]);
    let words = redis.words("--time 9s");
    harness.assert_says(&format!("run {words}"), 4, &["it is a replica"]);
}

mod nightly {
    use super::*;

    #[test]
    fn a_broken_lock_is_found_on_servers_that_were_running() {
        let harness = Harness::new();
        let redis = OwnServer::with_events(EVENTS);
        // they hold no data, so no question is asked
        let words = redis.words("--lease 2s --time 26s --fault pause-holder --seed 1");
        harness.run(&words).assert_verdict("HL001", "violated");
        assert_eq!(redis.keys(), Vec::<String>::new());
    }

    /// Makes two runs; the second has no question, since the first left no data.
    fn is_tested_and_left_as_it_was(harness: &Harness, server: &OwnServer, words: &str) {
        for fault in ["partition", "kill-holder"] {
            let at = server.address;
            let answer = harness.run(&format!("{words} --servers {at} --fault {fault} --seed 1"));
            answer.assert_is("0, HL007 holds");
        }
    }

    #[test]
    fn etcd_is_tested_and_left_as_it_was() {
        let harness = Harness::new();
        let address = free_address();
        let urls = format!("http://{address}");
        let peer = format!("http://{}", free_address());
        let cluster = format!("default={peer}");
        let mut command = Command::new("etcd");
        command.args(["--data-dir", "etcd", "--initial-cluster", &cluster]);
        command.args(["--listen-client-urls", &urls, "--advertise-client-urls", &urls]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.current_dir(harness.folder.path()).stderr(Stdio::null());
        let etcd = OwnServer::start(&mut command, address);
        is_tested_and_left_as_it_was(&harness, &etcd, "--backend etcd --time 24s");
    }

    #[test]
    fn nats_is_tested_and_left_as_it_was() {
        let harness = Harness::new();
        let address = free_address();
        let port = address.port().to_string();
        let mut command = Command::new("nats-server");
        command.args(["-a", "127.0.0.1", "-p", &port, "-js", "-sd", "nats"]);
        command.current_dir(harness.folder.path()).stderr(Stdio::null());
        let nats = OwnServer::start(&mut command, address);
        is_tested_and_left_as_it_was(&harness, &nats, "--backend nats --lease 3s --time 22s");
    }

    #[test]
    fn a_lease_that_the_servers_do_not_grant_is_refused_and_zookeeper_is_left_as_it_was() {
        let harness = Harness::new();
        let zk = OwnServer::zk(harness.folder.path());
        let words = format!("--backend zk --servers {} --fault partition --seed 1", zk.address);
        let refused = harness.answer(&format!("run {words} --lease 2s --time 40s"));
        assert_has(&refused.stderr, &["--lease 4000ms"]);
        let answer = harness.run(&format!("{words} --lease 4s --time 40s"));
        answer.assert_is("0, HL007 holds");
        // an unchanged store holds no data: the second run has no question
        let again = harness.run(&format!(
            "--backend zk --servers {} --lease 4s --time 16s --each 3",
            zk.address
        ));
        again.assert_exit(0);
    }
}
