//! Measures the monitor: events a second on one core, and whether memory stays as it is.
//!
//! The history is of twenty clients that take one lock in turn, an event a microsecond, and is not kept.

use std::process::Command;
use std::time::{Duration, Instant};

use harness_checkers::{Entry, F, Header, Kind, Model, Monitor, Process};

use super::files::processor_seconds;
use super::peak_kib;

const CLIENTS: u32 = 20;

/// Limits: 20 million events a second of the owner-aware mutex, and memory that stays as it is.
pub fn table() {
    println!();
    for model in ["owner-mutex", "fenced", "reentrant", "read-write"] {
        let exe = std::env::current_exe().expect("this program has a path");
        let output = Command::new(exe).args(["monitor", "100000000", model]).output();
        let output = output.expect("a row can be run");
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// `bench monitor [EVENTS] [MODEL] [DELAY_US]`.
pub fn row(arguments: &[String]) {
    let mut arguments = arguments.iter();
    let events: u64 = arguments
        .next()
        .map_or(100_000_000, |text| text.parse().expect("a number of events"));
    let model: Model = arguments
        .next()
        .map_or(Model::OwnerMutex, |text| text.parse().expect("a model"));
    let delay: u64 = arguments
        .next()
        .map_or(1_000, |text| text.parse().expect("a delay in microseconds"));
    let header = Header::of_locks(["l0"]).with_lease_ms(2_000);
    let mut monitor = Monitor::new(header, model)
        .expect("a model with owners")
        .with_signal_delay(Duration::from_micros(delay));
    let generated = time(events, |_| ());
    let mut early = 0;
    let (started, spent) = (Instant::now(), processor_seconds());
    let mut at = 0;
    generate(events, |entry| {
        let violation = monitor.push(entry).expect("a well-formed history");
        assert!(violation.is_none(), "the lock is taken in turn");
        at += 1;
        if at == events / 10 {
            early = peak_kib();
        }
    });
    let (seconds, spent) = (started.elapsed().as_secs_f64(), processor_seconds() - spent);
    assert!(monitor.finish().is_empty(), "the lock is taken in turn");
    println!(
        "{model}: {events} events in {seconds:.2} s, {:.1} million a second of processor time ({generated:.2} s without the monitor); \
         peak memory {:.1} MB after a tenth, {:.1} MB at the end",
        events as f64 / spent / 1e6,
        early as f64 / 1024.0,
        peak_kib() as f64 / 1024.0,
    );
}

fn time(events: u64, mut see: impl FnMut(&Entry<'_>)) -> f64 {
    let started = Instant::now();
    generate(events, |entry| see(std::hint::black_box(entry)));
    started.elapsed().as_secs_f64()
}

/// Clients that take the lock in turn: each calls while the one before still holds it, and is answered once that has called its release.
fn generate(events: u64, mut see: impl FnMut(&Entry<'_>)) {
    let (mut index, mut holder, mut token) = (0, 0, 0);
    let mut entry = Entry {
        lock: Some("l0"),
        ..Entry::new(0, 0, Process::Client(0), Kind::Invoke, F::Acquire)
    };
    while index < events {
        let next = (holder + 1) % CLIENTS;
        token += 1;
        let lines = [
            (next, Kind::Invoke, F::Acquire, None),
            (holder, Kind::Invoke, F::Release, None),
            (holder, Kind::Ok, F::Release, None),
            (next, Kind::Ok, F::Acquire, Some(token)),
        ];
        // Nobody holds at first.
        let from = if index == 0 { 3 } else { 0 };
        if from == 3 {
            (entry.process, entry.kind, entry.f) = (Process::Client(next), Kind::Invoke, F::Acquire);
            (entry.index, entry.time_ns) = (0, 0);
            see(&entry);
            index = 1;
        }
        for (process, kind, f, token) in &lines[from..] {
            (entry.index, entry.time_ns) = (index, index * 1_000);
            (entry.process, entry.kind, entry.f, entry.token) = (Process::Client(*process), *kind, *f, *token);
            see(&entry);
            index += 1;
        }
        holder = next;
    }
}
