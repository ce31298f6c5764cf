//! A moment of a history.

/// When something happened, and the `index` of the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub ns: u64,
    pub index: u64,
}
