//! Measures the decisions: model × size × unknown outcomes × verdict: time, events a second, peak memory.
//!
//! `cargo run --release -p harness-checkers --example bench` prints the table; each row runs in a separate process, so that its peak memory
//! is its own. After it come corner cases at two sizes, the time and memory of a file of 10^7 events, the monitor, and Porcupine. `bench
//! corners`, `files`, `monitor EVENTS MODEL DELAY_US` and `porcupine` print one of these. `bench file OPERATIONS PATH` writes a history,
//! compressed if the path ends in `.zst`, `bench read PATH` reads and decides it, `bench edn PATH PATH` writes it as EDN.

mod corners;
#[path = "../../tests/dice.rs"]
mod dice;
mod files;
mod monitor;
mod porcupine;
mod stores;

use std::process::Command;
use std::time::Instant;

use dice::dice;
use harness_checkers::history::event::{Header, Kind, Process};
use harness_checkers::linearizability::{self, LockOp, OneOwner, Operation, Register, RegisterOp, Searched, search};
use harness_checkers::{Budget, Clock, Entry, F, History, HistoryBuilder, Mode, Model, Options, check};

/// The parameters of a row.
#[derive(Default)]
struct Case {
    how: &'static str,
    model: &'static str,
    operations: u64,
    clients: u32,
    locks: u32,
    unknown: u64,
    planted: bool,
}

const ROWS: [(&str, &str, u64, u32, u32, u64, bool); 28] = [
    ("sweep", "owner-mutex", 1_000, 20, 1, 0, false),
    ("sweep", "owner-mutex", 100_000, 20, 1, 0, false),
    ("sweep", "owner-mutex", 100_000, 20, 1, 0, true),
    ("sweep", "owner-mutex", 1_000_000, 20, 1, 0, false),
    ("sweep", "owner-mutex", 10_000_000, 20, 1_000, 0, false),
    ("sweep", "owner-mutex", 10_000, 20, 1, 40, true),
    ("sweep", "fenced", 1_000_000, 20, 1, 0, false),
    ("sweep", "fenced", 10_000_000, 20, 1, 0, false),
    ("sweep", "try-lock", 1_000_000, 20, 1, 0, false),
    ("sweep", "try-lock", 100_000, 20, 1, 0, true),
    ("sweep", "exact-try-lock", 1_000_000, 20, 1, 0, false),
    ("sweep", "read-write", 100_000, 20, 1, 0, false),
    ("sweep", "read-write", 100_000, 20, 1, 0, true),
    ("sweep", "semaphore=3", 10_000, 20, 1, 0, true),
    ("sweep", "mutex", 72, 4, 1, 20, true),
    ("sweep", "mutex", 100_000, 20, 1, 40, false),
    ("search", "owner-mutex", 100_000, 20, 1, 0, false),
    ("search", "owner-mutex", 1_000_000, 20, 1, 0, false),
    ("search", "owner-mutex", 100_000, 20, 1, 40, true),
    ("search", "try-lock", 100_000, 20, 1, 0, false),
    ("search", "mutex", 72, 4, 1, 20, true),
    ("search of 100", "cas-register", 100, 5, 1, 4, false),
    ("search of 100", "cas-register", 100, 5, 1, 4, true),
    ("search of 100", "cas-register", 100, 10, 1, 8, true),
    ("certificate", "owner-mutex", 1_000_000, 20, 4, 0, false),
    ("certificate", "read-write", 100_000, 20, 1, 0, false),
    ("certificate", "try-lock", 100_000, 20, 1, 0, false),
    ("check", "owner-mutex", 1_000_000, 20, 4, 0, false),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("row") => row(&arguments[1..]),
        Some("file") => files::write(&arguments[1..]),
        Some("read") => files::read(&arguments[1..]),
        Some("edn") => files::write_as_edn(&arguments[1..]),
        Some("corner") => corners::row(&arguments[1..]),
        Some("corners") => corners::table(),
        Some("files") => files::read_table(),
        Some("monitor") => monitor::row(&arguments[1..]),
        Some("porcupine") => porcupine::table(),
        Some("stores") => stores::table(&arguments[1], arguments[2].as_ref()),
        _ => table(),
    }
}

fn table() {
    println!(
        "| how | model | operations | clients | locks | unknown | planted | verdict | time | events/s | peak over the history |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for number in 0..ROWS.len() {
        print!("{}", by_another_process(&["row", &number.to_string()]));
    }
    corners::table();
    files::read_table();
    monitor::table();
    porcupine::table();
}

/// Returns the output of this program for some arguments, in a process of its own.
fn by_another_process(arguments: &[&str]) -> String {
    let exe = std::env::current_exe().expect("this program has a path");
    let output = Command::new(exe).args(arguments).output().expect("it can be run");
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// `bench row NUMBER`: one row of the table.
fn row(arguments: &[String]) {
    let number: usize = arguments[0].parse().expect("a number");
    let (how, model, operations, clients, locks, unknown, planted) = ROWS[number];
    let case = Case {
        how,
        model,
        operations,
        clients,
        locks,
        unknown,
        planted,
    };
    let model: Model = case.model.parse().expect("a model");
    let history = history(&case, model);
    let events = history.len();
    let searched = match how {
        "search" => lock_operations(&history),
        _ => Vec::new(),
    };
    let before = peak_kib();
    let (mut best, mut verdict) = (f64::MAX, String::new());
    for _ in 0..if events < 1_000_000 { 5 } else { 2 } {
        let started = Instant::now();
        verdict = decide(&case, model, &history, &searched);
        best = best.min(started.elapsed().as_secs_f64());
    }
    println!(
        "| {how} | {model} | {operations} | {clients} | {locks} | {unknown} | {planted} | {verdict} | {:.3} ms | {:.1} M | {:.1} MB |",
        best * 1e3,
        events as f64 / best / 1e6,
        (peak_kib() - before) as f64 / 1024.0
    );
}

fn decide(case: &Case, model: Model, history: &History, operations: &[Operation<LockOp>]) -> String {
    match case.how {
        "search" => match search(&OneOwner::new(model), operations, Budget::default(), Clock::default()) {
            Searched::Order(_) => "holds".to_owned(),
            Searched::NoOrder { .. } => "violated".to_owned(),
            Searched::Unknown { reason, .. } => reason.to_owned(),
        },
        "search of 100" => {
            let holds = |operations: &&Vec<Operation<RegisterOp>>| {
                let found = search(&Register::default(), operations, Budget::default(), Clock::default());
                matches!(found, Searched::Order(_))
            };
            format!("{} of 100 hold", registers(case).iter().filter(holds).count())
        }
        "certificate" => {
            let options = Options {
                certificate: true,
                ..Options::default()
            };
            format!("{} certified", check(history, &options).certificates.len())
        }
        "check" => format!("{:?}", check(history, &Options::default()).verdict()).to_lowercase(),
        _ => {
            let counts = linearizability::decide(history, &model, Budget::default(), Clock::default());
            if counts.illegal > 0 { "violated" } else { "holds" }.to_owned()
        }
    }
}

/// Returns a hundred histories of a compare-and-set register with a few operations each, as short as the public logs of etcd; with
/// `planted`, a read is off by one at nine tenths.
fn registers(case: &Case) -> Vec<Vec<Operation<RegisterOp>>> {
    let mut roll = dice(0x9e37_79b9_7f4a_7c15);
    (0..100)
        .map(|_| {
            let (mut value, mut operations) = (None, Vec::new());
            for place in 0..case.operations {
                let at = place * 1000 + 500_000;
                let (call, reply) = (
                    at - roll(500 * u64::from(case.clients)),
                    at + roll(500 * u64::from(case.clients)),
                );
                let expected = roll(5);
                let op = match roll(3) {
                    0 => RegisterOp::Read(value),
                    1 => RegisterOp::Write(roll(5)),
                    _ if value == Some(expected) => RegisterOp::Cas { expected, new: roll(5) },
                    _ => RegisterOp::CasFailed { expected },
                };
                match op {
                    RegisterOp::Write(new) | RegisterOp::Cas { new, .. } => value = Some(new),
                    _ => {}
                }
                let unknown = case.unknown > 0
                    && place % (case.operations / case.unknown) == 7
                    && !matches!(op, RegisterOp::Read(_));
                operations.push(Operation {
                    op,
                    call,
                    reply: Some(reply).filter(|_| !unknown),
                });
                if case.planted && place == case.operations * 9 / 10 {
                    operations.push(Operation {
                        op: RegisterOp::Read(Some(9)),
                        call: at,
                        reply: Some(at + 1),
                    });
                }
            }
            operations
        })
        .collect()
}

/// Returns the operations of the first lock as a caller of the search would have them: with hints only, without pairs of a hold.
fn lock_operations(history: &History) -> Vec<Operation<LockOp>> {
    let mut open = std::collections::BTreeMap::new();
    let mut operations: Vec<Operation<LockOp>> = Vec::new();
    for (at, entry) in history.entries().enumerate() {
        let process = entry.process_number().unwrap_or(0);
        match entry.kind {
            Kind::Invoke => {
                let op = match entry.f {
                    F::Acquire => LockOp::Acquire {
                        process,
                        mode: entry.mode,
                        permits: 1,
                        token: None,
                        extends: false,
                    },
                    _ => LockOp::Release { process, permits: 1 },
                };
                open.insert(process, operations.len());
                operations.push(Operation {
                    op,
                    call: at as u64,
                    reply: None,
                });
            }
            Kind::Ok | Kind::Fail => {
                let operation = &mut operations[open[&process]];
                operation.reply = Some(at as u64);
                if entry.kind == Kind::Fail {
                    operation.op = LockOp::Busy { process };
                }
            }
            _ => {}
        }
    }
    operations
}

/// Returns a correct history of a contended lock; with `planted`, it has a violation at nine tenths.
fn history(case: &Case, model: Model) -> History {
    let mut header = Header::default();
    header.promises.tokens = true;
    let (mut builder, mut index, mut token) = (HistoryBuilder::new(header), 0, 0);
    generate(case, model, &mut |mut entry| {
        index += 1;
        (entry.index, entry.time_ns) = (index, index * 1000);
        if entry.kind == Kind::Ok && entry.f == F::Acquire {
            token += 1;
            entry.token = Some(token);
        }
        builder.push(&entry).expect("a well-formed history");
    });
    builder.finish()
}

/// Generates clients that queue on their locks; each lock in turn advances by one hold of four events and two operations.
fn generate(case: &Case, model: Model, push: &mut dyn FnMut(Entry<'_>)) {
    let names: Vec<String> = (0..case.locks).map(|lock| format!("l{lock}")).collect();
    let each = (case.clients / case.locks).max(2);
    let processes = (0..case.locks)
        .map(|lock| (0..each).map(|client| lock * each + client).collect())
        .collect();
    let mut queues = BenchQueues {
        names,
        processes,
        next: case.locks * each,
        model,
        push,
    };
    let tries = matches!(model, Model::TryLock | Model::ExactTryLock);
    if !tries {
        for lock in 0..case.locks as usize {
            (0..each as usize).for_each(|turn| queues.event(lock, turn, turn, Kind::Invoke, F::Acquire, None));
        }
    }
    let every = (case.operations / 2)
        .checked_div(case.unknown)
        .map_or(u64::MAX, |every| every.max(1));
    let (mut done, mut round) = (0, 0usize);
    while done < case.operations {
        let (lock, turn) = (round % case.locks as usize, round / case.locks as usize);
        // The rest of a history with a violation would not be well formed.
        let double = case.planted && done >= case.operations * 9 / 10;
        let unknown = round as u64 % every == every - 1;
        let on = if tries {
            queues.try_lock(lock, turn, double)
        } else {
            queues.hold(lock, turn, double, unknown)
        };
        if !on {
            return;
        }
        (done, round) = (done + 2 + u64::from(tries), round + 1);
    }
}

struct BenchQueues<'a> {
    names: Vec<String>,
    processes: Vec<Vec<u32>>,
    next: u32,
    model: Model,
    push: &'a mut dyn FnMut(Entry<'_>),
}

impl BenchQueues<'_> {
    /// Adds an event of the client at a place of a lock's queue; the turn decides the mode of an acquire.
    fn event(&mut self, lock: usize, at: usize, turn: usize, kind: Kind, f: F, error: Option<&str>) {
        let process = self.processes[lock][at % self.processes[lock].len()];
        let mut entry = Entry::new(0, 0, Process::Client(process), kind, f);
        entry.lock = Some(&self.names[lock]);
        entry.error = error;
        entry.mode = if f == F::Acquire {
            mode(self.model, turn)
        } else {
            Mode::Write
        };
        (self.push)(entry);
    }

    /// Adds one hold and the next call of its client; returns `false` after a planted double hold.
    fn hold(&mut self, lock: usize, turn: usize, double: bool, unknown: bool) -> bool {
        let again = turn + self.processes[lock].len();
        self.event(lock, turn, turn, Kind::Ok, F::Acquire, None);
        if double {
            let extra = match self.model {
                Model::Semaphore { .. } => 4,
                _ => 1,
            };
            (1..=extra).for_each(|step| self.event(lock, turn + step, turn + step, Kind::Ok, F::Acquire, None));
            return false;
        }
        self.event(lock, turn, turn, Kind::Invoke, F::Release, None);
        self.event(lock, turn, turn, Kind::Ok, F::Release, None);
        self.event(lock, turn, again, Kind::Invoke, F::Acquire, None);
        if unknown {
            self.event(lock, turn, again, Kind::Info, F::Acquire, Some("timed out"));
            let at = turn % self.processes[lock].len();
            self.processes[lock][at] = self.next;
            self.next += 1;
            self.event(lock, turn, again, Kind::Invoke, F::Acquire, None);
        }
        true
    }

    /// Adds one hold, and an acquire of another client with the answer `busy`, or a wrong `ok`.
    fn try_lock(&mut self, lock: usize, turn: usize, double: bool) -> bool {
        self.event(lock, turn, turn, Kind::Invoke, F::Acquire, None);
        self.event(lock, turn, turn, Kind::Ok, F::Acquire, None);
        self.event(lock, turn + 1, turn, Kind::Invoke, F::Acquire, None);
        let (kind, error) = if double {
            (Kind::Ok, None)
        } else {
            (Kind::Fail, Some("busy"))
        };
        self.event(lock, turn + 1, turn, kind, F::Acquire, error);
        if !double {
            self.event(lock, turn, turn, Kind::Invoke, F::Release, None);
            self.event(lock, turn, turn, Kind::Ok, F::Release, None);
        }
        !double
    }
}

/// Returns the mode of a turn: every fourth turn of a read/write lock writes.
fn mode(model: Model, turn: usize) -> Mode {
    if model == Model::ReadWrite && !turn.is_multiple_of(4) {
        Mode::Read
    } else {
        Mode::Write
    }
}

/// Returns the peak memory of this process, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
