//! The exit code of the process: one enum, one order of precedence.

use serde::Serialize;

/// The exit codes in the order of precedence, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// A property is violated.
    Violated,
    /// A bug in harness itself.
    Bug,
    /// The environment is wrong: servers or clients did not start, the disk is full.
    Environment,
    /// Ctrl-C.
    Interrupted,
    /// A repeated run differs from its original.
    Different,
    /// Bad arguments or configuration.
    Usage,
    /// Nothing is violated, and nothing is proved.
    Inconclusive,
    /// Every property that applies holds.
    Holds,
}

impl Exit {
    pub const ALL: [Self; 8] = [
        Self::Holds,
        Self::Violated,
        Self::Usage,
        Self::Inconclusive,
        Self::Environment,
        Self::Different,
        Self::Bug,
        Self::Interrupted,
    ];

    pub fn code(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Violated => 1,
            Self::Usage => 2,
            Self::Inconclusive => 3,
            Self::Environment => 4,
            Self::Different => 5,
            Self::Bug => 70,
            Self::Interrupted => 130,
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Holds => "every property that applies holds, and the faults had an effect",
            Self::Violated => "a property is violated",
            Self::Usage => "bad arguments or configuration",
            Self::Inconclusive => "inconclusive: no violation, and no proof",
            Self::Environment => "the environment: servers or clients did not start",
            Self::Different => "the repeated run has a different history",
            Self::Bug => "a bug in harness",
            Self::Interrupted => "interrupted",
        }
    }

    /// Returns the stronger of two codes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_outranks_everything_and_holding_yields_to_everything() {
        for other in Exit::ALL {
            assert_eq!(Exit::Violated.and(other), Exit::Violated);
            assert_eq!(Exit::Holds.and(other), other);
        }
        assert_eq!(Exit::Interrupted.and(Exit::Environment), Exit::Environment);
        assert_eq!(Exit::Interrupted.and(Exit::Inconclusive), Exit::Interrupted);
    }
}
