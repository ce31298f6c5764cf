//! The waits for each lock, and the stalls: the intervals in which a lock was stuck.

use std::cell::OnceCell;

use crate::context::{CalmSpan, Context};
use crate::history::event::Kind;
use crate::history::{History, OrderBasis};
use crate::holds::LockHold;
use crate::limits;
use crate::wait::{self, Wait};

/// The longest pause between refused attempts that count as one wait is the bound divided by this.
const ASKED_AGAIN: u64 = 3;

impl WaitsAfter {
    fn see(&mut self, wait: &Wait, since_ns: u64) {
        self.asked += 1;
        self.acquired += u64::from(wait.kind == Kind::Ok);
        self.longest_ns = self
            .longest_ns
            .max(wait.to_ns.saturating_sub(wait.from_ns.max(since_ns)));
    }
}

/// The holds of one lock, with the one that ended last among those up to each.
pub(super) struct HoldsInOrder<'a> {
    pub lock: usize,
    holds: &'a [LockHold],
    last: Vec<u32>,
}

impl<'a> HoldsInOrder<'a> {
    pub(super) fn of(context: &'a Context<'_>, lock: usize) -> Self {
        let holds = &context.holds.by_lock[lock];
        let end = |hold: &LockHold| (context.history.ns(hold.to), hold.to);
        let mut last = Vec::with_capacity(holds.len());
        let mut latest = 0;
        for (place, hold) in holds.iter().enumerate() {
            if end(hold) >= end(&holds[latest]) {
                latest = place;
            }
            last.push(latest as u32);
        }
        Self { lock, holds, last }
    }

    /// Returns the place of the first hold that began after a time.
    fn first_after(&self, history: &History, ns: u64) -> usize {
        self.holds.partition_point(|hold| history.ns(hold.from) <= ns)
    }

    /// Returns the hold that ended last among those before a place.
    fn last_until(&self, place: usize) -> Option<&'a LockHold> {
        let last = self.last[place.checked_sub(1)?];
        Some(&self.holds[last as usize])
    }
}

/// A span in which no client held a lock and some client always asked for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub from_ns: u64,
    pub to_ns: u64,
    pub waiter: Wait,
    /// The hold that ended last before it.
    pub after: Option<LockHold>,
}

/// The waits of a history, by lock.
pub(super) struct Waits<'a> {
    context: &'a Context<'a>,
    /// How long the longest wait of each lock was, in nanoseconds.
    longest_ns: Vec<u64>,
    /// By lock, the time by which all waits up to each one had ended; made at the first use.
    over_ns: Vec<OnceCell<Vec<u64>>>,
}

/// The outcomes of the acquires that were pending at a time, or called later.
#[derive(Debug, Default)]
pub(super) struct WaitsAfter {
    pub asked: u64,
    pub acquired: u64,
    pub longest_ns: u64,
}

impl<'a> Waits<'a> {
    /// Collects all waits, and the outcomes of those that were pending at a time or called later.
    pub(super) fn of(context: &'a Context<'a>, since_ns: u64) -> (Self, WaitsAfter) {
        let history = context.history;
        let mut waits = Self {
            context,
            longest_ns: vec![0; history.locks.len()],
            over_ns: vec![OnceCell::new(); history.locks.len()],
        };
        let mut after = WaitsAfter::default();
        history.each_ask(|lock, position, call| {
            let wait = Wait::of(context, position, call);
            waits.longest_ns[lock] = waits.longest_ns[lock].max(wait.length_ns());
            if wait.to_ns >= since_ns {
                after.see(&wait, since_ns);
            }
        });
        (waits, after)
    }

    /// Returns the length of the longest wait for a lock, in nanoseconds.
    pub(super) fn longest_ns(&self, lock: usize) -> u64 {
        self.longest_ns[lock]
    }

    /// Returns the waits for a lock that were pending between two times.
    pub(super) fn between(&self, lock: usize, from_ns: u64, to_ns: u64) -> impl Iterator<Item = Wait> {
        let context = self.context;
        let over_ns = self.over_ns[lock].get_or_init(|| wait::over_ns(context.waits_for(lock)));
        let first = over_ns.partition_point(|over_ns| *over_ns <= from_ns);
        let calls = context.asks_of(lock)[first..].iter();
        // where the order of the lines counts, a later call may have an earlier time
        let by_time = context.history.order == OrderBasis::Time;
        let waits = calls.map(move |call| Wait::at(context, *call));
        let waits = waits.take_while(move |wait| !by_time || wait.from_ns < to_ns);
        waits.filter(move |wait| wait.to_ns > from_ns && wait.from_ns < to_ns)
    }

    /// Returns whether an attempt with a recorded wait was answered that the lock was taken.
    fn is_refused(&self, wait: &Wait) -> bool {
        let history = self.context.history;
        let call = history.event(wait.call);
        let failed = history.reply(call).filter(|reply| reply.kind == Kind::Fail);
        failed.is_some_and(|reply| history.says_taken(reply)) && history.wait_ns(call).is_some()
    }

    /// Stalls of one lock in a span that are longer than the bound.
    pub(super) fn stalls(&self, holds: &HoldsInOrder<'_>, span: &CalmSpan, bound_ns: u64) -> Vec<Stall> {
        let history = self.context.history;
        let mut stalls = Vec::new();
        let first = holds.first_after(history, span.from_ns);
        let mut after = holds.last_until(first);
        let mut gap = |after: Option<&LockHold>, to: u64| {
            let free_from = after.map_or(0, |hold| history.ns(hold.to));
            let (from, to) = (free_from.max(span.from_ns), to.min(span.to_ns));
            if to.saturating_sub(from) > bound_ns {
                let stall = self
                    .waited(holds.lock, from, to, bound_ns / ASKED_AGAIN)
                    .filter(|stall| length(*stall) > bound_ns);
                let after = after.copied();
                stalls.extend(stall.map(|stall| Stall { after, ..stall }));
            }
        };
        for (place, hold) in holds.holds.iter().enumerate().skip(first) {
            let from = history.ns(hold.from);
            gap(after, from);
            if from >= span.to_ns {
                return stalls;
            }
            after = holds.last_until(place + 1);
        }
        gap(after, history.end_ns);
        stalls
    }

    /// Returns the longest span within a gap in which some client always asked. Short pauses between attempts count, if they are no longer
    /// than `refused_ns`, and all pauses of that length between attempts that are refused.
    fn waited(&self, lock: usize, from_ns: u64, to_ns: u64, refused_ns: u64) -> Option<Stall> {
        let mut longest: Option<Stall> = None;
        let mut current: Option<Stall> = None;
        // the attempt that ended last
        let mut last: Option<Wait> = None;
        for wait in self.between(lock, from_ns, to_ns) {
            let (from, to) = (wait.from_ns.max(from_ns), wait.to_ns.min(to_ns));
            let both_refused = || last.is_some_and(|last| self.is_refused(&last) && self.is_refused(&wait));
            let goes_on = |run: &Stall| {
                let soon = from <= run.to_ns.saturating_add(limits::RETRY_GAP_NS.min(refused_ns));
                soon || from <= run.to_ns.saturating_add(refused_ns) && both_refused()
            };
            current = match current {
                Some(run) if goes_on(&run) => Some(Stall {
                    to_ns: run.to_ns.max(to),
                    ..run
                }),
                _ => Some(Stall {
                    from_ns: from,
                    to_ns: to,
                    waiter: wait,
                    after: None,
                }),
            };
            if last.is_none_or(|last| last.to_ns <= wait.to_ns) {
                last = Some(wait);
            }
            if current.map(length) > longest.map(length) {
                longest = current;
            }
            if longest.is_some_and(|longest| length(longest) == to_ns - from_ns) {
                break;
            }
        }
        longest
    }

    /// Returns a wait in a stall by another client than that of a process, for the narrative.
    pub(super) fn besides(&self, lock: usize, stall: &Stall, process: u32) -> Option<Wait> {
        let client = |process: u32| self.context.history.client_of(process);
        let mut waits = self.between(lock, stall.from_ns, stall.to_ns);
        waits.find(|wait| client(wait.process) != client(process))
    }
}

/// Returns the longest time after `since_ns` for which a client asked for a lock that no client held, before it got it.
pub(super) fn longest_free_ns(context: &Context<'_>, since_ns: u64) -> u64 {
    let history = context.history;
    let mut longest = 0;
    for holds in &context.holds.by_lock {
        let mut free_from = since_ns;
        for hold in holds {
            let got = history.ns(hold.from);
            // the call is looked up only where it may matter
            if got.saturating_sub(free_from) > longest {
                let from = free_from.max(hold.asked_ns(history));
                longest = longest.max(got.saturating_sub(from));
            }
            free_from = free_from.max(history.ns(hold.to));
        }
    }
    longest
}

fn length(stall: Stall) -> u64 {
    stall.to_ns.saturating_sub(stall.from_ns)
}
