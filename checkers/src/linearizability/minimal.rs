//! Minimal counterexamples: decisions that need more than one pass, and the smallest set of operations that proves a violation, by delta
//! debugging ([`shrink`](crate::shrink)).

use std::collections::BTreeMap;
use std::time::Duration;

use super::anonymous::{self, Unordered};
use super::counterexample::{Counterexample, Decision};
use super::event_plan::search_events;
use super::operations::{self, Operations};
use super::register::{Register, RegisterOp, starts};
use super::search::{SearchLimits, Searched};
use super::search_run::search_in_turn;
use super::spec::Operation;
use super::specs::LockOp;
use super::{distinct, mutex_pass};
use crate::history::History;
use crate::model::Model;
use crate::options::Budget;
use crate::shrink::shrink;

/// The largest prefix that is shrunk; of longer ones, the latest operations are tried first.
const SHRINK_MAX: usize = 20_000;

pub(super) fn plain_mutexes(history: &History, limits: SearchLimits, small: bool) -> Vec<Decision> {
    let blocked = mutex_pass::blocked_calls(history);
    if let Some(blocked) = &blocked
        && (!small || blocked.iter().all(Option::is_none))
    {
        let decision = |call: &Option<u32>| call.map_or(Decision::Legal, |call| no_order(vec![call]));
        return blocked.iter().map(decision).collect();
    }
    let all = operations::locks(history, &Model::Mutex);
    let each = all.iter().enumerate().map(|(lock, operations)| match &blocked {
        Some(blocked) if blocked[lock].is_none() => Decision::Legal,
        _ => plain(history, operations, limits, small),
    });
    each.collect()
}

fn plain(history: &History, all: &Operations<LockOp>, limits: SearchLimits, small: bool) -> Decision {
    let blocked = match anonymous::decide(history, all, limits) {
        Ok(_) => return Decision::Legal,
        Err(Unordered::Undecided(reason)) => return Decision::Unknown(reason),
        Err(Unordered::Blocked(blocked)) if !small => return illegal(all, &[blocked]),
        Err(Unordered::Blocked(blocked)) => blocked,
    };
    // The operation at whose reply a part of them has no order, if there is one.
    let blocked_in = |places: &[usize]| match anonymous::decide(history, &all.only(places), short(limits)) {
        Err(Unordered::Blocked(at)) => Some(places[at]),
        _ => None,
    };
    // Shrinks some places, as long as an operation that fits is blocked among them.
    let fewer = |places: &[usize], units: &[Vec<usize>], fits: &dyn Fn(usize) -> bool| {
        let violates = |left: &[usize]| blocked_in(&those(places, left)).is_some_and(fits);
        those(places, &shrink(places.len(), units, violates))
    };
    let prefix = prefix(&all.operations, blocked);
    let kept = kept(&prefix, &pairs(all, &prefix), |left| {
        blocked_in(&those(&prefix, left)).is_some()
    });
    let mut places = those(&prefix, &kept);
    loop {
        let before = places.len();
        let Some(blocked) = blocked_in(&places) else { break };
        // More operations of the excess sort never make an order legal, so one that is not needed can be removed alone.
        let same = |place: usize| takes(all, place) == takes(all, blocked);
        let singles = (0..before).filter(|at| same(places[*at]));
        let singles: Vec<Vec<usize>> = singles.map(|at| vec![at]).collect();
        places = fewer(&places, &singles, &same);
        places = fewer(&places, &pairs(all, &places), &|_| true);
        if places.len() == before {
            break;
        }
    }
    illegal(all, &places)
}

fn takes(all: &Operations<LockOp>, place: usize) -> bool {
    matches!(all.operations[place].op, LockOp::Acquire { .. })
}

/// Returns each acquire with the release that its process called next: the lock has the same state before and after.
fn pairs(all: &Operations<LockOp>, places: &[usize]) -> Vec<Vec<usize>> {
    let mut units: Vec<Vec<usize>> = Vec::new();
    let mut open: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, place) in places.iter().enumerate() {
        let operation = &all.operations[*place];
        match operation.op {
            LockOp::Acquire { process, .. } => open.entry(process).or_default().push(at),
            // A loss may come while the next acquire is pending.
            LockOp::Release { process, .. } => {
                let own = open.entry(process).or_default();
                let before = |acquire: &usize| all.operations[places[*acquire]].call <= operation.call;
                if let Some(last) = own.iter().rposition(before) {
                    units.push(vec![own.remove(last), at]);
                }
            }
            _ => {}
        }
    }
    units
}

/// Returns the values that a register may have had at the start; `None` if they are too many.
fn starts_of(model: &Model, all: &Operations<RegisterOp>) -> Option<Vec<Option<u64>>> {
    match (model, model.start().flatten()) {
        (_, Some(start)) => Some(vec![Some(start)]),
        (Model::ExactCasRegister { .. }, None) => Some(vec![None]),
        _ => starts(&all.operations),
    }
}

/// Returns whether a register to which each value is written once certainly has an order. If a process has an answer and a call at one
/// instant, its own order would be needed, too.
fn surely_has_order(history: &History, model: &Model, all: &Operations<RegisterOp>) -> bool {
    let legal = |start: Option<u64>| distinct::has_order(&all.operations, start) == Some(true);
    let mut starts = starts_of(model, all).into_iter().flatten();
    starts.any(legal) && all.predecessors(history).iter().all(Option::is_none)
}

/// Searches an order of a register's operations, from each value that it may have had at the start. After a value that is not decided within
/// the budget, the others are tried only as far as this costs no time.
pub(super) fn search_register(
    history: &History,
    model: &Model,
    all: &Operations<RegisterOp>,
    (mut budget, clock): SearchLimits,
) -> (Register, Searched) {
    let after = all.predecessors(history);
    let mut found = (Register::default(), TOO_MANY_STARTS);
    let mut undecided = None;
    // Of several failures, the one that came furthest is reported.
    let reply = |searched: &Searched| match searched {
        Searched::NoOrder { blocked } => all.operations[*blocked].reply,
        _ => None,
    };
    for start in starts_of(model, all).into_iter().flatten() {
        let register = Register { start };
        let searched = search_in_turn(&register, &all.operations, &after, (budget, clock));
        match searched {
            Searched::Order(_) => return (register, searched),
            Searched::Unknown { .. } => {
                budget.time = Duration::ZERO;
                undecided = undecided.or(Some((register, searched)));
            }
            Searched::NoOrder { .. } if reply(&found.1) < reply(&searched) => found = (register, searched),
            Searched::NoOrder { .. } => {}
        }
    }
    undecided.unwrap_or(found)
}

/// The result for a history that leaves too many values for the start.
const TOO_MANY_STARTS: Searched = Searched::Unknown {
    reason: "too many possible values of the register at the start",
    configurations: 0,
};

/// Decides registers.
pub(super) fn registers(history: &History, model: &Model, limits: SearchLimits, small: bool) -> Vec<Decision> {
    match search_events(history, model, limits) {
        Some(Searched::Order(_)) => return vec![Decision::Legal],
        Some(Searched::Unknown { reason, .. }) => return vec![Decision::Unknown(reason)],
        Some(Searched::NoOrder { blocked }) if !small => return vec![no_order(vec![blocked as u32])],
        Some(Searched::NoOrder { .. }) | None => {}
    }
    let all = operations::registers(history, model);
    let each = all
        .iter()
        .map(|operations| register(history, model, operations, limits, small));
    each.collect()
}

/// Decides a register by search.
fn register(
    history: &History,
    model: &Model,
    all: &Operations<RegisterOp>,
    limits: SearchLimits,
    small: bool,
) -> Decision {
    if surely_has_order(history, model, all) {
        return Decision::Legal;
    }
    let blocked = match search_register(history, model, all, limits).1 {
        Searched::Order(_) => return Decision::Legal,
        Searched::Unknown { reason, .. } => return Decision::Unknown(reason),
        Searched::NoOrder { blocked } if !small => return illegal(all, &[blocked]),
        Searched::NoOrder { blocked } => blocked,
    };
    let prefix = prefix(&all.operations, blocked);
    let units: Vec<Vec<usize>> = (0..prefix.len()).map(|at| vec![at]).collect();
    let violates = |kept: &[usize]| {
        let fewer = all.only(&those(&prefix, kept));
        let gone = (0..prefix.len()).filter(|at| kept.binary_search(at).is_err());
        let searched = |all: &Operations<RegisterOp>| search_register(history, model, all, short(limits)).1;
        let sound = gone
            .map(|at| all.operations[prefix[at]].op)
            .all(|op| !is_needed(&op, &fewer.operations));
        sound && matches!(searched(&fewer), Searched::NoOrder { .. })
    };
    illegal(all, &those(&prefix, &kept(&prefix, &units, violates)))
}

/// Returns the limits of one of the many checks of a search for a small proof.
fn short((budget, clock): SearchLimits) -> SearchLimits {
    let time = budget.time / 100;
    (Budget { time, ..budget }, clock)
}

/// Returns the operations that were called before the reply that blocks every order.
pub(super) fn prefix<O>(operations: &[Operation<O>], blocked: usize) -> Vec<usize> {
    let until = operations[blocked].reply.unwrap_or(u64::MAX);
    (0..operations.len())
        .filter(|place| operations[*place].call <= until)
        .collect()
}

/// Returns the places that still are a violation by themselves; all of them if they cannot be shrunk.
fn kept(prefix: &[usize], units: &[Vec<usize>], mut violates: impl FnMut(&[usize]) -> bool) -> Vec<usize> {
    let Some(places) = latest(prefix.len(), units, &mut violates) else {
        return (0..prefix.len()).collect();
    };
    let here = |place: &usize| places.binary_search(place).ok();
    let units: Vec<Vec<usize>> = units
        .iter()
        .filter_map(|unit| unit.iter().map(here).collect())
        .collect();
    let violates = |kept: &[usize]| violates(&those(&places, kept));
    those(&places, &shrink(places.len(), &units, violates))
}

/// Returns all places if they are few; else the latest units, and the places in no unit, that are a violation already.
fn latest(places: usize, units: &[Vec<usize>], violates: &mut impl FnMut(&[usize]) -> bool) -> Option<Vec<usize>> {
    if places <= SHRINK_MAX {
        return Some((0..places).collect());
    }
    let mut last = 16;
    while last < units.len() {
        let gone = &units[..units.len() - last];
        let mut stays = vec![true; places];
        gone.iter().flatten().for_each(|place| stays[*place] = false);
        let left: Vec<usize> = (0..places).filter(|place| stays[*place]).collect();
        if left.len() > SHRINK_MAX {
            return None;
        }
        if violates(&left) {
            return Some(left);
        }
        last *= 4;
    }
    None
}

/// Returns some of these places, by their indices.
fn those(places: &[usize], kept: &[usize]) -> Vec<usize> {
    kept.iter().map(|at| places[*at]).collect()
}

fn illegal<O>(all: &Operations<O>, places: &[usize]) -> Decision {
    no_order(places.iter().map(|place| all.calls[*place]).collect())
}

fn no_order(calls: Vec<u32>) -> Decision {
    Decision::Illegal(Counterexample::NoOrder { calls })
}

/// Returns whether a remaining answer may need the value that this operation wrote.
fn is_needed(gone: &RegisterOp, left: &[Operation<RegisterOp>]) -> bool {
    let (RegisterOp::Write(value) | RegisterOp::Cas { new: value, .. }) = *gone else {
        return false;
    };
    left.iter().any(|operation| match operation.op {
        RegisterOp::Read(read) => read == Some(value),
        RegisterOp::Cas { expected, .. } => expected == value,
        RegisterOp::CasFailed { .. } => true,
        RegisterOp::Write(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::history::event::{Header, Kind, Process};
    use crate::history::{Entry, F, HistoryBuilder};
    use crate::options::Clock;

    /// A clock on which each reading takes a second.
    fn slow() -> u64 {
        static NOW: AtomicU64 = AtomicU64::new(0);
        NOW.fetch_add(1_000_000_000, Ordering::Relaxed)
    }

    /// Reads of 5 and of 7 while 12 writes are pending, of which one is of 5: only 7 can have been there at the start.
    #[test]
    fn a_start_that_is_not_decided_hides_no_other() {
        let reads = [5, 7].map(|value| (F::Read, value));
        let writes = [5, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111].map(|value| (F::Write, value));
        let mut builder = HistoryBuilder::new(Header::of_locks(["l0"]));
        for kind in [Kind::Invoke, Kind::Ok] {
            for (process, (f, value)) in (0..).zip(reads.into_iter().chain(writes)) {
                let index = builder.len() as u64 + 1;
                let asks = (f, kind) == (F::Read, Kind::Invoke);
                let entry = Entry {
                    lock: Some("l0"),
                    value: (!asks).then_some(value),
                    ..Entry::new(index, index, Process::Client(process), kind, f)
                };
                builder.push(&entry).expect("an event that fits");
            }
        }
        let history = builder.finish();
        let model = Model::CasRegister { start: None };
        let all = operations::registers(&history, &model);
        let budget = Budget {
            time: Duration::from_nanos(1),
            ..Budget::default()
        };
        let limits = (budget, Clock(slow));
        let first = Register { start: Some(5) };
        let alone = search_in_turn(&first, &all[0].operations, &all[0].predecessors(&history), limits);
        assert!(matches!(alone, Searched::Unknown { .. }), "{alone:?}");
        let (register, searched) = search_register(&history, &model, &all[0], limits);
        assert!(matches!(searched, Searched::Order(_)), "{searched:?}");
        assert_eq!(register.start, Some(7));
    }
}
