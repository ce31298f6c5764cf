//! The workload of a run: the locks of its clients, and the times of holds, waits and rests.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::arrivals::Arrivals;
use crate::config::Demand;
use crate::run::churn::Turns;

/// The workload of a client.
#[derive(Debug)]
pub struct Workload {
    pub locks: Turns,
    pub hold: Duration,
    /// The longest of the rare long holds.
    pub long_hold: Duration,
    /// The longest of the rare rests.
    pub rest: Duration,
    /// The mean rest of a client between two of its turns.
    pub think: Duration,
    /// The times at which acquires are due, whether a client is free or not; `None` if a client asks again when it is done.
    pub arrivals: Option<Arrivals>,
    pub wait: Duration,
    /// The waits of half of the acquires in place of `wait`, with equal shares; if empty, all wait for `wait`.
    pub short_waits: Vec<Duration>,
    pub demand: Demand,
    /// The time of a client for any answer beyond its wait.
    pub patience: Duration,
    pub each: Option<u32>,
}

impl Workload {
    /// Draws the wait of an acquire that is no try. A short wait leaves the queue; in the recovery every client is to have its
    /// turn.
    pub fn draw_wait(&self, recovers: bool, rng: &mut ChaCha8Rng) -> Duration {
        if recovers || self.short_waits.is_empty() || rng.random_bool(0.5) {
            return self.wait;
        }
        *self.short_waits.choose(rng).expect("there are some")
    }
}
