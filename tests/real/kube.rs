//! Leases of Kubernetes: leader election with the API server of harness, candidates that keep their deadline or not,
//! and candidates that harness did not start.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::command::{Answer, Harness};
use crate::machine::{KilledAtDrop, first_line, until};

/// Makes a run of an adapter that needs only Python.
fn run(client: &str, words: &str) -> Answer {
    let harness = Harness::new();
    harness.assert_says(&format!("adapters {client}"), 0, &[]);
    harness.run(&format!(
        "--runtime local --backend kube-lease --client {client} --lease 2s --clients 3 {words}"
    ))
}

const PARTITIONED: &str = "--fault partition=holder --time 14s --window 4s --vary 0s --seed 1";

#[test]
fn a_leader_that_keeps_its_renew_deadline_is_alone() {
    run("kube-lease", PARTITIONED).assert_is("0, HL001 holds, HL003 holds, HL007 holds, HL009 holds");
}

#[test]
fn a_leader_that_works_past_its_renew_deadline_is_not() {
    run("kube-past-deadline", PARTITIONED).assert_violates("HL001");
}

const FILES: &str = "--log a=a --log b=b";

/// Returns the time of RFC 3339 this number of seconds ago.
fn ago(seconds: u32) -> String {
    let when = format!("{seconds} seconds ago");
    let date = Command::new("date")
        .args(["-u", "-d", when.as_str(), "+%FT%T.%NZ"])
        .output();
    String::from_utf8(date.unwrap().stdout).unwrap().trim().to_owned()
}

/// Starts an API server, and two logs to which `write` adds lines, for `harness watch-lease` with the options in `words`.
fn watched(words: &str, write: impl FnOnce(&mut dyn FnMut(&str, &str))) -> Answer {
    let harness = Harness::new();
    let mut server = KilledAtDrop(harness.start("kube-api serve --listen 127.0.0.1:0"));
    let line = first_line(&mut server.0);
    let url = line.split_whitespace().last().unwrap();
    let log = |name: &str| harness.folder.path().join(name);
    for name in ["a", "b"] {
        std::fs::write(
            log(name),
            format!("{} became leader\n{} lost lease\n", ago(300), ago(200)),
        )
        .unwrap();
    }
    let watching = harness.start(&format!(
        "watch-lease --json --server {url} --lease default/op {words} --leading became --stopped lost --log-delay 300ms --for 6s"
    ));
    until("it watches", || {
        std::fs::read_dir(harness.results()).is_ok_and(|runs| runs.count() > 0)
    });
    std::thread::sleep(Duration::from_millis(300));
    write(&mut |name, text| {
        let mut file = OpenOptions::new().append(true).open(log(name)).unwrap();
        writeln!(file, "{text}").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    });
    Answer::of_child(watching)
}

#[test]
fn logs_prove_two_leaders_where_the_first_says_that_it_stopped_long_after_the_second_began() {
    let answer = watched(FILES, |log| {
        log("a", "became leader");
        log("b", "became leader");
        std::thread::sleep(Duration::from_secs(2));
        log("a", "lost lease");
        log("b", "lost lease");
    });
    answer.assert_violates("HL001");
    assert!(!answer.said().contains("likely"));
}

#[test]
fn logs_that_a_command_prints_from_their_beginning_accuse_nobody_of_terms_before_the_watch() {
    let commands = "--log 'a=command: exec tail -n +1 -f a' --log 'b=command: exec tail -n +1 -f b'";
    let answer = watched(commands, |log| {
        log("a", &format!("{} became leader", ago(0)));
        std::thread::sleep(Duration::from_secs(3));
        log("a", &format!("{} lost lease", ago(0)));
    });
    answer.assert_is("0, HL001 holds");
    assert!(
        answer.diagnosis["notes"]
            .to_string()
            .contains("c0 is a: terms 2, certain 1")
    );
}

#[test]
fn logs_prove_nothing_where_lines_may_be_as_late_as_two_leaders_overlap() {
    let answer = watched(FILES, |log| {
        log("a", "became leader");
        std::thread::sleep(Duration::from_millis(600));
        log("b", "became leader");
        log("a", "lost lease");
        std::thread::sleep(Duration::from_millis(600));
        log("b", "lost lease");
    });
    answer.assert_is("0, HL001 holds");
}

mod nightly {
    use super::*;
    use crate::machine::succeeds;

    /// Uses the official Python client.
    #[test]
    fn the_api_server_follows_the_documented_rules() {
        let folder = tempfile::tempdir().unwrap();
        let venv = folder.path().join("venv");
        succeeds(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        succeeds(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "kubernetes==37.0.2"]));
        let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stores/kube_rules.py");
        let mut check = Command::new(venv.join("bin/python"));
        let said = succeeds(check.arg(rules).arg(env!("CARGO_BIN_EXE_harness")).arg(folder.path()));
        assert!(said.contains(" rules hold"), "{said}");
    }
}
