//! Measures the monitor: events a second on one core, and whether its memory is constant.
//!
//! The history has twenty clients that acquire one lock in turn, an event a microsecond, and is not stored.

use std::time::{Duration, Instant};

use harness_checkers::{Entry, F, Header, Kind, Model, Monitor, Process};

use super::files::processor_seconds;
use super::{by_another_process, peak_kib};

const CLIENTS: u32 = 20;

/// Prints the table. Limits: 20 million events a second of the owner-aware mutex, and constant memory.
pub fn table() {
    println!();
    for model in ["owner-mutex", "fenced", "reentrant", "read-write"] {
        print!("{}", by_another_process(&["monitor", "100000000", model]));
    }
}

/// `bench monitor [EVENTS] [MODEL] [DELAY_US]`.
pub fn row(arguments: &[String]) {
    let said = |at: usize, otherwise: &'static str| arguments.get(at).map_or(otherwise, String::as_str);
    let events: u64 = said(0, "100000000").parse().expect("a number of events");
    let model: Model = said(1, "owner-mutex").parse().expect("a model");
    let delay: u64 = said(2, "1000").parse().expect("a delay in microseconds");
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

/// Generates clients that acquire the lock in turn: each calls during the hold before it, and is answered after the call of that release.
fn generate(events: u64, mut see: impl FnMut(&Entry<'_>)) {
    let mut entry = Entry {
        lock: Some("l0"),
        ..Entry::new(0, 0, Process::Client(0), Kind::Invoke, F::Acquire)
    };
    see(&entry);
    let (mut holder, mut token) = (0, 0);
    while entry.index + 1 < events {
        let next = (holder + 1) % CLIENTS;
        token += 1;
        for (process, kind, f, token) in [
            (holder, Kind::Ok, F::Acquire, Some(token)),
            (next, Kind::Invoke, F::Acquire, None),
            (holder, Kind::Invoke, F::Release, None),
            (holder, Kind::Ok, F::Release, None),
        ] {
            entry.index += 1;
            entry.time_ns = entry.index * 1_000;
            (entry.process, entry.kind, entry.f, entry.token) = (Process::Client(process), kind, f, token);
            see(&entry);
        }
        holder = next;
    }
}
