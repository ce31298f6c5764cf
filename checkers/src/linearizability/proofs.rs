//! Tests of proofs, on random histories of every lock model: a proof is a violation by itself, and none without any part of it. A history
//! that holds has an order that an independent validator accepts.

use std::collections::BTreeMap;

use super::random::chance::asked;
use super::random::{LOCKS, REGISTERS, is_coarse, random, show};
use crate::finding::{Property, Verdict, Violation};
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{Entry, F, History, HistoryBuilder};
use crate::model::Model;
use crate::options::Options;
use crate::{Findings, check};

const HISTORIES: u64 = 3_000;

/// Returns random histories with their seeds, as many as `PROOF_HISTORIES` says, without those of equal times, where the file's order is
/// none.
fn histories(usual: u64, model: Model) -> impl Iterator<Item = (u64, History)> {
    let all = (1..=asked("PROOF_HISTORIES", usual)).map(move |seed| (seed, random(seed, model)));
    all.filter(|(_, history)| !is_coarse(history))
}

fn judge(history: &History, model: Model) -> Findings {
    let options = Options {
        model: Some(model),
        certificate: true,
        ..Options::still()
    };
    check(history, &options)
}

/// Returns the history with only some of its events; `None` if those are not well formed.
fn only(history: &History, positions: &[u32]) -> Option<History> {
    let mut builder = HistoryBuilder::new(history.header().clone());
    for (position, entry) in history.entries().enumerate() {
        if positions.contains(&(position as u32)) {
            builder.push(&entry).ok()?;
        }
    }
    Some(builder.finish())
}

/// Returns the class of the first violation of a property in some events of a history.
fn class(history: &History, positions: &[u32], model: Model, property: Property) -> Option<String> {
    let found = judge(&only(history, positions)?, model);
    let violation = found.of(property).violations.first()?;
    Some(violation.class.clone())
}

/// Returns the positions of a proof. In these histories the index is the position.
fn shown(violation: &Violation) -> Vec<u32> {
    violation.events.iter().map(|step| step.index as u32).collect()
}

/// Returns whole operations: with each reply its call, and with each call its reply.
fn whole(history: &History, positions: &[u32]) -> Vec<u32> {
    let mut all = positions.to_vec();
    for position in positions {
        let event = history.event(*position);
        all.extend([event.mate].into_iter().filter(|mate| *mate != NONE));
    }
    all
}

/// Returns the parts of a proof each of which it needs: operations, and for a plain mutex an acquire with its release. Events that only
/// explain it are in no part.
fn units(history: &History, model: Model, violation: &Violation) -> Vec<Vec<u32>> {
    let proof = shown(violation);
    let event = |position: &u32| history.event(*position);
    let calls = proof.iter().copied().filter(|at| event(at).kind == Kind::Invoke);
    // A call that is shown without its reply ended an overlap.
    let calls: Vec<u32> = calls
        .filter(|at| violation.class == "no-order" || proof.contains(&event(at).mate))
        .collect();
    let whole = |at: u32| vec![at, event(&at).mate];
    let value = |at: &u32| history.rare(event(at)).value;
    let rests_on = |at: &u32, write: &u32| {
        let (call, reply) = (history.rare(event(at)), history.reply(event(at)));
        let read = reply.and_then(|reply| history.rare(reply).value);
        let compared = event(at).f == F::Cas && reply.is_some_and(|reply| reply.kind == Kind::Fail);
        at != write && (compared || [call.expected, read.filter(|_| event(at).f == F::Read)].contains(&value(write)))
    };
    let acquires = |at: &u32| event(at).f == F::Acquire;
    if model == Model::Mutex && !calls.iter().all(acquires) {
        let with_release = |(at, call): (usize, &u32)| {
            let mut later = calls[at + 1..].iter();
            let next = later.find(|next| event(next).process == event(call).process)?;
            (acquires(call) && event(next).f == F::Release).then(|| [whole(*call), whole(*next)].concat())
        };
        return calls.iter().enumerate().filter_map(with_release).collect();
    }
    let counts = |at: &u32| match violation.class.as_str() {
        // Without the value that it wrote, other reads would be impossible for another reason.
        _ if !model.is_lock() => event(at).f == F::Read || !calls.iter().any(|other| rests_on(other, at)),
        // The others show the free time of the lock.
        "spurious-busy" => history.event(event(at).mate).kind == Kind::Fail,
        // A partial release of a hold makes the crowd smaller.
        "too-many-permits" => acquires(at),
        _ => true,
    };
    calls.iter().copied().filter(counts).map(whole).collect()
}

#[test]
fn a_counterexample_is_a_violation_and_none_without_any_of_its_operations() {
    counterexamples_are_minimal(HISTORIES / 3);
}

mod nightly {
    #[test]
    fn a_counterexample_is_a_violation_and_none_without_any_of_its_operations() {
        super::counterexamples_are_minimal(super::HISTORIES);
    }
}

fn counterexamples_are_minimal(count: u64) {
    for model in LOCKS.into_iter().chain(REGISTERS) {
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        for (seed, history) in histories(count, model) {
            for violation in &judge(&history, model).of(Property::Hl002).violations {
                let proof = shown(violation);
                *seen.entry(violation.class.clone()).or_default() += 1;
                let lines = show(&history);
                let told = format!("seed {seed} under {model}: {} {proof:?}\n{lines}\n", violation.class);
                assert!(class(&history, &proof, model, Property::Hl002).is_some(), "{told}");
                for unit in units(&history, model, violation) {
                    let fewer: Vec<u32> = proof.iter().copied().filter(|at| !unit.contains(at)).collect();
                    let left = class(&history, &fewer, model, Property::Hl002);
                    // A release without its acquire is another fault.
                    let other = left.filter(|left| model == Model::Mutex || left != "released-by-another");
                    assert_eq!(other, None, "{told} without {unit:?}");
                }
            }
        }
        assert!(seen.values().sum::<u64>() > count / 100, "{model}: {seen:?}");
    }
}

#[test]
fn a_spurious_busy_answer_lies_between_who_freed_the_lock_and_who_took_it_next() {
    let mut seen = 0;
    for model in [Model::TryLock, Model::ExactTryLock] {
        for (seed, history) in histories(HISTORIES, model) {
            let found = judge(&history, model);
            let busy = found.of(Property::Hl002).violations.iter();
            for violation in busy.filter(|violation| violation.class == "spurious-busy") {
                let events = || shown(violation).into_iter().map(|at| history.event(at));
                let answer = events().find(|event| event.kind == Kind::Fail).expect("the answer");
                let called = history.event(answer.mate).time;
                let freed = events().find(|event| event.is_ok(F::Release));
                assert!(freed.is_none_or(|freed| freed.time < called), "seed {seed}");
                let mut next = events().filter(|event| event.is_call(F::Acquire) && event.time != called);
                assert!(next.all(|next| next.time > answer.time), "seed {seed}");
                seen += 1;
            }
        }
    }
    assert!(seen > 20, "{seen} busy answers without a holder");
}

#[test]
fn holds_that_overlap_are_proven_by_their_own_events_and_are_in_no_order() {
    for model in LOCKS.into_iter().filter(|model| *model != Model::Mutex) {
        let mut seen = 0;
        // The order of a process's own events at one time is unknown, so only HL001 uses that of the file.
        for (seed, history) in histories(HISTORIES, model) {
            let found = judge(&history, model);
            let told = format!("seed {seed} under {model}\n{}", show(&history));
            for violation in &found.of(Property::Hl001).violations {
                let proof = whole(&history, &shown(violation));
                let alone = class(&history, &proof, model, Property::Hl001);
                assert!(alone.is_some(), "{told}: {proof:?}");
                // a release that is denied is a call from which on the lock may have been lost, and its holder still has it once more
                if !(matches!(model, Model::Reentrant { .. } | Model::ReentrantFenced { .. })
                    && told.contains("not held"))
                {
                    assert_eq!(found.of(Property::Hl002).verdict, Verdict::Violated, "{told}");
                }
                seen += 1;
            }
        }
        assert!(seen > HISTORIES / 200, "{model}: {seen} overlaps");
    }
}

/// A validator of ten lines that knows calls, replies and one owner, and shares nothing with this crate.
fn accepts(events: &BTreeMap<u64, Entry<'_>>, replies: &BTreeMap<u64, Entry<'_>>, order: &[u64]) -> bool {
    let (mut owner, mut latest) = (None, 0);
    order.iter().all(|index| {
        let event = &events[index];
        latest = latest.max(event.time_ns);
        let answered = replies.get(index).filter(|reply| reply.kind != Kind::Info);
        let in_time = event.kind == Kind::Signal || answered.is_none_or(|reply| reply.time_ns >= latest);
        let process = event.process_number();
        let legal = owner == if event.f == F::Acquire { None } else { process };
        owner = process.filter(|_| event.f == F::Acquire);
        in_time && legal
    })
}

#[test]
fn the_order_that_proves_an_owner_mutex_is_one_for_a_validator_of_ten_lines() {
    let mut operations = 0;
    // A signal that is written late stands at its own time, which a validator of lines does not see.
    for (seed, history) in histories(HISTORIES, Model::OwnerMutex) {
        let found = judge(&history, Model::OwnerMutex);
        let events: BTreeMap<u64, Entry<'_>> = history.entries().map(|entry| (entry.index, entry)).collect();
        let reply = |position: usize| history.event(position as u32).mate;
        let replies: BTreeMap<u64, Entry<'_>> = (0..history.events.len())
            .filter(|position| reply(*position) != NONE)
            .map(|position| (position as u64, events[&history.index(reply(position))]))
            .collect();
        for certificate in &found.certificates {
            let told = format!("seed {seed}: {:?}", certificate.order);
            assert!(accepts(&events, &replies, &certificate.order), "{told}");
            let of_lock = |entry: &&Entry<'_>| entry.lock == Some(&certificate.lock) && entry.kind == Kind::Invoke;
            let lost = |told: &Entry<'_>| {
                let mut later = events.range(told.index..).map(|(_, line)| line);
                let own = |line: &Entry<'_>| line.f == F::Lost && line.process == told.process;
                later.any(|line| {
                    own(line) && line.lock.is_none_or(|lock| lock == certificate.lock) && line.time_ns <= told.time_ns
                })
            };
            for call in events.values().filter(of_lock).filter(|call| call.f == F::Acquire) {
                let reply = replies.get(&call.index);
                let ok = reply.is_some_and(|reply| reply.kind == Kind::Ok && !lost(reply));
                assert!(
                    !ok || certificate.order.contains(&call.index),
                    "{told}: {} is missing",
                    call.index
                );
            }
            operations += certificate.order.len();
            let mut swapped = certificate.order.clone();
            swapped.reverse();
            assert!(
                swapped.len() < 3 || !accepts(&events, &replies, &swapped),
                "{told} backwards"
            );
        }
    }
    assert!(operations > 2_000, "{operations} operations were ordered");
}
