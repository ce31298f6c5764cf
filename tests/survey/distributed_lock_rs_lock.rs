//! The crate distributed-lock on Redis or PostgreSQL, as its first argument says: <https://docs.rs/distributed-lock>
//!
//! The loss of a lock is told by the library's `lost_token`. It gives no way to wait for a lock on Redis: the timeout of `acquire` is
//! that of one attempt, so the client asks again and again, on PostgreSQL too.

mod harness_client;

use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use distributed_lock_core::LockError;
use distributed_lock_core::traits::{DistributedLock, LockHandle, LockProvider};
use distributed_lock_postgres::PostgresLockProvider;
use distributed_lock_redis::RedisLockProvider;
use harness_client::{Failure, Grant, Lock, Signals, leased, ping_most, redis_url, refused, serve};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// A store of the library.
trait LockStore: Sized {
    type Provider: LockProvider;

    fn contract() -> Value;

    async fn provider(endpoints: &[String], lease: Duration) -> Result<Self::Provider, Failure>;
}

struct OnRedis;

impl LockStore for OnRedis {
    type Provider = RedisLockProvider;

    fn contract() -> Value {
        leased(json!({ "renews": true }))
    }

    /// The ratios of its own defaults: extended thrice in a lease, of which nine tenths are left after an acquire.
    async fn provider(endpoints: &[String], lease: Duration) -> Result<Self::Provider, Failure> {
        let urls: Vec<String> = endpoints.iter().map(redis_url).collect();
        let builder = RedisLockProvider::builder().urls(&urls).expiry(lease);
        Ok(builder.extension_cadence(lease / 3).min_validity(lease * 9 / 10).build().await?)
    }
}

struct OnPostgres;

impl LockStore for OnPostgres {
    type Provider = PostgresLockProvider;

    fn contract() -> Value {
        leased(json!({ "lease": false, "renews": true }))
    }

    async fn provider(endpoints: &[String], _lease: Duration) -> Result<Self::Provider, Failure> {
        let of_login = |name: &str, usual: &str| env::var(name).unwrap_or_else(|_| usual.to_owned());
        let (user, password) = (of_login("PGUSER", "postgres"), of_login("PGPASSWORD", ""));
        let database = of_login("PGDATABASE", "postgres");
        let url = format!("postgres://{user}:{password}@{}/{database}", endpoints[0]);
        Ok(PostgresLockProvider::new(url).await?)
    }
}

type Handle<S> = <<<S as LockStore>::Provider as LockProvider>::Lock as DistributedLock>::Handle;

/// A handle, and whether the application still works under it.
type Working<H> = (H, Arc<AtomicBool>);

struct DistributedLockRs<S: LockStore> {
    signals: Signals,
    runtime: Runtime,
    provider: S::Provider,
    lease: Duration,
    held: HashMap<String, Working<Handle<S>>>,
}

impl<S: LockStore> Lock for DistributedLockRs<S> {
    fn contract() -> Value {
        S::contract()
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        if env::args().nth(1).as_deref() == Some("redis") {
            ping_most(endpoints, lease)?; // the library waits for each server without an end
        }
        let runtime = Runtime::new()?;
        let provider = runtime.block_on(async { timeout(2 * lease, S::provider(endpoints, lease)).await })??;
        Ok(Self { signals, runtime, provider, lease, held: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let deadline = Instant::now() + wait;
        let contender = self.provider.create_lock(lock);
        let handle = loop {
            let asked = async { timeout(wait + 2 * self.lease, contender.try_acquire()).await };
            match self.runtime.block_on(asked)? {
                Ok(Some(handle)) => break handle,
                Ok(None) | Err(LockError::Timeout(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if Instant::now() >= deadline {
                return refused(if wait.is_zero() { "busy" } else { "timeout" });
            }
            thread::sleep(Duration::from_millis(20));
        };
        let (signals, name) = (self.signals, lock.to_owned());
        let works = Arc::new(AtomicBool::new(true));
        let (working, mut lost) = (works.clone(), handle.lost_token().clone());
        self.runtime.spawn(async move {
            let is_lost = lost.wait_for(|lost| *lost).await.is_ok();
            if is_lost && working.load(Ordering::SeqCst) {
                signals.lost(&name, "lost_token");
            }
        });
        self.held.insert(lock.to_owned(), (handle, works));
        Ok(Grant::default())
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some((handle, works)) = self.held.remove(lock) else {
            return refused("not held");
        };
        works.store(false, Ordering::SeqCst);
        let released = async { timeout(2 * self.lease, handle.release()).await };
        Ok(self.runtime.block_on(released)??)
    }

    fn close(mut self) -> Result<(), Failure> {
        let held: Vec<String> = self.held.keys().cloned().collect();
        held.iter().try_for_each(|lock| self.release(lock))
    }
}

fn main() {
    match env::args().nth(1).as_deref() {
        Some("redis") => serve::<DistributedLockRs<OnRedis>>(),
        _ => serve::<DistributedLockRs<OnPostgres>>(),
    }
}
