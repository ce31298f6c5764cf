//! The result of one experiment of a hunt.

use super::draw::HuntDraw;
use crate::evidence::SentUnderFaults;
use crate::report::Diagnosis;

/// The result of one experiment.
#[derive(Debug, Clone, Default)]
pub struct ExperimentResult {
    /// The number of the experiment, from 0.
    pub index: u64,
    /// The faults as typed.
    pub faults: Vec<String>,
    pub came_to: ExperimentOutcome,
    /// The time since the start of the hunt, without the time between an interruption and its continuation.
    pub at_ms: u64,
    pub took_ms: u64,
    pub sent: SentUnderFaults,
}

#[derive(Debug, Clone, Default)]
pub enum ExperimentOutcome {
    /// The experiment has a diagnosis; with its run's folder.
    Decided(Box<Diagnosis>, String),
    /// The experiment could not be made or completed, for this reason.
    Failed(String),
    /// The experiment was stopped before its diagnosis.
    #[default]
    Stopped,
}

impl ExperimentResult {
    /// Returns the result of an experiment without an outcome so far.
    pub fn of(index: u64, draw: &HuntDraw, at_ms: u64) -> Self {
        Self {
            index,
            faults: draw.faults().map(str::to_owned).collect(),
            at_ms,
            ..Self::default()
        }
    }
}
