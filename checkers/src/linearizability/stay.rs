//! One value of a queue or a stack, from its addition to its removal.

/// One value from its addition to its removal.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stay {
    pub added: (u64, u64),
    pub taken: (u64, u64),
    /// The places of both operations; the second is `NEVER` where it was not taken.
    pub places: (usize, usize),
}

pub(super) const NEVER: usize = usize::MAX;
pub(super) const FOREVER: (u64, u64) = (u64::MAX, u64::MAX);

impl Stay {
    /// Whether it is certainly inside for a while: between the answer of its addition and the call of its removal.
    pub(super) fn is_certain(&self) -> bool {
        self.added.1 < self.taken.0
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> {
        [self.places.0, self.places.1]
            .into_iter()
            .filter(|place| *place != NEVER)
    }
}
