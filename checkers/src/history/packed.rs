//! The 28 bytes that an event is kept in, and what only some events have, kept apart.
//!
//! Every property passes over all events, and what it costs is their size.

use super::History;
use super::entry::{F, Mode, Rare};
use super::event::Kind;
use super::names::{NONE, Symbol};

/// What every event has, packed.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(4))]
pub(crate) struct PackedEvent {
    pub time: u64,
    /// Dense, see `History::processes`; or [`super::SERVER`] or [`super::NEMESIS`].
    pub process: u32,
    /// The position of the reply to this call, or of the call of this reply.
    pub mate: u32,
    pub lock: Symbol,
    /// Where the rest is, in `History::details`.
    pub details: u32,
    pub kind: Kind,
    pub f: F,
    pub mode: Mode,
}

impl PackedEvent {
    /// Whether it is the `f` of a client answered `ok`.
    pub(crate) fn is_ok(&self, f: F) -> bool {
        self.f == f && self.kind == Kind::Ok
    }

    pub(crate) fn is_call(&self, f: F) -> bool {
        self.f == f && self.kind == Kind::Invoke
    }
}

/// What some events have. Equal neighbours share one.
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

/// The indices of all events by position. Most events have the index after that of the event before, so a new run of them is
/// rare.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventIndices {
    /// The position at which each run begins, and the index there.
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

    fn get(&self, position: u32) -> u64 {
        let run = self.runs.partition_point(|(first, _)| *first <= position) - 1;
        let (first, index) = self.runs[run];
        index.wrapping_add(u64::from(position - first))
    }
}

impl History {
    /// The index of the event at a position: its line is found by it.
    pub(crate) fn index(&self, position: u32) -> u64 {
        self.indices.get(position)
    }

    fn details(&self, event: &PackedEvent) -> &EventDetails {
        self.details
            .get(event.details as usize)
            .unwrap_or(&EventDetails::NOTHING)
    }

    /// The fencing token of an event.
    pub(crate) fn token(&self, event: &PackedEvent) -> Option<u64> {
        self.details(event).token
    }

    /// The server's name for the owner that an event names.
    pub(crate) fn owner(&self, event: &PackedEvent) -> Symbol {
        self.details(event).owner
    }

    pub(crate) fn rare(&self, event: &PackedEvent) -> Rare {
        let place = self.details(event).rare;
        self.rare.get(place as usize).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_operations_are_under_a_hundred_megabytes() {
        assert!(size_of::<PackedEvent>() <= 28, "{}", size_of::<PackedEvent>());
        assert!(size_of::<EventDetails>() <= 24, "{}", size_of::<EventDetails>());
        assert!(size_of::<Rare>() <= 56, "{}", size_of::<Rare>());
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
