//! Failed configurations of a search: no legal order continues them.

use super::mask::Mask;
use crate::history::names::FastMap;
use std::hash::Hash;

type ConfigurationKey<T, const W: usize> = (u32, T, Mask<W>);

/// The capacity for failed configurations once there is one.
const FIRST_ROOM: usize = 28;

/// Failed configurations: for each place, state and set of live operations, the smallest sets of spent crashed ones.
pub(super) struct FailedConfigurations<T, const W: usize> {
    map: FastMap<ConfigurationKey<T, W>, Spent<W>>,
    extra: usize,
}

/// One set in place; more only if crashed operations differ.
struct Spent<const W: usize> {
    first: Mask<W>,
    more: Vec<Mask<W>>,
}

impl<T, const W: usize> Default for FailedConfigurations<T, W> {
    fn default() -> Self {
        Self {
            map: FastMap::default(),
            extra: 0,
        }
    }
}

impl<T: Clone + Eq + Hash, const W: usize> FailedConfigurations<T, W> {
    /// Returns whether a configuration that had spent no more of the crashed operations has failed already.
    pub(super) fn covers(&self, at: u32, state: &T, live: Mask<W>, spent: Mask<W>) -> bool {
        let found = self.map.get(&(at, state.clone(), live));
        found.is_some_and(|known| spent.contains(&known.first) || known.more.iter().any(|less| spent.contains(less)))
    }

    pub(super) fn insert(&mut self, at: u32, state: T, live: Mask<W>, spent: Mask<W>) {
        use std::collections::hash_map::Entry;
        if self.map.capacity() == 0 {
            self.map.reserve(FIRST_ROOM);
        }
        match self.map.entry((at, state, live)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Spent {
                    first: spent,
                    more: Vec::new(),
                });
            }
            Entry::Occupied(mut occupied) => {
                let known = occupied.get_mut();
                if known.first.contains(&spent) {
                    known.first = spent;
                } else {
                    known.more.retain(|more| !more.contains(&spent));
                    known.more.push(spent);
                    self.extra += 1;
                }
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.map.capacity() * size_of::<(ConfigurationKey<T, W>, Spent<W>)>() + self.extra * size_of::<Mask<W>>()
    }

    /// Removes all configurations if they need more than so many bytes: that costs time, never a verdict.
    pub(super) fn keep_within(&mut self, bytes: usize) {
        if self.bytes() > bytes {
            self.map = FastMap::default();
            self.extra = 0;
        }
    }
}
