//! The packed form of an event, in 28 bytes, with separate details of the events that have any.
//!
//! Every property passes over all events, at a cost by their size. [`super::event_table`] stores most in half of that.

use super::entry::{F, Mode};
use super::event::Kind;
use super::names::{NONE, Symbol};

/// The fields that every event has.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct PackedEvent {
    pub time: u64,
    /// Dense, see `History::processes`; or [`super::SERVER`] or [`super::NEMESIS`].
    pub process: u32,
    /// The position of the reply to this call, or of the call of this reply.
    pub mate: u32,
    pub lock: Symbol,
    /// The place of its details, in `History::details`.
    pub details: u32,
    pub kind: Kind,
    pub f: F,
    pub mode: Mode,
}

impl PackedEvent {
    /// Returns whether it is the `ok` answer to the operation `f`.
    pub(crate) fn is_ok(&self, f: F) -> bool {
        self.f == f && self.kind == Kind::Ok
    }

    pub(crate) fn is_call(&self, f: F) -> bool {
        self.f == f && self.kind == Kind::Invoke
    }
}

/// Fields that some events have. Equal neighbours share one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct EventDetails {
    pub token: Option<u64>,
    pub owner: Symbol,
    /// The place in `History::rare`.
    pub rare: u32,
}

impl EventDetails {
    pub(super) const NOTHING: Self = Self {
        token: None,
        owner: NONE,
        rare: NONE,
    };
}

/// [`EventDetails`] in 16 bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct KeptDetails {
    token: u64,
    owner: Symbol,
    /// The place in `History::rare`, and in the bit above it whether there is a token.
    rare: u32,
}

/// The largest number of places in `History::rare`.
pub(super) const MAX_RARE: usize = NO_RARE as usize;
const NO_RARE: u32 = HAS_TOKEN - 1;
const HAS_TOKEN: u32 = 1 << 31;

impl KeptDetails {
    pub(super) fn of(details: EventDetails) -> Self {
        let has_token = if details.token.is_some() { HAS_TOKEN } else { 0 };
        Self {
            token: details.token.unwrap_or(0),
            owner: details.owner,
            rare: details.rare.min(NO_RARE) | has_token,
        }
    }

    pub(super) fn details(self) -> EventDetails {
        EventDetails {
            token: (self.rare & HAS_TOKEN != 0).then_some(self.token),
            owner: self.owner,
            rare: match self.rare & !HAS_TOKEN {
                NO_RARE => NONE,
                place => place,
            },
        }
    }
}

/// The indices of all events by position, as runs of consecutive numbers, of which there are few.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventIndices {
    /// The position at which each run begins, and its index.
    runs: Vec<(u32, u64)>,
}

impl EventIndices {
    /// Adds the index of the event at a position, which is larger than those before.
    #[inline]
    pub(super) fn push(&mut self, position: u32, index: u64) {
        let goes_on = |(first, at_first): &(u32, u64)| at_first.wrapping_add(u64::from(position - first)) == index;
        if !self.runs.last().is_some_and(goes_on) {
            self.runs.push((position, index));
        }
    }

    pub(super) fn get(&self, position: u32) -> u64 {
        let run = self.runs.partition_point(|(first, _)| *first <= position) - 1;
        let (first, index) = self.runs[run];
        index.wrapping_add(u64::from(position - first))
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::Rare;
    use super::*;

    #[test]
    fn a_million_operations_are_under_a_hundred_megabytes() {
        assert!(size_of::<PackedEvent>() <= 28, "{}", size_of::<PackedEvent>());
        assert!(size_of::<KeptDetails>() <= 16, "{}", size_of::<KeptDetails>());
        assert!(size_of::<Rare>() <= 56, "{}", size_of::<Rare>());
    }

    #[test]
    fn details_are_kept_as_they_are() {
        for token in [None, Some(0), Some(u64::MAX)] {
            for (owner, rare) in [(NONE, NONE), (0, 0), (7, NO_RARE - 1)] {
                let details = EventDetails { token, owner, rare };
                assert_eq!(KeptDetails::of(details).details(), details);
            }
        }
    }

    #[test]
    fn an_index_comes_back_whatever_the_order() {
        let mut indices = EventIndices::default();
        let given = [1, 2, 3, 7, 8, 5, 6, 6, u64::MAX - 1];
        for (position, index) in given.iter().enumerate() {
            indices.push(position as u32, *index);
        }
        let back: Vec<u64> = (0..given.len() as u32).map(|position| indices.get(position)).collect();
        assert_eq!(back, given);
    }
}
