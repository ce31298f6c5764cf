//! Who waited after the last heal, for how long, and where a lock did not move.

use super::Waiter;
use crate::context::Context;
use crate::history::F;
use crate::history::event::Kind;
use crate::limits;

/// One acquire that was open after the last heal.
#[derive(Debug, Clone, Copy)]
struct Wait {
    waiter: Waiter,
    from_ns: u64,
    to_ns: u64,
}

/// A span in which no client held a lock and some client always asked for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stall {
    pub from_ns: u64,
    pub to_ns: u64,
    pub waiter: Waiter,
}

/// All waits after the last heal.
pub(super) struct Waits {
    pub healed_ns: u64,
    /// Acquires that were open after the heal, and those that were answered ok.
    pub asked: u64,
    pub acquired: u64,
    by_lock: Vec<Vec<Wait>>,
}

impl Waits {
    pub(super) fn of(context: &Context<'_>, healed_ns: u64) -> Self {
        let history = context.history;
        let died = died(context);
        let mut waits = Self {
            healed_ns,
            asked: 0,
            acquired: 0,
            by_lock: vec![Vec::new(); history.locks.len()],
        };
        for (position, event) in history.events.iter().enumerate() {
            if !event.is_call(F::Acquire) {
                continue;
            }
            let Some(lock) = history.lock_number(event) else {
                continue;
            };
            let reply = history.events.get(event.mate as usize);
            let to_ns = match reply {
                Some(reply) => reply.time,
                None => died[event.process as usize].min(history.end_ns),
            };
            if to_ns < healed_ns {
                continue;
            }
            waits.asked += 1;
            waits.acquired += u64::from(reply.is_some_and(|reply| reply.kind == Kind::Ok));
            let from_ns = event.time.max(healed_ns);
            waits.by_lock[lock].push(Wait {
                waiter: Waiter {
                    process: event.process,
                    call: position as u32,
                },
                from_ns,
                to_ns,
            });
        }
        waits
    }

    pub(super) fn longest_ns(&self) -> u64 {
        self.by_lock
            .iter()
            .flatten()
            .map(|wait| wait.to_ns.saturating_sub(wait.from_ns))
            .max()
            .unwrap_or(0)
    }

    /// The longest time after the heal that a client asked for a lock that no client held, before getting it.
    pub(super) fn longest_free_ns(&self, context: &Context<'_>) -> u64 {
        let history = context.history;
        let mut longest = 0;
        for holds in &context.holds.by_lock {
            let mut free_from = self.healed_ns;
            for hold in holds {
                let from = free_from.max(history.events[hold.call as usize].time);
                longest = longest.max(history.ns(hold.from).saturating_sub(from));
                free_from = free_from.max(history.ns(hold.to));
            }
        }
        longest
    }

    /// Stalls of one lock that are longer than the bound.
    pub(super) fn stalls(&self, context: &Context<'_>, lock: usize, bound_ns: u64) -> Vec<Stall> {
        let history = context.history;
        let mut stalls = Vec::new();
        let mut free_from = self.healed_ns;
        let mut gap = |from: u64, to: u64| {
            if to.saturating_sub(from) > bound_ns {
                stalls.extend(
                    self.waited(lock, from, to)
                        .filter(|stall| stall.to_ns - stall.from_ns > bound_ns),
                );
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
        for wait in self.by_lock[lock]
            .iter()
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

impl Waits {
    /// A wait in a stall by another client than this one, if there is one: the one to tell of.
    pub(super) fn besides(&self, context: &Context<'_>, lock: usize, stall: &Stall, client: u32) -> Option<Waiter> {
        let mut waits = self.by_lock[lock]
            .iter()
            .filter(|wait| wait.to_ns > stall.from_ns && wait.from_ns < stall.to_ns);
        let other = waits.find(|wait| context.history.client_of(wait.waiter.process) != client);
        other.map(|wait| wait.waiter)
    }
}

fn length(stall: Stall) -> u64 {
    stall.to_ns - stall.from_ns
}

/// When each process died; the end of time for those that did not.
fn died(context: &Context<'_>) -> Vec<u64> {
    let mut died = vec![u64::MAX; context.history.processes.len()];
    for event in context.history.events.iter().filter(|event| event.f == F::Died) {
        let first = &mut died[event.process as usize];
        *first = event.time.min(*first);
    }
    died
}
