//! Accidents of runs: interrupted, killed, a full disk, a taken port, nothing installed. One sentence that names the
//! cause, the right exit code, and no leftovers.

use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::command::{Answer, Harness, assert_has, assert_lacks, assert_says, golden, processes_of, started};
use crate::machine::{names_in, send, succeeds, until, write_program};

/// A run whose first window opens after four seconds.
const LONG: &str = "run --runtime local --backend redis --fault partition --lease 1s --time 24s --results results";

/// Starts a long run, and waits until clients acquired and a fault struck.
fn in_the_middle(harness: &Harness) -> Child {
    let child = harness.start(LONG);
    harness.until_history_has(r#""f":"partition""#);
    child
}

#[test]
fn an_interrupted_run_heals_stops_and_gives_a_partial_verdict() {
    let harness = Harness::new();
    let child = in_the_middle(&harness);
    send(child.id(), Signal::SIGINT);
    let answer = Answer::of_child(child);
    answer.assert_exit(130);
    assert_has(&answer.stdout, &["partial", "mutual exclusion   holds"]);
    let history = harness.latest_history();
    assert!(history.contains(r#""phase":"heal""#), "the open window was healed");
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

#[test]
fn a_run_is_interrupted_while_its_servers_start() {
    let harness = Harness::new();
    let program = harness.folder.path().join("redis-server");
    write_program(&program, "touch \"$0.started\"\nexec sleep 600");
    let path = format!("{}:{}", harness.folder.path().display(), std::env::var("PATH").unwrap());
    let mut command = harness.command("run --runtime local --backend redis --time 60s");
    let child = started(command.env("PATH", path));
    until("the server's start", || {
        harness.folder.path().join("redis-server.started").exists()
    });
    send(child.id(), Signal::SIGINT);
    let answer = Answer::of_child(child);
    answer.assert_exit(130);
    assert_lacks(&answer.stderr, &["did not become ready"]);
    let under_way = "starting a server of Redis, until it serves (at most 60s)";
    assert_has(&answer.stderr, &[under_way]);
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

/// Stops a process during a run until the history has this text, and then for 3.5 seconds, and checks the sentence of the run about it: of a
/// server, three seconds must have been seen.
fn stood_still(stopped: impl FnOnce(u32) -> u32, seen: &str, named: &str) {
    let harness = Harness::new();
    // six seconds without faults, so that the process is stopped long before the end, however late this test is
    let child = harness.start("run --runtime local --backend redis --fault none --lease 1s --time 12s --json");
    harness.until_history_has(BEGUN);
    let stopped = stopped(child.id());
    send(stopped, Signal::SIGSTOP);
    harness.until_history_has(seen);
    std::thread::sleep(Duration::from_millis(3500));
    send(stopped, Signal::SIGCONT);
    let answer = Answer::of_child(child);
    answer.assert_exit(3);
    assert_has(&answer.diagnosis["unsure"].to_string(), &[named]);
    assert!(answer.diagnosis["effect"]["hint"].is_string());
}

const BEGUN: &str = r#""phase":"faults""#;

#[test]
fn a_harness_that_stood_still_says_so_and_blames_no_lock() {
    // it sees nothing before it goes on
    stood_still(|harness| harness, BEGUN, "harness did not run for");
}

#[test]
fn a_server_that_is_stopped_by_hand_is_named_and_no_lock_is_blamed() {
    let server = |harness: u32| {
        let children = succeeds(Command::new("pgrep").args(["-P", &harness.to_string(), "redis-server"]));
        children.trim().parse().unwrap()
    };
    stood_still(server, r#""n1":"not serving""#, "n1 did not serve");
}

#[test]
fn a_killed_run_leaves_a_history_that_can_be_checked_and_nothing_that_runs() {
    let harness = Harness::new();
    let mut child = in_the_middle(&harness);
    send(child.id(), Signal::SIGKILL);
    child.wait().unwrap();
    until("the children's end", || processes_of(harness.folder.path()).is_empty());
    let checked = harness.answer("check latest --json");
    checked.assert_exit(3);
    assert!(checked.diagnosis["partial"].is_string());
    checked.assert_verdict("HL001", "holds");
    // its temporary folder is a leftover
    let run = checked.diagnosis["run"]["run"].as_str().unwrap();
    assert_has(&harness.answer("doctor").stdout, &[run]);
    let cleaned = harness.answer("doctor --clean --json").diagnosis;
    assert_has(&cleaned["removed"].to_string(), &[run]);
    let server = &cleaned["servers"][0];
    assert_ne!(server["image"].is_string(), server["no_image"].is_string());
    assert_lacks(&harness.answer("doctor").stdout, &[run]);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let words = format!("run --runtime local --backend redis --time 10s --port-base {port}");
    Harness::new().assert_says(&words, 4, &[&format!("port {port} for n1 is taken")]);
}

#[test]
fn with_neither_docker_nor_programs_it_says_what_to_install() {
    let harness = Harness::new();
    for backend in ["zk", "etcd", "redis"] {
        let mut command = harness.command(&format!("run --backend {backend} --time 10s"));
        assert_says(
            command
                .env("PATH", harness.folder.path())
                .env("DOCKER_HOST", "unix:///nowhere/docker.sock"),
            4,
            &["apt-get install", "no docker"],
        );
    }
}

#[test]
fn a_broken_line_of_a_history_is_named_by_its_number() {
    let harness = Harness::new();
    let text = std::fs::read_to_string(golden("hl001_stale_holder")).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[6] = "{\"index\":699,\"time\":12,\"proc";
    std::fs::write(harness.folder.path().join("broken.jsonl"), lines.join("\n")).unwrap();
    let checked = harness.answer("check broken.jsonl");
    checked.assert_exit(2);
    assert_has(&checked.stderr, &["line 7"]);
    assert_eq!(checked.stderr.trim().lines().count(), 1, "one sentence");
}

/// Asserts that a run with violations is decided in the same way from its stored history.
fn is_decided_again_as_it_was_decided_live(words: &str) {
    let harness = Harness::new();
    let words = format!("--backend redis --recipe redis-set-px-del --holder naive --fault partition=holder {words}");
    let live = harness.run(&words);
    live.assert_exit(1);
    let again = harness.answer("check latest --json");
    again.assert_exit(1);
    for property in ["HL001", "HL002", "HL005", "HL007", "HL008", "HL009"] {
        assert_eq!(
            live.finding(property)["violations"],
            again.finding(property)["violations"],
            "{property}"
        );
    }
}

#[test]
fn a_stored_run_on_models_is_decided_again_as_it_was_decided_live() {
    is_decided_again_as_it_was_decided_live("--runtime simulated --clients 10 --hold 100ms --seed 4");
}

mod nightly {
    #[test]
    fn a_stored_run_is_decided_again_as_it_was_decided_live() {
        let words = "--runtime local --lease 1s --window 2500ms --time 12s --seed 16";
        super::is_decided_again_as_it_was_decided_live(words);
    }
}

#[test]
fn a_full_disk_ends_the_run_with_the_name_of_the_file() {
    let harness = Harness::new();
    let mount = harness.folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=300k", "none"])
        .arg(&mount)
        .status();
    assert!(
        mounted.is_ok_and(|status| status.success()),
        "this test needs the right to mount a small file system"
    );
    let words = format!(
        "run --runtime local --backend redis --fault none --hold 0ms --time 2m --results {}",
        mount.display()
    );
    let answer = harness.answer(&words);
    let run_file = mount.join("latest/run.json");
    let info: Value = serde_json::from_slice(&std::fs::read(run_file).unwrap()).unwrap();
    // a file is written beside its path, and renamed when it is complete
    let mut half = [names_in(&mount), names_in(&mount.join("latest"))].concat();
    half.retain(|name| name.contains(".new-"));
    let unmounted = Command::new("umount").arg("-l").arg(&mount).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    answer.assert_exit(4);
    assert_has(&answer.stderr, &["history.jsonl", "No space left"]);
    assert_eq!(info["status"], "failed", "{info:#}");
    assert_eq!(half, Vec::<String>::new());
}

#[test]
fn output_that_is_lost_is_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for words in [
        "run --runtime simulated --backend redis --fault none --time 10s --quiet",
        "run --runtime simulated --backend redis --dry-run --json",
        "list recipes",
        "--help",
    ] {
        assert_says(
            Harness::new().command(words).stdout(full()),
            4,
            &["could not write to stdout"],
        );
    }
}

#[test]
fn a_folder_in_the_place_of_the_link_to_the_latest_run_is_named_and_no_run_is_made() {
    let harness = Harness::new();
    std::fs::create_dir_all(harness.results().join("latest")).unwrap();
    harness.assert_says(
        "run --runtime simulated --backend redis --fault none --time 10s --results results",
        4,
        &["latest is a folder", "hint: rename it"],
    );
    assert_eq!(std::fs::read_dir(harness.results()).unwrap().count(), 1);
}

#[test]
fn a_link_that_leads_nowhere_is_no_folder_for_results() {
    let harness = Harness::new();
    std::os::unix::fs::symlink("nowhere", harness.folder.path().join("dangling")).unwrap();
    let refused = harness.answer("run --runtime simulated --backend redis --time 10s --results dangling");
    assert_ne!(refused.exit, 0);
    assert_has(&refused.stderr, &["must be a folder"]);
}
