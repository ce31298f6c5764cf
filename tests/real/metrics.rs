//! `--metrics`: figures of a run and of a hunt, read during them.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;

use crate::command::Harness;
use crate::machine::{free_address, http, send, until_ok};

fn get(at: SocketAddr, path: &str) -> std::io::Result<String> {
    // a scraper may use a name of this machine
    http(at, &format!("GET {path} HTTP/1.1\r\nHost: soak.internal:9184"), "")
}

fn value(answer: &str, sample: &str) -> Option<f64> {
    let line = answer
        .lines()
        .find(|line| line.rsplit_once(' ').is_some_and(|(name, _)| name == sample))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Reads until the figures are as wanted; the process must not end meanwhile.
fn until(running: &mut Child, at: SocketAddr, wanted: impl Fn(&str) -> bool) -> String {
    let mut last = String::new();
    until_ok(|| {
        assert_eq!(running.try_wait().unwrap(), None, "it ended before: {last}");
        if let Ok(answer) = get(at, "/metrics") {
            last = answer;
        }
        let answer = wanted(&last).then(|| last.clone());
        answer.ok_or_else(|| format!("never: {last}"))
    })
}

#[test]
fn a_run_shows_what_goes_on_in_it() {
    let harness = Harness::new();
    let at = free_address();
    let words = format!(
        "run --quiet --runtime local --backend redis --fault partition=holder --lease 1s --window 4s --time 16s --metrics {at}"
    );
    let mut running = harness.command(&words).stdout(Stdio::null()).spawn().unwrap();
    let answer = until(&mut running, at, |answer| {
        value(answer, "harness_windows_open") == Some(1.0) && value(answer, "harness_grants_total") > Some(10.0)
    });
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"), "{answer}");
    assert_eq!(value(&answer, "harness_runs_total"), Some(1.0));
    assert!(value(&answer, "harness_own_delay_worst_seconds").is_some(), "{answer}");
    assert!(
        value(&answer, "harness_acquire_seconds{quantile=\"0.5\"}") > Some(0.0),
        "{answer}"
    );
    until(&mut running, at, |answer| value(answer, "harness_waiting") > Some(0.0));
    until(&mut running, at, |answer| value(answer, "harness_holders") == Some(1.0));
    assert!(get(at, "/").unwrap().starts_with("HTTP/1.1 404"));
    send(running.id(), Signal::SIGINT);
    assert_eq!(running.wait().unwrap().code(), Some(130));
    assert!(get(at, "/metrics").is_err(), "it ends with the run");
}

#[test]
fn a_hunt_shows_its_experiments() {
    let harness = Harness::new();
    let at = free_address();
    let words =
        format!("hunt --quiet --runtime simulated --backend redis --for 2m --until end --metrics {at} --seed 1");
    let mut running = harness.command(&words).stdout(Stdio::null()).spawn().unwrap();
    until(&mut running, at, |answer| {
        value(answer, "harness_experiments_total{outcome=\"held\"}") > Some(3.0)
    });
    send(running.id(), Signal::SIGINT);
    running.wait().unwrap();
}

#[test]
fn an_address_that_is_taken_ends_the_run_before_it_begins() {
    let harness = Harness::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap();
    harness.assert_says(
        &format!("run --runtime local --backend redis --time 10s --metrics {at}"),
        4,
        &[&format!("could not serve metrics at {at}")],
    );
    assert!(!harness.results().exists(), "no run was made");
}
