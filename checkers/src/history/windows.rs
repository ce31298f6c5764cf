//! Windows and phases of a run, and servers that ended by themselves, by the lines of the nemesis.

use serde::{Deserialize, Serialize};

use super::nemesis::{Nemesis, NemesisFact, ServerEnd};
use super::phase_fact::{PhaseFact, TapTotals};
use super::window::Window;
use super::{History, PackedEvent};
use crate::limits;

/// The last phase: a history with phases and without this one is partial.
const END: &str = "end";

/// The beginning of a phase of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseStart {
    /// `control`, `warm-up`, `faults`, `recovery`, `violation` or `end`.
    pub name: String,
    /// The time of its beginning, in nanoseconds of the history.
    pub start_ns: u64,
}

impl PhaseStart {
    /// Returns whether all faults are healed by plan from here on.
    pub fn is_recovery(&self) -> bool {
        self.name == "recovery"
    }
}

impl History {
    /// Returns all lines of the nemesis.
    pub fn nemesis(&self) -> &[Nemesis] {
        &self.nemesis
    }

    /// Returns the counts of the taps at the end of the run.
    pub(crate) fn tap_totals(&self) -> impl Iterator<Item = &TapTotals> {
        self.nemesis.iter().filter_map(|line| match &line.fact {
            NemesisFact::Phase(PhaseFact::End { wire, .. }) => wire.as_ref(),
            _ => None,
        })
    }

    /// Returns the fault windows, by start.
    pub fn windows(&self) -> Vec<Window> {
        self.windows.clone()
    }

    /// Returns whether a fault was on during the call of this answer, or so shortly before it (less than a lease) that effects of the fault,
    /// such as a new connection, may have met the call.
    pub(crate) fn was_disturbed(&self, answer: PackedEvent) -> bool {
        let lease_ns = limits::ns(self.header.lease_ms.unwrap_or(limits::LEASE_MS));
        // most histories of try-locks have no windows, and the call is looked up only for one
        let near_ns = || self.events.time(answer.mate).saturating_sub(lease_ns);
        let mut windows = self.windows.iter();
        windows.any(|window| window.may_touch(near_ns(), answer.time))
    }

    /// Returns whether a fault was on, or being injected, at a time.
    pub(crate) fn is_under_fault(&self, ns: u64) -> bool {
        self.windows.iter().any(|window| window.may_touch(ns, ns))
    }

    /// Returns the servers that ended by themselves, each with the time in nanoseconds at which that was seen.
    pub fn server_ends(&self) -> Vec<(u64, ServerEnd)> {
        let ends = self.nemesis().iter().filter_map(|line| match &line.fact {
            NemesisFact::ServerEnded(end) => Some((line.time_ns, end.clone())),
            _ => None,
        });
        ends.collect()
    }

    /// Returns the phases of the run, in order.
    pub fn phases(&self) -> Vec<PhaseStart> {
        let begun = self.nemesis().iter().filter_map(|line| match &line.fact {
            NemesisFact::Phase(phase) => Some(PhaseStart {
                name: phase.name().to_owned(),
                start_ns: line.time_ns,
            }),
            _ => None,
        });
        begun.collect()
    }

    /// Marks a history with phases and without an end as partial.
    pub(super) fn see_phases(&mut self) {
        let phases = self.phases();
        if !phases.is_empty() && phases.iter().all(|phase| phase.name != END) {
            self.partial
                .get_or_insert_with(|| "the run was stopped before its end".to_owned());
        }
    }
}
