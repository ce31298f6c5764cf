//! Deadlocks: two clients, each with the lock that the other one waits for.

use super::stuck::{Stuck, StuckOwner};
use super::waits::Waits;
use crate::context::Context;
use crate::history::Mode;
use crate::history::names::FastMap;
use crate::holds::LockHold;
use crate::wait::Wait;

/// A hold, and the time by which it and all earlier holds of its process had ended, in nanoseconds.
type HoldInOrder<'a> = (&'a LockHold, u64);

/// The holds that were longer than the bound, by process and in the order in which they began: no shorter hold can be part of a deadlock as
/// long as that.
pub(super) struct LongHolds<'a> {
    context: &'a Context<'a>,
    bound_ns: u64,
    by_process: FastMap<u32, Vec<HoldInOrder<'a>>>,
}

impl<'a> LongHolds<'a> {
    /// Collects the holds of all locks with a wait longer than the bound: a deadlock needs two such locks.
    pub(super) fn of(context: &'a Context<'a>, waits: &Waits<'_>, bound_ns: u64) -> Self {
        let mut long = Self {
            context,
            bound_ns,
            by_process: FastMap::default(),
        };
        let locks = 0..context.history.locks.len();
        let waited_for: Vec<usize> = locks.filter(|lock| waits.longest_ns(*lock) > bound_ns).collect();
        if waited_for.len() < 2 {
            return long;
        }
        for hold in waited_for.iter().flat_map(|lock| &context.holds.by_lock[*lock]) {
            let (from_ns, to_ns) = long.span_of(hold);
            if to_ns.saturating_sub(from_ns) > bound_ns {
                long.by_process.entry(hold.process).or_default().push((hold, to_ns));
            }
        }
        for own in long.by_process.values_mut() {
            own.sort_by_key(|(hold, _)| (context.history.ns(hold.from), hold.lock(context.history)));
            let mut latest_ns = 0;
            for (_, over_ns) in own {
                latest_ns = latest_ns.max(*over_ns);
                *over_ns = latest_ns;
            }
        }
        long
    }

    fn span_of(&self, hold: &LockHold) -> (u64, u64) {
        let history = self.context.history;
        (history.ns(hold.from), history.ns(hold.to))
    }

    /// Returns the holds of a process that share more than the bound with a span, with the shared interval.
    fn within(&self, process: u32, (from_ns, to_ns): (u64, u64)) -> impl Iterator<Item = (&'a LockHold, (u64, u64))> {
        let own = self.by_process.get(&process).map_or(&[][..], Vec::as_slice);
        let first = own.partition_point(|(_, over_ns)| *over_ns <= from_ns);
        let near = own[first..].iter().map(|(hold, _)| (*hold, self.span_of(hold)));
        let near = near.take_while(move |(_, span)| span.0 < to_ns);
        near.filter_map(move |(hold, span)| {
            let shared = (from_ns.max(span.0), to_ns.min(span.1));
            (shared.1.saturating_sub(shared.0) > self.bound_ns).then_some((hold, shared))
        })
    }

    /// Returns whether two processes keep the lock of a hold of theirs from a waiter throughout a span, whatever all others do: two readers
    /// do not, and neither do holders of permits beside which there are enough.
    fn keep(&self, processes: [u32; 2], hold: &LockHold, wait: &Wait, span: (u64, u64)) -> bool {
        let history = self.context.history;
        let (lock, call) = (hold.lock(history), history.event(wait.call));
        if hold.mode == Mode::Read && call.mode == Mode::Read {
            return false;
        }
        let own = processes.into_iter().flat_map(|process| self.within(process, span));
        let own = own.filter(|(own, shared)| own.lock(history) == lock && *shared == span);
        let held: u64 = own.map(|(own, _)| u64::from(own.permits)).sum();
        held + u64::from(history.permits(call)) > self.context.model.capacity()
    }

    /// Returns a deadlock between a waiter of this lock and its holder that is longer than the bound.
    pub(super) fn deadlock(&self, waits: &Waits<'_>, lock: usize) -> Option<Stuck> {
        if self.by_process.is_empty() || waits.longest_ns(lock) <= self.bound_ns {
            return None;
        }
        let long = |wait: &Wait| wait.length_ns() > self.bound_ns;
        let history = self.context.history;
        self.context.waits_for(lock).filter(long).find_map(|wait| {
            let own = self.within(wait.process, (wait.from_ns, wait.to_ns));
            let mut others = own.filter(|(hold, _)| hold.lock(history) != lock);
            others.find_map(|(other, shared)| {
                let mut back = waits.between(other.lock(history), shared.0, shared.1).filter(long);
                back.find_map(|back| {
                    let both = (shared.0.max(back.from_ns), shared.1.min(back.to_ns));
                    let mut holds = self.within(back.process, both);
                    let circle = [wait.process, back.process];
                    let (hold, (from_ns, to_ns)) = holds.find(|(hold, span)| {
                        hold.lock(history) == lock
                            && self.keep(circle, hold, &wait, *span)
                            && self.keep(circle, other, &back, *span)
                    })?;
                    Some(Stuck {
                        lock,
                        from_ns,
                        to_ns,
                        bound_ns: self.bound_ns,
                        waiter: Some(wait),
                        owner: StuckOwner::WaitsInTurn {
                            process: back.process,
                            got: hold.got,
                            call: back.call,
                        },
                        is_shown: false,
                    })
                })
            })
        })
    }
}
