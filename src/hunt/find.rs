//! The finds of a hunt, by their cause.

use harness_checkers::{Property, Violation};
use serde::{Deserialize, Serialize};

use crate::report::Diagnosis;
use crate::report::words::quoted_words;

/// A cause: a property and the class of its violation. The first run that showed it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HuntFind {
    pub property: Property,
    pub class: String,
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<String>,
    /// Experiments that showed it.
    pub count: u64,
    /// The experiment that showed it first, from 0.
    pub experiment: u64,
    /// The time of that experiment, from the start of the hunt.
    pub at_ms: u64,
    pub fault: String,
    /// The folder of that run, from the folder of the record.
    pub run: String,
    /// The command that repeats its plan.
    pub again: Vec<String>,
}

impl HuntFind {
    /// Whether this find ends a hunt for one find. A herd costs time and breaks nothing, occurs in nearly every
    /// experiment of a lock that has it, and would end the search for violations of exclusion or progress.
    pub fn ends_hunt(&self) -> bool {
        self.property != Property::Hl004
    }

    /// Returns the faults of the experiment that showed it first, as typed.
    pub fn under(&self) -> &str {
        if self.fault.is_empty() { "no fault" } else { &self.fault }
    }

    /// Returns the command that repeats its plan, for a shell.
    pub fn command(&self) -> String {
        quoted_words(&self.again).join(" ")
    }

    /// `HL005 ghost`
    pub fn name(&self) -> String {
        cause_name(self.property, &self.class)
    }

    /// Whether this is its cause.
    pub fn is_of(&self, property: Property, class: &str) -> bool {
        self.property == property && self.class == class
    }

    /// Adds another find of the same cause. The earlier one is kept.
    pub fn count_also(&mut self, other: Self) {
        let count = self.count + other.count;
        if other.at_ms < self.at_ms {
            *self = other;
        }
        self.count = count;
    }
}

/// `HL005 ghost`
pub fn cause_name(property: Property, class: &str) -> String {
    format!("{} {class}", property.id())
}

/// Returns the violations that follow from no other, the first of each property and class.
pub fn causes(diagnosis: &Diagnosis) -> Vec<(Property, &Violation)> {
    let mut causes: Vec<(Property, &Violation)> = Vec::new();
    for finding in &diagnosis.findings {
        let violations = finding.violations.iter();
        for root in violations.filter(|violation| violation.follows.is_none()) {
            let is_it =
                |(property, known): &(Property, &Violation)| *property == finding.property && known.class == root.class;
            if !causes.iter().any(is_it) {
                causes.push((finding.property, root));
            }
        }
    }
    causes
}
