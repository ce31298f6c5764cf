//! Leases of Kubernetes: leader election with the API server of harness, candidates that keep their deadline or not,
//! and candidates that harness did not start.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::command::{Answer, Harness, assert_has};
use crate::machine::{KilledAtDrop, first_line, of_process, until};

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

/// Returns a line of a log with the time of RFC 3339 this number of seconds after another time.
fn dated(since: OffsetDateTime, seconds: f64, text: &str) -> String {
    let at = since + time::Duration::seconds_f64(seconds);
    format!("{} {text}", at.format(&Rfc3339).unwrap())
}

/// `harness watch-lease` of the logs `a` and `b`, and the API server that it asks.
struct WatchedLogs {
    watching: Child,
    _server: KilledAtDrop,
    harness: Harness,
}

impl WatchedLogs {
    /// Starts a watch with the options in `words`, and waits until it watches. Each log has a term from before.
    fn start(words: &str) -> Self {
        let harness = Harness::new();
        let mut server = KilledAtDrop(harness.start("kube-api serve --listen 127.0.0.1:0"));
        let line = first_line(&mut server.0.stdout);
        let url = line.split_whitespace().last().unwrap();
        let now = OffsetDateTime::now_utc();
        let term = [dated(now, -300.0, "became leader"), dated(now, -200.0, "lost lease\n")].join("\n");
        for name in ["a", "b"] {
            std::fs::write(harness.folder.path().join(name), &term).unwrap();
        }
        let mut watching = harness.start(&format!(
            "watch-lease --json --server {url} --lease default/op {words} --leading became --stopped lost --log-delay 300ms --for 1m"
        ));
        let warning = first_line(&mut watching.stderr);
        assert!(warning.contains("there is no Lease default/op yet"), "{warning}");
        Self {
            watching,
            _server: server,
            harness,
        }
    }

    fn path(&self, log: &str) -> PathBuf {
        self.harness.folder.path().join(log)
    }

    /// Adds a line to a log.
    fn write(&self, log: &str, line: &str) {
        let mut file = OpenOptions::new().append(true).open(self.path(log)).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    /// Waits until harness, which follows a log as a file, has read it to its end.
    fn until_read(&self, log: &str) {
        let path = self.path(log).canonicalize().unwrap();
        let at_the_end = format!("pos:\t{}\n", path.metadata().unwrap().len());
        let process = self.watching.id();
        until("the read of a log", || {
            let open = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
            let mut of_log = open.filter(|file| file.path().read_link().is_ok_and(|target| target == path));
            of_log.any(|file| {
                let info = format!("fdinfo/{}", file.file_name().to_string_lossy());
                of_process(process, &info).starts_with(&at_the_end)
            })
        });
    }
}

#[test]
fn logs_prove_two_leaders_where_the_first_says_that_it_stopped_long_after_the_second_began() {
    let watch = WatchedLogs::start("--log a=a --log b=b");
    for log in ["a", "b"] {
        watch.until_read(log);
        watch.write(log, "became leader");
        watch.until_read(log);
    }
    // much longer than a line may be late, so that harness has read both logs again by then
    std::thread::sleep(Duration::from_secs(2));
    for log in ["a", "b"] {
        watch.write(log, "lost lease");
        // a log with a folder in its place is read to its end and followed no longer, and a watch without logs ends
        let path = watch.path(log);
        std::fs::rename(&path, path.with_extension("old")).unwrap();
        std::fs::create_dir_all(path.join("folder")).unwrap();
    }
    let answer = Answer::of_child(watch.watching);
    answer.assert_violates("HL001");
    assert!(!answer.said().contains("likely"));
}

/// Watches commands that print logs from their beginning. Each line has its log, and its time in seconds from the begin of the
/// watch. A term is certain from 0.5 s after its first line until 0.8 s before its last one.
fn printed(lines: &[(&str, f64, &str)]) -> Answer {
    let watch = WatchedLogs::start("--log 'a=command: exec tail -n +1 -f a' --log 'b=command: exec tail -n +1 -f b'");
    let begun = OffsetDateTime::now_utc();
    std::thread::sleep(Duration::from_millis(2500));
    for (log, seconds, text) in lines {
        watch.write(log, &dated(begun, *seconds, text));
    }
    // a log whose clock is ahead is followed no longer, and a watch without logs ends
    for log in ["a", "b"] {
        watch.write(log, &dated(begun, 3600.0, "ends the watch"));
    }
    Answer::of_child(watch.watching)
}

#[test]
fn logs_that_a_command_prints_from_their_beginning_accuse_nobody_of_terms_before_the_watch() {
    let answer = printed(&[("a", 0.0, "became leader"), ("a", 2.5, "lost lease")]);
    answer.assert_is("0, HL001 holds");
    let notes = answer.diagnosis["notes"].to_string();
    assert_has(&notes, &["c0 is a: terms 2, certain 1", "c1 is b: terms 1, certain 0"]);
}

#[test]
fn logs_prove_nothing_where_lines_may_be_as_late_as_two_leaders_overlap() {
    let answer = printed(&[
        ("a", 0.0, "became leader"),
        ("b", 0.5, "became leader"),
        // without the delay, 0.15 s of both
        ("a", 1.65, "lost lease"),
        ("b", 2.5, "lost lease"),
    ]);
    answer.assert_is("0, HL001 holds");
    let notes = answer.diagnosis["notes"].to_string();
    assert_has(&notes, &["c0 is a: terms 2, certain 1", "c1 is b: terms 2, certain 1"]);
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
