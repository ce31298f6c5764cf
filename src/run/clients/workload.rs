//! The workload of a run: what its clients do with which locks, and for how long.

use std::time::Duration;

use crate::config::Demand;
use crate::run::churn::Turns;

/// What a client does.
#[derive(Debug, Clone)]
pub struct Workload {
    pub locks: Turns,
    pub hold: Duration,
    /// The longest hold that comes once in a while.
    pub long_hold: Duration,
    /// The longest rest that comes once in a while.
    pub rest: Duration,
    pub wait: Duration,
    pub demand: Demand,
    /// How long a client may take for any answer beyond the wait it was given.
    pub patience: Duration,
    pub each: Option<u32>,
}
