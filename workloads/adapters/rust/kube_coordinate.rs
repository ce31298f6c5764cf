//! kube-coordinate's `LeaderElector`: <https://docs.rs/kube-coordinate>
//!
//! An acquire starts an elector, and waits until its state is `Leading`; `lost` is raised when the state is another one. A release shuts
//! the elector down, and waits for the Lease to run out: the library leaves its name there.

mod harness_client;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use harness_client::{Failure, Grant, Lock, Signals, leased, random_name, refused, serve};
use kube_coordinate::{Config, LeaderElector, LeaderElectorHandle};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// An elector that leads, and whether the application still works under it.
type Leading = (LeaderElectorHandle, Arc<AtomicBool>);

struct CoordinateRs {
    signals: Signals,
    runtime: Runtime,
    client: kube::Client,
    /// A whole number of seconds, 3 at least: the shortest retry period is one second.
    ttl: Duration,
    held: HashMap<String, Leading>,
}

impl CoordinateRs {
    fn config(&self, lock: &str, identity: &str) -> Config {
        Config::default()
            .name(lock)
            .namespace("default")
            .identity(identity)
            .manager("harness")
            .lease_duration(self.ttl)
            .renew_deadline(self.ttl * 2 / 3)
            .retry_period(Duration::from_secs(1))
            .api_timeout(Duration::from_secs(1))
    }
}

impl Lock for CoordinateRs {
    fn contract() -> Value {
        leased(json!({ "renews": true, "tries": false, "owner": "server", "value": null }))
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(async {
            let client = kube::Client::try_from(kube::Config::new(format!("http://{}", endpoints[0]).parse()?))?;
            timeout(Duration::from_secs(5), client.apiserver_version()).await??;
            Ok::<_, Failure>(client)
        })?;
        let ttl = Duration::from_secs((lease.as_millis().div_ceil(1000) as u64).max(3));
        Ok(Self { signals, runtime, client, ttl, held: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let identity = random_name();
        let config = self.config(lock, &identity);
        let elector = self.runtime.block_on(async { LeaderElector::spawn(config, self.client.clone()) })?;
        let mut state = elector.state();
        let leads = self.runtime.block_on(async {
            timeout(wait, state.wait_for(|state| state.is_leader())).await.is_ok_and(|state| state.is_ok())
        });
        if !leads {
            // a request that is under way may make this candidate the leader; its name in the Lease then runs out
            self.runtime.block_on(async { timeout(2 * self.ttl, elector.shutdown()).await })??;
            return Err(Failure::Unknown("the elector was shut down while it asked".into()));
        }
        let (signals, name) = (self.signals, lock.to_owned());
        let works = Arc::new(AtomicBool::new(true));
        let working = works.clone();
        self.runtime.spawn(async move {
            let is_over = state.wait_for(|state| !state.is_leader()).await.is_ok();
            if is_over && working.load(Ordering::SeqCst) {
                signals.lost(&name, "the state is not Leading");
            }
        });
        self.held.insert(lock.to_owned(), (elector, works));
        Ok(Grant { token: None, owner: Some(identity) })
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some((elector, works)) = self.held.remove(lock) else {
            return refused("not held");
        };
        works.store(false, Ordering::SeqCst);
        self.runtime.block_on(async { timeout(2 * self.ttl, elector.shutdown()).await })??;
        thread::sleep(self.ttl + Duration::from_millis(200));
        Ok(())
    }

    fn close(mut self) -> Result<(), Failure> {
        for (_, (elector, works)) in self.held.drain() {
            works.store(false, Ordering::SeqCst);
            self.runtime.block_on(async { timeout(2 * self.ttl, elector.shutdown()).await })??;
        }
        Ok(())
    }
}

fn main() {
    serve::<CoordinateRs>();
}
