//! A set of slots of fixed width: the live operations that have taken effect. It is as wide as the concurrency, and does not grow with the
//! history.

/// A set of numbers below `64 * W`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mask<const W: usize>([u64; W]);

impl<const W: usize> Mask<W> {
    pub(super) const EMPTY: Self = Self([0; W]);

    pub(super) fn has(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, slot: u32) {
        self.0[slot as usize / 64] |= 1 << (slot % 64);
    }

    pub(super) fn clear(&mut self, slot: u32) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    pub(super) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        other.without(self).is_empty()
    }

    pub(super) fn slots(self) -> Slots<W> {
        Slots { left: self.0, word: 0 }
    }
}

/// The numbers in a set, ascending.
pub(super) struct Slots<const W: usize> {
    left: [u64; W],
    word: usize,
}

impl<const W: usize> Iterator for Slots<W> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            let bits = self.left.get_mut(self.word)?;
            if *bits != 0 {
                let slot = bits.trailing_zeros();
                *bits &= *bits - 1;
                return Some(self.word as u32 * 64 + slot);
            }
            self.word += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_a_set() {
        let mut mask = Mask::<2>::EMPTY;
        for slot in [0, 63, 64, 127] {
            mask.set(slot);
        }
        assert_eq!(mask.slots().collect::<Vec<_>>(), [0, 63, 64, 127]);
        let mut fewer = mask;
        fewer.clear(64);
        assert!(mask.contains(&fewer) && !fewer.contains(&mask));
        assert!(!fewer.has(64) && fewer.has(127));
        assert_eq!(mask.without(&fewer).slots().collect::<Vec<_>>(), [64]);
    }
}
