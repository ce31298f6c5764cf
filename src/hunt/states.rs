//! The states that the experiments of a hunt saw: their curve becomes flat when more experiments are unlikely to find more.
//!
//! A state is recorded whenever a client sends a request: the request, the client's activity, and the activities of the others.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::report::words::{many, thousands};

/// Minimum number of experiments before a hunt is saturated.
const LEAST: u64 = 100;
/// The share of the last experiments without a new state at which a hunt is saturated, in percent.
const QUIET: u64 = 30;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HuntStates {
    seen: BTreeSet<String>,
    experiments: u64,
    /// The number of experiments at the last new state.
    last_new: u64,
    /// The number of states by the number of experiments, each time that the latter has doubled.
    curve: Vec<(u64, u64)>,
}

impl HuntStates {
    /// Adds the states of one experiment.
    pub fn add(&mut self, states: &[String]) {
        let before = self.seen.len();
        for state in states {
            if !self.seen.contains(state) {
                self.seen.insert(state.clone());
            }
        }
        self.experiments += 1;
        if self.seen.len() > before {
            self.last_new = self.experiments;
        }
        if self.experiments.is_power_of_two() {
            self.curve.push((self.experiments, self.seen.len() as u64));
        }
    }

    /// Adds the states of another hunt, which did not know those of this one: its last new state counts as new here.
    pub fn merge(&mut self, other: Self) {
        self.seen.extend(other.seen);
        self.experiments += other.experiments;
        self.last_new += other.last_new;
        self.curve.clear();
    }

    /// Returns the number of states by the number of experiments, up to now.
    pub fn curve(&self) -> Vec<(u64, u64)> {
        let now = (self.experiments, self.seen.len() as u64);
        let before = self.curve.iter().copied().filter(|point| *point != now);
        before.chain([now]).collect()
    }

    /// Returns the share of the last experiments without a new state, in percent.
    fn quiet(&self) -> u64 {
        (self.experiments - self.last_new) * 100 / self.experiments.max(1)
    }

    /// Whether the last 30 % of the experiments saw no new state. Where no message can be read, nothing is known about new ones.
    pub fn is_saturated(&self) -> bool {
        !self.seen.is_empty() && self.experiments >= LEAST && self.quiet() >= QUIET
    }

    /// `3,412 states were seen, the last new one in experiment 871 of 2,000: …`; `None` if no message was read.
    pub fn in_words(&self) -> Option<String> {
        if self.seen.is_empty() {
            return None;
        }
        let (all, last) = (thousands(self.experiments), thousands(self.last_new));
        let seen = many(self.seen.len() as u64, "state");
        let mut words = format!("{seen} seen, the last new one in experiment {last} of {all}");
        if self.is_saturated() {
            words += &format!(": nothing new in the last {} %", self.quiet());
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(states: &mut HuntStates, numbers: &[u32]) {
        let named: Vec<String> = numbers.iter().map(u32::to_string).collect();
        states.add(&named);
    }

    #[test]
    fn a_hunt_is_saturated_when_the_last_third_of_its_experiments_saw_nothing_new() {
        let mut states = HuntStates::default();
        assert_eq!(states.in_words(), None);
        for number in 0..90 {
            seen(&mut states, &[number, number + 1]);
        }
        let words = states.in_words().unwrap();
        assert_eq!(words, "91 states seen, the last new one in experiment 90 of 90");
        while !states.is_saturated() {
            seen(&mut states, &[7]);
        }
        assert_eq!((states.experiments, states.quiet()), (129, 30));
        assert!(
            states
                .in_words()
                .unwrap()
                .ends_with("of 129: nothing new in the last 30 %")
        );
        seen(&mut states, &[1000]);
        assert!(!states.is_saturated());
    }

    #[test]
    fn few_experiments_are_never_saturated() {
        let mut states = HuntStates::default();
        (0..99).for_each(|_| seen(&mut states, &[1]));
        assert!(!states.is_saturated());
        seen(&mut states, &[1]);
        assert!(states.is_saturated());
    }

    #[test]
    fn a_hunt_whose_messages_cannot_be_read_is_never_saturated() {
        let mut states = HuntStates::default();
        (0..200).for_each(|_| seen(&mut states, &[]));
        assert!(!states.is_saturated());
    }

    #[test]
    fn the_curve_has_a_point_for_each_doubling_and_the_last_one() {
        let mut states = HuntStates::default();
        (0..5).for_each(|number| seen(&mut states, &[number]));
        assert_eq!(states.curve(), [(1, 1), (2, 2), (4, 4), (5, 5)]);
        let mut other = HuntStates::default();
        (3..6).for_each(|number| seen(&mut other, &[number]));
        states.merge(other);
        assert_eq!(states.curve(), [(8, 6)]);
    }
}
