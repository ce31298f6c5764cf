//! Departures of other clients from the queue of a lock, which may have woken a waiter, and their times.
//!
//! In doubt, a rule explains a wake, so that a recipe that wakes only the next waiter is never blamed.

use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::FastSet;
use crate::history::{F, PackedEvent, Standstill, Window};
use crate::holds::Ended;
use crate::limits;
use crate::span_ends::SpanEnds;

/// Spans in which a client may have left the queue of one lock.
#[derive(Debug, Default)]
pub(super) struct Departures(SpanEnds);

impl Departures {
    /// Returns the departures of every lock.
    pub(super) fn of(context: &Context<'_>) -> Vec<Self> {
        let mut all: Vec<Self> = context.history.locks.iter().map(|_| Self::default()).collect();
        for (lock, departures) in all.iter_mut().enumerate() {
            departures.taken_away(context, lock);
        }
        gave_up(context, &mut all);
        all.iter_mut().for_each(|departures| departures.0.sort());
        all
    }

    /// Returns the number of departures that are possible in `from_ns..to_ns`.
    pub(super) fn between(&self, from_ns: u64, to_ns: u64) -> u64 {
        to_ns
            .checked_sub(1)
            .map_or(0, |last_ns| self.0.meeting(from_ns, last_ns) as u64)
    }

    fn add(&mut self, from: u64, to: u64) {
        self.0.add(from, Some(to));
    }

    /// Adds grants that the server removed without a release of their holder, and those that no client is known to have held.
    fn taken_away(&mut self, context: &Context<'_>, lock: usize) {
        let history = context.history;
        let mut released: FastSet<u32> = FastSet::default();
        let holds = context.holds.by_lock[lock].iter();
        for hold in holds.filter(|hold| hold.ended == Ended::Released) {
            // a grant that ended before its hold's call counts as removed, too
            let grant = context.grants.of_hold(history, hold).filter(|grant| {
                let ended = grant.revoked_ns(history).unwrap_or(u64::MAX);
                ended.saturating_add(limits::OBSERVER_LAG_NS) >= history.ns(hold.to)
            });
            released.extend(grant.map(|grant| grant.revoked));
        }
        let grants = context.grants.of_lock(lock).iter();
        for grant in grants.filter(|grant| !released.contains(&grant.revoked)) {
            if let Some(ns) = grant.revoked_ns(history) {
                self.add(ns.saturating_sub(limits::OBSERVER_LAG_NS), ns + limits::OBSERVER_LAG_NS);
            }
        }
    }

    fn attempt(&mut self, context: &Context<'_>, call: PackedEvent, expiry: u64) {
        let history = context.history;
        let reply = history.reply(call);
        let until = reply.map_or(u64::MAX, |reply| reply.time);
        if reply.is_some_and(|reply| reply.kind == Kind::Ok) {
            if let Some(since_ns) = lost_its_place(context, call, until) {
                self.add(since_ns, until);
            }
            return;
        }
        let mut windows = context.windows_in(call.time.saturating_sub(expiry), until);
        let touched = windows.next().is_some();
        let known = reply.filter(|reply| reply.kind == Kind::Fail && !touched);
        match known {
            Some(reply) => self.add(
                reply.time.saturating_sub(limits::LEAVE_NS),
                reply.time + limits::LEAVE_NS,
            ),
            None if reply.is_some() || touched => self.add(call.time, until.saturating_add(expiry)),
            None => {}
        }
    }
}

/// Returns the earliest time at which an acquire that got the lock may have lost its place and queued again within the same call: a fault
/// must have been on its client for as long as a session may need to end.
fn lost_its_place(context: &Context<'_>, call: PackedEvent, until_ns: u64) -> Option<u64> {
    let client = context.history.client_of(call.process);
    let concerns = context.windows_that_concern(client, call.time, until_ns);
    let began_ns = concerns.map(Window::began_ns);
    let stood = context.standstills_in(call.time, until_ns);
    let since_ns = began_ns.chain(stood.map(Standstill::earliest_ns));
    let since_ns = since_ns.min()?.max(call.time);
    (until_ns.saturating_sub(since_ns) >= context.surely_left_ns()).then_some(since_ns)
}

/// Adds acquires that did not end in a grant, and processes that died or lost their session.
fn gave_up(context: &Context<'_>, all: &mut [Departures]) {
    let history = context.history;
    let expiry = 2 * context.longest_lease_ns() + limits::AFTERMATH_NS;
    // The locks for which each process called: few, so a list is enough.
    let mut asked: Vec<Vec<u32>> = vec![Vec::new(); history.processes.len()];
    let is_looked_at = |f, kind| matches!((f, kind), (F::Acquire, Kind::Invoke) | (F::Lost | F::Died, _));
    history.events.each_of(is_looked_at, |_, event| {
        let lock = history.lock_number(event);
        match (event.f, lock) {
            (F::Acquire, Some(lock)) => {
                let asked = &mut asked[event.process as usize];
                if asked.last() != Some(&(lock as u32)) && !asked.contains(&(lock as u32)) {
                    asked.push(lock as u32);
                }
                all[lock].attempt(context, event, expiry);
            }
            (F::Lost | F::Died, _) => {
                for asked in asked[event.process as usize].iter().map(|asked| *asked as usize) {
                    if lock.is_none_or(|lock| lock == asked) {
                        all[asked].add(event.time.saturating_sub(expiry), event.time.saturating_add(expiry));
                    }
                }
            }
            _ => {}
        }
    });
}

/// The spans of faults, from their injections on and with their aftermath, merged.
#[derive(Debug, Default)]
pub(super) struct Disturbed(Vec<(u64, u64)>);

impl Disturbed {
    pub(super) fn of(context: &Context<'_>) -> Self {
        let after = 2 * context.longest_lease_ns() + limits::AFTERMATH_NS;
        let over_ns = |window: &Window| window.heal_ns.map_or(u64::MAX, |heal| heal.saturating_add(after));
        let windows = context.windows.iter();
        let mut each: Vec<(u64, u64)> = windows.map(|window| (window.began_ns(), over_ns(window))).collect();
        each.sort_unstable();
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (from, to) in each {
            match spans.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => spans.push((from, to)),
            }
        }
        Self(spans)
    }

    /// Returns the beginning of the disturbance that contains an interval, if one does.
    pub(super) fn since(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        self.0
            .iter()
            .find(|(start, end)| *start < to_ns && *end >= from_ns)
            .map(|(start, _)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{History, ReadOptions};
    use crate::options::Options;

    #[test]
    fn a_disturbance_begins_with_the_injection_of_its_first_fault() {
        let text = [
            r#"{"format":"harness-history","version":1,"locks":["l0"],"lease_ms":1000}"#,
            r#"{"index":1,"time":5000000000,"process":"nemesis","type":"info","f":"loss","phase":"start","window":1}"#,
            r#"{"index":2,"time":6000000000,"process":"nemesis","type":"info","f":"server-kill","phase":"start","window":2,"injected_in_ms":2000}"#,
            r#"{"index":3,"time":7000000000,"process":"nemesis","type":"info","f":"loss","phase":"heal","window":1}"#,
            r#"{"index":4,"time":8000000000,"process":"nemesis","type":"info","f":"server-kill","phase":"heal","window":2}"#,
        ];
        let history = History::read(text.join("\n").as_bytes(), &ReadOptions::default()).unwrap();
        let options = Options::still();
        let disturbed = Disturbed::of(&Context::new(&history, &options));
        // two leases and the aftermath of two seconds after the last heal
        assert_eq!(disturbed.0, [(4_000_000_000, 12_000_000_000)]);
    }
}
