//! Measures the histories of a key-value store that come with Porcupine (`test_data/kv`), by a specification whose state is a string.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use harness_checkers::linearizability::{Operation, Searched, SequentialSpec, search_by_key};
use harness_checkers::{Budget, Clock};

use super::porcupine::{Decided, PATIENCE, beside, run};

/// An operation on one key with its answer.
#[derive(Clone)]
enum Ask {
    Get(String),
    Put(String),
    Append(String),
}

#[derive(Clone)]
struct StoreOp {
    key: String,
    ask: Ask,
}

/// One key of a store, empty at first.
struct StoredText;

impl SequentialSpec for StoredText {
    type Op = StoreOp;
    type State = String;

    fn initial(&self) -> String {
        String::new()
    }

    fn step(&self, state: String, op: &StoreOp) -> Option<String> {
        match &op.ask {
            Ask::Get(value) => (*value == state).then_some(state),
            Ask::Put(value) => Some(value.clone()),
            Ask::Append(value) => Some(state + value),
        }
    }

    fn allows(&self, state: &String, op: &StoreOp) -> bool {
        !matches!(&op.ask, Ask::Get(value) if value != state)
    }

    fn is_observer(&self, op: &StoreOp) -> bool {
        matches!(op.ask, Ask::Get(_))
    }
}

/// Prints the verdict and the time of each program, for each history.
pub fn table(program: &str, folder: &Path) {
    println!("\n| key-value store | operations | verdict | checkers | Porcupine | ratio |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let folder = folder.to_str().expect("a path of text");
    for (path, theirs) in run(program, &["stores", folder, PATIENCE]) {
        let text = std::fs::read_to_string(&path).expect("a history can be read");
        let operations = operations(&text);
        let ours = decided(&operations);
        println!(
            "| {} | {} | {} | {} |",
            Path::new(&path).file_stem().unwrap_or_default().display(),
            operations.len(),
            ours.verdict,
            beside(&ours, &theirs)
        );
    }
}

/// Returns the shortest of a few times, or one time if it is long.
fn decided(operations: &[Operation<StoreOp>]) -> Decided {
    let (mut best, mut verdict) = (f64::MAX, "");
    let budget = Budget {
        time: Duration::from_secs(PATIENCE.parse().expect("a number of seconds")),
        ..Budget::default()
    };
    let began = Instant::now();
    while verdict.is_empty() || began.elapsed() < Duration::from_secs(1) {
        let started = Instant::now();
        let by_key = search_by_key(&StoredText, operations, |op| op.key.clone(), budget, Clock::default());
        best = best.min(started.elapsed().as_secs_f64() * 1e9);
        let has_no_order = |found: &Searched| matches!(found, Searched::NoOrder { .. });
        verdict = if by_key.values().any(has_no_order) {
            "Illegal"
        } else if by_key.values().all(|found| matches!(found, Searched::Order(_))) {
            "Ok"
        } else {
            "Unknown"
        };
    }
    let verdict = verdict.to_owned();
    Decided { verdict, ns: best }
}

/// Returns the operations of a history; its lines are in the order of time:
/// `{:process 9, :type :invoke, :f :append, :key "0", :value "x 9 0 y"}`.
fn operations(text: &str) -> Vec<Operation<StoreOp>> {
    let mut operations: Vec<Operation<StoreOp>> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let after = |name: &str| Some(line.split_once(name)?.1);
        let word = |name: &str| after(name)?.split([',', '}', ' ']).next();
        let quoted = |name: &str| Some(after(name)?.strip_prefix('"')?.split_once('"')?.0.to_owned());
        let (Some(process), Some(kind), Some(f)) = (word(":process "), word(":type "), word(":f ")) else {
            continue;
        };
        let value = quoted(":value ").unwrap_or_default();
        if kind == ":invoke" {
            open.insert(process, operations.len());
            let ask = match f {
                ":get" => Ask::Get(value),
                ":put" => Ask::Put(value),
                _ => Ask::Append(value),
            };
            let key = quoted(":key ").expect("the key of an operation");
            operations.push(Operation {
                op: StoreOp { key, ask },
                call: at as u64,
                reply: None,
            });
        } else if let Some(place) = open.remove(process) {
            let operation = &mut operations[place];
            operation.reply = Some(at as u64);
            if let Ask::Get(read) = &mut operation.op.ask {
                *read = value;
            }
        }
    }
    // a get without an answer is no evidence
    operations.retain(|operation| operation.reply.is_some() || !matches!(operation.op.ask, Ask::Get(_)));
    operations
}
