//! Rests of a client: until its next acquire is due, between two of its turns, after a hold.

use std::time::Duration;

use rand::RngExt;

use super::driver::ClientDriver;

/// The longest rest after a long hold, as a share of the holds' length.
const REST: f64 = 0.2;
/// The longest rest after any hold of the recovery, in which every client is to have its turn.
const REST_IN_RECOVERY: f64 = 2.0;

impl ClientDriver {
    /// Waits for the next acquire that is due at the rate of the load. Returns its delay if no client was free in time, or
    /// `None` if it is not to be made. The recovery, in which each client is to have its turn, has no rate.
    pub(super) async fn is_due(&self) -> Option<Option<Duration>> {
        let Some(arrivals) = self.arrivals.as_ref().filter(|_| !self.run.recovery.is_on()) else {
            return Some(None);
        };
        let due = arrivals.take();
        let now = self.run.clock.now();
        if due <= now {
            return Some(Some(now - due));
        }
        self.rest_before_recovery(due - now).await.then_some(None)
    }

    /// Rests between two turns, as an application does that has other work.
    pub(super) async fn think(&mut self) {
        let think = self.run.spec.config.load.think;
        if !think.is_zero() {
            let think = think.mul_f64(self.rng.random_range(0.5..1.5));
            self.rest_before_recovery(think).await;
        }
    }

    /// Rests for this time, or until the recovery begins or the run stops. Returns whether the time is over.
    pub(super) async fn rest_before_recovery(&self, time: Duration) -> bool {
        if time.is_zero() {
            return true;
        }
        tokio::select! {
            biased;
            () = self.run.stopping.until_on() => false,
            () = self.run.recovery.until_on() => false,
            () = self.run.clock.sleep(time) => true,
        }
    }

    /// Rests for this time, or until the run stops.
    pub(super) async fn rest(&self, time: Duration) {
        let _ = self.run.clock.within(time, self.run.stopping.until_on()).await;
    }

    /// Lets waiting clients go first: after a hold of a lease or more, and in the recovery. A client that asks again at once
    /// would have the lock again before the next poll of a client that polls, for the whole recovery.
    pub(super) async fn rest_after_hold(&mut self) {
        let config = &self.run.spec.config;
        let recovers = self.run.recovery.is_on();
        if (recovers || config.hold >= config.lease) && !self.run.stopping.is_on() {
            let share = if recovers { REST_IN_RECOVERY } else { REST };
            let rest = config.hold.mul_f64(self.rng.random_range(0.0..share));
            self.rest(rest).await;
        }
    }
}
