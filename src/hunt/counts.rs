//! The counts of a hunt: experiments by their outcome, and the windows of each fault.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::report::diagnosis::Outcome;

/// Numbers of experiments by their outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HuntCounts {
    pub experiments: u64,
    /// Experiments without a violation in which the faults had an effect.
    pub held: u64,
    pub violated: u64,
    /// Experiments without a violation that prove nothing.
    pub unsure: u64,
    /// Experiments that could not be made or completed.
    pub failed: u64,
}

impl HuntCounts {
    /// Returns the outcomes in words, each with its number.
    pub fn by_outcome(self) -> [(&'static str, u64); 4] {
        [
            ("held", self.held),
            ("violated", self.violated),
            ("unsure", self.unsure),
            ("failed", self.failed),
        ]
    }

    /// Returns the number of experiments that ended with a history.
    pub fn completed(self) -> u64 {
        self.held + self.violated + self.unsure
    }

    /// Adds an experiment with this outcome.
    pub fn add(&mut self, outcome: Outcome) {
        self.experiments += 1;
        let count = match outcome {
            Outcome::Pass => &mut self.held,
            Outcome::Fail => &mut self.violated,
            Outcome::Unsure => &mut self.unsure,
            Outcome::Error => &mut self.failed,
        };
        *count += 1;
    }
}

impl AddAssign for HuntCounts {
    fn add_assign(&mut self, other: Self) {
        self.experiments += other.experiments;
        self.held += other.held;
        self.violated += other.violated;
        self.unsure += other.unsure;
        self.failed += other.failed;
    }
}

/// The effect of one fault in all experiments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCount {
    pub windows: u32,
    /// Windows with an effect.
    pub with_effect: u32,
}

impl AddAssign for FaultCount {
    fn add_assign(&mut self, other: Self) {
        self.windows += other.windows;
        self.with_effect += other.with_effect;
    }
}
