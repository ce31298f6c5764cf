//! Proxies: runs through a Toxiproxy have the verdicts of runs through the built-in one, and a run whose links were
//! changed through the API reports it. `harness proxy`, which serves Toxiproxy's API, replaces one in the tests.

use std::io::Read;
use std::net::SocketAddr;

use crate::command::{Answer, Harness, assert_has};
use crate::machine::{KilledAtDrop, first_line, free_address, http, until};

/// A process of `harness proxy`, and the address of its API.
pub struct ProxyProcess {
    child: KilledAtDrop,
    pub api: SocketAddr,
}

impl ProxyProcess {
    pub fn start_with(harness: &Harness, words: &str) -> Self {
        let mut child = harness.start(&format!("proxy {words}"));
        let line = first_line(&mut child.stdout);
        let api = line.trim().rsplit_once("http://").and_then(|(_, at)| at.parse().ok());
        let api = api.unwrap_or_else(|| panic!("it says where it is: {line}"));
        let child = KilledAtDrop(child);
        Self { child, api }
    }

    /// Kills it, and returns its output on stderr.
    pub fn end(mut self) -> String {
        self.child.0.kill().expect("it runs");
        let mut said = String::new();
        let stderr = self.child.0.stderr.as_mut().expect("it is piped");
        stderr.read_to_string(&mut said).expect("text");
        said
    }
}

fn ask(api: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    http(api, &format!("{method} {path} HTTP/1.1\r\nHost: localhost"), body)
}

#[test]
fn a_proxy_begins_with_those_of_its_file_and_says_what_is_wrong_with_one() {
    let harness = Harness::new();
    let file = harness.folder.path().join("proxies.json");
    std::fs::write(
        &file,
        r#"[{"name":"db","listen":"127.0.0.1:0","upstream":"db.example:5432","enabled":true}]"#,
    )
    .expect("a file");
    let serving = ProxyProcess::start_with(&harness, "--listen 127.0.0.1:0 --config proxies.json");
    let made = ask(serving.api, "GET", "/proxies/db", "").expect("it serves");
    assert_has(&made, &["db.example:5432", r#""enabled":true"#]);
    std::fs::write(&file, r#"[{"name":"db"}]"#).expect("a file");
    harness.assert_says(
        "proxy --listen 127.0.0.1:0 --config proxies.json",
        2,
        &["proxies.json", "upstream"],
    );
}

#[test]
fn a_run_that_is_poked_says_so_and_is_calm_at_its_end() {
    let harness = Harness::new();
    let api = free_address();
    let words = "run --json --runtime local --backend redis --fault none --lease 1s --time 8s";
    let running = harness.start(&format!("{words} --proxy-api {api}"));
    let toxic = r#"{"type":"latency","attributes":{"latency":30}}"#;
    // answered as soon as the run has its links
    until("a grant by the API", || {
        ask(api, "POST", "/proxies/c0-%3En1/toxics", toxic).is_ok_and(|answer| answer.contains(" 200 "))
    });
    let answer = Answer::of_child(running);
    answer.assert_exit(0);
    let changes = "2 manual changes came through the proxy's API";
    let notes = answer.diagnosis["notes"].to_string();
    assert_has(&notes, &[changes, "latency_downstream", "reset"]);
}

/// Runs over links of a Toxiproxy.
#[cfg(feature = "toxiproxy")]
mod nightly {
    use super::*;
    use crate::command::{assert_lacks, started, tests};

    /// Asserts the outcome of a run with these words over the built-in proxy, and over a Toxiproxy.
    fn both_come_out(words: &str, outcome: &str) {
        let harness = Harness::new();
        let toxiproxy = ProxyProcess::start_with(&harness, "--listen 127.0.0.1:0");
        let plan = "--fault partition=holder --lease 3s --window 5s --time 15s --seed b17e";
        let words = format!("--runtime local --backend zk {words} {plan}");
        let built_in = harness.run(&words);
        let other = harness.run(&format!("{words} --proxy toxiproxy={}", toxiproxy.api));
        let left = ask(toxiproxy.api, "GET", "/proxies", "").expect("it is still there");
        assert!(left.ends_with("{}"), "nothing of a run stays on it: {left}");
        assert_eq!(
            built_in.window_sum("links"),
            other.window_sum("links"),
            "the plan is the same"
        );
        built_in.assert_is(outcome);
        other.assert_is(outcome);
    }

    tests! {
        both_come_out:
            both_proxies_catch_the_naive_holder("--holder naive", "1, HL001 violated, all windows")
            both_proxies_let_the_careful_holder_pass("", "0, all windows")
    }

    #[test]
    fn every_fault_of_the_network_bites_through_a_toxiproxy() {
        let harness = Harness::new();
        let toxiproxy = ProxyProcess::start_with(&harness, "--listen 127.0.0.1:0");
        for (fault, counter) in [
            ("latency=40ms+10ms", "delayed_bytes"),
            ("slow=2k", "delayed_bytes"),
            ("reset", "resets"),
            ("flaky=2000", "resets"),
        ] {
            let words = format!("--runtime local --backend redis --fault {fault} --lease 1s --time 14s --seed b17e");
            let answer = harness.run(&format!("{words} --proxy toxiproxy={}", toxiproxy.api));
            answer.assert_is(&format!("0, {counter}"));
        }
    }

    #[test]
    fn what_a_toxiproxy_cannot_do_is_refused_and_one_that_is_not_there_is_the_environment() {
        let harness = Harness::new();
        let slow = "run --backend redis --fault slow=500 --proxy toxiproxy=127.0.0.1:1";
        harness.assert_says(slow, 2, &["whole kB", "--proxy builtin"]);
        let gone = "run --runtime local --backend redis --fault none --time 10s --proxy toxiproxy=127.0.0.1:1";
        harness.assert_says(gone, 4, &["no Toxiproxy at 127.0.0.1:1"]);
    }

    #[test]
    fn what_a_killed_run_left_on_a_toxiproxy_is_removed_and_nothing_else() {
        let harness = Harness::new();
        let toxiproxy = ProxyProcess::start_with(&harness, "--listen 127.0.0.1:0");
        let proxies = || ask(toxiproxy.api, "GET", "/proxies", "").expect("it is still there");
        let other = r#"{"name":"other","listen":"127.0.0.1:0","upstream":"127.0.0.1:1"}"#;
        ask(toxiproxy.api, "POST", "/proxies", other).expect("it makes one");
        let with_own_claims = |words: &str| {
            let mut command = harness.command(words);
            command.env("TMPDIR", harness.folder.path());
            command.env("DOCKER_HOST", "unix:///nowhere/docker.sock");
            command
        };
        let doctor = |words: &str| Answer::to(&mut with_own_claims(words)).stdout;
        let words = format!(
            "run --runtime local --backend redis --fault none --time 60s --proxy toxiproxy={}",
            toxiproxy.api
        );
        let mut running = started(&mut with_own_claims(&words));
        until("the run makes its proxies", || proxies().contains("c0-n1"));
        let living = doctor("doctor --clean");
        assert!(
            !living.contains("removed") && proxies().contains("c0-n1"),
            "the run lives: {living}"
        );
        running.kill().expect("it runs");
        running.wait().expect("it ends");
        let there = format!("on the Toxiproxy at {}", toxiproxy.api);
        assert_has(&doctor("doctor --clean"), &[&there]);
        assert_lacks(&proxies(), &["c0-n1"]);
        assert_has(&proxies(), &["other"]);
        let again = doctor("doctor");
        assert_lacks(&again, &["Toxiproxy at"]);
        assert_has(&again, &["earlier runs left nothing"]);
    }

    mod docker {
        use crate::command::Harness;
        use crate::machine::docker;

        #[test]
        fn a_container_that_is_no_toxiproxy_is_the_environment_and_leaves_nothing() {
            let there = |image: &&str| !docker(&format!("image ls --quiet {image}")).is_empty();
            let image = ["redis:7", "harness-redis:debian"].into_iter().find(there);
            let image = image.expect("`make test` provides an image of redis");
            let words = "run --runtime local --backend redis --fault none --time 10s --proxy toxiproxy";
            let words = format!("{words} --proxy-image {image}");
            Harness::new().assert_says(&words, 4, &["could not start a Toxiproxy"]);
            let left = docker("ps --all --filter name=-toxiproxy --format {{.Names}}");
            assert_eq!(left, "", "its container is removed");
        }
    }
}
