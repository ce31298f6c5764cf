//! The workload of a run: what its clients do with which locks, and for how long.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::arrivals::Arrivals;
use crate::config::Demand;
use crate::run::churn::Turns;

/// What a client does.
#[derive(Debug)]
pub struct Workload {
    pub locks: Turns,
    pub hold: Duration,
    /// The longest hold that comes once in a while.
    pub long_hold: Duration,
    /// The longest rest that comes once in a while.
    pub rest: Duration,
    /// About how long a client rests between two of its turns.
    pub think: Duration,
    /// When acquires are due, whether a client is free or not; none: a client asks again when it is done.
    pub arrivals: Option<Arrivals>,
    pub wait: Duration,
    /// What half of the acquires wait for in place of `wait`, each as often as the others; none: all wait for `wait`.
    pub short_waits: Vec<Duration>,
    pub demand: Demand,
    /// How long a client may take for any answer beyond the wait it was given.
    pub patience: Duration,
    pub each: Option<u32>,
}

impl Workload {
    /// How long an acquire waits that is no try. A wait that ends is a way out of the queue; in the recovery every client is to have
    /// its turn.
    pub fn draw_wait(&self, recovers: bool, rng: &mut ChaCha8Rng) -> Duration {
        if recovers || self.short_waits.is_empty() || rng.random_bool(0.5) {
            return self.wait;
        }
        *self.short_waits.choose(rng).expect("there are some")
    }
}
