//! Corner cases whose time might grow faster than their size: each at two sizes, the second ten times the first.

use harness_checkers::history::event::{Header, Kind, Process};
use harness_checkers::linearizability::decide;
use harness_checkers::{Budget, Clock, Entry, F, History, HistoryBuilder, Mode, Model, Options, check};

use super::files::processor_seconds;
use super::{by_another_process, peak_kib};

/// Operations of the smaller size.
const FEW: u64 = 100_000;

/// Makes a history line by line.
struct Lines {
    builder: HistoryBuilder,
    index: u64,
    /// Nanoseconds from one line to the next.
    step: u64,
    /// Nanoseconds to which times are rounded.
    grain: u64,
}

impl Lines {
    fn add<'a>(&mut self, process: Process, kind: Kind, f: F, change: impl FnOnce(&mut Entry<'a>)) {
        self.index += 1;
        let time = (self.index * self.step).div_ceil(self.grain) * self.grain;
        let mut entry = Entry::new(self.index, time, process, kind, f);
        change(&mut entry);
        self.builder.push(&entry).expect("a corner is well formed");
    }

    fn say(&mut self, process: u64, kind: Kind, f: F, change: impl FnOnce(&mut Entry<'_>)) {
        self.add(Process::Client(process as u32), kind, f, |entry| {
            entry.lock = Some("l0");
            change(entry);
        });
    }

    /// Adds a line about one of many locks, or about none.
    fn of(&mut self, process: u64, kind: Kind, f: F, lock: Option<u64>) {
        let name = lock.map(|lock| format!("l{lock}"));
        self.add(Process::Client(process as u32), kind, f, |entry| {
            entry.lock = name.as_deref();
        });
    }

    fn op_of(&mut self, process: u64, f: F, lock: u64) {
        self.of(process, Kind::Invoke, f, Some(lock));
        self.of(process, Kind::Ok, f, Some(lock));
    }

    /// Adds a line of the server: a grant, or its end.
    fn server(&mut self, f: F, process: u64) {
        let owner = process.to_string();
        self.add(Process::Server, Kind::Signal, f, |entry| {
            (entry.lock, entry.owner, entry.token) = (Some("l0"), Some(owner.as_str()), Some(process + 1));
            entry.cause = (f == F::Revoked).then_some("released");
        });
    }

    /// Adds a line of the nemesis.
    fn nemesis(&mut self, name: &str, raw: &str) {
        self.add(Process::Nemesis, Kind::Info, F::Nemesis, |entry| {
            (entry.name, entry.raw) = (Some(name), Some(raw));
        });
    }

    fn op(&mut self, process: u64, f: F) {
        self.say(process, Kind::Invoke, f, |_| {});
        self.say(process, Kind::Ok, f, |_| {});
    }

    /// Adds a call of each process for the lock.
    fn asked_by(&mut self, processes: u64) {
        (0..processes).for_each(|process| self.say(process, Kind::Invoke, F::Acquire, |_| {}));
    }
}

/// A corner case: its name, its model, the grain of its clock, and the function that makes it.
type Corner = (&'static str, &'static str, u64, fn(&mut Lines, u64));

const CORNERS: [Corner; 23] = [
    ("holds that end by loss", "owner-mutex", 1, losses),
    ("readers at once", "read-write", 1, readers),
    ("holders at once", "semaphore=1000000", 1, turns_of_all),
    ("one process with many locks", "owner-mutex", 1, many_locks),
    ("deaths among many locks", "owner-mutex", 1, deaths),
    ("losses of all of many locks", "owner-mutex", 1, losses_of_all),
    ("20 clients, clock of 1 ms", "mutex", 1_000_000, turns),
    ("20 clients, clock of 1 ms", "owner-mutex", 1_000_000, turns),
    ("20 clients, unknown acquires", "mutex", 1, unknown),
    ("refusals of one process", "try-lock", 1, refusals),
    ("refusals of one process", "exact-try-lock", 1, refusals),
    ("20 clients, clock of 20 us", "cas-register", 20_000, register),
    ("waiters that are served late", "owner-mutex", 1, waiters),
    ("waiters that are never served", "owner-mutex", 1, unknown),
    ("the same, and a server that tells", "owner-mutex", 1, told),
    ("the same, woken", "owner-mutex", 1, woken),
    ("the latest waiter is served first", "fenced", 1, last_first),
    ("holds minutes apart", "owner-mutex", 1, rare_holds),
    ("waits of minutes, unanswered", "owner-mutex", 1, rare_waits),
    ("a fault window every 100 operations", "owner-mutex", 1, windows),
    ("the same, and 1,000 clients", "owner-mutex", 1, windows_of_many),
    ("readers that wait for a writer", "read-write", 1, waiting_readers),
    ("waits of minutes for two locks", "owner-mutex", 1, long_waits_of_two),
];

fn losses(lines: &mut Lines, operations: u64) {
    for process in 0..operations {
        lines.op(process, F::Acquire);
        lines.say(process, Kind::Signal, F::Lost, |_| {});
    }
}

fn turns_of_all(lines: &mut Lines, operations: u64) {
    for f in [F::Acquire, F::Release] {
        (0..operations / 2).for_each(|process| lines.op(process, f));
    }
}

fn many_locks(lines: &mut Lines, operations: u64) {
    for f in [F::Acquire, F::Release] {
        (0..operations / 2).for_each(|lock| lines.op_of(0, f, lock));
    }
}

/// Each process acquires three of a thousand locks, and dies with them.
fn deaths(lines: &mut Lines, operations: u64) {
    for process in 0..operations / 3 {
        (0..3).for_each(|lock| lines.op_of(process, F::Acquire, (process * 3 + lock) % 1_000));
        lines.of(process, Kind::Signal, F::Died, None);
    }
}

/// A process that once had many locks acquires one of them and loses all, repeatedly.
fn losses_of_all(lines: &mut Lines, operations: u64) {
    (0..operations / 2).for_each(|lock| lines.op_of(0, F::Acquire, lock));
    for _ in 0..operations / 2 {
        lines.of(0, Kind::Signal, F::Lost, None);
        lines.op_of(0, F::Acquire, 0);
    }
}

/// All call first, and are served one after the other.
fn waiters(lines: &mut Lines, operations: u64) {
    lines.asked_by(operations / 2);
    for process in 0..operations / 2 {
        lines.say(process, Kind::Ok, F::Acquire, |_| {});
        lines.op(process, F::Release);
    }
}

/// Waiters that are served one after the other, each with a line of the server about its grant.
fn told(lines: &mut Lines, operations: u64) {
    lines.asked_by(operations / 2);
    for process in 0..operations / 2 {
        lines.server(F::Granted, process);
        lines.say(process, Kind::Ok, F::Acquire, |entry| entry.token = Some(process + 1));
        lines.say(process, Kind::Invoke, F::Release, |_| {});
        lines.server(F::Revoked, process);
        lines.say(process, Kind::Ok, F::Release, |_| {});
    }
}

fn woken(lines: &mut Lines, operations: u64) {
    lines.asked_by(operations / 2);
    for process in 0..operations / 2 {
        lines.say(process, Kind::Signal, F::Woken, |_| {});
        lines.say(process, Kind::Ok, F::Acquire, |_| {});
        lines.op(process, F::Release);
    }
}

fn last_first(lines: &mut Lines, operations: u64) {
    lines.asked_by(operations / 2);
    for (turn, process) in (0..operations / 2).rev().enumerate() {
        lines.say(process, Kind::Ok, F::Acquire, |entry| entry.token = Some(turn as u64));
        lines.op(process, F::Release);
    }
}

/// A lock that is free for longer than the bound, whenever no client asks.
fn rare_holds(lines: &mut Lines, operations: u64) {
    lines.step = 60_000_000_000;
    turns(lines, operations);
}

fn rare_waits(lines: &mut Lines, operations: u64) {
    lines.step = 60_000_000_000;
    unknown(lines, operations);
}

/// Two locks with long holds, one holder after the other, and a waiter of each turn that is never served.
fn long_waits_of_two(lines: &mut Lines, operations: u64) {
    lines.step = 4_000_000_000;
    for turn in 0..operations / 3 {
        let (lock, holder, before) = (Some(turn % 2), turn % 20, (turn + 18) % 20);
        lines.of(holder, Kind::Invoke, F::Acquire, lock);
        if turn >= 2 {
            lines.of(before, Kind::Invoke, F::Release, lock);
        }
        lines.of(holder, Kind::Ok, F::Acquire, lock);
        if turn >= 2 {
            lines.of(before, Kind::Ok, F::Release, lock);
        }
        lines.of(1_000 + turn, Kind::Invoke, F::Acquire, lock);
    }
}

const START: &str = r#"{"phase":"start","window":1,"targets":["c0"],"title":"c0"}"#;
const HEAL: &str = r#"{"phase":"heal","window":1,"evidence":{"links":1,"dropped_packets":1},"left_trace":true}"#;

fn windows(lines: &mut Lines, operations: u64) {
    windows_of(lines, operations, 20);
}

fn windows_of_many(lines: &mut Lines, operations: u64) {
    windows_of(lines, operations, 1_000);
}

fn windows_of(lines: &mut Lines, operations: u64, clients: u64) {
    lines.step = 1_000_000;
    for turn in 0..operations / 2 {
        match turn % 50 {
            10 => lines.nemesis("partition", START),
            30 => lines.nemesis("partition", HEAL),
            _ => {}
        }
        lines.op(turn % clients, F::Acquire);
        lines.op(turn % clients, F::Release);
    }
}

fn waiting_readers(lines: &mut Lines, operations: u64) {
    let read = |entry: &mut Entry<'_>| entry.mode = Mode::Read;
    lines.op(u64::from(u32::MAX) / 2, F::Acquire);
    (0..operations / 2).for_each(|process| lines.say(process, Kind::Invoke, F::Acquire, read));
    lines.op(u64::from(u32::MAX) / 2, F::Release);
    (0..operations / 2).for_each(|process| lines.say(process, Kind::Ok, F::Acquire, read));
    (0..operations / 2).for_each(|process| lines.op(process, F::Release));
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
    let mut lines = Lines {
        builder: HistoryBuilder::new(Header::default().with_model(corner.1)),
        index: 0,
        step: 1_000,
        grain: corner.2,
    };
    corner.3(&mut lines, operations);
    lines.builder.finish()
}

/// Returns the mean processor time of a function in milliseconds, of as many calls as the system's clock needs to be exact.
fn time(work: impl Fn()) -> f64 {
    let (started, mut times) = (processor_seconds(), 0.0);
    loop {
        work();
        times += 1.0;
        let spent = processor_seconds() - started;
        if spent >= 0.3 {
            return spent * 1e3 / times;
        }
    }
}

/// `bench corner NUMBER OPERATIONS`: milliseconds of processor time of linearizability and of all properties, and the memory of both in MB.
pub fn row(arguments: &[String]) {
    let number = |at: usize| arguments[at].parse::<u64>().expect("a number");
    let corner = &CORNERS[number(0) as usize];
    let model: Model = corner.1.parse().expect("a model");
    let history = history(corner, number(1));
    let decided = time(|| {
        let counts = decide(&history, &model, Budget::default(), Clock::default());
        assert_eq!((counts.illegal, counts.unknown), (0, 0), "a corner is legal");
    });
    let options = Options {
        model: Some(model),
        ..Options::default()
    };
    let checked = time(|| drop(check(&history, &options)));
    println!("{decided} {checked} {}", peak_kib() / 1024);
}

/// Prints a table of all corner cases.
pub fn table() {
    let large = FEW * 10;
    println!(
        "\n| corner | model | linearizability: {FEW} | {large} | ratio | all properties: {FEW} | {large} | ratio | peak |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (number, (what, model, ..)) in CORNERS.iter().enumerate() {
        let measured = |operations: u64| {
            let text = by_another_process(&["corner", &number.to_string(), &operations.to_string()]);
            let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            <[f64; 3]>::try_from(numbers).unwrap_or([f64::NAN; 3])
        };
        let (small, much) = (measured(FEW), measured(large));
        println!(
            "| {what} | {model} | {:.1} ms | {:.1} ms | {:.1} | {:.1} ms | {:.1} ms | {:.1} | {:.0} MB |",
            small[0],
            much[0],
            much[0] / small[0],
            small[1],
            much[1],
            much[1] / small[1],
            much[2]
        );
    }
}
