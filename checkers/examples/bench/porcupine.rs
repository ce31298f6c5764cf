//! Compares the checkers with Porcupine (<https://github.com/anishathalye/porcupine>): `PORCUPINE` is the program of `benches/porcupine`,
//! which `scripts/bench` builds if there is Go, and `PORCUPINE_LOGS` the folder of its register logs.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use harness_checkers::linearizability::decide;
use harness_checkers::{Budget, Clock, History, Mode, Model, ReadOptions};

use super::{Case, history, stores};

/// The seconds after which Porcupine gives up a history.
pub const PATIENCE: &str = "10";

/// Operations and unknown outcomes for each model; every row once without a violation and once with one.
const LOCKS: [(&str, u64, u64); 16] = [
    ("owner-mutex", 1_000, 0),
    ("owner-mutex", 10_000, 0),
    ("owner-mutex", 100_000, 0),
    ("fenced", 1_000, 0),
    ("fenced", 100_000, 0),
    ("exact-try-lock", 1_000, 0),
    ("exact-try-lock", 10_000, 0),
    ("exact-try-lock", 100_000, 0),
    ("read-write", 1_000, 0),
    ("read-write", 100_000, 0),
    ("semaphore=3", 1_000, 0),
    ("semaphore=3", 100_000, 0),
    ("mutex", 1_000, 0),
    ("mutex", 100_000, 0),
    ("mutex", 200, 10),
    ("mutex", 10_000, 40),
];

/// A verdict, and the shortest time in nanoseconds.
pub struct Decided {
    pub verdict: String,
    pub ns: f64,
}

/// Prints the verdict and the time of each. Limits: 500 times for locks of 100,000 operations, 30 times for register logs.
pub fn table() {
    let Ok(program) = std::env::var("PORCUPINE") else {
        println!("\nPorcupine: not here (scripts/bench builds it where there is Go)");
        return;
    };
    println!("\n| model | operations | unknown | planted | verdict | checkers | Porcupine | ratio |");
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (model, operations, unknown) in LOCKS {
        for planted in [false, true] {
            let case = Case {
                model,
                operations,
                clients: 20,
                locks: 1,
                unknown,
                planted,
                ..Case::default()
            };
            lock_row(&program, &case);
        }
    }
    match std::env::var("PORCUPINE_LOGS") {
        Ok(folder) => {
            let folder = Path::new(&folder);
            registers(&program, folder);
            stores::table(&program, &folder.with_file_name("kv"));
        }
        Err(_) => println!("Porcupine's register logs: not here"),
    }
}

fn lock_row(program: &str, case: &Case) {
    let model: Model = case.model.parse().expect("a model");
    let history = history(case, model);
    let path = std::env::temp_dir().join(format!("bench-porcupine-{}", std::process::id()));
    std::fs::write(&path, lines(&history)).expect("the file can be written");
    let file = path.to_str().expect("a path of text");
    let theirs = run(program, &["lock", case.model, file, PATIENCE]).pop();
    std::fs::remove_file(&path).expect("the file can be removed");
    let theirs = theirs.expect("a line of output").1;
    let ours = ours(&history, &model);
    println!(
        "| {} | {} | {} | {} | {} | {} |",
        case.model,
        case.operations,
        case.unknown,
        case.planted,
        ours.verdict,
        beside(&ours, &theirs)
    );
}

/// Returns their times and the ratio. Without an answer, the ratio is at least that of the time limit.
pub fn beside(ours: &Decided, theirs: &Decided) -> String {
    let ratio = theirs.ns / ours.ns;
    let (ours_ms, theirs_ms) = (ours.ns / 1e6, theirs.ns / 1e6);
    match theirs.verdict.as_str() {
        "Unknown" => format!("{ours_ms:.3} ms | no answer in {PATIENCE} s | over {ratio:.0}"),
        verdict if verdict == ours.verdict => format!("{ours_ms:.3} ms | {theirs_ms:.3} ms | {ratio:.1}"),
        verdict => format!("{ours_ms:.3} ms | {theirs_ms:.3} ms: {verdict} | {ratio:.1}, VERDICTS DIFFER"),
    }
}

/// Returns the shortest of a few times, as the other program does.
fn ours(history: &History, model: &Model) -> Decided {
    let (mut best, mut verdict) = (f64::MAX, "");
    for _ in 0..5 {
        let started = Instant::now();
        let counts = decide(history, model, Budget::default(), Clock::default());
        best = best.min(started.elapsed().as_secs_f64() * 1e9);
        verdict = match (counts.illegal, counts.unknown) {
            (0, 0) => "Ok",
            (0, _) => "Unknown",
            _ => "Illegal",
        };
    }
    let verdict = verdict.to_owned();
    Decided { verdict, ns: best }
}

/// Returns one line for each event: process, kind, operation, mode, token.
fn lines(history: &History) -> String {
    let mut text = String::new();
    for entry in history.entries() {
        let process = entry.process_number().expect("a client");
        let kind = format!("{:?}", entry.kind).to_lowercase();
        let mode = if entry.mode == Mode::Read { "read" } else { "write" };
        let token = entry.token.unwrap_or(0);
        writeln!(text, "{process} {kind} {} {mode} {token}", entry.f.name()).expect("text can be written");
    }
    text
}

/// Returns the output of the other program: a name, if there is one, and its verdict.
pub fn run(program: &str, arguments: &[&str]) -> Vec<(String, Decided)> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("Porcupine can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let decided = text.lines().map(|line| {
        let mut words = line.rsplit(' ');
        let ns = words.next().and_then(|ns| ns.parse().ok()).expect("a time");
        let verdict = words.next().expect("a verdict").to_owned();
        (words.next().unwrap_or_default().to_owned(), Decided { verdict, ns })
    });
    let decided: Vec<_> = decided.collect();
    assert!(!decided.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    decided
}

/// Prints the rows of the register logs of etcd that come with Porcupine.
fn registers(program: &str, folder: &Path) {
    let folder = folder.to_str().expect("a path of text");
    let (mut ratios, mut same, mut sums) = (Vec::new(), 0, [0.0, 0.0]);
    for (path, theirs) in run(program, &["registers", folder, PATIENCE]) {
        let log = std::fs::read_to_string(&path).expect("a log can be read");
        let edn = edn(&log);
        if edn.is_empty() {
            continue;
        }
        let history = History::read(edn.as_bytes(), &ReadOptions::default()).expect("a history");
        let model = "exact-cas-register".parse().expect("a model");
        let ours = ours(&history, &model);
        same += usize::from(ours.verdict == theirs.verdict);
        for (sum, ns) in sums.iter_mut().zip([ours.ns, theirs.ns]) {
            *sum += ns / 1e6;
        }
        ratios.push(theirs.ns / ours.ns);
    }
    let count = ratios.len();
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count as f64).exp();
    let least = ratios.iter().copied().fold(f64::MAX, f64::min);
    println!(
        "\n{count} register logs: {same} verdicts are the same; checkers {:.1} ms, Porcupine {:.1} ms; \
         ratio {mean:.1} (geometric mean), at least {least:.1}",
        sums[0], sums[1]
    );
}

/// Returns a log of Jepsen's as EDN, which the reader knows. A reply of `:timed-out` is no evidence.
fn edn(log: &str) -> String {
    let mut text = String::new();
    for line in log.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [process, kind, f, value] = fields[..] else {
            continue;
        };
        let Some(process) = process.strip_prefix("INFO  jepsen.util - ") else {
            continue;
        };
        // a read that timed out has no value, and its process continues
        let (kind, value) = match (kind, value) {
            (":fail", ":timed-out") if f == ":read" => (":fail", "nil"),
            (_, ":timed-out") => (":info", "nil"),
            other => other,
        };
        writeln!(text, "{{:process {process}, :type {kind}, :f {f}, :value {value}}}").expect("text can be written");
    }
    text
}
