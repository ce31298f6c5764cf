//! The observer: its own unproxied connection to the servers, and what they show of who owns which lock.
//!
//! It is the independent witness: without it a phantom grant, a ghost and a silent loss cannot be told apart. Its lines
//! carry the time at which it heard, so they trail what they tell of, and never lead it.

mod etcd;
mod queue;
mod quorum;
mod redis;
mod resp;
mod wire;
mod zk;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::Backend;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::clients::holders::GrantId;
use super::schedule::object;
use crate::cluster::Places;
use crate::run::context::RunContext;
use queue::{Change, Contender};

/// Pause before a lost connection is made again: short, since what happens meanwhile is not seen.
const RECONNECT: Duration = Duration::from_millis(20);

/// Where the servers serve now; one that was started again may serve elsewhere.
type Addresses = watch::Receiver<Places>;

/// A running observer; it stops when this is dropped.
pub struct Observer(JoinHandle<()>);

impl Drop for Observer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects and starts to observe; the error says why it cannot.
pub async fn start(backend: Backend, addresses: Addresses, run: Arc<RunContext>) -> Result<Observer, String> {
    let sight = Sight { run };
    let running = match backend {
        Backend::Zk => {
            let observer = zk::Zk::connect(addresses).await?;
            tokio::spawn(observer.run(sight))
        }
        Backend::Etcd => {
            let observer = etcd::Etcd::connect(addresses).await?;
            tokio::spawn(observer.run(sight))
        }
        Backend::Redis if addresses.borrow().served().len() > 1 => {
            let observer = quorum::Quorum::connect(addresses).await?;
            tokio::spawn(observer.run(sight))
        }
        Backend::Redis => {
            let observer = redis::Redis::connect(addresses).await?;
            tokio::spawn(observer.run(sight))
        }
    };
    Ok(Observer(running))
}

/// Where an observer puts what it sees.
struct Sight {
    run: Arc<RunContext>,
}

/// Why a grant ended when its holder did not ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unasked {
    /// The session, lease or key ran out.
    Expired,
    /// Somebody removed it while its owner lived.
    Deleted,
    /// The server does not say.
    Unknown,
}

impl Sight {
    /// Records a grant that was heard of at `at`, a reading of `CLOCK_MONOTONIC`.
    fn granted(&self, lock: &str, contender: &Contender, at: u64) {
        self.write("granted", fields(lock, contender, None), at);
    }

    fn revoked(&self, lock: &str, contender: &Contender, cause: Option<&str>, at: u64) {
        self.write("revoked", fields(lock, contender, cause), at);
    }

    /// Records that a grant is out of sight since then: nobody can know how it ends.
    fn lost_sight(&self, lock: &str, contender: &Contender, at: u64) {
        self.revoked(lock, contender, Some("out of sight"), at);
    }

    fn write(&self, f: &str, fields: Fields<'_>, at: u64) {
        self.run.recorder.signal(Process::Server, None, f, fields, Some(at));
    }

    /// Whether the owner asked for the end of its grant.
    fn was_released(&self, lock: &str, contender: &Contender) -> bool {
        let by_token = contender.token.map(GrantId::Token);
        let by_owner = contender.owner.clone().map(GrantId::Owner);
        // each is asked for, since asking forgets
        let asked: Vec<bool> = by_token
            .into_iter()
            .chain(by_owner)
            .map(|grant| self.run.holders.was_released(lock, &grant))
            .collect();
        asked.contains(&true)
    }

    /// Records `changes` that were heard of at `at`; for a grant that ended unasked, `why` finds out, and may take its time.
    async fn record<F: Future<Output = Unasked>>(
        &self,
        lock: &str,
        changes: Vec<Change>,
        at: u64,
        why: impl Fn(Contender) -> F,
    ) {
        for change in changes {
            match change {
                Change::Granted(contender) => self.granted(lock, &contender, at),
                Change::Revoked(contender) if self.was_released(lock, &contender) => {
                    self.revoked(lock, &contender, Some("released"), at);
                }
                Change::Revoked(contender) => {
                    let cause = match why(contender.clone()).await {
                        Unasked::Expired => Some("expired"),
                        Unasked::Deleted => Some("deleted"),
                        Unasked::Unknown => None,
                    };
                    self.revoked(lock, &contender, cause, at);
                }
            }
        }
    }

    /// Records that the observer has heard nothing of `whom` since `heard`, a reading of `CLOCK_MONOTONIC`, and hears nothing
    /// until it is [`Sight::back`]: what happens meanwhile is never told.
    fn lost(&self, whom: &str, heard: u64) {
        let since = self.run.recorder.time_of(heard);
        let lost = json!({ "phase": "lost", "whom": whom, "since": since });
        self.run.recorder.nemesis("observer", object(lost));
    }

    fn back(&self, whom: &str) {
        let back = json!({ "phase": "back", "whom": whom });
        self.run.recorder.nemesis("observer", object(back));
    }

    /// The observer watches the server at this address from now on.
    fn looks_at(&self, address: SocketAddr) {
        self.run.observed.send_replace(Some(address));
    }

    async fn lost_its_connection(&self) {
        sleep(RECONNECT).await;
    }
}

fn fields<'a>(lock: &'a str, contender: &'a Contender, cause: Option<&'a str>) -> Fields<'a> {
    Fields {
        lock: Some(lock),
        owner: contender.owner.as_deref(),
        token: contender.token,
        cause,
        ..Fields::default()
    }
}
