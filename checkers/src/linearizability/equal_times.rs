//! Tests of events of equal time against the definition: linearizable exactly if some order of them is, each process in its own order.

use super::random::{LOCKS, random, show};
use super::{Decision, decisions};
use crate::history::event::Kind;
use crate::history::{Entry, History, HistoryBuilder, ReadOptions};
use crate::model::Model;
use crate::options::{Budget, Clock, Options};
use crate::{Property, Verdict, check};

/// Nanoseconds between two events before any have the same time.
const STEP: u64 = 1_000;

fn legal(history: &History, model: Model) -> Vec<bool> {
    let decisions = decisions(history, &model, Budget::default(), Clock::still());
    decisions.iter().map(|decision| *decision == Decision::Legal).collect()
}

/// Returns the history with the same events at other times.
fn at_times(history: &History, times: &[u64]) -> Option<History> {
    let mut builder = HistoryBuilder::new(history.header().clone());
    for (entry, time_ns) in history.entries().zip(times.iter().copied()) {
        builder.push(&Entry { time_ns, ..entry }).ok()?;
    }
    Some(builder.finish())
}

/// Returns all orders of the first `left` places.
fn permutations(left: usize) -> Vec<Vec<usize>> {
    if left == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(left - 1);
    let put = |order: &Vec<usize>, at: usize| {
        let mut order = order.clone();
        order.insert(at, left - 1);
        order
    };
    shorter
        .iter()
        .flat_map(|order| (0..left).map(|at| put(order, at)).collect::<Vec<_>>())
        .collect()
}

/// Returns a history with five events of one time, and the histories with these in every order that their processes allow.
fn tied(history: &History, first: usize, width: usize) -> (History, Vec<History>) {
    let mut times: Vec<u64> = history.entries().map(|entry| entry.time_ns * STEP).collect();
    let last = (first + width).min(times.len());
    times[first..last].fill(first as u64 * 10 * STEP);
    let own = at_times(history, &times).expect("equal times are well formed");
    let orders = permutations(last - first).into_iter().filter_map(|order| {
        let mut apart = times.clone();
        order
            .iter()
            .enumerate()
            .for_each(|(rank, at)| apart[first + at] += rank as u64);
        at_times(history, &apart)
    });
    let orders = orders.collect();
    (own, orders)
}

#[test]
fn equal_times_are_legal_exactly_when_some_order_of_them_is() {
    for model in LOCKS {
        let mut illegal = 0;
        let seeds = (1..=700u64).filter(|seed| seed % 8 != 5);
        for seed in seeds {
            let history = random(seed, model);
            let late = |entry: Entry<'_>| entry.kind == Kind::Signal;
            if history.entries().any(late) && seed % 3 > 0 {
                continue;
            }
            let first = (seed as usize * 7) % history.len().saturating_sub(4).max(1);
            let (own, orders) = tied(&history, first, 5);
            let found = legal(&own, model);
            let mut some = vec![false; found.len()];
            for apart in &orders {
                for (some, legal) in some.iter_mut().zip(legal(apart, model)) {
                    *some |= legal;
                }
            }
            illegal += some.iter().filter(|legal| !**legal).count();
            let told = format!("seed {seed} under {model}, from {first}\n{}", show(&own));
            for (found, some) in found.iter().zip(&some) {
                assert_eq!(found, some, "{told}: found {found}, some order {some}");
            }
        }
        assert!(illegal > 20, "{illegal} of {model}");
    }
}

fn verdicts(text: &str) -> (Verdict, Verdict) {
    let history = History::read(text.as_bytes(), &ReadOptions::default()).expect("a history");
    let found = check(&history, &Options::default());
    (found.of(Property::Hl001).verdict, found.of(Property::Hl002).verdict)
}

const ACQUIRED_AGAIN: &str = r#"{"format":"harness-history","version":1,"locks":["l0"]}
{"index":1,"time":700,"process":4,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":800,"process":4,"type":"ok","f":"acquire","lock":"l0"}
{"index":3,"time":850,"process":4,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":900,"process":4,"type":"ok","f":"acquire","lock":"l0"}
{"index":5,"time":900,"process":4,"type":"invoke","f":"release","lock":"l0"}
{"index":6,"time":990,"process":4,"type":"ok","f":"release","lock":"l0"}
"#;

#[test]
fn a_release_at_the_time_of_its_acquires_reply_does_not_go_before_it() {
    assert_eq!(verdicts(ACQUIRED_AGAIN).1, Verdict::Violated);
}

const LATE_LOSS_OF_ONE_LOCK: &str = r#"{"format":"harness-history","version":1,"locks":["l0","l1"],"lease_ms":900}
{"index":1,"time":20,"process":7,"type":"invoke","f":"acquire","lock":"l1"}
{"index":2,"time":40,"process":7,"type":"ok","f":"acquire","lock":"l1"}
{"index":3,"time":50,"process":7,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":80,"process":8,"type":"invoke","f":"acquire","lock":"l1"}
{"index":5,"time":95,"process":8,"type":"ok","f":"acquire","lock":"l1"}
{"index":6,"time":99,"process":7,"type":"ok","f":"acquire","lock":"l0"}
{"index":7,"time":90,"process":7,"type":"signal","f":"lost","lock":"l1"}
"#;

#[test]
fn a_late_loss_of_one_lock_does_not_wait_for_the_grant_of_another() {
    assert_eq!(verdicts(LATE_LOSS_OF_ONE_LOCK), (Verdict::Holds, Verdict::Holds));
}

#[test]
fn a_correct_lock_holds_at_every_resolution_of_its_clock() {
    let header = r#"{"format":"harness-history","version":1,"model":"read-write","locks":["l0"]}"#;
    for grain in [1, 10, 100, 1_000, 100_000] {
        let mut lines = vec![header.to_owned()];
        for (round, first) in (0..400u64).map(|round| (round, round * 20)) {
            let (reads, client) = (round % 3 > 0, round % 8);
            let mode = if reads { r#","mode":"read""# } else { "" };
            let steps = [
                ("invoke", "acquire"),
                ("ok", "acquire"),
                ("invoke", "release"),
                ("ok", "release"),
            ];
            for (step, (kind, f)) in steps.into_iter().enumerate() {
                let (index, time) = (first + step as u64, (first + step as u64 * 5) / grain * grain);
                lines.push(format!(
                    r#"{{"index":{index},"time":{time},"process":{client},"type":"{kind}","f":"{f}","lock":"l0"{mode}}}"#
                ));
            }
        }
        assert_eq!(verdicts(&lines.join("\n")), (Verdict::Holds, Verdict::Holds), "{grain}");
    }
}

const SECOND_HOLDER_LOSES: &str = r#"{"format":"harness-history","version":1,"locks":["l0"]}
{"index":1,"time":10,"process":3,"type":"invoke","f":"acquire","lock":"l0"}
{"index":2,"time":25,"process":3,"type":"ok","f":"acquire","lock":"l0"}
{"index":3,"time":31,"process":5,"type":"invoke","f":"acquire","lock":"l0"}
{"index":4,"time":44,"process":5,"type":"ok","f":"acquire","lock":"l0"}
{"index":5,"time":60,"process":5,"type":"signal","f":"lost","lock":"l0"}
"#;

#[test]
fn the_loss_of_a_plain_mutex_frees_nothing_before_its_own_grant() {
    let history = History::read(SECOND_HOLDER_LOSES.as_bytes(), &ReadOptions::default()).expect("a history");
    assert_eq!(legal(&history, Model::Mutex), [false]);
}
