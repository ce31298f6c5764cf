//! Two clients of which each holds the lock that the other one waits for.

use super::waits::{Wait, Waits};
use super::{Stuck, StuckClass, StuckOwner};
use crate::context::Context;
use crate::holds::LockHold;

/// Where waiters of this lock and its holder wait for each other, for longer than the bound.
pub(super) fn on(context: &Context<'_>, waits: &Waits<'_>, lock: usize, bound_ns: u64) -> Option<Stuck> {
    let history = context.history;
    let holds = |lock: usize, process: u32, from_ns: u64, to_ns: u64| -> Option<(&LockHold, u64, u64)> {
        let mut own = context.holds.by_lock[lock]
            .iter()
            .filter(|hold| hold.process == process);
        own.find_map(|hold| {
            let (from_ns, to_ns) = (from_ns.max(history.ns(hold.from)), to_ns.min(history.ns(hold.to)));
            (to_ns.saturating_sub(from_ns) > bound_ns).then_some((hold, from_ns, to_ns))
        })
    };
    let long = |wait: &Wait| wait.to_ns.saturating_sub(wait.from_ns) > bound_ns;
    waits.of_lock(lock).filter(long).find_map(|wait| {
        let mut others = (0..history.locks.len()).filter(|other| *other != lock);
        others.find_map(|other| {
            let mut back = waits.of_lock(other).filter(long);
            back.find_map(|back| {
                let (from_ns, to_ns) = (wait.from_ns.max(back.from_ns), wait.to_ns.min(back.to_ns));
                let (hold, from_ns, to_ns) = holds(lock, back.waiter.process, from_ns, to_ns)?;
                let (_, from_ns, to_ns) = holds(other, wait.waiter.process, from_ns, to_ns)?;
                Some(Stuck {
                    lock,
                    class: StuckClass::Deadlock,
                    from_ns,
                    to_ns,
                    waiter: Some(wait.waiter),
                    owner: StuckOwner::WaitsInTurn {
                        process: back.waiter.process,
                        got: hold.got,
                        call: back.waiter.call,
                    },
                })
            })
        })
    })
}
