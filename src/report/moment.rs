//! A moment of a history: a time and the index of its event.

/// The time of an event, and its `index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub ns: u64,
    pub index: u64,
}
