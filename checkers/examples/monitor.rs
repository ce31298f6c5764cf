//! Measures the monitor: events a second on one core, and whether memory stays as it is.
//!
//! `cargo run --release -p harness-checkers --example monitor [EVENTS] [MODEL] [DELAY_US]` generates a history of twenty clients
//! that take one lock in turn, an event a microsecond, and gives it to a monitor without keeping it.

use std::time::{Duration, Instant};

use harness_checkers::{Entry, F, Header, Kind, Model, Monitor, Process};

const CLIENTS: u32 = 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
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
    let started = Instant::now();
    let mut at = 0;
    generate(events, |entry| {
        let violation = monitor.push(entry).expect("a well-formed history");
        assert!(violation.is_none(), "the lock is taken in turn");
        at += 1;
        if at == events / 10 {
            early = peak_kib();
        }
    });
    let seconds = started.elapsed().as_secs_f64();
    assert!(monitor.finish().is_empty(), "the lock is taken in turn");
    println!(
        "{model}: {events} events in {seconds:.2} s, {:.1} million a second ({generated:.2} s without the monitor); \
         peak memory {:.1} MB after a tenth, {:.1} MB at the end",
        events as f64 / seconds / 1e6,
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

/// The most memory that this process ever had, in kibibytes; 0 where the system does not say.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}
