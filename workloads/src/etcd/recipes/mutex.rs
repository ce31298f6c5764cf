//! `etcd-mutex`: a queue of keys under a prefix, ordered by the revision of their creation.
//!
//! 1. take a lease, and keep it alive;
//! 2. create `prefix/<lease>` under the lease, unless it exists: a repeated create finds the same key;
//! 3. list the prefix; if no key was created before the client's own, and that is still there, the lock is held;
//! 4. watch the key just ahead until it is deleted, and go to 3: the client ahead may have died waiting, and the client's
//!    own key may have gone with its lease meanwhile;
//! 5. delete the key to release.
//!
//! Source: `Mutex` of etcd's `clientv3/concurrency`:
//! <https://github.com/etcd-io/etcd/blob/main/client/v3/concurrency/mutex.go>. Its older versions left out the look at the
//! own key after the wait: <https://github.com/etcd-io/etcd/issues/11456>.

use std::time::Duration;

use async_trait::async_trait;

use super::etcd;
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::defects::has_defect;
use crate::etcd::lease_keeper::LeaseKeeper;
use crate::etcd::lease_session::{KeyNames, LeaseSession};
use crate::etcd::lock_prefix;
use crate::host::within;
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::etcd::{EtcdKey, EtcdSession, Listing};
use crate::session::{RETRY_PAUSE, SessionError};

pub(super) const RECIPE: Recipe = etcd(
    "etcd-mutex",
    "queue of leased keys; each waiter watches the one ahead",
    |context| {
        Box::new(MutexLock {
            base: LeaseSession::new(context, KeyNames::PerLease),
        })
    },
);

struct MutexLock {
    base: LeaseSession,
}

/// The result of a look at the queue.
enum MutexLook {
    First,
    /// The client's own key is not there any more.
    Gone,
    /// This key is just ahead, as seen at this revision.
    Behind(EtcdKey, i64),
}

fn look(listing: Listing, own: &EtcdKey) -> MutexLook {
    let mut ahead = None;
    let mut keys = listing.keys;
    if has_defect("etcd-mutex", "the queue is in the order of names") {
        keys.sort_by(|one, other| one.name.cmp(&other.name));
    }
    for key in keys {
        if key.create_revision == own.create_revision {
            return ahead.map_or(MutexLook::First, |ahead| MutexLook::Behind(ahead, listing.revision));
        }
        if ahead.is_none() || !has_defect("etcd-mutex", "everybody watches the first") {
            ahead = Some(key);
        }
    }
    MutexLook::Gone
}

impl MutexLock {
    /// Looks until the client is first, or returns the reason for which it will not be.
    async fn wait_turn(
        &self,
        keeper: &LeaseKeeper,
        own: &EtcdKey,
        request: &AcquireRequest,
        deadline: Duration,
    ) -> LockResult<()> {
        let context = &self.base.context;
        let host = &*context.host;
        let left = || deadline.saturating_sub(host.now());
        loop {
            let sure = || !context.is_careful() || keeper.is_sure(host.now());
            let listed = context.store.list(&lock_prefix(&request.lock)).await;
            match listed.map(|listing| look(listing, own)) {
                Ok(MutexLook::First) if sure() => return Ok(()),
                Ok(MutexLook::Gone) => return Err(LockError::refused("own key is gone")),
                _ if left().is_zero() => return Err(LockError::wait_over(request)),
                Ok(MutexLook::Behind(ahead, revision)) => {
                    let gone = deletion(&*context.store, &ahead.name, revision + 1);
                    if let Some(Ok(())) = within(host, left().min(context.lease), gone).await {
                        context.signals.woken(&request.lock, format!("DELETE {}", ahead.name));
                        if has_defect("etcd-mutex", "who is woken is first") {
                            return Ok(());
                        }
                        continue;
                    }
                }
                Ok(MutexLook::First) | Err(_) => {}
            }
            host.sleep(RETRY_PAUSE.min(left())).await;
        }
    }
}

/// Waits until a key is deleted.
pub(super) async fn deletion(session: &dyn EtcdSession, key: &str, from_revision: i64) -> Result<(), SessionError> {
    let mut watch = session.watch(key, from_revision).await?;
    while !watch.next().await?.contains(&true) {}
    Ok(())
}

#[async_trait(?Send)]
impl LockClient for MutexLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.base.now() + Duration::from_millis(request.wait_ms);
        let limit = deadline + self.base.context.lease / 2;
        self.base.begin(request).await?;
        let (keeper, created) = self.base.create(&request.lock, limit, limit).await?;
        let own = created.key;
        match self.wait_turn(&keeper, &own, request, deadline).await {
            Ok(()) => Ok(self.base.begin_hold(&request.lock, own, &keeper)),
            Err(refused) => Err(self.base.withdraw(own.into(), refused, limit).await),
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.base.release(lock).await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
