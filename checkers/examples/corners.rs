//! Times the corners of linearizability that could cost more than time in proportion: each at two sizes, the second ten
//! times the first, and the ratio.
//!
//! `cargo run --release -p harness-checkers --example corners [OPERATIONS]`

use std::time::Instant;

use harness_checkers::history::event::{Header, Kind, Process};
use harness_checkers::linearizability::decide;
use harness_checkers::{Budget, Clock, Entry, F, History, HistoryBuilder, Mode, Model};

/// Writes a history line by line.
struct Lines {
    builder: HistoryBuilder,
    index: u64,
    /// Nanoseconds to which times are rounded.
    grain: u64,
}

impl Lines {
    fn say(&mut self, process: u64, kind: Kind, f: F, change: impl FnOnce(&mut Entry<'_>)) {
        self.index += 1;
        let time = (self.index * 1_000).div_ceil(self.grain) * self.grain;
        let mut entry = Entry::new(self.index, time, Process::Client(process as u32), kind, f);
        entry.lock = Some("l0");
        change(&mut entry);
        self.builder.push(&entry).expect("a corner is well formed");
    }

    fn op(&mut self, process: u64, f: F) {
        self.say(process, Kind::Invoke, f, |_| {});
        self.say(process, Kind::Ok, f, |_| {});
    }
}

/// A corner: what it is called, its model, the grain of its clock, and how it is written.
type Corner = (&'static str, &'static str, u64, fn(&mut Lines, u64));

const CORNERS: [Corner; 8] = [
    ("holds that end by loss", "owner-mutex", 1, losses),
    ("readers at once", "read-write", 1, readers),
    ("20 clients, clock of 1 ms", "mutex", 1_000_000, turns),
    ("20 clients, clock of 1 ms", "owner-mutex", 1_000_000, turns),
    ("20 clients, unknown acquires", "mutex", 1, unknown),
    ("refusals of one process", "try-lock", 1, refusals),
    ("refusals of one process", "exact-try-lock", 1, refusals),
    ("20 clients, clock of 20 us", "cas-register", 20_000, register),
];

fn losses(lines: &mut Lines, operations: u64) {
    for process in 0..operations {
        lines.op(process, F::Acquire);
        lines.say(process, Kind::Signal, F::Lost, |_| {});
    }
}

fn readers(lines: &mut Lines, operations: u64) {
    for f in [F::Acquire, F::Release] {
        for process in 0..operations / 2 {
            lines.say(process, Kind::Invoke, f, |entry| entry.mode = Mode::Read);
            lines.say(process, Kind::Ok, f, |entry| entry.mode = Mode::Read);
        }
    }
}

fn turns(lines: &mut Lines, operations: u64) {
    for turn in 0..operations / 2 {
        lines.op(turn % 20, F::Acquire);
        lines.op(turn % 20, F::Release);
    }
}

fn unknown(lines: &mut Lines, operations: u64) {
    for turn in 0..operations / 3 {
        lines.say(1_000 + turn, Kind::Invoke, F::Acquire, |_| {});
        lines.op(turn % 20, F::Acquire);
        lines.op(turn % 20, F::Release);
    }
}

fn refusals(lines: &mut Lines, operations: u64) {
    lines.op(0, F::Acquire);
    for _ in 1..operations {
        lines.say(1, Kind::Invoke, F::Acquire, |_| {});
        lines.say(1, Kind::Fail, F::Acquire, |entry| entry.error = Some("busy"));
    }
}

fn register(lines: &mut Lines, operations: u64) {
    for turn in 0..operations / 2 {
        let value = Some(turn % 7);
        lines.say(turn % 20, Kind::Invoke, F::Write, |entry| entry.value = value);
        lines.say(turn % 20, Kind::Ok, F::Write, |entry| entry.value = value);
        lines.say((turn + 7) % 20, Kind::Invoke, F::Read, |_| {});
        lines.say((turn + 7) % 20, Kind::Ok, F::Read, |entry| entry.value = value);
    }
}

fn history(corner: &Corner, operations: u64) -> History {
    let header = format!(r#"{{"format":"harness-history","version":1,"model":"{}"}}"#, corner.1);
    let header: Header = serde_json::from_str(&header).expect("a header");
    let builder = HistoryBuilder::new(header);
    let mut lines = Lines {
        builder,
        index: 0,
        grain: corner.2,
    };
    corner.3(&mut lines, operations);
    lines.builder.finish()
}

/// The least of three times, in milliseconds.
fn time(history: &History, model: &Model) -> f64 {
    let each = (0..3).map(|_| {
        let started = Instant::now();
        let counts = decide(history, model, Budget::default(), Clock::default());
        assert_eq!((counts.illegal, counts.unknown), (0, 0), "a corner is legal");
        started.elapsed().as_secs_f64() * 1e3
    });
    each.fold(f64::MAX, f64::min)
}

fn main() {
    let asked = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let few: u64 = asked.unwrap_or(100_000);
    println!(
        "| corner | model | {few} operations | {} operations | ratio |",
        few * 10
    );
    println!("| --- | --- | --- | --- | --- |");
    for corner in &CORNERS {
        let model: Model = corner.1.parse().expect("a model");
        let [small, large] = [few, few * 10].map(|operations| time(&history(corner, operations), &model));
        println!(
            "| {} | {} | {small:.1} ms | {large:.1} ms | {:.1} |",
            corner.0,
            corner.1,
            large / small
        );
    }
}
