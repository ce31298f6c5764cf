//! Who waited, for how long, and where a lock did not move.

use super::Waiter;
use crate::calm::CalmSpan;
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::{F, History};
use crate::limits;

/// One acquire, from its call to its answer, or to the end of its process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub waiter: Waiter,
    acquired: bool,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A span in which no client held a lock and some client always asked for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub from_ns: u64,
    pub to_ns: u64,
    pub waiter: Waiter,
}

/// The waits of a history, by lock.
pub(super) struct Waits<'a> {
    history: &'a History,
    died: Vec<u64>,
    /// The positions of the calls, in order: a wait is ten times as large.
    by_lock: Vec<Vec<u32>>,
}

/// What became of the acquires that were open at a time, or called later.
#[derive(Debug, Default)]
pub(super) struct WaitsAfter {
    pub asked: u64,
    pub acquired: u64,
    pub longest_ns: u64,
}

impl<'a> Waits<'a> {
    pub(super) fn of(context: &Context<'a>) -> Self {
        let history = context.history;
        let mut by_lock = vec![Vec::new(); history.locks.len()];
        for (position, event) in history.events.iter().enumerate() {
            if let Some(lock) = history.lock_number(event).filter(|_| event.is_call(F::Acquire)) {
                by_lock[lock].push(position as u32);
            }
        }
        Self {
            history,
            died: history.deaths(),
            by_lock,
        }
    }

    /// The waits for one lock, in the order of their calls.
    pub(super) fn of_lock(&self, lock: usize) -> impl Iterator<Item = Wait> {
        self.by_lock[lock].iter().map(|call| self.wait(*call))
    }

    fn wait(&self, call: u32) -> Wait {
        let history = self.history;
        let event = &history.events[call as usize];
        let reply = history.events.get(event.mate as usize);
        Wait {
            waiter: Waiter {
                process: event.process,
                call,
            },
            acquired: reply.is_some_and(|reply| reply.kind == Kind::Ok),
            from_ns: event.time,
            to_ns: match reply {
                Some(reply) => reply.time,
                None => self.died[event.process as usize].min(history.end_ns),
            },
        }
    }

    pub(super) fn after(&self, ns: u64) -> WaitsAfter {
        let mut after = WaitsAfter::default();
        let waits = (0..self.by_lock.len()).flat_map(|lock| self.of_lock(lock));
        for wait in waits.filter(|wait| wait.to_ns >= ns) {
            after.asked += 1;
            after.acquired += u64::from(wait.acquired);
            after.longest_ns = after.longest_ns.max(wait.to_ns.saturating_sub(wait.from_ns.max(ns)));
        }
        after
    }

    /// Stalls of one lock in a span that are longer than the bound.
    pub(super) fn stalls(&self, context: &Context<'_>, lock: usize, span: &CalmSpan, bound_ns: u64) -> Vec<Stall> {
        let history = context.history;
        let mut stalls = Vec::new();
        let mut free_from = span.from_ns;
        let mut gap = |from: u64, to: u64| {
            let to = to.min(span.to_ns);
            if to.saturating_sub(from) > bound_ns {
                stalls.extend(self.waited(lock, from, to).filter(|stall| length(*stall) > bound_ns));
            }
        };
        for hold in &context.holds.by_lock[lock] {
            gap(free_from, history.ns(hold.from));
            free_from = free_from.max(history.ns(hold.to));
        }
        gap(free_from, history.end_ns);
        stalls
    }

    /// The longest span within a gap in which some client always asked, short pauses between attempts allowed.
    fn waited(&self, lock: usize, from_ns: u64, to_ns: u64) -> Option<Stall> {
        let mut longest: Option<Stall> = None;
        let mut current: Option<Stall> = None;
        for wait in self
            .of_lock(lock)
            .filter(|wait| wait.to_ns > from_ns && wait.from_ns < to_ns)
        {
            let (from, to) = (wait.from_ns.max(from_ns), wait.to_ns.min(to_ns));
            current = match current {
                Some(run) if from <= run.to_ns + limits::RETRY_GAP_NS => Some(Stall {
                    to_ns: run.to_ns.max(to),
                    ..run
                }),
                _ => Some(Stall {
                    from_ns: from,
                    to_ns: to,
                    waiter: wait.waiter,
                }),
            };
            if current.map(length) > longest.map(length) {
                longest = current;
            }
        }
        longest
    }
}

impl Waits<'_> {
    /// A wait in a stall by another client than this one, if there is one: the one to tell of.
    pub(super) fn besides(&self, context: &Context<'_>, lock: usize, stall: &Stall, client: u32) -> Option<Waiter> {
        let mut waits = self
            .of_lock(lock)
            .filter(|wait| wait.to_ns > stall.from_ns && wait.from_ns < stall.to_ns);
        let other = waits.find(|wait| context.history.client_of(wait.waiter.process) != client);
        other.map(|wait| wait.waiter)
    }
}

/// The longest time after `since_ns` that a client asked for a lock that no client held, before getting it.
pub(super) fn longest_free_ns(context: &Context<'_>, since_ns: u64) -> u64 {
    let history = context.history;
    let mut longest = 0;
    for holds in &context.holds.by_lock {
        let mut free_from = since_ns;
        for hold in holds {
            let from = free_from.max(history.events[hold.call as usize].time);
            longest = longest.max(history.ns(hold.from).saturating_sub(from));
            free_from = free_from.max(history.ns(hold.to));
        }
    }
    longest
}

fn length(stall: Stall) -> u64 {
    stall.to_ns.saturating_sub(stall.from_ns)
}
