//! HL005, progress: a lock with a waiter is acquired within the bound, whenever no fault excuses it.

mod answers;
mod cause;
mod deadlock;
mod dropped;
mod left;
mod owners;
mod promised;
mod stuck;
mod waits;

use crate::calm;
use crate::context::{CalmSpan, Context};
use crate::finding::Verdict;
use crate::history::OrderBasis;
pub(crate) use cause::{NotKnown, StuckCause, cause};
use deadlock::LongHolds;
pub(crate) use dropped::{DroppedMessage, dropped_message};
pub(crate) use left::{LeftBehind, LeftBy, Suspects};
use owners::OwnerNames;
pub(crate) use stuck::{Stuck, StuckOwner};
use waits::{HoldsInOrder, Stall, Waits};

/// The decision on HL005.
#[derive(Debug)]
pub(crate) enum ProgressOutcome {
    /// The model is a register, which has no waiters.
    NoLock,
    /// No client called an acquire in the whole history.
    NobodyAsked,
    /// There were faults, and this kind of recording has no lines of their heals.
    HealsUnknown,
    /// A fault was active to the end, or a server had ended.
    NeverHealed,
    Decided(ProgressAfterHeal),
}

/// The progress of the locks after the last heal.
#[derive(Debug)]
pub(crate) struct ProgressAfterHeal {
    /// Violated when a lock was stuck, inconclusive when none was acquired.
    pub verdict: Verdict,
    /// The time of the last heal, or 0.
    pub healed_ns: u64,
    /// The longest time for which a lock may be stuck.
    pub bound_ns: u64,
    /// The part of it in which TCP may not have retransmitted dropped packets.
    pub retransmission_ns: u64,
    /// Acquires that were pending after the heal or called later, and those among them that were answered `ok`.
    pub asked: u64,
    pub acquired: u64,
    /// The longest wait, and the longest wait for a lock that no client held.
    pub longest_ns: u64,
    pub longest_free_ns: u64,
    pub stuck: Vec<Stuck>,
    /// Locks that stayed with dead clients, as their contract allows.
    pub promised: Vec<Stuck>,
    /// The longest time for which a lock was stuck on an overloaded machine, where that does not count.
    pub excused_ns: Option<u64>,
}

pub(crate) fn decide(context: &Context<'_>) -> ProgressOutcome {
    let history = context.history;
    if !context.model.is_lock() {
        return ProgressOutcome::NoLock;
    }
    if history.counts.operations == 0 {
        return ProgressOutcome::NobodyAsked;
    }
    let healed_ns = last_heal(context);
    // Jepsen's nemesis has lines for its actions, in words of each test, and none for a heal.
    if healed_ns.is_none() && history.order == OrderBasis::Position {
        return ProgressOutcome::HealsUnknown;
    }
    let (waits, after) = Waits::of(context, healed_ns.unwrap_or(0));
    let bound_ns = context.progress_ns();
    let retransmission_ns = healed_ns.map_or(0, |healed_ns| calm::retransmission_ns(context, healed_ns));
    let judge = StallJudge {
        context,
        owners: OwnerNames::of(context),
        waits,
        bound_ns,
    };
    let last = healed_ns.and_then(|healed_ns| calm::after_every_heal(context, healed_ns));
    let long_holds = LongHolds::of(context, &judge.waits, bound_ns);
    let mut stuck = Vec::new();
    for lock in 0..history.locks.len() {
        let mut found = judge.stuck(lock, last.as_ref());
        if let Some(healed_ns) = healed_ns.filter(|_| found.is_empty()) {
            found.extend(judge.owners.ghost(lock, healed_ns, bound_ns + retransmission_ns));
        }
        if found.is_empty() {
            found.extend(long_holds.deadlock(&judge.waits, lock));
        }
        found.sort_by_key(|stuck| stuck.from_ns);
        stuck.extend(found);
    }
    if healed_ns.is_none() && stuck.is_empty() {
        return ProgressOutcome::NeverHealed;
    }
    let counts = |stuck: &Stuck| context.busy.counted_ns(stuck.from_ns, stuck.to_ns) > stuck.bound_ns;
    let is_promised = |stuck: &Stuck| promised::is_promised(context, stuck);
    let (promised, stuck): (Vec<Stuck>, Vec<Stuck>) = stuck.into_iter().partition(is_promised);
    let (stuck, excused): (Vec<Stuck>, Vec<Stuck>) = stuck.into_iter().partition(counts);
    let excused_ns = excused.iter().map(|stuck| stuck.to_ns - stuck.from_ns).max();
    let healed_ns = healed_ns.unwrap_or(0);
    let verdict = match (stuck.is_empty(), after.acquired) {
        (false, _) => Verdict::Violated,
        (true, 0) if promised.is_empty() => Verdict::Inconclusive,
        (true, _) if excused_ns.is_some() => Verdict::Inconclusive,
        (true, _) => Verdict::Holds,
    };
    ProgressOutcome::Decided(ProgressAfterHeal {
        verdict,
        healed_ns,
        bound_ns: bound_ns + retransmission_ns,
        retransmission_ns,
        asked: after.asked,
        acquired: after.acquired,
        longest_ns: after.longest_ns,
        longest_free_ns: waits::longest_free_ns(context, healed_ns),
        stuck,
        promised,
        excused_ns,
    })
}

/// Returns the time of the last heal; the beginning of the recovery where a heal is not recorded. Returns `None` if a fault is active to
/// the end, or a server ended by itself, which has no heal.
fn last_heal(context: &Context<'_>) -> Option<u64> {
    if !context.history.server_ends().is_empty() {
        return None;
    }
    let mut heals = context.windows.iter().map(|window| context.heal_ns(window));
    heals.try_fold(0, |latest: u64, heal| Some(latest.max(heal?)))
}

/// The facts by which stalls are judged.
struct StallJudge<'a> {
    context: &'a Context<'a>,
    owners: OwnerNames<'a>,
    waits: Waits<'a>,
    /// The longest time for which a lock may be stuck.
    bound_ns: u64,
}

impl StallJudge<'_> {
    /// Returns the intervals in which one lock was stuck, in the calm spans and in the span after every heal.
    fn stuck(&self, lock: usize, last: Option<&CalmSpan>) -> Vec<Stuck> {
        let holds = HoldsInOrder::of(self.context, lock);
        let mut known: Vec<Stuck> = Vec::new();
        for span in calm::spans(self.context).iter().chain(last) {
            let bound_ns = self.bound_ns + span.patience_ns + span.retransmission_ns;
            let stalls = self.waits.stalls(&holds, span, bound_ns);
            let found = stalls.iter().filter_map(|stall| self.stuck_at(lock, stall, bound_ns));
            // the known ones are sorted and disjoint, and so are the spans but for the last
            let is_new = |found: &Stuck| {
                let after = known.partition_point(|known| known.to_ns <= found.from_ns);
                known.get(after).is_none_or(|known| known.from_ns >= found.to_ns)
            };
            let new: Vec<Stuck> = found.filter(is_new).collect();
            known.extend(new);
        }
        known
    }

    /// Returns the owner and the waiter of a stall; `None` when the owner's lease may still explain it.
    fn stuck_at(&self, lock: usize, stall: &Stall, bound_ns: u64) -> Option<Stuck> {
        let context = self.context;
        let owner = self.owners.during(lock, stall);
        let (from_ns, to_ns) = (stall.from_ns, stall.to_ns);
        // the last hold left nothing: its release was answered `ok`
        let left_cleanly = || owners::last_holder(context, stall) == StuckOwner::Nobody;
        let may_be_leased = match owner {
            StuckOwner::Dead { .. } | StuckOwner::Unsure { .. } | StuckOwner::Ghost { .. } => true,
            // the key of a waiter whose answer was lost ends with its lease, however long it waits
            StuckOwner::Waiting { .. } => true,
            // it is not known whether the lease of an unnamed owner continues
            _ if context.not_watched.is_some() && !left_cleanly() => true,
            // the server has no owner, and leftovers of an acquire may be in the way: keys at some of several servers, places in a queue
            StuckOwner::Nobody => left::was_cut_off(context, stall, lock),
            StuckOwner::WaitsInTurn { .. } => false,
        };
        let bound_ns = bound_ns + if may_be_leased { context.longest_lease_ns() } else { 0 };
        let process = owner.process();
        let other = process.and_then(|process| self.waits.besides(lock, stall, process));
        let waiter = other.or(Some(stall.waiter));
        (to_ns - from_ns > bound_ns).then_some(Stuck {
            lock,
            from_ns,
            to_ns,
            bound_ns,
            waiter,
            owner,
            is_shown: self.owners.are_shown(lock),
        })
    }
}
