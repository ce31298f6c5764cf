//! The session of a client with a simulated cluster ([`EtcdRoutes`]), step by step as `harness_workloads::etcd::EtcdServers` is on real
//! servers (`etcd/channels.rs` and `etcd/client_session.rs` there): a channel a member, calls to the one that answered last, a limit each.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::etcd::{Created, EtcdKey, EtcdSession, EtcdWatch, KeyEvent, Leader, Lease, Listing};
use harness_workloads::{RecipeHost, SessionError, within};

use super::channel::{CallChannel, ChannelSettings, NotSent};
use super::cluster::SimulatedEtcd;
use super::connection::{OpenStream, StreamMessage, timer_of};
use super::request::{EtcdAnswer, EtcdCall, EtcdCompare, EtcdOp, EtcdStatus, EtcdTxn, StoredKey};
use crate::network::SimulatedLink;
use crate::world::SimulatedProcess;

/// One call may take the lease divided by this: `CALLS_A_LEASE`, workloads `etcd/channels.rs`.
const CALLS_A_LEASE: u32 = 3;
/// An attempt to connect may take this part of the lease: `CONNECTS_A_LEASE`, workloads `etcd/channels.rs`.
const CONNECTS_A_LEASE: u32 = 6;
/// An idle connection is pinged this often in a lease, and has as long to answer: `PINGS_A_LEASE`, workloads `etcd/channels.rs`.
const PINGS_A_LEASE: u32 = 6;

/// The way of one client to all members: one link to each.
pub struct EtcdRoutes {
    channels: Vec<CallChannel>,
    /// The number of the member that calls go to.
    current: Cell<usize>,
    host: Rc<dyn RecipeHost>,
    limit: Duration,
}

impl EtcdRoutes {
    /// Makes the routes. `links` has a link for each member of `etcd`, in order; the session runs in `process`. Connects when first used.
    pub fn new(etcd: SimulatedEtcd, links: Vec<SimulatedLink>, process: SimulatedProcess, lease: Duration) -> Self {
        let host = process.host();
        let channel = |(member, link)| {
            CallChannel::new(ChannelSettings {
                etcd,
                member,
                link,
                host: host.clone(),
                connect_limit: lease / CONNECTS_A_LEASE,
                ping: lease / PINGS_A_LEASE,
            })
        };
        EtcdRoutes {
            channels: links.into_iter().enumerate().map(channel).collect(),
            current: Cell::new(0),
            host: host.clone(),
            limit: lease / CALLS_A_LEASE,
        }
    }
}

/// The reason for which a call has no answer.
enum EtcdCallFailure {
    NotSent(NotSent),
    Status(EtcdStatus),
    Broken(&'static str),
}

impl EtcdRoutes {
    async fn call(&self, call: EtcdCall) -> Result<EtcdAnswer, SessionError> {
        self.call_within(self.limit, call).await.map(|(answer, _)| answer)
    }

    /// Makes one call within the limit, on another member when it surely was not sent: `call_within`.
    async fn call_within(&self, limit: Duration, call: EtcdCall) -> Result<(EtcdAnswer, OpenStream), SessionError> {
        let what = call.name();
        let asked = Cell::new(self.current.get());
        let attempts = async {
            let mut last = "no servers";
            for _ in 0..self.channels.len() {
                let member = self.current.get();
                asked.set(member);
                match self.send(member, call.clone()).await {
                    Ok(answered) => return Ok(answered),
                    Err(EtcdCallFailure::NotSent(NotSent(why))) => last = why,
                    Err(EtcdCallFailure::Status(status)) => return Err(self.judge(what, member, status)),
                    Err(EtcdCallFailure::Broken(why)) => {
                        self.turn_from(member);
                        return Err(SessionError::Indefinite(format!("{what}: {why}")));
                    }
                }
                self.turn_from(member);
            }
            Err(SessionError::Definite(format!("{what}: {last}")))
        };
        let answered = within(&*self.host, timer_of(&*self.host, limit), attempts).await;
        answered.unwrap_or_else(|| {
            self.turn_from(asked.get());
            let limit = limit.as_millis();
            Err(SessionError::Indefinite(format!("{what}: no answer in {limit} ms")))
        })
    }

    async fn send(&self, member: usize, call: EtcdCall) -> Result<(EtcdAnswer, OpenStream), EtcdCallFailure> {
        let stream = self.channels[member]
            .call(call)
            .await
            .map_err(EtcdCallFailure::NotSent)?;
        match stream.next().await {
            Ok(StreamMessage::Answer(EtcdAnswer::Failed(status))) => Err(EtcdCallFailure::Status(status)),
            Ok(StreamMessage::Answer(answer)) => Ok((answer, stream)),
            Ok(StreamMessage::Events(_) | StreamMessage::Ended) => Err(EtcdCallFailure::Broken("the stream ended")),
            Err(why) => Err(EtcdCallFailure::Broken(why)),
        }
    }

    /// Turns to the next member, unless another call did so already.
    fn turn_from(&self, member: usize) {
        if self.current.get() == member {
            self.current.set((member + 1) % self.channels.len());
        }
    }

    fn judge(&self, what: &str, member: usize, status: EtcdStatus) -> SessionError {
        match status {
            EtcdStatus::LeaseNotFound => SessionError::Definite(format!("{what}: requested lease not found")),
            EtcdStatus::Unavailable(words) | EtcdStatus::Unknown(words) => {
                self.turn_from(member);
                SessionError::Indefinite(format!("{what}: {words}"))
            }
        }
    }
}

fn other_type(what: &str) -> SessionError {
    SessionError::Indefinite(format!("{what}: an answer of another type"))
}

fn key_of(stored: StoredKey) -> EtcdKey {
    EtcdKey {
        name: stored.key.as_ref().to_owned(),
        value: stored.value.as_ref().to_owned(),
        create_revision: stored.create_revision,
        mod_revision: stored.mod_revision,
        lease: stored.lease,
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

#[async_trait(?Send)]
impl EtcdSession for EtcdRoutes {
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, SessionError> {
        let ttl = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX);
        match self.call(EtcdCall::LeaseGrant { ttl }).await? {
            EtcdAnswer::Lease { id, ttl } => Ok(Lease { id, ttl: seconds(ttl) }),
            _ => Err(other_type("grant a lease")),
        }
    }

    async fn keep_alive(&self, lease: i64) -> Result<Option<Duration>, SessionError> {
        match self.call(EtcdCall::LeaseKeepAlive { lease }).await? {
            EtcdAnswer::KeptAlive { ttl } => Ok((ttl > 0).then(|| seconds(ttl))),
            _ => Err(other_type("keep-alive")),
        }
    }

    async fn revoke_lease(&self, lease: i64) -> Result<bool, SessionError> {
        match self.call(EtcdCall::LeaseRevoke { lease }).await {
            Ok(_) => Ok(true),
            // the only definite error of a call that was sent
            Err(SessionError::Definite(error)) if error.ends_with("lease not found") => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, key: &str, value: &str, lease: i64) -> Result<Created, SessionError> {
        let txn = EtcdTxn::create(key, value, lease);
        let EtcdAnswer::Txn {
            succeeded,
            responses,
            revision,
        } = self.call(EtcdCall::Txn(Rc::new(txn))).await?
        else {
            return Err(other_type("create"));
        };
        let found = responses.into_iter().flatten().next();
        let key = found.map(key_of).ok_or_else(|| other_type("create"))?;
        Ok(Created {
            created: succeeded,
            key,
            revision,
        })
    }

    async fn get(&self, key: &str) -> Result<Option<EtcdKey>, SessionError> {
        let (key, is_prefix) = (key.to_owned(), false);
        match self.call(EtcdCall::Range { key, is_prefix }).await? {
            EtcdAnswer::Keys { keys, .. } => Ok(keys.into_iter().next().map(key_of)),
            _ => Err(other_type("range")),
        }
    }

    async fn list(&self, prefix: &str) -> Result<Listing, SessionError> {
        let (key, is_prefix) = (prefix.to_owned(), true);
        match self.call(EtcdCall::Range { key, is_prefix }).await? {
            EtcdAnswer::Keys { keys, revision } => Ok(Listing {
                keys: keys.into_iter().map(key_of).collect(),
                revision,
            }),
            _ => Err(other_type("range")),
        }
    }

    async fn delete(&self, key: &str) -> Result<bool, SessionError> {
        match self.call(EtcdCall::DeleteRange { key: key.to_owned() }).await? {
            EtcdAnswer::Deleted(count) => Ok(count > 0),
            _ => Err(other_type("delete")),
        }
    }

    async fn delete_owned(&self, key: &str, lease: i64) -> Result<bool, SessionError> {
        let txn = EtcdTxn {
            compare: EtcdCompare::Lease {
                key: key.to_owned(),
                lease,
            },
            success: vec![EtcdOp::Delete { key: key.to_owned() }],
            failure: Vec::new(),
        };
        match self.call(EtcdCall::Txn(Rc::new(txn))).await? {
            EtcdAnswer::Txn { succeeded, .. } => Ok(succeeded),
            _ => Err(other_type("delete")),
        }
    }

    async fn watch(&self, key: &str, from_revision: i64) -> Result<Box<dyn EtcdWatch>, SessionError> {
        let key = key.to_owned();
        let call = EtcdCall::Watch { key, from_revision };
        let (_, stream) = self.call_within(self.limit, call).await?;
        Ok(Box::new(RoutedEtcdWatch(stream)))
    }

    async fn lock(&self, name: &str, lease: i64, wait: Duration) -> Result<String, SessionError> {
        let name = name.to_owned();
        match self.call_within(wait, EtcdCall::Lock { name, lease }).await? {
            (EtcdAnswer::Locked { key }, _) => Ok(key),
            _ => Err(other_type("lock")),
        }
    }

    async fn unlock(&self, key: &str) -> Result<(), SessionError> {
        self.call(EtcdCall::Unlock { key: key.to_owned() }).await.map(drop)
    }

    async fn campaign(&self, name: &str, value: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError> {
        let (name, value) = (name.to_owned(), value.to_owned());
        match self
            .call_within(wait, EtcdCall::Campaign { name, value, lease })
            .await?
        {
            (EtcdAnswer::Elected(leader), _) => Ok(leader),
            _ => Err(other_type("campaign")),
        }
    }

    async fn resign(&self, leader: &Leader) -> Result<(), SessionError> {
        self.call(EtcdCall::Resign(leader.clone())).await.map(drop)
    }
}

struct RoutedEtcdWatch(OpenStream);

#[async_trait(?Send)]
impl EtcdWatch for RoutedEtcdWatch {
    async fn next(&mut self) -> Result<Vec<KeyEvent>, SessionError> {
        match self.0.next().await {
            Ok(StreamMessage::Events(events)) => Ok(events
                .into_iter()
                .map(|event| KeyEvent {
                    key: event.key.key.as_ref().to_owned(),
                    deleted: event.deleted,
                })
                .collect()),
            Ok(StreamMessage::Answer(_) | StreamMessage::Ended) => {
                Err(SessionError::Lost("watch: the stream ended".into()))
            }
            Err(why) => Err(SessionError::Lost(format!("watch: {why}"))),
        }
    }
}
