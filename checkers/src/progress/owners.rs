//! The owner of a stuck lock by the server's lines, and the state of its client.

use std::collections::BTreeSet;

use super::left::{self, Suspects};
use super::stuck::{Stuck, StuckOwner};
use super::waits::Stall;
use crate::calm;
use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::names::{FastMap, NONE};
use crate::history::{F, PackedEvent, client_number};
use crate::holds::{Ended, LockHold};
use crate::watched::NotWatched;

/// The processes of each owner's name, and other facts that are looked up repeatedly.
pub(super) struct OwnerNames<'a> {
    context: &'a Context<'a>,
    process: FastMap<u32, u32>,
    died: FastMap<u32, u32>,
    /// By process and lock, the earliest call of an acquire that was not answered before the end.
    asks: FastMap<(u32, u32), u64>,
}

impl<'a> OwnerNames<'a> {
    pub(super) fn of(context: &'a Context<'a>) -> Self {
        let history = context.history;
        let mut owners = Self {
            context,
            process: FastMap::default(),
            died: FastMap::default(),
            asks: FastMap::default(),
        };
        // no owner is looked up where the server was not watched
        if context.grants.is_empty() {
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

    /// Returns whether the server's lines have the owners of a lock, also by names that are in no client's answer.
    pub(super) fn are_shown(&self, lock: usize) -> bool {
        let is_elsewhere = self.context.not_watched == Some(NotWatched::Elsewhere);
        !is_elsewhere && !self.context.grants.of_lock(lock).is_empty()
    }

    /// Returns the owner of a lock during a stall.
    pub(super) fn during(&self, lock: usize, stall: &Stall) -> StuckOwner {
        let (context, history) = (self.context, self.context.history);
        if !self.are_shown(lock) {
            return last_holder(context, stall);
        }
        // the owner for the longest time, if there was one for most of it: the grant that ends a stall is not its cause
        let stood_ns = |grant: &ServerGrant| {
            let from = grant.granted_ns(history).unwrap_or(u64::MAX).max(stall.from_ns);
            let to = grant.revoked_ns(history).unwrap_or(u64::MAX).min(stall.to_ns);
            to.saturating_sub(from)
        };
        let half_ns = stall.to_ns.saturating_sub(stall.from_ns) / 2;
        let grants = || {
            let all = context.grants.of_lock(lock).iter();
            all.filter(|grant| !context.grants.is_end_missed(grant))
        };
        let owned_ns: u64 = grants().map(stood_ns).sum();
        let longest = grants().max_by_key(|grant| stood_ns(grant));
        let Some(grant) = longest.filter(|_| owned_ns > half_ns) else {
            return StuckOwner::Nobody;
        };
        let by_name = match context.not_watched {
            None => self.owner(lock, grant, stall.from_ns),
            Some(_) => left_by_the_last(context, stall, grant),
        };
        match by_name {
            StuckOwner::Ghost { process: None, granted } => {
                let on_the_wire = self.process_on_the_wire(lock, grant);
                let process = on_the_wire.or_else(|| self.killed_in_its_acquire(lock, grant));
                process.map_or(StuckOwner::Ghost { process, granted }, |process| {
                    self.owner_of_process(lock, grant, stall.from_ns, process)
                })
            }
            known => known,
        }
    }

    /// Returns the process of the client with the owner's name in the taps' lines: its session, or a request of it, has that name.
    fn process_on_the_wire(&self, lock: usize, grant: &ServerGrant) -> Option<u32> {
        let history = self.context.history;
        let name = history.name(grant.owner)?;
        let sessions = history.tap_totals().flat_map(|taps| &taps.sessions);
        let sessions = sessions
            .filter(|session| session.name == name)
            .map(|session| &session.client);
        let asked = history.tap_totals().flat_map(|taps| &taps.asked_again);
        let asked = asked
            .filter(|again| again.words.iter().any(|word| word == name))
            .map(|again| &again.client);
        let clients: BTreeSet<&String> = sessions.chain(asked).collect();
        let client = client_number(clients.first()?)?;
        if clients.len() > 1 {
            return None;
        }
        let granted_ns = grant.granted_ns(history)?;
        let asks = self.context.waits_for(lock);
        let own = asks.filter(|ask| history.client_of(ask.process) == client && ask.from_ns <= granted_ns);
        own.last().map(|ask| ask.process)
    }

    /// Returns the only process that was killed before its acquire was answered, if no other acquire can have been granted. Of clients that
    /// share a process, it is the first that was killed with it.
    fn killed_in_its_acquire(&self, lock: usize, grant: &ServerGrant) -> Option<u32> {
        let history = self.context.history;
        let (suspects, killed) = left::suspects(self.context, lock, grant.granted_ns(history)?);
        let per_process = history.header.per_process.unwrap_or(1).max(1);
        let processes = killed.iter().map(|process| history.client_of(*process) / per_process);
        let shared: BTreeSet<u32> = processes.collect();
        let is_it = suspects == Suspects::DIED && shared.len() == 1;
        killed.first().copied().filter(|_| is_it)
    }

    /// Returns a grant that is not removed although its live owner neither holds nor asks, for longer than the bound and a lease.
    pub(super) fn ghost(&self, lock: usize, healed_ns: u64, bound_ns: u64) -> Option<Stuck> {
        let context = self.context;
        let history = context.history;
        if context.not_watched.is_some() {
            return None;
        }
        let bound_ns = bound_ns + context.longest_lease_ns() + calm::outlives_ns(context, healed_ns);
        // a grant may stay while a server or the harness stands still
        let lasted_ns = |from_ns: u64, to_ns: u64| {
            let stood = context.standstills.iter().map(|span| span.within_ns(from_ns, to_ns));
            to_ns.saturating_sub(from_ns).saturating_sub(stood.sum())
        };
        let long = |grant: &&ServerGrant| {
            let from = grant.granted_ns(history).unwrap_or(u64::MAX).max(healed_ns);
            lasted_ns(from, context.stood_until(lock, grant)) > bound_ns
        };
        context.grants.of_lock(lock).iter().filter(long).find_map(|grant| {
            let to_ns = context.stood_until(lock, grant);
            let is_its = |hold: &&LockHold| match context.grants.of_hold(history, hold) {
                Some(of_it) => of_it.granted == grant.granted,
                // holds of readers and of permits are not joined to grants
                None if context.grants.is_shown(hold) => false,
                None => {
                    let is_named = grant.owner != NONE && hold.owner(history) == grant.owner;
                    is_named && history.ns(hold.from) <= to_ns
                }
            };
            let held = context.holds.by_lock[lock].iter().filter(is_its);
            let held_until = held.map(|hold| history.ns(hold.to)).max().unwrap_or(0);
            let from_ns = grant.granted_ns(history)?.max(healed_ns).max(held_until);
            let owner = self.owner(lock, grant, from_ns);
            let ghost = matches!(owner, StuckOwner::Ghost { process: Some(_), .. });
            let long = lasted_ns(from_ns, to_ns) > bound_ns;
            (ghost && long).then_some(Stuck {
                lock,
                from_ns,
                to_ns,
                bound_ns,
                waiter: None,
                owner,
                is_shown: true,
            })
        })
    }

    fn owner(&self, lock: usize, grant: &ServerGrant, from_ns: u64) -> StuckOwner {
        let granted = grant.granted;
        let hold = self.context.hold_of(grant);
        if let Some(hold) = hold.filter(|hold| matches!(hold.ended, Ended::Died | Ended::Lost)) {
            return StuckOwner::Dead {
                process: hold.process,
                granted,
                end: hold.end,
            };
        }
        let named = || self.process.get(&grant.owner).copied();
        let process = hold.map(|hold| hold.process).or_else(named);
        match process {
            Some(process) => self.owner_of_process(lock, grant, from_ns, process),
            None => StuckOwner::Ghost { process: None, granted },
        }
    }

    /// Returns the state of the process that owns a grant.
    fn owner_of_process(&self, lock: usize, grant: &ServerGrant, from_ns: u64, process: u32) -> StuckOwner {
        let (history, granted) = (self.context.history, grant.granted);
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

/// Returns the owner of a stuck lock if no client names the server's owners: the process of the hold which ended last, if the server showed
/// the owner by then.
fn left_by_the_last(context: &Context<'_>, stall: &Stall, grant: &ServerGrant) -> StuckOwner {
    let (history, granted) = (context.history, grant.granted);
    let is_its = |hold: &LockHold| grant.granted_ns(history).is_none_or(|ns| ns <= history.ns(hold.to));
    let Some(hold) = stall.after.filter(is_its) else {
        return StuckOwner::Ghost { process: None, granted };
    };
    match last_holder(context, stall) {
        StuckOwner::Dead { process, end, .. } => StuckOwner::Dead { process, granted, end },
        _ => StuckOwner::Ghost {
            process: Some(hold.process),
            granted,
        },
    }
}

/// Returns the last holder, without the server's lines: a release that was answered `ok` leaves a free lock, any other end does not.
pub(super) fn last_holder(context: &Context<'_>, stall: &Stall) -> StuckOwner {
    let history = context.history;
    let Some(hold) = stall.after else {
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
            let reply = history.reply(history.event(end));
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
