//! Ties: events of equal time have no known order, so the history is legal if some order of them is.
//!
//! Each process's own events stay in their order; between processes every order is possible. No search is needed. Events that free the lock
//! come as early as their process allows. An acquire comes when no other event can come before it, and first those whose process also
//! releases at this instant: afterwards the state is as before. Acquires whose holds continue come last. Of a try-lock, acquires that are
//! refused stay pending until the others are in order. Of permits, the order is the one that needs the fewest at once, by H. Abdel-Wahab
//! and T. Kameda, "Scheduling to Minimize Maximum Cumulative Cost Subject to Series-Parallel Precedence Constraints" (1978),
//! <https://doi.org/10.1287/opre.26.1.141>.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::order::OrderedEvent;
use super::replies::denies;
use super::sweep::Sweep;
use crate::history::event::Kind;
use crate::history::{F, Mode, PackedEvent};
use crate::model::Model;

/// The turn of an acquire: the smaller, the earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// Refused by a try-lock, and called again at this instant: while others are pending.
    RefusedForNow,
    /// Shared, and released at this instant: excludes only writers.
    ReadsForNow,
    /// Nested in a hold.
    Holds,
    /// An upgrade from read to write: alone, and before other writers.
    Upgrades,
    /// Released at this instant. By token, which must increase; of a try-lock, by the answer of its release, until which it may have been
    /// taken. Before both, of a try-lock, acquires whose process has another answer at this instant: the last of each explain refusals.
    ForNow(bool, Option<u64>),
    /// Its hold continues, in write mode.
    Stays(Option<u64>),
    StaysReading,
    /// It needs that many permits at most, and releases all that it acquires.
    Permits(i64),
    /// Refused: until then, it explains other refusals.
    Refused,
}

/// The acquire's turn, and the number of events of its process that go with it.
type Next = (Turn, usize);

/// An acquire's turn and position, the place of its process, and the number of events of its process that go with it.
type Waiting = (Turn, u32, usize, usize);

impl Sweep<'_> {
    /// Handles all events of one instant.
    pub(super) fn see_instant(&mut self, same: &[OrderedEvent]) {
        match same {
            [one] => self.see(*one),
            several => self.at_one_instant(several),
        }
    }

    /// Handles all events of one instant, in an order that is legal if any is.
    #[cold]
    fn at_one_instant(&mut self, same: &[OrderedEvent]) {
        let mut same = same.to_vec();
        // The sort is stable, so that each process keeps its own order.
        same.sort_by_key(|event| event.lock);
        for of_lock in same.chunk_by(|a, b| a.lock == b.lock) {
            match of_lock {
                [one] => self.see(*one),
                several => {
                    self.tied = true;
                    see(self, several);
                }
            }
        }
    }
}

/// Handles the events of one lock and one instant with a sweep.
fn see(sweep: &mut Sweep<'_>, same: &[OrderedEvent]) {
    let history = sweep.history;
    let process = |event: &OrderedEvent| history.event(event.position).process;
    let mut events = same.to_vec();
    // The sort is stable, so that each process keeps its own order.
    events.sort_by_key(process);
    let mut chains: Vec<&[OrderedEvent]> = events.chunk_by(|a, b| process(a) == process(b)).collect();
    let mut waiting: BinaryHeap<Reverse<Waiting>> = BinaryHeap::new();
    let mut rising: Vec<&[OrderedEvent]> = Vec::new();
    let mut ready: Vec<usize> = (0..chains.len()).rev().collect();
    loop {
        while let Some(chain) = ready.pop() {
            while let Some((first, rest)) = chains[chain].split_first() {
                if waits(sweep, first) {
                    break;
                }
                sweep.see(*first);
                chains[chain] = rest;
            }
            let Some(first) = chains[chain].first() else { continue };
            match next(sweep, chains[chain]) {
                Some((turn, len)) => waiting.push(Reverse((turn, first.position, chain, len))),
                None => rising.push(chains[chain]),
            }
        }
        let Some(Reverse((_, _, chain, len))) = pop(sweep, &mut waiting, &chains) else {
            break;
        };
        let (now, rest) = chains[chain].split_at(len);
        now.iter().for_each(|event| sweep.see(*event));
        chains[chain] = rest;
        ready.push(chain);
    }
    for part in latest_first(sweep, &rising).into_iter().rev() {
        part.iter().for_each(|event| sweep.see(*event));
    }
}

/// Returns whether an event is the answer to an acquire that an order may have to put off. An answer to a holder is explained by its hold.
fn waits(sweep: &Sweep<'_>, ordered: &OrderedEvent) -> bool {
    let event = sweep.history.event(ordered.position);
    let refused = *sweep.model == Model::TryLock && is_refusal(event);
    event.is_ok(F::Acquire) && !sweep.is_void(ordered.void)
        || refused && sweep.locks[ordered.lock as usize].own(event.process).is_none()
}

fn is_refusal(event: PackedEvent) -> bool {
    event.f == F::Acquire && event.kind == Kind::Fail
}

/// Returns whether the process of these events, after the first, has another answer that its own hold does not explain.
fn is_answered_again(sweep: &Sweep<'_>, chain: &[OrderedEvent]) -> bool {
    let mut holds = false;
    chain.iter().enumerate().any(|(at, ordered)| {
        let event = sweep.history.event(ordered.position);
        let answered = event.is_ok(F::Acquire) || is_refusal(event) && !holds;
        let ended = event.is_call(F::Release) || matches!(event.f, F::Lost | F::Died);
        holds = event.is_ok(F::Acquire) || holds && !ended;
        at > 0 && answered
    })
}

/// Returns the next acquire: the first in its turn, or of those that are released at this instant the first that explains why a try-lock
/// was answered busy.
fn pop(
    sweep: &Sweep<'_>,
    waiting: &mut BinaryHeap<Reverse<Waiting>>,
    chains: &[&[OrderedEvent]],
) -> Option<Reverse<Waiting>> {
    let is_for_now = |Reverse(next): &Reverse<Waiting>| matches!(next.0, Turn::ForNow(..));
    let in_vain = |Reverse(next): &Reverse<Waiting>| {
        let first = chains[next.2][0];
        let event = sweep.history.event(first.position);
        !sweep.locks[first.lock as usize].explains(event.process, sweep.history.instant(event.mate))
    };
    let mut passed_over = Vec::new();
    while waiting.peek().is_some_and(|next| is_for_now(next) && in_vain(next)) {
        passed_over.extend(waiting.pop());
    }
    let found = if passed_over.is_empty() || waiting.peek().is_some_and(is_for_now) {
        waiting.pop()
    } else {
        Some(passed_over.remove(0))
    };
    waiting.extend(passed_over);
    found
}

/// Returns the instant at which the release after the first acquire of a process's events was answered `ok`, if it was.
fn freed_at(sweep: &Sweep<'_>, chain: &[OrderedEvent]) -> u64 {
    let history = sweep.history;
    let mut calls = chain.iter().map(|ordered| history.event(ordered.position));
    let is_ok = |call: &PackedEvent| history.reply(*call).is_some_and(|reply| reply.is_ok(F::Release));
    let release = calls.find(|event| event.is_call(F::Release)).filter(is_ok);
    release.map_or(u64::MAX, |release| history.instant(release.mate))
}

/// Returns the turn of the acquire that a process's events begin with; `None` for permits of which some stay acquired.
fn next(sweep: &Sweep<'_>, chain: &[OrderedEvent]) -> Option<Next> {
    let history = sweep.history;
    let lock = &sweep.locks[chain[0].lock as usize];
    let process = history.event(chain[0].position).process;
    if is_refusal(history.event(chain[0].position)) {
        let again = is_answered_again(sweep, chain);
        return Some((if again { Turn::RefusedForNow } else { Turn::Refused }, 1));
    }
    if let Model::Semaphore { .. } = sweep.model {
        let levels = levels(sweep, chain);
        let len = levels.iter().position(|level| *level <= 0)? + 1;
        let peak = levels[..len].iter().max().copied().unwrap_or_default();
        return Some((Turn::Permits(peak), len));
    }
    if let Some(place) = lock.own(process) {
        let writes = history.event(chain[0].position).mode == Mode::Write;
        let upgrades = *sweep.model == Model::ReadWrite && writes && lock.active[place].mode == Mode::Read;
        return Some((if upgrades { Turn::Upgrades } else { Turn::Holds }, 1));
    }
    let (mut depth, mut token, mut writes, mut ends) = (0u32, None, false, false);
    for ordered in chain {
        let event = history.event(ordered.position);
        if ends_all(sweep, ordered, event) {
            depth = 0;
        } else if event.is_ok(F::Acquire) {
            depth = if sweep.model.is_reentrant() { depth + 1 } else { 1 };
            token = token.or(sweep.history.token(event));
            writes |= event.mode == Mode::Write;
        } else if event.is_call(F::Release) {
            depth = depth.saturating_sub(1);
        }
        if depth == 0 {
            ends = true;
            break;
        }
    }
    let last = sweep.model.judges_busy() && !is_answered_again(sweep, chain);
    if sweep.model.judges_busy() {
        token = Some(freed_at(sweep, chain));
    }
    let shared = *sweep.model == Model::ReadWrite;
    let turn = match (ends, shared && !writes) {
        (true, true) => Turn::ReadsForNow,
        (true, false) => Turn::ForNow(last, token),
        (false, true) => Turn::StaysReading,
        (false, false) => Turn::Stays(token),
    };
    Some((turn, 1))
}

/// Returns whether a process has no hold of the lock after an event.
fn ends_all(sweep: &Sweep<'_>, ordered: &OrderedEvent, event: PackedEvent) -> bool {
    let denied = || {
        let reply = sweep.history.reply(event);
        !sweep.leased && reply.is_some_and(|reply| denies(sweep.history, reply))
    };
    sweep.is_void(ordered.void) || matches!(event.f, F::Lost | F::Died) || event.is_call(F::Release) && denied()
}

/// Returns the number of additional permits of a process after each of its events.
fn levels(sweep: &Sweep<'_>, chain: &[OrderedEvent]) -> Vec<i64> {
    let history = sweep.history;
    let lock = &sweep.locks[chain[0].lock as usize];
    let process = history.event(chain[0].position).process;
    let before = lock.own(process).map_or(0, |place| lock.active[place].permits as i64);
    let mut own = before;
    let after = chain.iter().map(|ordered| {
        let event = history.event(ordered.position);
        let permits = i64::from(history.permits(event));
        if ends_all(sweep, ordered, event) {
            own = 0;
        } else if event.is_ok(F::Acquire) {
            own += permits;
        } else if event.is_call(F::Release) && permits <= own {
            own -= permits;
        }
        own - before
    });
    after.collect()
}

/// Returns parts of the events of processes that all end with more permits than they began with, the latest part first: backwards, such a
/// process releases permits.
fn latest_first<'a>(sweep: &Sweep<'_>, rising: &[&'a [OrderedEvent]]) -> Vec<&'a [OrderedEvent]> {
    let mut parts: Vec<Vec<(i64, &[OrderedEvent])>> = Vec::new();
    for chain in rising {
        let mut levels = levels(sweep, chain);
        levels.insert(0, 0);
        let (mut own, mut end) = (Vec::new(), chain.len());
        while end > 0 {
            let (mut begin, mut peak) = (end - 1, levels[end]);
            while begin > 0 && levels[begin] > levels[end] {
                peak = peak.max(levels[begin]);
                begin -= 1;
            }
            own.push((peak - levels[end], &chain[begin..end]));
            end = begin;
        }
        own.reverse();
        parts.push(own);
    }
    let mut waiting: BinaryHeap<Reverse<(i64, usize)>> = BinaryHeap::new();
    let last = |own: &[(i64, &[OrderedEvent])], at: usize| own.last().map(|(peak, _)| Reverse((*peak, at)));
    waiting.extend(parts.iter().enumerate().filter_map(|(at, own)| last(own, at)));
    let mut order = Vec::new();
    while let Some(Reverse((_, at))) = waiting.pop() {
        order.extend(parts[at].pop().map(|(_, events)| events));
        waiting.extend(last(&parts[at], at));
    }
    order
}
