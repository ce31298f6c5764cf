//! Tests of histories of several machines: correct locks hold within the error of their clocks and in any order of the lines, and broken
//! ones do not.

use std::time::Duration;

use super::dice::dice;
use super::read;
use harness_checkers::history::event::Fenced;
use harness_checkers::{
    Entry, F, Finding, Findings, Header, History, HistoryBuilder, Kind, Mode, Model, Options, Process, Property,
    Verdict, check,
};

const PROCESSES: u32 = 4;
/// The error of the stamps, in nanoseconds.
const ERROR: u64 = 1_000;

/// An event that has no index yet.
fn event(process: u32, kind: Kind, f: F, at: u64) -> Entry<'static> {
    Entry::new(0, at, Process::Client(process), kind, f)
}

/// What a correct lock does, at the true times: some processes hold it one after the other, or several at once where the model says
/// so. Each hold is as long as chance wants, from nothing to four times the error.
fn truth(seed: u64, model: Model) -> Vec<Entry<'static>> {
    let mut roll = dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut events: Vec<Entry<'static>> = Vec::new();
    let (mut free_at, mut token) = (5 * ERROR, 0);
    let mut idle_from = [0u64; PROCESSES as usize];
    for _ in 0..30 {
        let readers = model == Model::ReadWrite && roll(2) == 0;
        let at_once = match model {
            Model::Semaphore { permits } => u64::from(permits),
            _ if readers => 3,
            _ => 1,
        };
        let depth = if model.to_string().starts_with("reentrant") {
            1 + roll(2)
        } else {
            1
        };
        let first = roll(u64::from(PROCESSES)) as u32;
        let mut ends = free_at;
        for process in (0..at_once as u32).map(|next| (first + next) % PROCESSES) {
            // Calls and replies are around the server's grant, whose time is at least `free_at`.
            let called = idle_from[process as usize].max(free_at.saturating_sub(roll(2 * ERROR)));
            let mut at = called.max(free_at) + roll(ERROR / 4);
            token += 1;
            let mut add = |at: u64, kind: Kind, f: F| {
                let mode = if readers && f == F::Acquire {
                    Mode::Read
                } else {
                    Mode::Write
                };
                // the order of tokens of holds at once is not known
                let token = (kind == Kind::Ok && f == F::Acquire && at_once == 1).then_some(token);
                events.push(Entry {
                    mode,
                    token,
                    ..event(process, kind, f, at)
                });
            };
            add(called, Kind::Invoke, F::Acquire);
            add(at, Kind::Ok, F::Acquire);
            for _ in 1..depth {
                add(at + 1, Kind::Invoke, F::Acquire);
                add(at + 2, Kind::Ok, F::Acquire);
                at += 2;
            }
            at += roll(4 * ERROR);
            for _ in 0..depth {
                add(at + 1, Kind::Invoke, F::Release);
                add(at + 3, Kind::Ok, F::Release);
                at += 3;
            }
            idle_from[process as usize] = at + 1;
            ends = ends.max(at);
        }
        free_at = ends;
    }
    events
}

/// The same as machines stamp it whose clocks are off by at most the error.
fn stamped(seed: u64, mut events: Vec<Entry<'static>>) -> History {
    let mut roll = dice((seed ^ 0xabcd).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let off: Vec<u64> = (0..PROCESSES).map(|_| roll(2 * ERROR + 1)).collect();
    for event in &mut events {
        let process = event.process_number().expect("a client");
        event.time_ns = event.time_ns + off[process as usize] - ERROR;
    }
    written(events)
}

/// The history of these events, by the stamps that they have.
fn written(mut events: Vec<Entry<'static>>) -> History {
    events.sort_by_key(|event| event.time_ns);
    in_this_order(events)
}

fn in_this_order(events: impl IntoIterator<Item = Entry<'static>>) -> History {
    let mut builder = HistoryBuilder::new(Header::of_locks(["l0"]));
    for (index, event) in (1..).zip(events) {
        builder.push(&Entry { index, ..event }).expect("a well-formed history");
    }
    builder.finish()
}

fn judged(history: &History, model: Model, error_ns: u64) -> Findings {
    let options = Options {
        model: Some(model),
        clock_error: Duration::from_nanos(error_ns),
        ..Options::default()
    };
    check(history, &options)
}

fn violated(found: &Findings) -> Vec<&Finding> {
    let by_clock = [
        Property::MUTUAL_EXCLUSION,
        Property::LINEARIZABLE,
        Property::FENCING_TOKENS,
    ];
    let found = by_clock.into_iter().map(|property| found.of(property));
    found.filter(|finding| finding.verdict == Verdict::Violated).collect()
}

#[test]
fn a_correct_lock_holds_within_the_error_of_its_clocks() {
    let models = [
        "owner-mutex",
        "fenced",
        "reentrant",
        "reentrant-fenced=2",
        "read-write",
        "semaphore=2",
        "try-lock",
        "election",
    ];
    for name in models {
        let model: Model = name.parse().expect("a model");
        let mut deceived = 0;
        for seed in 1..=600 {
            let history = stamped(seed, truth(seed, model));
            deceived += usize::from(!violated(&judged(&history, model, 0)).is_empty());
            let found = judged(&history, model, ERROR);
            assert!(
                violated(&found).is_empty(),
                "{name}, seed {seed}: {:#?}",
                violated(&found)
            );
        }
        assert!(
            deceived > 100,
            "{name}: only {deceived} of 600 are violated by their stamps"
        );
    }
}

#[test]
fn the_truth_holds_by_its_own_stamps() {
    for name in ["owner-mutex", "fenced", "reentrant", "read-write", "semaphore=2"] {
        let model: Model = name.parse().expect("a model");
        for seed in 1..=200 {
            let found = judged(&written(truth(seed, model)), model, 0);
            assert!(
                violated(&found).is_empty(),
                "{name}, seed {seed}: {:#?}",
                violated(&found)
            );
        }
    }
}

/// Returns a history of two clients that hold for ten milliseconds each, three of them together.
fn double_hold() -> History {
    let ms = 1_000_000;
    written(vec![
        event(0, Kind::Invoke, F::Acquire, 0),
        event(0, Kind::Ok, F::Acquire, ms),
        event(1, Kind::Invoke, F::Acquire, 2 * ms),
        event(1, Kind::Ok, F::Acquire, 8 * ms),
        event(0, Kind::Invoke, F::Release, 11 * ms),
        event(0, Kind::Ok, F::Release, 12 * ms),
        event(1, Kind::Invoke, F::Release, 18 * ms),
        event(1, Kind::Ok, F::Release, 19 * ms),
    ])
}

#[test]
fn a_violation_says_up_to_which_error_it_stands() {
    let history = double_hold();
    for property in [Property::MUTUAL_EXCLUSION, Property::LINEARIZABLE] {
        let up_to = 1_499_999;
        for (error_ns, verdict) in [
            (0, Verdict::Violated),
            (up_to, Verdict::Violated),
            (up_to + 1, Verdict::Holds),
        ] {
            let found = judged(&history, Model::OwnerMutex, error_ns);
            let finding = found.of(property);
            assert_eq!(finding.verdict, verdict, "{property:?} within {error_ns}");
            if let Some(violation) = finding.violations.first() {
                let figure = violation.figures.get("clock_error_ms").copied();
                assert_eq!(figure, (error_ns > 0).then_some(up_to as f64 / 1e6));
                let told = violation
                    .because
                    .iter()
                    .any(|because| because.text.contains("no timestamp is wrong by more than 1.5ms"));
                assert_eq!(told, error_ns > 0, "{:?}", violation.because);
            }
        }
    }
}

/// What a client does that reads the register while it holds the lock, and writes its own number plus one.
fn increment(process: u32, from: u64) -> impl Iterator<Item = Entry<'static>> {
    let each = [F::Acquire, F::Read, F::Write, F::Release].into_iter();
    let each = each.flat_map(|f| [(f, Kind::Invoke), (f, Kind::Ok)]);
    let (read, written) = (u64::from(process), u64::from(process) + 1);
    (from..).step_by(10).zip(each).map(move |(at, (f, kind))| {
        let answered = kind == Kind::Ok;
        let value = if f == F::Write { written } else { read };
        Entry {
            value: (f == F::Write || answered && f == F::Read).then_some(value),
            token: (answered && matches!(f, F::Acquire | F::Write)).then_some(written),
            fenced: (answered && f == F::Write).then_some(Fenced::Accepted),
            ..event(process, kind, f, at)
        }
    })
}

/// Returns the verdicts of the properties that are about writes.
fn of_writes(history: &History, error_ns: u64) -> [Verdict; 2] {
    let found = judged(history, Model::OwnerMutex, error_ns);
    [Property::FENCING_TOKENS, Property::LOST_UPDATE].map(|property| found.of(property).verdict)
}

#[test]
fn writes_are_judged_in_the_order_of_their_times() {
    for (first, second, verdict) in [(0, 1, Verdict::Holds), (1, 0, Verdict::Violated)] {
        let (earlier, later) = (increment(first, 0), increment(second, 100));
        let history = in_this_order(later.chain(earlier));
        assert_eq!(of_writes(&history, 0), [verdict; 2], "{first} before {second}");
    }
}

#[test]
fn writes_without_a_certain_order_are_no_damage() {
    let history = written(increment(1, ERROR).chain(increment(0, 2 * ERROR)).collect());
    assert_eq!(of_writes(&history, 0), [Verdict::Violated; 2]);
    assert_eq!(of_writes(&history, ERROR), [Verdict::Holds; 2]);
}

#[test]
fn a_number_of_a_write_that_looks_earlier_is_no_loss() {
    // process 3, which had lost the lock, wrote 1 over the 3 of process 2 before process 1 read it; its clock was behind
    let late = [Kind::Invoke, Kind::Ok].map(|kind| Entry {
        value: Some(1),
        ..event(3, kind, F::Write, 2 * ERROR - 10)
    });
    let (before, after) = (increment(2, 2 * ERROR), increment(1, 5 * ERROR));
    let history = written(before.chain(late).chain(after).collect());
    assert_eq!(of_writes(&history, ERROR)[1], Verdict::Holds);
}

#[test]
fn writes_of_one_process_have_an_order_whatever_its_clock_is() {
    let late = [Kind::Invoke, Kind::Ok].map(|kind| Entry {
        value: Some(1),
        token: Some(1),
        fenced: (kind == Kind::Ok).then_some(Fenced::Accepted),
        ..event(1, kind, F::Write, ERROR + 100)
    });
    let history = written(increment(1, ERROR).chain(late).collect());
    assert_eq!(of_writes(&history, ERROR)[0], Verdict::Violated);
}

/// A lease of two seconds that was requested and granted within the first, and ended a second later.
const SHORT: &str = r#"{"format":"harness-history","version":1,"lease_ms":2000,"locks":["l0"]}
{"index":1,"time":1001000000,"process":0,"client":0,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":1001000000,"process":0,"client":0,"type":"ok","f":"acquire","lock":"l0","owner":"a"}
{"index":3,"time":1001000000,"process":"server","type":"signal","f":"granted","lock":"l0","owner":"a"}
{"index":4,"time":2001000000,"process":"server","type":"signal","f":"revoked","lock":"l0","owner":"a","cause":"expired"}
{"index":5,"time":3001000000,"process":0,"client":0,"type":"signal","f":"lost","lock":"l0"}
"#;

/// The clock of the client is a second ahead of the server's, which ended the grant when the client had released it.
const AHEAD: &str = r#"{"format":"harness-history","version":1,"lease_ms":2000,"locks":["l0"]}
{"index":1,"time":1000000000,"process":"server","type":"signal","f":"granted","lock":"l0","owner":"a"}
{"index":2,"time":1200000000,"process":0,"client":0,"type":"invoke","f":"acquire","lock":"l0"}
{"index":3,"time":1210000000,"process":"server","type":"signal","f":"revoked","lock":"l0","owner":"a","cause":"released"}
{"index":4,"time":2010000000,"process":0,"client":0,"type":"ok","f":"acquire","lock":"l0","owner":"a"}
{"index":5,"time":2200000000,"process":0,"client":0,"type":"invoke","f":"release","lock":"l0"}
{"index":6,"time":2210000000,"process":0,"client":0,"type":"ok","f":"release","lock":"l0"}
"#;

/// The clock of c0 is two seconds ahead of that of c1, which waited for c0 to release.
const HELD: &str = r#"{"format":"harness-history","version":1,"bounds":{"progress_ms":1000},"locks":["l0"]}
{"index":1,"time":500000000,"process":1,"client":1,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":2900000000,"process":0,"client":0,"type":"invoke","f":"acquire","lock":"l0"}
{"index":3,"time":3000000000,"process":0,"client":0,"type":"ok","f":"acquire","lock":"l0"}
{"index":4,"time":3100000000,"process":1,"client":1,"type":"ok","f":"acquire","lock":"l0"}
{"index":5,"time":5000000000,"process":0,"client":0,"type":"invoke","f":"release","lock":"l0"}
{"index":6,"time":5010000000,"process":0,"client":0,"type":"ok","f":"release","lock":"l0"}
"#;

/// The clock of c2, which the release of c1 woke, is a tenth of a second behind.
const WOKEN: &str = r#"{"format":"harness-history","version":1,"promises":{"wakes":"notified"},"locks":["l0"]}
{"index":1,"time":100000000,"process":0,"client":0,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":110000000,"process":0,"client":0,"type":"ok","f":"acquire","lock":"l0"}
{"index":3,"time":200000000,"process":1,"client":1,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":300000000,"process":2,"client":2,"type":"invoke","f":"acquire","lock":"l0"}
{"index":5,"time":1000000000,"process":0,"client":0,"type":"invoke","f":"release","lock":"l0"}
{"index":6,"time":1001000000,"process":1,"client":1,"type":"signal","f":"woken","lock":"l0"}
{"index":7,"time":1002000000,"process":1,"client":1,"type":"ok","f":"acquire","lock":"l0"}
{"index":8,"time":1003000000,"process":0,"client":0,"type":"ok","f":"release","lock":"l0"}
{"index":9,"time":1950000000,"process":2,"client":2,"type":"signal","f":"woken","lock":"l0"}
{"index":10,"time":2000000000,"process":1,"client":1,"type":"invoke","f":"release","lock":"l0"}
{"index":11,"time":2003000000,"process":1,"client":1,"type":"ok","f":"release","lock":"l0"}
"#;

#[test]
fn what_two_clocks_show_is_certain_only_beyond_their_error() {
    for (text, property, error_ns) in [
        (SHORT, Property::Hl010, 500_000_000),
        (AHEAD, Property::Hl007, 500_000_000),
        (HELD, Property::Hl005, 1_000_000_000),
        (WOKEN, Property::Hl004, 50_000_000),
    ] {
        let history = read(text).unwrap();
        let verdict = |error_ns| judged(&history, Model::OwnerMutex, error_ns).of(property).verdict;
        assert_eq!(verdict(0), Verdict::Violated, "{property:?}");
        assert_eq!(verdict(error_ns), Verdict::Holds, "{property:?}");
    }
}
