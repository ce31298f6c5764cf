//! The crate etcd-client's `lock`, etcd's lock service, under a lease that the client keeps alive: <https://docs.rs/etcd-client>
//!
//! The library sends a request to keep a lease alive when it is told to. The client does so every sixth of the lease, and raises
//! `lost` when the lease is gone or was not proven for two thirds of it.

mod harness_client;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, Error, LockOptions};
use harness_client::{Failure, Grant, Lock, Signals, leased, refused, serve};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

/// A lock that is held: its key, its lease, from when that lasts, and whether the application still works under it.
struct HeldOnEtcd {
    key: Vec<u8>,
    lease: i64,
    proven: Instant,
    works: Arc<AtomicBool>,
}

struct EtcdClientRs {
    signals: Signals,
    runtime: Runtime,
    client: Client,
    lease: Duration,
    held: HashMap<String, HeldOnEtcd>,
}

/// Keeps a lease alive, until the lock is released or lost.
async fn keep(mut client: Client, lease: i64, ttl: Duration, mut proven: Instant, works: Arc<AtomicBool>, lost: impl Fn(&str)) {
    const LATE: &str = "the lease was not kept alive in time";
    let mut cause = LATE.to_owned();
    while works.load(Ordering::SeqCst) {
        let left = (ttl * 2 / 3).saturating_sub(proven.elapsed());
        if left.is_zero() {
            return lost(&cause);
        }
        let asked = Instant::now();
        match timeout(left.min(ttl / 3), client.lease_keep_alive(lease)).await {
            Ok(Ok(_)) => proven = asked, // it reads the first answer
            Ok(Err(Error::LeaseKeepAliveError(gone))) => return lost(&gone),
            Ok(Err(error)) => cause = error.to_string(),
            Err(_) => cause = LATE.to_owned(),
        }
        sleep((ttl / 6).saturating_sub(asked.elapsed())).await;
    }
}

impl EtcdClientRs {
    async fn take(client: &mut Client, lock: &str, ttl: Duration, wait: Duration) -> Result<Option<(HeldOnEtcd, i64)>, Failure> {
        let lease = timeout(ttl, client.lease_grant(ttl.as_secs() as i64, None)).await??.id();
        let options = LockOptions::new().with_lease(lease);
        match timeout(wait.max(Duration::from_millis(100)), client.lock(format!("harness/{lock}"), Some(options))).await {
            Ok(answer) => {
                let answer = answer?;
                let key = answer.key().to_vec();
                // the token is the revision at which the key was made; a waiter is granted at a later one
                let made = timeout(ttl, client.get(key.clone(), None)).await??;
                let token = made.kvs().first().map(|pair| pair.create_revision());
                let Some(token) = token else { return Ok(None) };
                // the server kept the lease alive during the wait, and does not tell when
                let proven = Instant::now();
                timeout(ttl / 3, client.lease_keep_alive(lease)).await??;
                Ok(Some((HeldOnEtcd { key, lease, proven, works: Arc::new(AtomicBool::new(true)) }, token)))
            }
            Err(_) => {
                // the waiter's key goes with its lease
                timeout(ttl, client.lease_revoke(lease)).await??;
                Ok(None)
            }
        }
    }
}

impl Lock for EtcdClientRs {
    fn contract() -> Value {
        leased(json!({
            "renews": true, "tries": false, "fifo": true, "wakes": "unreported",
            "owner": "server", "token": "server", "keys": "harness/{lock}", "value": "revision",
        }))
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let lease = Duration::from_secs(lease.as_millis().div_ceil(1000) as u64); // whole seconds only
        let options = ConnectOptions::new().with_connect_timeout(lease);
        let client = runtime.block_on(async {
            let mut client = Client::connect(endpoints, Some(options)).await?;
            timeout(2 * lease, client.get("harness", None)).await??; // a channel connects at its first call
            Ok::<_, Failure>(client)
        })?;
        Ok(Self { signals, runtime, client, lease, held: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let taken = self.runtime.block_on(Self::take(&mut self.client, lock, self.lease, wait))?;
        let Some((held, token)) = taken else {
            return refused("timeout");
        };
        let (signals, name, works) = (self.signals, lock.to_owned(), held.works.clone());
        let lost = move |cause: &str| {
            if works.load(Ordering::SeqCst) {
                signals.lost(&name, cause);
            }
        };
        self.runtime.spawn(keep(self.client.clone(), held.lease, self.lease, held.proven, held.works.clone(), lost));
        let owner = Some(format!("{:#x}", held.lease));
        self.held.insert(lock.to_owned(), held);
        Ok(Grant { token: Some(token), owner })
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some(held) = self.held.remove(lock) else {
            return refused("not held");
        };
        held.works.store(false, Ordering::SeqCst);
        self.runtime.block_on(async {
            timeout(self.lease, self.client.unlock(held.key)).await??;
            timeout(self.lease, self.client.lease_revoke(held.lease)).await??;
            Ok(())
        })
    }

    fn close(mut self) -> Result<(), Failure> {
        let held: Vec<String> = self.held.keys().cloned().collect();
        held.iter().try_for_each(|lock| self.release(lock))
    }
}

fn main() {
    serve::<EtcdClientRs>();
}
