//! The crate redlock's `RedLock`, asked once at a time: <https://docs.rs/redlock>

mod harness_client;

use std::time::Duration;

use harness_client::{Attempt, Failure, leased, ping_most, redis_url, serve_timed};
use redlock::{Lock, RedLock};
use serde_json::{Value, json};

struct RedlockRs {
    /// A lock borrows it.
    manager: &'static RedLock,
    lease: Duration,
}

impl Attempt for RedlockRs {
    type Held = Lock<'static>;

    fn contract() -> Value {
        leased(json!({})) // the value is of bytes that are no text, so the observer cannot name it
    }

    fn open(endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        ping_most(endpoints, lease)?;
        let mut manager = RedLock::new(endpoints.iter().map(redis_url).collect());
        manager.set_retry(1, 20);
        Ok(Self { manager: Box::leak(Box::new(manager)), lease })
    }

    fn attempt(&mut self, lock: &str) -> Result<Option<Self::Held>, Failure> {
        Ok(self.manager.lock(lock.as_bytes(), self.lease.as_millis() as usize)?)
    }

    fn release(&mut self, held: Self::Held) -> Result<(), Failure> {
        self.manager.unlock(&held); // it answers nothing
        Ok(())
    }
}

fn main() {
    serve_timed::<RedlockRs>();
}
