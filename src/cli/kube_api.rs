//! `harness kube-api`: the API server of `--backend kube-lease`, its observer, and the removal of a run's Leases.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::Failure;
use super::kube_args::KubeApiCommand;
use super::stdout::print;
use crate::exit::Exit;
use crate::kube::{ApiAddress, LeaseNews, LeaseRecord, LeaseStore, LeaseWatcher, delete_marked, serve};

/// The namespace of the locks.
const NAMESPACE: &str = "default";
/// The lease of Leases that never expire.
const UNBOUNDED: Duration = Duration::from_secs(365 * 24 * 3600);

pub fn kube_api(command: KubeApiCommand) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::environment(format!("could not start: {error}")))?;
    match command {
        KubeApiCommand::Serve { listen, data, stale } => {
            let store = LeaseStore::open(data.as_deref(), stale);
            let store = store.map_err(|error| {
                let file = data.as_deref().unwrap_or(Path::new("")).display();
                Failure::environment(format!("could not read the Leases of --data {file}: {error}"))
            })?;
            let served = runtime.block_on(serve(listen, Arc::new(store)));
            served.map_err(|error| Failure::environment(format!("could not listen at {listen}: {error}")))?;
            Ok(Exit::Holds)
        }
        KubeApiCommand::Observe { server } => runtime.block_on(observe(address(&server)?)),
        KubeApiCommand::Remove { server, mark } => {
            let address = address(&server)?;
            let removed = runtime.block_on(delete_marked(&address, NAMESPACE, &mark));
            removed.map_err(Failure::environment)?;
            Ok(Exit::Holds)
        }
    }
}

fn address(server: &str) -> Result<ApiAddress, Failure> {
    ApiAddress::read(server, None).map_err(Failure::usage)
}

/// Prints grants in the format of docs/stores.md, until the server is lost.
async fn observe(address: ApiAddress) -> Result<Exit, Failure> {
    let mut watcher = LeaseWatcher::new(address, NAMESPACE, None);
    let mut holders = LeaseHolders::default();
    let mut lists = 0;
    loop {
        let Ok(news) = timeout_at(holders.next_end(), watcher.next()).await else {
            holders.run_out();
            continue;
        };
        match news.map_err(Failure::environment)? {
            // changes between two watches are unknown: harness starts this process anew
            LeaseNews::All(_) if lists > 0 => return Ok(Exit::Holds),
            LeaseNews::All(all) => {
                lists += 1;
                all.iter().for_each(|lease| holders.is(lease));
            }
            LeaseNews::Changed(lease) => holders.is(&lease),
            LeaseNews::Deleted(name) => holders.end(&name, "deleted"),
            LeaseNews::Alive => {}
        }
        print("{\"f\":\"alive\"}\n");
    }
}

/// The holder of each Lease, the number of its transitions and its expiry, which the observer counts from the last change, as
/// candidates do.
#[derive(Default)]
struct LeaseHolders(BTreeMap<String, ObservedLease>);

struct ObservedLease {
    owner: String,
    token: Option<u64>,
    ends: Instant,
}

impl LeaseHolders {
    fn is(&mut self, lease: &LeaseRecord) {
        let Some(owner) = lease.holder.clone() else {
            return self.end(&lease.name, "deleted");
        };
        let token = lease.transitions;
        let ends = Instant::now() + lease.duration.unwrap_or(UNBOUNDED);
        match self.0.get_mut(&lease.name) {
            Some(held) if (&held.owner, held.token) == (&owner, token) => held.ends = ends,
            held => {
                let left = held.map(|held| held.ends.saturating_duration_since(Instant::now()));
                // the new holder may have read the last change earlier than the observer
                let was_over = left.is_none_or(|left| left < lease.duration.unwrap_or(UNBOUNDED) / 4);
                self.end(&lease.name, if was_over { "expired" } else { "overwritten" });
                let held = ObservedLease { owner, token, ends };
                print_fact("granted", &lease.name, &held, None);
                self.0.insert(lease.name.clone(), held);
            }
        }
    }

    /// Returns the time of the next expiry.
    fn next_end(&self) -> Instant {
        let ends = self.0.values().map(|held| held.ends);
        ends.min().unwrap_or_else(|| Instant::now() + UNBOUNDED)
    }

    /// Ends the holds whose Lease has expired.
    fn run_out(&mut self) {
        let now = Instant::now();
        let over = self.0.iter().filter(|(_, held)| held.ends <= now);
        for name in over.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.end(&name, "expired");
        }
    }

    fn end(&mut self, name: &str, cause: &str) {
        if let Some(was) = self.0.remove(name) {
            print_fact("revoked", name, &was, Some(cause));
        }
    }
}

fn print_fact(f: &str, lock: &str, held: &ObservedLease, cause: Option<&str>) {
    let mut line = json!({ "f": f, "lock": lock, "owner": held.owner });
    if let Some(token) = held.token {
        line["token"] = token.into();
    }
    if let Some(cause) = cause {
        line["cause"] = cause.into();
    }
    print(&format!("{line}\n"));
}
