//! The owner that the server shows of a lock that does not move, and what that owner is doing.

use std::cell::OnceCell;

use super::waits::{HoldsInOrder, Stall};
use super::{Stuck, StuckClass};
use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::names::{FastMap, NONE};
use crate::history::{F, PackedEvent};
use crate::holds::{Ended, LockHold};

/// The owner of a lock that does not move. Positions are of the events that say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StuckOwner {
    Nobody,
    /// The owner asks for the lock that the server gave it.
    Waiting {
        process: u32,
        granted: u32,
    },
    /// The owner lives, and neither holds nor asks in a way that could end.
    Ghost {
        process: Option<u32>,
        granted: u32,
    },
    /// The owner died, or was told that it had lost.
    Dead {
        process: u32,
        granted: u32,
        end: u32,
    },
    /// The owner holds the lock, and waits for one that the waiter holds.
    WaitsInTurn {
        process: u32,
        got: u32,
        call: u32,
    },
    /// The server was not watched, and the last holder left without an answer.
    Unsure {
        process: u32,
        end: u32,
    },
}

impl StuckOwner {
    pub(crate) fn process(&self) -> Option<u32> {
        match self {
            Self::Nobody => None,
            Self::Ghost { process, .. } => *process,
            Self::Waiting { process, .. }
            | Self::Dead { process, .. }
            | Self::WaitsInTurn { process, .. }
            | Self::Unsure { process, .. } => Some(*process),
        }
    }
}

/// Which processes go by which owner's name, and what is asked of them again and again.
pub(super) struct OwnerNames<'a> {
    context: &'a Context<'a>,
    process: FastMap<u32, u32>,
    died: FastMap<u32, u32>,
    /// By process and lock, the earliest call of an acquire that was not answered before the end.
    asks: FastMap<(u32, u32), u64>,
    /// By lock and grant, the last hold that it was for.
    holds: OnceCell<FastMap<(usize, u32), &'a LockHold>>,
}

impl<'a> OwnerNames<'a> {
    pub(super) fn of(context: &'a Context<'a>) -> Self {
        let history = context.history;
        let mut owners = Self {
            context,
            process: FastMap::default(),
            died: FastMap::default(),
            asks: FastMap::default(),
            holds: OnceCell::new(),
        };
        // nobody asks for a name where the server was not watched
        if context.not_watched.is_some() {
            return owners;
        }
        let see = |position: u32, event: PackedEvent| {
            if event.f == F::Died {
                owners.died.insert(event.process, position);
                return;
            }
            let owner = history.owner(event);
            if owner != NONE {
                owners.process.insert(owner, event.process);
            }
            let answered = || history.events.answer(event.mate).map_or(u64::MAX, |(_, at)| at);
            if event.is_call(F::Acquire) && answered() >= history.end_ns {
                let earliest = owners.asks.entry((event.process, event.lock)).or_insert(event.time);
                *earliest = event.time.min(*earliest);
            }
        };
        history.events.each_of(|f, _| matches!(f, F::Acquire | F::Died), see);
        owners
    }

    /// The last hold that a grant of a lock was for.
    fn hold_of(&self, lock: usize, granted: u32) -> Option<&'a LockHold> {
        let context = self.context;
        let find = || {
            let known = context.holds.with_locks().filter_map(|(lock, hold)| {
                let grant = context.grants.of_hold(context.history, hold)?;
                Some(((lock, grant.granted), hold))
            });
            known.collect()
        };
        self.holds.get_or_init(find).get(&(lock, granted)).copied()
    }

    /// The owner of the lock while it did not move.
    pub(super) fn during(&self, holds: &HoldsInOrder<'_>, stall: &Stall) -> StuckOwner {
        let (context, lock) = (self.context, holds.lock);
        let history = context.history;
        if context.not_watched.is_some() {
            return last_holder(context, holds, stall);
        }
        // the owner for most of the time: the grant that ends a stall is not what it waited for
        let stood_ns = |grant: &ServerGrant| {
            let from = grant.granted_ns(history).unwrap_or(u64::MAX).max(stall.from_ns);
            let to = grant.revoked_ns(history).unwrap_or(u64::MAX).min(stall.to_ns);
            to.saturating_sub(from)
        };
        let half_ns = stall.to_ns.saturating_sub(stall.from_ns) / 2;
        let standing = context
            .grants
            .of_lock(lock)
            .rev()
            .find(|grant| stood_ns(grant) > half_ns);
        match standing {
            Some(grant) => self.owner(lock, grant, stall.from_ns),
            None if context.grants.of_lock(lock).next().is_some() => StuckOwner::Nobody,
            None => last_holder(context, holds, stall),
        }
    }

    /// A grant that is not removed although its live owner neither holds nor asks.
    pub(super) fn ghost(&self, lock: usize, healed_ns: u64, bound_ns: u64) -> Option<Stuck> {
        let context = self.context;
        let history = context.history;
        if context.not_watched.is_some() {
            return None;
        }
        // what was not removed while a server or the harness stood still is not held against the lock
        let lasted_ns = |from_ns: u64, to_ns: u64| {
            let stood = context.standstills.iter().map(|span| span.within_ns(from_ns, to_ns));
            to_ns.saturating_sub(from_ns).saturating_sub(stood.sum())
        };
        let long = |grant: &&ServerGrant| {
            let from = grant.granted_ns(history).unwrap_or(u64::MAX).max(healed_ns);
            lasted_ns(from, context.stood_until(lock, grant)) > bound_ns
        };
        context.grants.of_lock(lock).filter(long).find_map(|grant| {
            let to_ns = context.stood_until(lock, grant);
            let held = context.holds.by_lock[lock].iter().filter(|hold| {
                context
                    .grants
                    .of_hold(history, hold)
                    .is_some_and(|of| of.granted == grant.granted)
            });
            let held_until = held.map(|hold| history.ns(hold.to)).max().unwrap_or(0);
            let from_ns = grant.granted_ns(history)?.max(healed_ns).max(held_until);
            let owner = self.owner(lock, grant, from_ns);
            let ghost = matches!(owner, StuckOwner::Ghost { process: Some(_), .. });
            let long = lasted_ns(from_ns, to_ns) > bound_ns;
            (ghost && long).then_some(Stuck {
                lock,
                class: StuckClass::Ghost,
                from_ns,
                to_ns,
                waiter: None,
                owner,
            })
        })
    }

    fn owner(&self, lock: usize, grant: &ServerGrant, from_ns: u64) -> StuckOwner {
        let history = self.context.history;
        let granted = grant.granted;
        let hold = self.hold_of(lock, granted);
        if let Some(hold) = hold.filter(|hold| matches!(hold.ended, Ended::Died | Ended::Lost)) {
            return StuckOwner::Dead {
                process: hold.process,
                granted,
                end: hold.end,
            };
        }
        let process = hold
            .map(|hold| hold.process)
            .or_else(|| self.process.get(&grant.owner).copied());
        let Some(process) = process else {
            return StuckOwner::Ghost { process: None, granted };
        };
        if let Some(end) = self.died.get(&process) {
            return StuckOwner::Dead {
                process,
                granted,
                end: *end,
            };
        }
        let called = self.asks.get(&(process, history.locks[lock])).copied();
        let asks = called.is_some_and(|called| called <= from_ns.max(grant.granted_ns(history).unwrap_or(0)));
        if asks {
            StuckOwner::Waiting { process, granted }
        } else {
            StuckOwner::Ghost {
                process: Some(process),
                granted,
            }
        }
    }
}

/// Without the server's word: a holder that left by its own answered release leaves a free lock, any other does not.
fn last_holder(context: &Context<'_>, holds: &HoldsInOrder<'_>, stall: &Stall) -> StuckOwner {
    let history = context.history;
    let Some(hold) = stall.after.map(|place| holds.get(place)) else {
        return StuckOwner::Nobody;
    };
    let (process, end) = (hold.process, hold.end);
    match hold.ended {
        Ended::Died | Ended::Lost => StuckOwner::Dead {
            process,
            granted: hold.got,
            end,
        },
        Ended::Released => {
            let reply = history.events.get(history.event(end).mate as usize);
            let clean = reply.is_some_and(|reply| reply.is_ok(F::Release));
            if clean {
                StuckOwner::Nobody
            } else {
                StuckOwner::Unsure { process, end }
            }
        }
        Ended::Open | Ended::Changed => StuckOwner::Nobody,
    }
}
