//! Tests the monitor against the oracle that shares nothing with the crate, and on golden histories against the checker of finished ones.
//!
//! `INDEPENDENT_HISTORIES=1000000 cargo test --release -p harness-checkers monitor` tries a million a model.

use std::io::{BufReader, Read};
use std::ops::ControlFlow;
use std::time::Duration;

use super::essentials;
use super::golden::{golden, golden_names, golden_path};
use super::independent::chance::{Lines, lines};
use super::independent::{MODELS, orders, some_seeds};
use harness_checkers::{
    Entry, EventStream, F, FormError, Header, History, Kind, Model, Monitor, NotOnline, Options, Process, Property,
    ReadOptions, Verdict, check_property,
};

/// Returns all models with owners.
fn models() -> impl Iterator<Item = Model> {
    let locks = MODELS.into_iter().filter(Model::is_lock);
    locks.filter(|model| *model != Model::Mutex)
}

/// The largest difference by which the time of a random line is before that of the line above it.
const LATEST: Duration = Duration::from_nanos(40);

/// Returns a history in the order of its times.
fn timed(seed: u64, model: Model) -> Lines {
    Lines {
        by_place: false,
        ..lines(seed, model)
    }
}

/// Returns the locks that a monitor finds violated.
fn violated(lines: &Lines, model: Model, delay: Duration) -> Vec<String> {
    let history = lines.history().expect("a well-formed history");
    let monitor = Monitor::new(history.header().clone(), model).expect("a model with owners");
    let mut monitor = monitor.with_signal_delay(delay);
    let mut locks = Vec::new();
    for entry in history.entries() {
        let violation = monitor.push(&entry).expect("a well-formed history");
        locks.extend(violation.map(|violation| violation.lock));
    }
    assert!(monitor.late() == 0 || delay < LATEST);
    locks.extend(monitor.finish().into_iter().map(|violation| violation.lock));
    locks.sort_unstable();
    locks
}

#[test]
fn the_verdicts_are_those_of_the_definition() {
    for model in models() {
        let (mut bad, mut all) = (0, 0);
        for seed in some_seeds() {
            let lines = timed(seed, model);
            let found = violated(&lines, model, LATEST);
            let locks = ["a", "b"];
            let defined = (0..2u32).filter(|lock| !orders::is_legal(&lines, model, *lock));
            let defined: Vec<&str> = defined.map(|lock| locks[lock as usize]).collect();
            assert_eq!(found, defined, "seed {seed} under {model}");
            (bad, all) = (bad + usize::from(!found.is_empty()), all + 1);
        }
        println!("{model}: {all} histories, {bad} of them violated");
        assert!((5..=95).contains(&(bad * 100 / all)), "{model}: {bad} of {all}");
    }
}

#[test]
fn without_late_lines_no_delay_is_needed() {
    for model in models() {
        for seed in some_seeds() {
            let mut lines = timed(seed, model);
            // Each signal has the time of the line above it.
            for at in 1..lines.lines.len() {
                let before = lines.lines[at - 1].time;
                lines.lines[at].time = lines.lines[at].time.max(before);
            }
            let found = violated(&lines, model, Duration::ZERO);
            assert_eq!(found, violated(&lines, model, LATEST), "seed {seed} under {model}");
        }
    }
}

fn entry(index: u64, process: u32, kind: Kind, f: F) -> Entry<'static> {
    Entry::new(index, index * 1_000, Process::Client(process), kind, f)
}

/// Returns acquires of processes one after the other, each answered `ok`.
fn acquires(processes: u32) -> impl Iterator<Item = Entry<'static>> {
    let each = |process| [(process, Kind::Invoke), (process, Kind::Ok)];
    let all = (0..).zip((0..processes).flat_map(each));
    all.map(|(index, (process, kind))| entry(index, process, kind, F::Acquire))
}

#[test]
fn a_violation_is_told_once_with_its_proof_as_soon_as_it_is_certain() {
    let mut monitor = Monitor::new(Header::of_locks(["l0"]), Model::OwnerMutex)
        .expect("a model with owners")
        .with_signal_delay(Duration::from_micros(2));
    let mut told = Vec::new();
    for entry in acquires(4) {
        let violation = monitor.push(&entry).expect("a well-formed history");
        told.extend(violation.map(|violation| (entry.index, violation)));
    }
    let [(at, violation)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(
        (*at, violation.class.as_str(), violation.at_ns),
        (6, "two-holders", 3_000)
    );
    assert_eq!((violation.id.as_str(), violation.lock.as_str()), ("HL002-1", "l0"));
    assert_eq!(violation.clients, [0, 1]);
    let indices: Vec<u64> = violation.events.iter().map(|event| event.index).collect();
    assert_eq!(indices, [1, 0, 3, 2]);
    assert!(monitor.finish().is_empty(), "a lock is told of once");
}

#[test]
fn a_loss_that_is_written_late_is_waited_for() {
    let lost = Entry {
        lock: Some("l0"),
        ..Entry::new(4, 2_500, Process::Client(0), Kind::Signal, F::Lost)
    };
    for (delay, violations) in [(1, 0), (0, 1)] {
        let mut monitor = Monitor::new(Header::of_locks(["l0"]), Model::OwnerMutex)
            .expect("a model with owners")
            .with_signal_delay(Duration::from_micros(delay));
        let mut told = 0;
        for entry in acquires(2) {
            told += usize::from(monitor.push(&entry).expect("well formed").is_some());
        }
        told += usize::from(monitor.advance(3_200).is_some());
        told += usize::from(monitor.push(&lost).expect("well formed").is_some());
        assert_eq!(monitor.late(), u64::from(delay == 0));
        told += monitor.finish().len();
        assert_eq!(told, violations, "delay {delay}µs");
    }
}

/// The line of a fault is written when it is active, and has the time that the injection took.
#[test]
fn a_busy_answer_during_a_long_injection_is_excused() {
    let lines = [
        (1_000, 0, Kind::Invoke, F::Acquire),
        (1_100, 0, Kind::Ok, F::Acquire),
        (1_200, 0, Kind::Invoke, F::Release),
        (1_300, 0, Kind::Ok, F::Release),
        (1_400, 1, Kind::Invoke, F::Acquire),
        (1_500, 1, Kind::Fail, F::Acquire),
    ];
    for (injected_in_ms, excused) in [(5_000, 1), (2_000, 0)] {
        let mut monitor = Monitor::new(Header::of_locks(["l0"]), Model::TryLock).expect("a model with owners");
        for (index, (ms, process, kind, f)) in (0..).zip(lines) {
            let entry = Entry {
                error: (kind == Kind::Fail).then_some("busy"),
                ..Entry::new(index, ms * 1_000_000, Process::Client(process), kind, f)
            };
            assert_eq!(monitor.push(&entry), Ok(None));
        }
        assert_eq!(monitor.advance(5_900_000_000), None);
        let raw = format!(r#"{{"f":"server-kill","phase":"start","window":1,"injected_in_ms":{injected_in_ms}}}"#);
        let line = Entry {
            name: Some("server-kill"),
            raw: Some(&raw),
            ..Entry::new(6, 6_000_000_000, Process::Nemesis, Kind::Info, F::Nemesis)
        };
        assert_eq!(monitor.push(&line), Ok(None));
        assert_eq!(monitor.late(), excused);
        let mut quicker = monitor.clone();
        quicker.set_fault_delay(Duration::ZERO);
        assert_eq!(quicker.advance(6_000_000_000).is_some(), excused == 0);
        let told = monitor.advance(62_000_000_000);
        let class = told.map(|violation| violation.class);
        assert_eq!(class.as_deref(), (excused == 0).then_some("spurious-busy"));
    }
}

#[test]
fn what_is_not_well_formed_is_refused_and_not_taken() {
    let mut monitor = Monitor::of_header(Header::of_locks(["l0"])).expect("a model with owners");
    let reply = entry(0, 0, Kind::Ok, F::Acquire);
    assert!(matches!(
        monitor.push(&reply),
        Err(FormError::ReplyWithoutCall { process: 0, .. })
    ));
    assert_eq!(monitor.events(), 0);
}

#[test]
fn models_that_need_the_end_of_the_history_are_refused_with_a_way_out() {
    for model in [Model::Mutex, Model::Register { start: None }] {
        let refused = Monitor::new(Header::default(), model).expect_err("it is not online");
        assert_eq!(refused, NotOnline { model });
        assert!(refused.to_string().contains("check the finished history"));
    }
}

/// A stream has the same events as a reader of whole histories.
#[test]
fn a_stream_gives_the_events_of_the_history() {
    let mut streamed = 0;
    for name in golden_names() {
        let mut found = Vec::new();
        let read = EventStream::open(&golden_path(&name)).and_then(|mut stream| {
            stream.each(|entry| {
                let also = (
                    entry.lock.map(str::to_owned),
                    entry.error.map(str::to_owned),
                    entry.permits,
                    entry.mode,
                    [entry.name, entry.raw].map(|text| text.map(str::to_owned)),
                );
                found.push((essentials(entry), also));
                Ok(ControlFlow::<()>::Continue(()))
            })
        });
        let history = golden(&name);
        read.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.len(), history.len(), "{name}");
        for ((said, (lock, error, permits, mode, of_nemesis)), entry) in found.into_iter().zip(history.entries()) {
            assert_eq!(said, essentials(&entry), "{name}");
            assert_eq!(error.as_deref(), entry.error);
            assert_eq!(
                of_nemesis.each_ref().map(Option::as_deref),
                [entry.name, entry.raw],
                "{name}"
            );
            // A line need not name the only lock, a reply need not repeat the fields of its call, nor an extension the mode and the
            // permits of its hold.
            assert!(lock.is_none() || lock.as_deref() == entry.lock);
            assert!(entry.extends || permits == entry.permits);
            assert!(entry.kind != Kind::Invoke || entry.extends || mode == entry.mode);
        }
        streamed += 1;
    }
    assert!(streamed > 100, "{streamed} golden histories are streamed");
}

#[test]
fn a_stream_is_partial_for_the_same_reason_as_the_history() {
    let phase =
        |name: &str| format!(r#"{{"time":1,"process":"nemesis","type":"info","f":"phase","phase":"{name}"}}"#) + "\n";
    for (lines, reason) in [
        (String::new(), None),
        (phase("recovery"), Some("the run was stopped before its end")),
        (phase("recovery") + &phase("end"), None),
        (phase("end") + "{\"time\":2,", Some("the last line, 3, is torn")),
    ] {
        let text = format!("{{\"format\":\"harness-history\",\"version\":1}}\n{lines}");
        let mut stream = EventStream::new(text.as_bytes()).expect("a header");
        let read = stream.each(|_| Ok(ControlFlow::<()>::Continue(())));
        assert!(read.is_ok(), "{lines}");
        assert_eq!(stream.partial().as_deref(), reason, "{lines}");
        let history = History::read(text.as_bytes(), &ReadOptions::default()).expect("a history");
        assert_eq!(history.partial(), reason, "{lines}");
    }
}

#[test]
fn golden_histories_have_the_same_verdict_online() {
    let (mut violated, mut held) = (0, 0);
    for name in golden_names() {
        let history = golden(&name);
        let options = Options::default();
        let offline = check_property(&history, &options, Property::LINEARIZABLE);
        let Ok(mut monitor) = Monitor::of_header(history.header().clone()) else {
            continue;
        };
        let mut told = 0;
        for entry in history.entries() {
            told += u64::from(monitor.push(&entry).expect("a well-formed history").is_some());
        }
        let late = monitor.late();
        told += monitor.finish().len() as u64;
        if offline.verdict == Verdict::Inconclusive {
            // a standstill of the harness does not matter for the order
            continue;
        }
        assert_eq!(told, offline.violation_count, "{name}, {late} late");
        violated += u64::from(told > 0);
        held += u64::from(told == 0);
    }
    assert!(violated > 20 && held > 20, "{violated} violated, {held} held");
}

/// Bytes that come one line at a time, and never end.
struct LineByLine<'a> {
    lines: std::str::SplitInclusive<'a, char>,
    now: &'a [u8],
}

impl Read for LineByLine<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.now.is_empty() {
            let next = self.lines.next().expect("the stream is read on after the violation");
            self.now = next.as_bytes();
        }
        let count = self.now.len().min(into.len());
        into[..count].copy_from_slice(&self.now[..count]);
        self.now = &self.now[count..];
        Ok(count)
    }
}

#[test]
fn a_stream_that_does_not_end_is_left_at_the_violation() {
    let mut text = String::from("{\"format\":\"harness-history\",\"version\":1,\"locks\":[\"l0\"]}\n");
    for (index, (process, kind)) in [
        (0, "invoke"),
        (0, "ok"),
        (1, "invoke"),
        (1, "ok"),
        (2, "invoke"),
        (2, "fail"),
    ]
    .into_iter()
    .enumerate()
    {
        let time = index * 1_000;
        text += &format!("{{\"time\":{time},\"process\":{process},\"type\":\"{kind}\",\"f\":\"acquire\"}}\n");
    }
    let input = LineByLine {
        lines: text.split_inclusive('\n'),
        now: &[],
    };
    let mut stream = EventStream::new(BufReader::new(input)).expect("a header");
    let mut monitor = Monitor::of_header(stream.header().clone())
        .expect("a model with owners")
        .with_signal_delay(Duration::ZERO);
    let found = stream.each(|entry| {
        let violation = monitor.push(entry)?;
        Ok(violation.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    });
    let violation = found.expect("well formed").expect("two hold");
    assert_eq!((violation.at_ns, violation.processes), (3_000, vec![0, 1]));
    // The line after the second answer made it certain; the next one was never read.
    assert_eq!(monitor.events(), 5);
}
