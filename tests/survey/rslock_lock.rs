//! rslock's `LockManager`, asked once at a time: <https://docs.rs/rslock>

mod harness_client;

use std::time::Duration;

use harness_client::{Attempt, Failure, leased, ping_most, redis_url, refused, serve_timed};
use rslock::{Lock, LockError, LockManager};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

struct Rslock {
    manager: LockManager,
    runtime: Runtime,
    lease: Duration,
}

impl Attempt for Rslock {
    type Held = Lock;

    fn contract() -> Value {
        leased(json!({ "extends": true })) // the value is of bytes that are no text, so the observer cannot name it
    }

    fn open(endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        ping_most(endpoints, lease)?;
        let mut manager = LockManager::new(endpoints.iter().map(redis_url).collect());
        manager.set_retry(1, Duration::from_millis(20));
        Ok(Self { manager, runtime: Runtime::new()?, lease })
    }

    fn attempt(&mut self, lock: &str) -> Result<Option<Lock>, Failure> {
        match self.runtime.block_on(self.manager.lock(lock, self.lease)) {
            Ok(held) => Ok(Some(held)),
            Err(LockError::Unavailable | LockError::TtlExceeded) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn release(&mut self, held: Lock) -> Result<(), Failure> {
        self.runtime.block_on(held.release()); // it answers nothing
        Ok(())
    }

    fn extend(&mut self, held: &mut Lock) -> Result<(), Failure> {
        match self.runtime.block_on(self.manager.extend(held, self.lease)) {
            Ok(extended) => {
                *held = extended;
                Ok(())
            }
            Err(LockError::Unavailable) => refused("not held: it was not extended"),
            Err(error) => Err(error.into()),
        }
    }
}

fn main() {
    serve_timed::<Rslock>();
}
