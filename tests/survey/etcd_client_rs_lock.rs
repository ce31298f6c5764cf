//! The crate etcd-client's `lock`, etcd's lock service, under a lease that the client keeps alive: <https://docs.rs/etcd-client>
//!
//! The library sends a request to keep a lease alive when it is told to. The client does so every sixth of the lease, also while it
//! waits for the lock, and raises `lost` when the lease is gone or was not proven for two thirds of it.

mod harness_client;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use etcd_client::{Client, ConnectOptions, LockOptions};
use harness_client::{Failure, Grant, Lock, Signals, leased, refused, serve};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// A lock that is held: its key, its lease, and what keeps the lease alive until it is aborted.
struct HeldOnEtcd {
    key: Vec<u8>,
    lease: i64,
    keeper: AbortHandle,
}

struct EtcdClientRs {
    signals: Signals,
    runtime: Runtime,
    client: Client,
    lease: Duration,
    held: HashMap<String, HeldOnEtcd>,
}

/// Keeps a lease alive that was asked for at this time, until it is lost; returns the cause.
async fn keep(mut client: Client, lease: i64, ttl: Duration, asked: Instant) -> String {
    let mut end = asked + ttl * 2 / 3;
    loop {
        let asked = Instant::now();
        let renewal = async {
            let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        };
        let cause = match timeout(end.saturating_duration_since(asked).min(ttl / 3), renewal).await {
            Ok(Ok(Some(answer))) if answer.ttl() > 0 => {
                end = asked + ttl * 2 / 3;
                String::new()
            }
            Ok(Ok(_)) => return "the lease is gone".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the lease was not kept alive in time".to_owned(),
        };
        if Instant::now() >= end {
            return cause;
        }
        sleep((ttl / 6).saturating_sub(asked.elapsed())).await;
    }
}

impl EtcdClientRs {
    /// Returns the key of the lock, and its token.
    async fn take(client: &mut Client, lock: &str, lease: i64, ttl: Duration, wait: Duration) -> Result<Option<(Vec<u8>, i64)>, Failure> {
        let options = LockOptions::new().with_lease(lease);
        match timeout(wait.max(Duration::from_millis(100)), client.lock(format!("harness/{lock}"), Some(options))).await {
            Ok(answer) => {
                let key = answer?.key().to_vec();
                // the token is the revision at which the key was made; a waiter is granted at a later one
                let made = timeout(ttl, client.get(key.clone(), None)).await??;
                Ok(made.kvs().first().map(|pair| (key, pair.create_revision())))
            }
            Err(_) => {
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
        let (ttl, asked) = (self.lease, Instant::now());
        let granted = async { timeout(ttl, self.client.lease_grant(ttl.as_secs() as i64, None)).await };
        let lease = self.runtime.block_on(granted)??.id();
        // a waiter's key goes with its lease, too
        let kept = self.runtime.spawn(keep(self.client.clone(), lease, ttl, asked));
        let keeper = kept.abort_handle();
        let taken = self.runtime.block_on(Self::take(&mut self.client, lock, lease, ttl, wait));
        if !matches!(taken, Ok(Some(_))) {
            keeper.abort();
        }
        let (key, token) = taken?.ok_or_else(|| Failure::Refused("timeout".to_owned()))?;
        let (signals, name) = (self.signals, lock.to_owned());
        self.runtime.spawn(async move {
            if let Ok(cause) = kept.await {
                signals.lost(&name, &cause);
            }
        });
        self.held.insert(lock.to_owned(), HeldOnEtcd { key, lease, keeper });
        Ok(Grant { token: Some(token), owner: Some(format!("{lease:#x}")) })
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some(held) = self.held.remove(lock) else {
            return refused("not held");
        };
        held.keeper.abort();
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
