//! Overlaps of certain holds: the violations of HL001, from which many violations of other properties follow.
//!
//! A sort and a sweep over the holds of each lock. Readers of a read/write lock do not exclude each other, and the holds of a semaphore
//! only if they exceed its permits.

use std::collections::BTreeMap;

use crate::history::names::FastMap;
use crate::history::{History, Mode};
use crate::holds::{Holds, LockHold};
use crate::model::Model;

/// Two certain holds that exclude each other and share more than an instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Overlap {
    pub first: LockHold,
    /// The later hold: its reply began the overlap.
    pub second: LockHold,
}

impl Overlap {
    pub(crate) fn from(&self) -> u64 {
        self.second.from
    }

    pub(crate) fn to(&self) -> u64 {
        self.first.to.min(self.second.to)
    }

    /// Returns whether one of its holds began with this reply.
    pub(crate) fn has(&self, got: u32) -> bool {
        self.first.got == got || self.second.got == got
    }
}

/// All overlaps of one hold with later holds: they have one cause, however many they are.
#[derive(Debug, Clone)]
pub(crate) struct Conflict {
    /// The overlap that began first, which the narrative explains.
    pub opening: Overlap,
    pub count: u64,
    /// The time in which there was at least one of them.
    pub shared_ns: u64,
    /// The length of the longest one.
    pub longest_ns: u64,
}

/// Groups overlaps by their first hold, the one that shared the lock for the longest time first.
pub(crate) fn conflicts(history: &History, overlaps: &[Overlap]) -> Vec<Conflict> {
    let mut in_order: Vec<&Overlap> = overlaps.iter().collect();
    in_order.sort_by_key(|overlap| overlap.from());
    let mut place: FastMap<u32, usize> = FastMap::default();
    let mut conflicts: Vec<Conflict> = Vec::new();
    // by conflict, the latest end of its overlaps so far
    let mut over_ns: Vec<u64> = Vec::new();
    for overlap in in_order {
        let at = *place.entry(overlap.first.got).or_insert(conflicts.len());
        if at == conflicts.len() {
            conflicts.push(Conflict {
                opening: *overlap,
                count: 0,
                shared_ns: 0,
                longest_ns: 0,
            });
            over_ns.push(0);
        }
        let conflict = &mut conflicts[at];
        conflict.count += 1;
        let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
        conflict.shared_ns += to_ns.saturating_sub(from_ns.max(over_ns[at]));
        conflict.longest_ns = conflict.longest_ns.max(to_ns.saturating_sub(from_ns));
        over_ns[at] = over_ns[at].max(to_ns);
    }
    conflicts.sort_by_key(|conflict| (std::cmp::Reverse(conflict.shared_ns), conflict.opening.first.got));
    conflicts
}

/// Returns one overlap for each later hold, with the other hold that it shares the longest interval with; the longest overlap first. Each
/// exists whatever the errors of the stamps are, up to `error_ns`.
pub(crate) fn overlaps(history: &History, model: &Model, holds: &Holds, error_ns: u64) -> Vec<Overlap> {
    let (mut found, apart) = (Vec::new(), 2 * error_ns);
    if model.is_lock() {
        for holds in &holds.by_lock {
            let holds = holds.iter().filter(|hold| hold.lasts_beyond(hold.from, apart));
            match model {
                Model::Semaphore { .. } => crowded(holds, model.capacity(), apart, &mut found),
                _ => overlapping(holds, *model == Model::ReadWrite, apart, &mut found),
            }
        }
    }
    let length = |overlap: &Overlap| {
        // an open end has no stamp
        let errors_ns = if overlap.to() == u64::MAX { error_ns } else { apart };
        let lasted_ns = history.ns(overlap.to()).saturating_sub(history.ns(overlap.from()));
        lasted_ns.saturating_sub(errors_ns)
    };
    found.sort_by_key(|overlap| (std::cmp::Reverse(length(overlap)), overlap.second.got));
    found
}

fn overlapping<'a>(holds: impl Iterator<Item = &'a LockHold>, shared: bool, apart: u64, found: &mut Vec<Overlap>) {
    let (mut writers, mut readers) = (Partners::default(), Partners::default());
    for hold in holds {
        let reads = shared && hold.mode == Mode::Read;
        let reader = if reads { None } else { readers.longest(hold) };
        let partner = writers
            .longest(hold)
            .into_iter()
            .chain(reader)
            .max_by_key(|partner| partner.to);
        if let Some(first) = partner.filter(|partner| partner.lasts_beyond(hold.from, apart)) {
            found.push(Overlap {
                first: *first,
                second: *hold,
            });
        }
        if reads { readers.add(hold) } else { writers.add(hold) }
    }
}

/// Finds the holds in excess of the permits: each later hold that is one too many, with the longest of the others.
fn crowded<'a>(holds: impl Iterator<Item = &'a LockHold>, permits: u64, apart: u64, found: &mut Vec<Overlap>) {
    // By end, then by beginning: the first entry ends first, the last one is the longest.
    let mut there: BTreeMap<(u64, usize), LockHold> = BTreeMap::new();
    let mut taken = 0;
    for (number, hold) in holds.enumerate() {
        let until = hold.from.saturating_add(apart);
        while let Some(over) = there.first_entry().filter(|first| first.key().0 <= until) {
            taken -= u64::from(over.remove().permits);
        }
        if taken + u64::from(hold.permits) > permits {
            let first = there.values().next_back().unwrap_or(hold);
            found.push(Overlap {
                first: *first,
                second: *hold,
            });
            continue;
        }
        taken += u64::from(hold.permits);
        there.insert((hold.to, number), *hold);
    }
}

/// The two longest holds so far that belong to different processes.
///
/// They answer in O(1) whether a later hold overlaps with a hold of another process, and with which one longest.
#[derive(Debug, Default)]
struct Partners {
    longest: Option<LockHold>,
    other: Option<LockHold>,
}

impl Partners {
    /// Returns the longest hold of another process.
    fn longest(&self, hold: &LockHold) -> Option<&LockHold> {
        let longest = self.longest.as_ref();
        longest
            .filter(|partner| partner.process != hold.process)
            .or(self.other.as_ref())
    }

    fn add(&mut self, hold: &LockHold) {
        let lasts_longer = |than: Option<LockHold>| than.is_none_or(|than| hold.to > than.to);
        let is_own = self.longest.is_some_and(|longest| longest.process == hold.process);
        if lasts_longer(self.longest) {
            if !is_own {
                self.other = self.longest;
            }
            self.longest = Some(*hold);
        } else if !is_own && lasts_longer(self.other) {
            self.other = Some(*hold);
        }
    }
}
