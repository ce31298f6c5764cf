//! Messages that taps counted.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(doc)]
use super::label::LabelScheme;

/// Messages, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TapCounts {
    pub requests: u64,
    pub replies: u64,
    pub notifications: u64,
    /// Requests that a client repeated, byte for byte, while its label says that it retries ([`LabelScheme::retrying`]).
    pub retries: u64,
}

impl TapCounts {
    /// Returns them in the order of a history: requests, replies, notifications, retries.
    pub fn columns(self) -> [u64; 4] {
        [self.requests, self.replies, self.notifications, self.retries]
    }
}

/// The same counts, written by many at once.
#[derive(Debug, Default)]
pub(super) struct MessageCounters {
    pub requests: AtomicU64,
    pub replies: AtomicU64,
    pub notifications: AtomicU64,
    pub retries: AtomicU64,
}

impl MessageCounters {
    pub fn read(&self) -> TapCounts {
        TapCounts {
            requests: self.requests.load(Relaxed),
            replies: self.replies.load(Relaxed),
            notifications: self.notifications.load(Relaxed),
            retries: self.retries.load(Relaxed),
        }
    }
}

/// Names that are counted: more than any protocol has, and a bound on what a strange client can fill.
const NAMED: usize = 512;

/// Counts by key. A run has a few kinds of messages, most of them again and again: frequent keys are at the front.
#[derive(Debug, Clone)]
pub(super) struct Tally<K, C>(pub Vec<(K, C)>);

impl<K, C> Default for Tally<K, C> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: PartialEq, C: Default> Tally<K, C> {
    /// Returns the count of a key, unless there are too many others.
    pub fn of(&mut self, counted: K) -> Option<&mut C> {
        let place = match self.0.iter().position(|(other, _)| *other == counted) {
            Some(0) => 0,
            Some(place) => {
                self.0.swap(place, place - 1);
                place - 1
            }
            None if self.0.len() < NAMED => {
                self.0.push((counted, C::default()));
                self.0.len() - 1
            }
            None => return None,
        };
        Some(&mut self.0[place].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_a_count_and_what_comes_again_comes_to_the_front() {
        let mut tally: Tally<u32, u64> = Tally::default();
        for counted in [1, 2, 3, 3, 3, 2] {
            *tally.of(counted).unwrap() += 1;
        }
        assert_eq!(tally.0, [(3, 3), (2, 2), (1, 1)]);
        (4..).take(NAMED - 3).for_each(|counted| _ = tally.of(counted));
        assert!(tally.of(1).is_some() && tally.of(u32::MAX).is_none());
    }
}
