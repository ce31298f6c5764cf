//! kubert's `LeaseManager`: <https://docs.rs/kubert>
//!
//! An acquire spawns a manager, and waits until its claim is this candidate's; `lost` is raised when it is not any more, or has run out by
//! the time of day, as the library's `is_current_for` looks at it. A release drops the claim's receivers, and the manager vacates the
//! Lease.

mod harness_client;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use harness_client::{Failure, Grant, Lock, Signals, leased, random_name, refused, serve};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Config, Error};
use kubert::lease::{Claim, ClaimParams, LeaseManager};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A claim: the manager's task, and the one that looks whether the claim is current. Both end when the second is aborted.
struct Claimed {
    manager: JoinHandle<Result<(), kubert::lease::Error>>,
    watcher: JoinHandle<()>,
}

struct KubertRs {
    signals: Signals,
    runtime: Runtime,
    api: Api<Lease>,
    /// A whole number of seconds.
    ttl: Duration,
    held: HashMap<String, Claimed>,
}

/// The manager wants a Lease that is there.
async fn make(api: &Api<Lease>, name: &str) -> Result<(), Error> {
    let mut lease = Lease { spec: Some(LeaseSpec::default()), ..Lease::default() };
    lease.metadata.name = Some(name.to_owned());
    match api.create(&PostParams::default(), &lease).await {
        Err(Error::Api(refusal)) if refusal.code == 409 => Ok(()),
        made => made.map(drop),
    }
}

impl KubertRs {
    async fn campaign(
        api: Api<Lease>,
        (signals, lock): (Signals, String),
        (ttl, wait): (Duration, Duration),
    ) -> Result<Option<(Claimed, String)>, Failure> {
        timeout(ttl, make(&api, &lock)).await??;
        let identity = random_name();
        let manager = timeout(ttl, LeaseManager::init(api, &lock)).await??;
        let params = ClaimParams { lease_duration: ttl, renew_grace_period: ttl / 3 };
        let (mut claims, manager) = timeout(wait + ttl, manager.spawn(&identity, params)).await??;
        let is_mine = |claim: &Arc<Claim>| claim.is_current_for(&identity);
        let won = timeout(wait, claims.wait_for(is_mine)).await.is_ok_and(|claim| claim.is_ok());
        if !won {
            drop(claims);
            timeout(2 * ttl, manager).await???;
            return Ok(None);
        }
        let name = identity.clone();
        let watcher = tokio::spawn(async move {
            loop {
                let claim = claims.borrow_and_update().clone();
                if !claim.is_current_for(&name) {
                    return signals.lost(&lock, "the claim is not current");
                }
                tokio::select! {
                    _ = claims.changed() => {}
                    () = claim.expire() => {}
                }
            }
        });
        Ok(Some((Claimed { manager, watcher }, identity)))
    }

    async fn end(claimed: Claimed, ttl: Duration) -> Result<(), Failure> {
        claimed.watcher.abort();
        let _ = claimed.watcher.await;
        Ok(timeout(2 * ttl, claimed.manager).await???)
    }
}

impl Lock for KubertRs {
    fn contract() -> Value {
        leased(json!({ "renews": true, "tries": false, "owner": "server", "wall_clock": true, "value": null }))
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(async {
            let client = Client::try_from(Config::new(format!("http://{}", endpoints[0]).parse()?))?;
            timeout(Duration::from_secs(5), client.apiserver_version()).await??;
            Ok::<_, Failure>(client)
        })?;
        let ttl = Duration::from_secs(lease.as_millis().div_ceil(1000) as u64);
        Ok(Self { signals, runtime, api: Api::namespaced(client, "default"), ttl, held: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let campaign = Self::campaign(self.api.clone(), (self.signals, lock.to_owned()), (self.ttl, wait));
        let Some((claimed, identity)) = self.runtime.block_on(campaign)? else {
            return refused("timeout");
        };
        self.held.insert(lock.to_owned(), claimed);
        Ok(Grant { token: None, owner: Some(identity) })
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        match self.held.remove(lock) {
            Some(claimed) => self.runtime.block_on(Self::end(claimed, self.ttl)),
            None => refused("not held"),
        }
    }

    fn close(mut self) -> Result<(), Failure> {
        let held: Vec<String> = self.held.keys().cloned().collect();
        held.iter().try_for_each(|lock| self.release(lock))
    }
}

fn main() {
    serve::<KubertRs>();
}
