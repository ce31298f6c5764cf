//! HL005, progress: after the last heal, a lock that a client waits for is acquired within the bound.

mod owners;
mod waits;

use crate::context::Context;
use crate::finding::Verdict;
use crate::history::{EffectCounters, OrderBasis, Window};
use crate::limits;
use owners::OwnerNames;
pub(crate) use owners::StuckOwner;
use waits::{Stall, Waits};

/// How a lock was stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StuckClass {
    /// No client held it and none got it.
    Free,
    /// The server shows a live process as owner that neither holds nor asks.
    Ghost,
    /// The owner died or was told of its loss, and no other client took its place.
    DeadHolder,
}

impl StuckClass {
    /// As it is in `verdict.json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Ghost => "ghost",
            Self::DeadHolder => "dead-holder",
        }
    }
}

/// A process that waits for a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiter {
    pub process: u32,
    /// The position of its call.
    pub call: u32,
}

/// A lock that did not move for longer than it may.
#[derive(Debug)]
pub(crate) struct Stuck {
    /// Dense.
    pub lock: usize,
    pub class: StuckClass,
    pub from_ns: u64,
    pub to_ns: u64,
    pub waiter: Option<Waiter>,
    pub owner: StuckOwner,
}

/// What was decided about HL005.
#[derive(Debug)]
pub(crate) enum ProgressOutcome {
    /// Registers are not waited for.
    NoLock,
    /// No client asked for a lock in the whole history.
    NobodyAsked,
    /// Faults were on, and this kind of recording does not say when they were healed.
    HealsUnknown,
    /// A fault was on to the end, or a server was gone.
    NeverHealed,
    Decided(ProgressAfterHeal),
}

/// How the locks moved after the last heal.
#[derive(Debug)]
pub(crate) struct ProgressAfterHeal {
    /// Violated when a lock was stuck, inconclusive when none was acquired.
    pub verdict: Verdict,
    /// The time of the last heal, or 0.
    pub healed_ns: u64,
    /// How long a lock may be stuck.
    pub bound_ns: u64,
    /// The part of it in which TCP may not have sent again what a fault dropped.
    pub retransmission_ns: u64,
    /// Acquires that were open after the heal, and those that were answered ok.
    pub asked: u64,
    pub acquired: u64,
    /// The longest wait, and the longest wait for a lock that no client held.
    pub longest_ns: u64,
    pub longest_free_ns: u64,
    pub stuck: Vec<Stuck>,
}

/// Decides HL005.
pub(crate) fn decide(context: &Context<'_>) -> ProgressOutcome {
    let history = context.history;
    if !context.model.is_lock() {
        return ProgressOutcome::NoLock;
    }
    if history.counts.operations == 0 {
        return ProgressOutcome::NobodyAsked;
    }
    let Some(healed_ns) = last_heal(context) else {
        // Jepsen's nemesis has lines for what it does, in words of each test, and none for a heal.
        return match history.order {
            OrderBasis::Position => ProgressOutcome::HealsUnknown,
            OrderBasis::Time => ProgressOutcome::NeverHealed,
        };
    };
    let waits = Waits::of(context, healed_ns);
    let retransmission_ns = retransmission(context, healed_ns);
    let bound_ns = limits::ns(context.bounds.progress_ms.unwrap_or(limits::PROGRESS_MS)) + retransmission_ns;
    let mut stuck = Vec::new();
    let owners = OwnerNames::of(context);
    for lock in 0..history.locks.len() {
        let stalls = waits.stalls(context, lock, bound_ns);
        let blamed = stalls
            .iter()
            .filter_map(|stall| blame(context, &owners, &waits, lock, stall, bound_ns));
        let before = stuck.len();
        stuck.extend(blamed);
        if stuck.len() == before {
            stuck.extend(owners.ghost(context, lock, healed_ns, bound_ns));
        }
    }
    let verdict = match (stuck.is_empty(), waits.acquired) {
        (false, _) => Verdict::Violated,
        (true, 0) => Verdict::Inconclusive,
        (true, _) => Verdict::Holds,
    };
    ProgressOutcome::Decided(ProgressAfterHeal {
        verdict,
        healed_ns,
        bound_ns,
        retransmission_ns,
        asked: waits.asked,
        acquired: waits.acquired,
        longest_ns: waits.longest_ns(),
        longest_free_ns: waits.longest_free_ns(context),
        stuck,
    })
}

/// The time of the last heal; the recovery phase counts for one that was not written. `None` when a fault is on to the end, or
/// a server ended by itself, which nothing heals.
fn last_heal(context: &Context<'_>) -> Option<u64> {
    if !context.history.server_ends().is_empty() {
        return None;
    }
    let phases = context.history.phases();
    let recovery = phases
        .iter()
        .rev()
        .find(|phase| phase.is_recovery())
        .map(|phase| phase.start_ns);
    let heal = |window: &Window| {
        window
            .heal_ns
            .or(recovery.filter(|recovery| *recovery >= window.start_ns))
    };
    context
        .windows
        .iter()
        .map(heal)
        .try_fold(0, |latest: u64, heal| Some(latest.max(heal?)))
}

/// How long after the last heal a connection may still be silent because of TCP: a sender whose packets are dropped waits
/// twice as long before each further attempt ([RFC 6298], 5.5), so the attempt after the heal comes at most one length of the
/// window later.
///
/// [RFC 6298]: https://www.rfc-editor.org/rfc/rfc6298#section-5
fn retransmission(context: &Context<'_>, healed_ns: u64) -> u64 {
    let until = |window: &Window| {
        let counters = [EffectCounters::DROPPED_PACKETS, EffectCounters::HELD_CONNECTS];
        let dropped = window.healed.as_ref()?.evidence.sum(counters) > 0;
        let heal_ns = window.heal_ns.filter(|_| dropped)?;
        Some(heal_ns + (heal_ns - window.start_ns))
    };
    let latest = context.windows.iter().filter_map(until).max();
    latest.map_or(0, |latest| latest.saturating_sub(healed_ns))
}

/// What kind of stall it is; `None` when the owner's lease may still explain it.
fn blame(
    context: &Context<'_>,
    owners: &OwnerNames,
    waits: &Waits,
    lock: usize,
    stall: &Stall,
    bound_ns: u64,
) -> Option<Stuck> {
    let owner = owners.during(context, lock, stall);
    let class = match &owner {
        StuckOwner::Dead { .. } | StuckOwner::Unsure { .. } => StuckClass::DeadHolder,
        StuckOwner::Ghost { .. } => StuckClass::Ghost,
        StuckOwner::Nobody | StuckOwner::Waiting { .. } => StuckClass::Free,
    };
    let lease = if class == StuckClass::DeadHolder {
        context.lease_ns
    } else {
        0
    };
    let (from_ns, to_ns) = (stall.from_ns, stall.to_ns);
    let other = owner
        .process()
        .and_then(|process| waits.besides(context, lock, stall, context.history.client_of(process)));
    let waiter = other.or(Some(stall.waiter));
    (to_ns - from_ns > bound_ns + lease).then_some(Stuck {
        lock,
        class,
        from_ns,
        to_ns,
        waiter,
        owner,
    })
}
