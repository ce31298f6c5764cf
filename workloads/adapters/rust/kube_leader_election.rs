//! kube-leader-election's `LeaseLock`, in a loop as its example `shared-lease` has it: <https://docs.rs/kube-leader-election>
//!
//! `example` is that loop, which leads until an answer says otherwise; with `deadline`, a request has a time limit and leading ends
//! two thirds of the lease after the last renewal was sent. Each term has a name of its own, as that of an operator that starts again.

mod harness_client;

use std::collections::HashMap;
use std::env;
use std::time::{Duration, Instant};

use harness_client::{Failure, Grant, Lock, Signals, leased, random_name, refused, serve};
use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The loop of a candidate: it leads or not, and ends on request.
struct Term {
    identity: String,
    leads: watch::Receiver<bool>,
    stop: watch::Sender<bool>,
    /// The election, and whether the last attempt has an answer.
    task: JoinHandle<(LeaseLock, bool)>,
}

struct LeaderElectionRs {
    signals: Signals,
    runtime: Runtime,
    client: kube::Client,
    /// A whole number of seconds.
    ttl: Duration,
    has_deadline: bool,
    held: HashMap<String, Term>,
}

impl LeaderElectionRs {
    fn campaign(&self, lock: &str) -> Term {
        let (lead, leads) = watch::channel(false);
        let (stop, mut stopped) = watch::channel(false);
        let identity = random_name();
        let params = LeaseLockParams { lease_name: lock.to_owned(), holder_id: identity.clone(), lease_ttl: self.ttl };
        let election = LeaseLock::new(self.client.clone(), "default", params);
        let (ttl, has_deadline, signals, lock) = (self.ttl, self.has_deadline, self.signals, lock.to_owned());
        let task = self.runtime.spawn(async move {
            let mut renewed = Instant::now();
            loop {
                let asked = Instant::now();
                let limit = if has_deadline { ttl / 3 } else { Duration::MAX };
                let answer = timeout(limit, election.try_acquire_or_renew()).await;
                let (now, cause) = match &answer {
                    Ok(Ok(LeaseLockResult::Acquired(_))) => {
                        renewed = asked;
                        (true, String::new())
                    }
                    Ok(Ok(LeaseLockResult::NotAcquired(_))) => (false, "another one leads".to_owned()),
                    // the example goes on as before
                    _ if has_deadline && renewed.elapsed() >= ttl / 3 => (false, "it was not renewed in time".to_owned()),
                    _ => (*lead.borrow(), String::new()),
                };
                let before = lead.send_replace(now);
                if *stopped.borrow() {
                    return (election, matches!(answer, Ok(Ok(_))));
                }
                if before && !now {
                    signals.lost(&lock, &cause);
                }
                let _ = timeout((ttl / 3).saturating_sub(asked.elapsed()), stopped.wait_for(|stop| *stop)).await;
                if *stopped.borrow() {
                    return (election, matches!(answer, Ok(Ok(_))));
                }
            }
        });
        Term { identity, leads, stop, task }
    }

    /// Ends a term, and gives the Lease back where it is this candidate's.
    async fn end(term: Term, ttl: Duration) -> Result<bool, Failure> {
        term.stop.send_replace(true);
        let (election, is_answered) = timeout(2 * ttl, term.task).await??;
        match timeout(ttl, election.step_down()).await? {
            Ok(()) => Ok(true),
            Err(Error::ReleaseLockWhenNotLeading { .. }) if is_answered => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Lock for LeaderElectionRs {
    fn contract() -> Value {
        leased(json!({ "renews": true, "tries": false, "owner": "server", "wall_clock": true, "value": null }))
    }

    fn open(signals: Signals, endpoints: &[String], lease: Duration) -> Result<Self, Failure> {
        let runtime = Runtime::new()?;
        let client = runtime.block_on(async {
            let client = kube::Client::try_from(kube::Config::new(format!("http://{}", endpoints[0]).parse()?))?;
            timeout(Duration::from_secs(5), client.apiserver_version()).await??;
            Ok::<_, Failure>(client)
        })?;
        let ttl = Duration::from_secs(lease.as_millis().div_ceil(1000) as u64);
        let has_deadline = env::args().nth(1).as_deref() == Some("deadline");
        Ok(Self { signals, runtime, client, ttl, has_deadline, held: HashMap::new() })
    }

    fn acquire(&mut self, lock: &str, wait: Duration) -> Result<Grant, Failure> {
        let mut term = self.campaign(lock);
        let ttl = self.ttl;
        let leads = self.runtime.block_on(async {
            timeout(wait, term.leads.wait_for(|leads| *leads)).await.is_ok_and(|leads| leads.is_ok())
        });
        if leads {
            let owner = Some(term.identity.clone());
            self.held.insert(lock.to_owned(), term);
            return Ok(Grant { token: None, owner });
        }
        self.runtime.block_on(Self::end(term, ttl))?;
        refused("timeout")
    }

    fn release(&mut self, lock: &str) -> Result<(), Failure> {
        let Some(term) = self.held.remove(lock) else {
            return refused("not held");
        };
        if self.runtime.block_on(Self::end(term, self.ttl))? { Ok(()) } else { refused("not held") }
    }

    fn close(mut self) -> Result<(), Failure> {
        let held: Vec<String> = self.held.keys().cloned().collect();
        held.iter().try_for_each(|lock| self.release(lock))
    }
}

fn main() {
    serve::<LeaderElectionRs>();
}
