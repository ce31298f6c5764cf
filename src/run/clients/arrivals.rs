//! Arrivals of acquires at a rate, whether a client is free or not: an open loop. If each client asks again when it is done, a
//! lock that stalls for ten seconds has one acquire in that time, and its latencies hardly show the stall ([coordinated
//! omission](https://www.scylladb.com/2021/04/22/on-coordinated-omission/)).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The moments of a Poisson process, one after the other, on the clock of the run.
#[derive(Debug)]
pub struct Arrivals {
    /// Arrivals a second, after the ramp.
    rate: f64,
    /// Seconds over which the rate rises in proportion to time.
    ramp: f64,
    since: Duration,
    drawn: Mutex<Drawn>,
}

#[derive(Debug)]
struct Drawn {
    /// The expected number of arrivals until the last one that was taken.
    expected: f64,
    rng: ChaCha8Rng,
}

impl Arrivals {
    pub fn new(rate: f64, ramp: Duration, since: Duration, seed: u64) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(seed);
        Self {
            rate,
            ramp: ramp.as_secs_f64(),
            since,
            drawn: Mutex::new(Drawn { expected: 0.0, rng }),
        }
    }

    /// Takes the next acquire, and returns the time at which it is due.
    pub fn take(&self) -> Duration {
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        // the distance of two arrivals at a rate of one
        drawn.expected -= (1.0 - drawn.rng.random_range(0.0..1.0_f64)).ln();
        self.since + Duration::from_secs_f64(self.seconds(drawn.expected))
    }

    /// Returns the time in which this number of arrivals is expected.
    fn seconds(&self, expected: f64) -> f64 {
        let in_ramp = self.rate * self.ramp / 2.0;
        if expected < in_ramp {
            return (2.0 * self.ramp * expected / self.rate).sqrt();
        }
        self.ramp + (expected - in_ramp) / self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(rate: f64, ramp: u64, count: usize) -> Vec<f64> {
        let since = Duration::from_secs(100);
        let arrivals = Arrivals::new(rate, Duration::from_secs(ramp), since, 7);
        let taken = (0..count).map(|_| (arrivals.take() - since).as_secs_f64());
        taken.collect()
    }

    #[test]
    fn moments_come_at_the_rate_and_are_spread_as_by_chance() {
        let at = seconds(50.0, 0, 10_000);
        assert!(at.is_sorted());
        let gaps: Vec<f64> = at.windows(2).map(|two| two[1] - two[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((0.0194..0.0206).contains(&mean), "{mean}");
        // of a Poisson process, the deviation of the gaps is their mean, and 1 - 1/e of them are shorter than it
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&(variance.sqrt() / mean)), "{variance}");
        let shorter = gaps.iter().filter(|gap| **gap < mean).count();
        assert!((6_200..6_450).contains(&shorter), "{shorter}");
    }

    #[test]
    fn a_rate_rises_from_nothing_over_the_ramp() {
        let at = seconds(100.0, 40, 5_000);
        let within = |from: f64, to: f64| at.iter().filter(|at| (from..to).contains(*at)).count();
        // a quarter of the ramp's 2,000 arrivals in its first half
        assert!((430..570).contains(&within(0.0, 20.0)), "{}", within(0.0, 20.0));
        assert!((1_390..1_610).contains(&within(20.0, 40.0)), "{}", within(20.0, 40.0));
        assert!((940..1_060).contains(&within(40.0, 50.0)), "{}", within(40.0, 50.0));
    }
}
