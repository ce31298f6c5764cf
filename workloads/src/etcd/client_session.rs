//! The etcd session ([`EtcdServers`]), for real servers and for simulated ones, which have other lines.
//!
//! There is one line a server, and calls go to the one that answered last. A call that was never sent (no connection) goes to the next
//! server at once; one that may have been sent is answered as indefinite, and only the next call goes elsewhere.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::call::{EtcdAnswer, EtcdCall, EtcdFailure, EtcdFailureKind, EtcdLine, EtcdReply, EtcdTxn};
use super::channels;
use crate::host::{RecipeHost, within};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::etcd::{Created, EtcdKey, EtcdSession, EtcdWatch, Leader, Lease, Listing};
use crate::session::{CALLS_A_LEASE, SessionError};

/// Returns how long a timer runs that is set for this time from now on.
pub type LimitTimer = fn(&dyn RecipeHost, Duration) -> Duration;

/// A cluster.
pub struct EtcdServers {
    lines: Vec<Box<dyn EtcdLine>>,
    /// The number of the server that calls go to.
    current: Cell<usize>,
    limit: Duration,
    host: Rc<dyn RecipeHost>,
    timer: LimitTimer,
}

impl EtcdServers {
    /// Makes a real cluster. Must be called inside a tokio runtime. Connects when first used.
    pub fn new(open: &OpenRequest, login: Option<&Login>, host: Rc<dyn RecipeHost>) -> Result<Self, String> {
        let lines = channels::lines(open, login)?;
        let lease = Duration::from_millis(open.lease_ms);
        Ok(Self::over(lines, lease, host, |_, time| time))
    }

    /// Makes a cluster that these lines lead to, one for each server.
    pub fn over(lines: Vec<Box<dyn EtcdLine>>, lease: Duration, host: Rc<dyn RecipeHost>, timer: LimitTimer) -> Self {
        EtcdServers {
            lines,
            current: Cell::new(0),
            limit: lease / CALLS_A_LEASE,
            host,
            timer,
        }
    }

    /// Makes one call within the usual time limit.
    async fn call(&self, call: EtcdCall) -> Result<EtcdAnswer, EtcdFailure> {
        self.call_within(self.limit, call).await.map(|(answer, _)| answer)
    }

    /// Makes one call within the time limit, on another server when it surely was not sent.
    async fn call_within(&self, limit: Duration, call: EtcdCall) -> Result<EtcdReply, EtcdFailure> {
        let asked = Cell::new(self.current.get());
        let attempts = async {
            let mut last = EtcdFailure::new(EtcdFailureKind::NotSent, "no servers");
            for _ in 0..self.lines.len() {
                let server = self.current.get();
                asked.set(server);
                match self.lines[server].call(call.clone()).await {
                    Err(failure) if failure.kind == EtcdFailureKind::NotSent => last = failure,
                    Err(failure) => {
                        if failure.kind == EtcdFailureKind::Unknown {
                            self.turn_from(server);
                        }
                        return Err(failure);
                    }
                    reply => return reply,
                }
                self.turn_from(server);
            }
            Err(last)
        };
        let timer = (self.timer)(&*self.host, limit);
        let reply = within(&*self.host, timer, attempts).await.unwrap_or_else(|| {
            self.turn_from(asked.get());
            let words = format!("no answer in {} ms", limit.as_millis());
            Err(EtcdFailure::new(EtcdFailureKind::Unknown, words))
        });
        reply.map_err(|failure| {
            let words = format!("{}: {}", call.name(), failure.words);
            EtcdFailure { words, ..failure }
        })
    }

    /// Turns to the next server, unless another call did so already.
    fn turn_from(&self, server: usize) {
        if self.current.get() == server {
            self.current.set((server + 1) % self.lines.len());
        }
    }
}

fn other_type(what: &str) -> SessionError {
    SessionError::Indefinite(format!("{what}: an answer of another type"))
}

/// Rounds up to whole seconds, in which etcd counts a lease.
fn whole_seconds(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis().div_ceil(1000)).expect("a time to live is below 292 million years")
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

#[async_trait(?Send)]
impl EtcdSession for EtcdServers {
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, SessionError> {
        let ttl = whole_seconds(ttl);
        match self.call(EtcdCall::LeaseGrant { ttl }).await? {
            EtcdAnswer::Lease { id, ttl } => Ok(Lease { id, ttl: seconds(ttl) }),
            _ => Err(other_type("LeaseGrant")),
        }
    }

    async fn keep_alive(&self, lease: i64) -> Result<Option<Duration>, SessionError> {
        match self.call(EtcdCall::LeaseKeepAlive { lease }).await? {
            EtcdAnswer::KeptAlive { ttl } => Ok((ttl > 0).then(|| seconds(ttl))),
            _ => Err(other_type("LeaseKeepAlive")),
        }
    }

    async fn revoke_lease(&self, lease: i64) -> Result<bool, SessionError> {
        match self.call(EtcdCall::LeaseRevoke { lease }).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.kind == EtcdFailureKind::NotFound => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn create(&self, key: &str, value: &str, lease: i64) -> Result<Created, SessionError> {
        let txn = EtcdTxn::create(key, value, lease);
        let EtcdAnswer::Txn {
            responses, revision, ..
        } = self.call(EtcdCall::Txn(Rc::new(txn))).await?
        else {
            return Err(other_type("Txn"));
        };
        let found = responses.into_iter().flatten().next();
        Ok(Created {
            key: found.ok_or_else(|| other_type("Txn"))?,
            revision,
        })
    }

    async fn get(&self, key: &str) -> Result<Option<EtcdKey>, SessionError> {
        let (key, is_prefix) = (key.to_owned(), false);
        match self.call(EtcdCall::Range { key, is_prefix }).await? {
            EtcdAnswer::Keys { keys, .. } => Ok(keys.into_iter().next()),
            _ => Err(other_type("Range")),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Listing, SessionError> {
        let (key, is_prefix) = (prefix.to_owned(), true);
        match self.call(EtcdCall::Range { key, is_prefix }).await? {
            EtcdAnswer::Keys { keys, revision } => Ok(Listing { keys, revision }),
            _ => Err(other_type("Range")),
        }
    }

    async fn delete(&self, key: &str) -> Result<bool, SessionError> {
        match self.call(EtcdCall::DeleteRange { key: key.to_owned() }).await? {
            EtcdAnswer::Deleted(was_there) => Ok(was_there),
            _ => Err(other_type("DeleteRange")),
        }
    }

    async fn delete_owned(&self, key: &str, lease: i64) -> Result<bool, SessionError> {
        let txn = EtcdTxn::delete_owned(key, lease);
        match self.call(EtcdCall::Txn(Rc::new(txn))).await? {
            EtcdAnswer::Txn { succeeded, .. } => Ok(succeeded),
            _ => Err(other_type("Txn")),
        }
    }

    async fn watch(&self, key: &str, from_revision: i64) -> Result<Box<dyn EtcdWatch>, SessionError> {
        let key = key.to_owned();
        let call = EtcdCall::Watch { key, from_revision };
        let (_, watch) = self.call_within(self.limit, call).await?;
        watch.ok_or_else(|| other_type("Watch"))
    }

    async fn lock(&self, name: &str, lease: i64, wait: Duration) -> Result<String, SessionError> {
        let name = name.to_owned();
        match self.call_within(wait, EtcdCall::Lock { name, lease }).await? {
            (EtcdAnswer::Locked { key }, _) => Ok(key),
            _ => Err(other_type("Lock")),
        }
    }

    async fn unlock(&self, key: &str) -> Result<(), SessionError> {
        self.call(EtcdCall::Unlock { key: key.to_owned() }).await?;
        Ok(())
    }

    async fn campaign(&self, name: &str, value: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        let call = EtcdCall::Campaign { name, value, lease };
        match self.call_within(wait, call).await? {
            (EtcdAnswer::Elected(leader), _) => Ok(leader),
            _ => Err(other_type("Campaign")),
        }
    }

    async fn resign(&self, leader: &Leader) -> Result<(), SessionError> {
        self.call(EtcdCall::Resign(leader.clone())).await?;
        Ok(())
    }
}
