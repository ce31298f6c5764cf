//! Churn: locks come and go. In each turn half of the locks are in use and the other half drain; what remains of an empty
//! lock on the servers is removed meanwhile, so that clients that come back to it create it again, all at once.
//!
//! What remains is the backend's matter: see [`LockSweeper`].

use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::{ChurnFact, NemesisFact};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::clock::RunClock;
use crate::backends::{Connect, LockSweeper};
use crate::cluster::EndpointsReceiver;
use crate::run::context::RunContext;

/// Looks at the locks out of use, in each turn.
const LOOKS: u32 = 4;

/// Which locks are in use, and when.
#[derive(Debug, Clone)]
pub struct Turns {
    locks: Vec<String>,
    clock: RunClock,
    since: Duration,
    /// `None`: all of them, always.
    length: Option<Duration>,
}

impl Turns {
    pub fn new(locks: Vec<String>, length: Option<Duration>, clock: RunClock) -> Self {
        Self {
            locks,
            clock,
            since: clock.now(),
            length,
        }
    }

    /// One of the locks in use.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> &str {
        let (first, count) = self.in_use();
        let drawn = first + rng.random_range(0..count);
        &self.locks[drawn % self.locks.len()]
    }

    /// The locks that no client asks for now.
    fn out_of_use(&self) -> impl Iterator<Item = &str> {
        let (first, count) = self.in_use();
        let all = self.locks.len();
        (count..all).map(move |offset| self.locks[(first + offset) % all].as_str())
    }

    /// The first lock in use, and how many are from there on, round and round.
    fn in_use(&self) -> (usize, usize) {
        let Some(length) = self.length else {
            return (0, self.locks.len());
        };
        let turn = (self.clock.now() - self.since).as_nanos() / length.as_nanos();
        let first = (turn % self.locks.len() as u128) as usize;
        (first, self.locks.len().div_ceil(2))
    }
}

/// Removes what remains of locks out of use, until it is dropped; a connection that fails is made again.
pub async fn sweep(
    turns: Turns,
    endpoints: EndpointsReceiver,
    connect: Connect<dyn LockSweeper>,
    run: Arc<RunContext>,
) {
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
        if remove_all(&*sweeper, &turns, &run).await.is_ok() {
            connected = Some(sweeper);
        }
    }
}

async fn remove_all(sweeper: &dyn LockSweeper, turns: &Turns, run: &RunContext) -> Result<(), String> {
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
        let turns = Turns::new(
            locks(4),
            Some(Duration::from_secs(1)),
            RunClock::start(GroundClock::Real),
        );
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
    fn without_turns_every_lock_is_in_use() {
        let turns = Turns::new(locks(3), None, RunClock::start(GroundClock::Real));
        assert_eq!(turns.out_of_use().count(), 0);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let drawn: BTreeSet<&str> = (0..50).map(|_| turns.draw(&mut rng)).collect();
        assert_eq!(drawn.len(), 3);
    }
}
