//! HL001, mutual exclusion: no two processes' certain holds of one lock overlap.
//!
//! Mode-aware for read/write locks, count-aware for semaphores. A sort and a sweep; what an overlap *is* comes from
//! what the server said and from the lease.

mod clash;

use crate::check::Context;
use crate::finding::{Finding, Property, Verdict};
use crate::history::names::FastMap;
use crate::history::{History, Mode};
use crate::holds::Hold;
use crate::limits;
use crate::model::Model;
use crate::story::{finding, many, violated};
use crate::sweep::Partners;

/// Two certain holds that exclude each other and share more than an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    pub first: Hold,
    /// The newcomer: its reply made the overlap.
    pub second: Hold,
}

impl Overlap {
    pub(crate) fn from(&self) -> u64 {
        self.second.from
    }

    pub(crate) fn to(&self) -> u64 {
        self.first.to.min(self.second.to)
    }
}

/// All overlaps of one hold with the newcomers that it kept on against: one cause, however many they are.
#[derive(Debug, Clone)]
pub(crate) struct Clash {
    /// The overlap that began first: the story is how it came to that.
    pub opening: Overlap,
    pub count: u64,
    /// How long they lasted together.
    pub shared_ns: u64,
}

/// Overlaps by the hold that was there first, those that lasted longest in all first.
pub(crate) fn clashes(history: &History, overlaps: &[Overlap]) -> Vec<Clash> {
    let mut place: FastMap<u32, usize> = FastMap::default();
    let mut clashes: Vec<Clash> = Vec::new();
    for overlap in overlaps {
        let at = *place.entry(overlap.first.got).or_insert(clashes.len());
        if at == clashes.len() {
            let (opening, count, shared_ns) = (*overlap, 0, 0);
            clashes.push(Clash {
                opening,
                count,
                shared_ns,
            });
        }
        let clash = &mut clashes[at];
        clash.count += 1;
        clash.shared_ns += history.ns(overlap.to()) - history.ns(overlap.from());
        if overlap.from() < clash.opening.from() {
            clash.opening = *overlap;
        }
    }
    clashes.sort_by_key(|clash| (std::cmp::Reverse(clash.shared_ns), clash.opening.first.got));
    clashes
}

/// One overlap for each newcomer, with the one of the others that it shares the most with; longest first.
pub(crate) fn overlaps(context: &Context<'_>) -> Vec<Overlap> {
    let mut found = Vec::new();
    if context.model.is_lock() {
        for holds in &context.holds.by_lock {
            match context.model {
                Model::Semaphore { .. } => crowded(holds, context.model.capacity(), &mut found),
                _ => overlapping(holds, context.model == Model::ReadWrite, &mut found),
            }
        }
    }
    let length = |overlap: &Overlap| context.history.ns(overlap.to()) - context.history.ns(overlap.from());
    found.sort_by_key(|overlap| (std::cmp::Reverse(length(overlap)), overlap.second.got));
    found
}

fn overlapping(holds: &[Hold], shared: bool, found: &mut Vec<Overlap>) {
    let (mut writers, mut readers) = (Partners::default(), Partners::default());
    for hold in holds.iter().filter(|hold| !hold.is_empty()) {
        let reads = shared && hold.mode == Mode::Read;
        let reader = if reads { None } else { readers.longest(hold) };
        let partner = writers
            .longest(hold)
            .into_iter()
            .chain(reader)
            .max_by_key(|partner| partner.to);
        if let Some(first) = partner.filter(|partner| partner.to > hold.from) {
            found.push(Overlap {
                first: *first,
                second: *hold,
            });
        }
        if reads { readers.add(hold) } else { writers.add(hold) }
    }
}

/// Holds in excess of the permits: each newcomer that makes one too many, with the longest of those there.
fn crowded(holds: &[Hold], permits: u64, found: &mut Vec<Overlap>) {
    let mut there: Vec<Hold> = Vec::new();
    for hold in holds.iter().filter(|hold| !hold.is_empty()) {
        there.retain(|other| other.to > hold.from);
        let taken: u64 = there.iter().map(|other| u64::from(other.permits)).sum();
        if taken + u64::from(hold.permits) > permits {
            let first = there.iter().max_by_key(|other| other.to).unwrap_or(hold);
            found.push(Overlap {
                first: *first,
                second: *hold,
            });
            continue;
        }
        there.push(*hold);
    }
}

/// The finding of HL001.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    let count = context.holds.count() as u64;
    if !context.model.is_lock() {
        return finding(Property::Hl001, Verdict::NotApplicable, "a register is not held");
    }
    if count == 0 {
        return finding(Property::Hl001, Verdict::Inconclusive, "nobody acquired the lock");
    }
    let overlaps = &context.overlaps;
    let mut answer = if overlaps.is_empty() {
        let none = if context.model.capacity() > 1 {
            "never more than the permits"
        } else {
            "no two overlap"
        };
        finding(
            Property::Hl001,
            Verdict::Holds,
            format!("{}, {none}", many(count, "hold", "holds")),
        )
    } else {
        let clashes = &context.clashes;
        let violations = clashes
            .iter()
            .take(limits::MAX_VIOLATIONS)
            .map(|clash| clash::describe(context, clash))
            .collect();
        let of = format!("of {}", many(count, "hold", "holds"));
        let by = many(clashes.len() as u64, "holder that went on", "holders that went on");
        let evidence = format!("{} {of}, by {by}", many(overlaps.len() as u64, "overlap", "overlaps"));
        violated(Property::Hl001, evidence, violations, clashes.len() as u64)
    };
    answer.figures.insert("holds".into(), count as f64);
    answer.figures.insert("overlaps".into(), overlaps.len() as f64);
    let early = overlaps.iter().filter(|overlap| !after_lease(context, overlap)).count();
    answer.figures.insert("overlaps_within_lease".into(), early as f64);
    answer
}

/// Whether the lease of the first may have run out before the second got the lock, without any renewal.
fn after_lease(context: &Context<'_>, overlap: &Overlap) -> bool {
    let asked = context.history.events[overlap.first.call as usize].time;
    let held = context.history.ns(overlap.from()).saturating_sub(asked);
    held >= context.lease_ns / 100 * limits::LEASE_SHARE_PERCENT
}
