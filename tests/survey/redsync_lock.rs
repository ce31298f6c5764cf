//! redsync's `Redsync`, asked once at a time: <https://docs.rs/redsync>

mod harness_client;

use std::time::Duration;

use harness_client::{Attempt, Failure, leased, ping_most, redis_url, refused, serve_timed};
use redsync::{Lock, RedisInstance, Redsync, RedsyncBuilder, RedsyncError};
use serde_json::{Value, json};

struct RedsyncLock {
    redsync: Redsync<RedisInstance>,
    lease: Duration,
}

impl Attempt for RedsyncLock {
    type Held = Lock;

    fn contract() -> Value {
        leased(json!({ "extends": true, "owner": "server", "keys": "harness:{lock}", "value": "string" }))
    }

    fn open(endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        ping_most(endpoints, lease)?;
        let servers = endpoints.iter().map(|endpoint| RedisInstance::new(redis_url(endpoint)));
        let servers = servers.collect::<Result<Vec<_>, RedsyncError>>()?;
        let builder = RedsyncBuilder::new(servers).retry_count(1);
        Ok(Self { redsync: builder.retry_delay(Duration::from_millis(20)).build(), lease })
    }

    fn attempt(&mut self, lock: &str) -> Result<Option<Lock>, Failure> {
        match self.redsync.lock(&format!("harness:{lock}"), self.lease) {
            Ok(held) => Ok(Some(held)),
            Err(RedsyncError::LockRetriesExceeded(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn owner(held: &Lock) -> Option<String> {
        Some(held.value.clone())
    }

    fn release(&mut self, held: Lock) -> Result<(), Failure> {
        match self.redsync.unlock(&held) {
            Err(RedsyncError::UnlockFailed(errors)) if errors.iter().all(|error| *error == RedsyncError::InvalidLease) => {
                refused("not held: the lease is over")
            }
            outcome => Ok(outcome?),
        }
    }

    fn extend(&mut self, held: &mut Lock) -> Result<(), Failure> {
        match self.redsync.extend(held, self.lease) {
            Ok(extended) => {
                *held = extended;
                Ok(())
            }
            Err(RedsyncError::ExtendRetriesExceeded(_)) => refused("not held: it was not extended"),
            Err(error) => Err(error.into()),
        }
    }
}

fn main() {
    serve_timed::<RedsyncLock>();
}
