//! Churn: in each turn half of the locks are in use, and the other half drains; the leftovers of an empty lock on the servers are
//! removed, so that clients create it again at the same time when it is in use.
//!
//! The leftovers depend on the backend: see [`LockSweeper`].

use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::{ChurnFact, NemesisFact};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::clock::RunClock;
use crate::backends::{ConnectSweeper, LockSweeper};
use crate::cluster::EndpointsReceiver;
use crate::run::context::RunContext;

/// The number of sweeps of the locks out of use, in each turn.
const LOOKS: u32 = 4;

/// The locks in use over time.
#[derive(Debug, Clone)]
pub struct Turns {
    locks: Vec<String>,
    /// The share of each of the locks in use, plus those of all before it; empty if all have the same.
    shares: Vec<f64>,
    clock: RunClock,
    since: Duration,
    /// The length of a turn; `None` if all locks are always in use.
    length: Option<Duration>,
}

impl Turns {
    /// Begins with the first turn. The k-th of the locks in use is drawn in proportion to 1/k^`skew`.
    pub fn new(locks: Vec<String>, length: Option<Duration>, skew: f64, clock: RunClock) -> Self {
        let mut turns = Self {
            locks,
            shares: Vec::new(),
            clock,
            since: clock.now(),
            length,
        };
        if skew > 0.0 {
            let shares = (1..=turns.in_use().1).scan(0.0, |sum, rank| {
                *sum += (rank as f64).powf(-skew);
                Some(*sum)
            });
            turns.shares = shares.collect();
        }
        turns
    }

    /// Draws one of the locks in use.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> &str {
        let (first, count) = self.in_use();
        let rank = match self.shares.last() {
            None => rng.random_range(0..count),
            Some(sum) => {
                let drawn = rng.random_range(0.0..*sum);
                self.shares.partition_point(|share| *share <= drawn).min(count - 1)
            }
        };
        &self.locks[(first + rank) % self.locks.len()]
    }

    /// Returns the locks out of use.
    fn out_of_use(&self) -> impl Iterator<Item = &str> {
        let (first, count) = self.in_use();
        let all = self.locks.len();
        (count..all).map(move |offset| self.locks[(first + offset) % all].as_str())
    }

    /// Returns the first lock in use, and the number of them, counted round.
    fn in_use(&self) -> (usize, usize) {
        let Some(length) = self.length else {
            return (0, self.locks.len());
        };
        let turn = (self.clock.now() - self.since).as_nanos() / length.as_nanos();
        let first = (turn % self.locks.len() as u128) as usize;
        (first, self.locks.len().div_ceil(2))
    }
}

/// Removes the leftovers of locks out of use, until it is dropped; connects again after a failure.
pub async fn sweep(turns: Turns, endpoints: EndpointsReceiver, connect: ConnectSweeper, run: Arc<RunContext>) {
    let Some(length) = turns.length else { return };
    let turn_ms = length.as_millis() as u64;
    let begin = NemesisFact::Churn(ChurnFact::Begin { turn_ms });
    run.recorder.nemesis(&begin);
    let mut connected = None;
    let mut due = run.clock.now();
    loop {
        run.clock.sleep_until(due).await;
        due = run.clock.now() + length / LOOKS;
        let sweeper = match connected.take() {
            Some(sweeper) => sweeper,
            None => match connect(endpoints.clone()).await {
                Ok(sweeper) => sweeper,
                Err(_) => continue,
            },
        };
        if remove_all(&sweeper, &turns, &run).await.is_ok() {
            connected = Some(sweeper);
        }
    }
}

async fn remove_all(sweeper: &LockSweeper, turns: &Turns, run: &RunContext) -> Result<(), String> {
    for lock in turns.out_of_use() {
        let stored = run.spec.config.attach.stored(lock);
        if sweeper.remove(&stored).await? {
            let lock = lock.to_owned();
            let removed = NemesisFact::Churn(ChurnFact::Removed { lock });
            run.recorder.nemesis(&removed);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;
    use crate::clock::GroundClock;

    fn locks(count: u32) -> Vec<String> {
        (0..count).map(|number| format!("l{number}")).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_lock_is_in_use_and_out_of_use_by_turns() {
        let (turn, clock) = (Duration::from_secs(1), RunClock::start(GroundClock::Real));
        let turns = Turns::new(locks(4), Some(turn), 0.0, clock);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut rested = BTreeSet::new();
        for _ in 0..4 {
            let out: BTreeSet<String> = turns.out_of_use().map(str::to_owned).collect();
            assert_eq!(out.len(), 2);
            let drawn: BTreeSet<String> = (0..50).map(|_| turns.draw(&mut rng).to_owned()).collect();
            assert_eq!(drawn.len(), 2);
            assert!(drawn.is_disjoint(&out), "{drawn:?} {out:?}");
            rested.extend(out);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(rested.len(), 4);
    }

    #[test]
    fn some_locks_are_asked_for_more_often_where_a_skew_is_given() {
        let drawn = |skew: f64, turn: Option<Duration>| {
            let turns = Turns::new(locks(4), turn, skew, RunClock::start(GroundClock::Real));
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let mut times = [0; 4];
            for _ in 0..2_500 {
                let lock: usize = turns.draw(&mut rng)[1..].parse().unwrap();
                times[lock] += 1;
            }
            times
        };
        // 1, 1/2, 1/3 and 1/4 of the first
        let [first, second, third, fourth] = drawn(1.0, None);
        assert!((1_140..1_260).contains(&first), "{first}");
        assert!((540..660).contains(&second), "{second}");
        assert!((350..450).contains(&third), "{third}");
        assert!((250..350).contains(&fourth), "{fourth}");
        assert!(drawn(0.0, None).iter().all(|times| (550..700).contains(times)));
        assert_eq!(drawn(1.0, Some(Duration::from_secs(3_600)))[2..], [0, 0]);
    }
}
