//! Rare events of a client: a hold so long that the lock is renewed in it, a rest. Short holds never reach a renewal, and clients
//! that ask again at once hide every lost wake-up.

use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// An event about once in a given time, at drawn moments.
#[derive(Debug)]
pub struct Rarely {
    /// The mean time between two events; `None` for none.
    every: Option<Duration>,
    next: Duration,
}

impl Rarely {
    /// Draws the first event from the first of these times, so that short runs have some.
    pub fn new(every: Option<Duration>, rng: &mut ChaCha8Rng) -> Self {
        let every = every.filter(|every| !every.is_zero());
        let next = every.unwrap_or_default().mul_f64(rng.random_range(0.1..1.0));
        Self { every, next }
    }

    /// Whether it is due at `now`, by the clock of the run; if so, the next one is drawn.
    pub fn is_due(&mut self, now: Duration, rng: &mut ChaCha8Rng) -> bool {
        let Some(every) = self.every.filter(|_| now >= self.next) else {
            return false;
        };
        self.next = now + every.mul_f64(rng.random_range(0.5..1.5));
        true
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn it_comes_about_once_in_its_time_and_never_without_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let minute = Duration::from_secs(60);
        let mut rarely = Rarely::new(Some(minute), &mut rng);
        let due = (0..6000).filter(|second| rarely.is_due(Duration::from_secs(*second), &mut rng));
        assert!((80..=120).contains(&due.count()));
        for never in [None, Some(Duration::ZERO)] {
            let mut rarely = Rarely::new(never, &mut rng);
            assert!(!rarely.is_due(minute * 100, &mut rng));
        }
    }
}
