//! The lock service and the election service of a member: `Mutex` and `Election` of `clientv3/concurrency`, in the member's own process, on
//! behalf of a client that waits for one answer.
//!
//! When the client has gone the key is deleted, unless the first transaction was not answered yet. Every error is `Unknown`: it is one of
//! the library's own, which gRPC does not know. As in 3.4, a waiter's own key may be gone when it is answered; 3.5 and later look.

use std::rc::Rc;

use harness_workloads::etcd::{EtcdAnswer, EtcdCompare, EtcdKey, EtcdOp, EtcdTxn, Leader};
use tokio::sync::oneshot;

use super::cluster::SimulatedEtcd;
use super::request::{EtcdOutcome, EtcdStatus};
use super::store::StoreChange;
use crate::mutants::is_mutant;
use crate::world::first_of;

/// Tells the task of a call that its client has gone, if the task cleans up then.
pub(super) type ClientGone = Option<oneshot::Receiver<()>>;

fn unknown(status: EtcdStatus) -> EtcdStatus {
    match status {
        EtcdStatus::LeaseNotFound => EtcdStatus::Unknown("etcdserver: requested lease not found"),
        EtcdStatus::Unavailable(words) | EtcdStatus::Unknown(words) => EtcdStatus::Unknown(words),
    }
}

/// A contender's own key, and the revision of its creation.
struct OwnPlace {
    key: String,
    revision: i64,
}

const CLIENT_GONE: EtcdStatus = EtcdStatus::Unknown("context canceled");

impl SimulatedEtcd {
    /// `lockServer.Lock`, `etcdserver/api/v3lock/lock.go`.
    pub(super) async fn lock(self, member: usize, name: &str, lease: i64, mut gone: ClientGone) -> EtcdOutcome {
        let prefix = format!("{name}/");
        let (own, first) = self.enter(member, &prefix, "", lease, &mut gone).await?;
        let locked = EtcdAnswer::Locked { key: own.key.clone() };
        let is_first = first.is_none_or(|first| first.create_revision == own.revision);
        if is_first || is_mutant("etcd: the lock service does not wait") {
            return Ok(locked);
        }
        let waiting = self.wait_deletes(member, &prefix, own.revision - 1);
        match first_of(waiting, client_gone(&mut gone)).await {
            Some(Ok(())) => Ok(locked),
            Some(Err(status)) => {
                let _ = self.unlock(member, own.key).await;
                Err(unknown(status))
            }
            None => {
                if !is_mutant("etcd: the lock service forgets a client that has gone") {
                    let _ = self.unlock(member, own.key).await;
                }
                Err(CLIENT_GONE)
            }
        }
    }

    /// `lockServer.Unlock`.
    pub(super) async fn unlock(self, member: usize, key: String) -> EtcdOutcome {
        let deleted = self.propose(member, StoreChange::Delete { key }).await;
        deleted.map(|_| EtcdAnswer::Done).map_err(unknown)
    }

    /// `electionServer.Campaign`, `etcdserver/api/v3election/election.go`.
    pub(super) async fn campaign(
        self,
        member: usize,
        name: &str,
        value: &str,
        lease: i64,
        mut gone: ClientGone,
    ) -> EtcdOutcome {
        let prefix = format!("{name}/");
        let (own, _) = self.enter(member, &prefix, value, lease, &mut gone).await?;
        let leader = Leader {
            name: name.to_owned(),
            key: own.key,
            revision: own.revision,
            lease,
        };
        let waiting = async {
            self.proclaim(member, &leader, value).await?;
            self.wait_deletes(member, &prefix, leader.revision - 1).await
        };
        match first_of(waiting, client_gone(&mut gone)).await {
            Some(Ok(())) => Ok(EtcdAnswer::Elected(leader)),
            Some(Err(status)) => Err(unknown(status)),
            None => {
                let _ = self.resign(member, leader).await;
                Err(CLIENT_GONE)
            }
        }
    }

    /// Puts another value for the key that is there: `Election.Proclaim`.
    async fn proclaim(self, member: usize, leader: &Leader, value: &str) -> Result<(), EtcdStatus> {
        let has_value = {
            let etcd = self.0.get();
            let store = etcd.members[member].store.borrow();
            store.get(&leader.key).is_none_or(|stored| *stored.value == *value)
        };
        if has_value {
            return Ok(());
        }
        let put = EtcdOp::Put {
            key: leader.key.clone(),
            value: value.to_owned(),
            lease: leader.lease,
        };
        self.propose(member, if_created(leader, put)).await.map(drop)
    }

    /// `electionServer.Resign`: the answer is the same if there was nothing to resign.
    pub(super) async fn resign(self, member: usize, leader: Leader) -> EtcdOutcome {
        let delete = EtcdOp::Delete {
            key: leader.key.clone(),
        };
        let change = if is_mutant("etcd: resigning does not compare") {
            StoreChange::Delete { key: leader.key }
        } else {
            if_created(&leader, delete)
        };
        let resigned = self.propose(member, change).await;
        resigned.map(|_| EtcdAnswer::Done).map_err(unknown)
    }

    /// Creates the contender's key unless it is there; returns it, and the first key of all contenders.
    async fn enter(
        self,
        member: usize,
        prefix: &str,
        value: &str,
        lease: i64,
        gone: &mut ClientGone,
    ) -> Result<(OwnPlace, Option<EtcdKey>), EtcdStatus> {
        let first = EtcdOp::First {
            prefix: prefix.to_owned(),
        };
        let mut txn = EtcdTxn::create(&format!("{prefix}{lease:x}"), value, lease);
        txn.success.push(first.clone());
        txn.failure.push(first);
        let proposing = self.propose(member, StoreChange::Txn(Rc::new(txn)));
        let answer = first_of(proposing, client_gone(gone)).await;
        let answer = answer.unwrap_or(Err(CLIENT_GONE)).map_err(unknown)?;
        let EtcdAnswer::Txn { mut responses, .. } = answer else {
            return Err(EtcdStatus::Unknown("an answer of another type"));
        };
        let first = responses.pop().and_then(|keys| keys.into_iter().next());
        let own = responses.pop().and_then(|keys| keys.into_iter().next());
        let own = own.ok_or(EtcdStatus::Unknown("the answer has no key"))?;
        let place = OwnPlace {
            key: own.name.as_ref().to_owned(),
            revision: own.create_revision,
        };
        Ok((place, first))
    }

    /// Waits until no key with the prefix is left that was created up to this revision: `waitDeletes`,
    /// `clientv3/concurrency/key.go`.
    async fn wait_deletes(self, member: usize, prefix: &str, up_to: i64) -> Result<(), EtcdStatus> {
        loop {
            self.may_read(member).await?;
            let (ahead, revision) = {
                let etcd = self.0.get();
                let store = etcd.members[member].store.borrow();
                let older = store.list(prefix).into_iter();
                let last = older
                    .filter(|stored| stored.create_revision <= up_to)
                    .max_by_key(|stored| stored.create_revision);
                (last, store.revision())
            };
            let Some(ahead) = ahead else { return Ok(()) };
            let watch = self.watch(member, &ahead.name, revision);
            while watch.watcher.next().await.iter().all(|event| !event.deleted) {}
        }
    }
}

async fn client_gone(gone: &mut ClientGone) {
    let is_told = match gone {
        Some(gone) => gone.await.is_ok(),
        None => false,
    };
    if !is_told {
        // the call was served to its end
        std::future::pending().await
    }
}

/// Returns a change that does `op` if the key is still the one that was won.
fn if_created(leader: &Leader, op: EtcdOp) -> StoreChange {
    StoreChange::Txn(Rc::new(EtcdTxn {
        compare: EtcdCompare::Created {
            key: leader.key.clone(),
            revision: leader.revision,
        },
        success: vec![op],
        failure: Vec::new(),
    }))
}
