//! Names with numbers: locks, owners, causes. One arena of text, and numbers instead of strings everywhere else.
//!
//! A history of a million acquires on Redis has a million owners, so a name costs its bytes and twelve more.

use std::hash::{BuildHasherDefault, Hasher};

/// The number of a name in its [`Names`].
pub(crate) type Symbol = u32;
/// The absent value of every 32-bit number here: no name, no event, no process.
pub(crate) const NONE: u32 = u32::MAX;

/// A multiply-rotate hasher for small keys, as `FxHasher` of the Rust compiler (<https://docs.rs/rustc-hash/1>). Histories are large, and
/// no attack on a hash table.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FastHasher(u64);

const SEED: u64 = 0x517c_c1b7_2722_0a95;

impl FastHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(SEED);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.add(u64::from_le_bytes(chunk.try_into().expect("a chunk has eight bytes")));
        }
        let mut tail = [0; 8];
        tail[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.add(u64::from_le_bytes(tail) ^ ((bytes.len() as u64) << 56));
    }

    fn write_u8(&mut self, value: u8) {
        self.add(value.into());
    }

    fn write_u32(&mut self, value: u32) {
        self.add(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.add(value);
    }

    fn write_usize(&mut self, value: usize) {
        self.add(value as u64);
    }

    fn finish(&self) -> u64 {
        // The low bits choose the slot, and multiplication mixes upwards only.
        self.0 ^ (self.0 >> 32)
    }
}

/// A hash map that is fast on numbers.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<FastHasher>>;
/// A hash set that is fast on numbers.
pub(crate) type FastSet<K> = std::collections::HashSet<K, BuildHasherDefault<FastHasher>>;

/// The largest process number with a place in the table.
const SMALL_NUMBER: u32 = 1 << 16;

/// Dense numbers of processes by their numbers in the file. Most of these are small, and one is looked up for each event.
#[derive(Debug, Clone, Default)]
pub(crate) struct DenseNumbers {
    small: Vec<u32>,
    large: FastMap<u32, u32>,
}

impl DenseNumbers {
    /// Returns the dense number, if there is one.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<u32> {
        match self.small.get(number as usize) {
            Some(dense) => Some(*dense).filter(|dense| *dense != NONE),
            None => self.large.get(&number).copied(),
        }
    }

    /// Adds the dense number of a process that has none.
    pub(crate) fn insert(&mut self, number: u32, dense: u32) {
        if number >= SMALL_NUMBER {
            self.large.insert(number, dense);
            return;
        }
        if self.small.len() <= number as usize {
            self.small.resize((number as usize + 1).next_power_of_two(), NONE);
        }
        self.small[number as usize] = dense;
    }

    pub(crate) fn clear(&mut self) {
        self.small.fill(NONE);
        self.large.clear();
    }
}

/// Names in the order in which they were first seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    text: String,
    ends: Vec<usize>,
    /// Open addressing, a power of two in size, at most half full; `NONE` is an empty slot.
    slots: Vec<Symbol>,
}

impl Names {
    pub(crate) fn get(&self, symbol: Symbol) -> &str {
        let at = symbol as usize;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start..self.ends[at]]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Removes all names and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.slots.fill(NONE);
    }

    /// Returns the name's number, which is a new one for a new name.
    pub(crate) fn intern(&mut self, name: &str) -> Symbol {
        if self.ends.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let slot = self.slot_of(name);
        if self.slots[slot] == NONE {
            let symbol = Symbol::try_from(self.ends.len()).expect("fewer than 2^32 names");
            self.text.push_str(name);
            self.ends.push(self.text.len());
            self.slots[slot] = symbol;
        }
        self.slots[slot]
    }

    fn slot_of(&self, name: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = hash(name) & mask;
        while self.slots[slot] != NONE && self.get(self.slots[slot]) != name {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![NONE; (self.slots.len() * 2).max(16)];
        for symbol in 0..self.ends.len() {
            let slot = self.slot_of(self.get(symbol as Symbol));
            self.slots[slot] = symbol as Symbol;
        }
    }
}

fn hash(name: &str) -> usize {
    let mut hasher = FastHasher::default();
    hasher.write(name.as_bytes());
    hasher.finish() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number_through_growth() {
        let mut names = Names::default();
        let numbers: Vec<Symbol> = (0..1000).map(|n| names.intern(&format!("owner-{n}"))).collect();
        for (n, symbol) in numbers.iter().enumerate() {
            let name = format!("owner-{n}");
            assert_eq!(names.get(*symbol), name);
            assert_eq!(names.intern(&name), *symbol);
        }
        assert_eq!(names.intern("owner-1000"), 1000);
    }

    #[test]
    fn the_empty_name_is_a_name() {
        let mut names = Names::default();
        let symbol = names.intern("");
        assert_eq!(names.intern(""), symbol);
        assert_eq!(names.get(symbol), "");
    }
}
