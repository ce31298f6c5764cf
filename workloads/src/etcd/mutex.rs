//! `etcd-mutex`: a queue of keys under a prefix, ordered by the revision of their creation.
//!
//! 1. take a lease, and keep it alive;
//! 2. create `prefix/<lease>` under the lease, unless it exists: a repeated create finds its own key;
//! 3. list the prefix; if no key was created before one's own, and one's own is still there, the lock is held;
//! 4. watch the key just ahead until it is deleted, and go to 3: the one ahead may have died waiting, and one's own key
//!    may have gone with its lease meanwhile;
//! 5. delete the key to release.
//!
//! Source: etcd's `clientv3/concurrency`, `Mutex`. The look at one's own key after the wait is what its older versions
//! left out.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::lock_prefix;
use super::session::{EtcdConnect, EtcdSession, Key, KeyEvent, Listing};
use super::tenancy::Tenancy;
use super::tenant::{Keys, Tenant};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::within;
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// Before the next look when a call failed or the lease is not sure.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

pub fn open(seat: Seat<dyn EtcdConnect>) -> Box<dyn LockClient> {
    Box::new(Mutex {
        tenant: Tenant::new(seat, Keys::Own),
    })
}

struct Mutex {
    tenant: Tenant,
}

/// What a look at the queue showed.
enum Turn {
    Mine,
    /// One's own key is not there any more.
    Gone,
    /// This key is just ahead, as seen at this revision.
    Behind(Key, i64),
}

fn look(listing: Listing, own: &Key) -> Turn {
    let mut ahead = None;
    for key in listing.keys {
        if key.create_revision == own.create_revision {
            return ahead.map_or(Turn::Mine, |ahead| Turn::Behind(ahead, listing.revision));
        }
        ahead = Some(key);
    }
    Turn::Gone
}

impl Mutex {
    /// Creates one's key. With a lease in its name it is one's own however often it is created.
    async fn enter(&mut self, lock: &str, limit: Duration) -> Outcome<(Rc<dyn EtcdSession>, Rc<Tenancy>, Key)> {
        loop {
            let (session, tenancy) = self.tenant.settle().await?;
            let name = format!("{}{:x}", lock_prefix(lock), tenancy.lease);
            match self
                .tenant
                .insist(limit, || session.create(&name, "", tenancy.lease))
                .await
            {
                Ok((created, _)) => return Ok((session, tenancy, created.key)),
                // the lease is gone: a new one, if there is time
                Err(SessionError::Definite(reason)) => {
                    self.tenant.evict();
                    if self.tenant.now() >= limit {
                        return Err(NotOk::Fail(reason));
                    }
                }
                Err(error) => {
                    self.tenant.remember(name, tenancy.lease);
                    return Err(NotOk::Info(error.to_string()));
                }
            }
            self.tenant.seat.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Looks until it is one's turn, or says why it will not be.
    async fn wait_turn(
        &self,
        session: &dyn EtcdSession,
        tenancy: &Tenancy,
        own: &Key,
        request: &Acquire,
        deadline: Duration,
    ) -> Outcome<()> {
        let host = &*self.tenant.seat.host;
        let left = || deadline.saturating_sub(host.now());
        loop {
            let sure = || !self.tenant.seat.is_careful() || tenancy.is_sure(host.now());
            match session
                .list(&lock_prefix(&request.lock))
                .await
                .map(|listing| look(listing, own))
            {
                Ok(Turn::Mine) if sure() => return Ok(()),
                Ok(Turn::Gone) => return Err(NotOk::Fail("own key is gone".into())),
                _ if left().is_zero() => return Err(NotOk::gave_up(request)),
                Ok(Turn::Behind(ahead, revision)) => {
                    let wait = left().min(self.tenant.seat.lease);
                    if let Some(Ok(())) = within(host, wait, deletion(session, &ahead.name, revision + 1)).await {
                        self.tenant
                            .seat
                            .signals
                            .woken(&request.lock, format!("DELETE {}", ahead.name));
                        continue;
                    }
                }
                Ok(Turn::Mine) | Err(_) => {}
            }
            host.sleep(RETRY_PAUSE.min(left())).await;
        }
    }
}

/// Waits until a key is deleted.
pub(super) async fn deletion(session: &dyn EtcdSession, key: &str, from_revision: i64) -> Result<(), SessionError> {
    let mut watch = session.watch(key, from_revision).await?;
    loop {
        let events: Vec<KeyEvent> = watch.next().await?;
        if events.iter().any(|event| event.deleted) {
            return Ok(());
        }
    }
}

#[async_trait(?Send)]
impl LockClient for Mutex {
    async fn open(&mut self) -> Outcome<Grant> {
        self.tenant.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let deadline = self.tenant.now() + Duration::from_millis(request.wait_ms);
        let limit = deadline + self.tenant.seat.lease / 2;
        self.tenant.forget_lost(&request.lock);
        let (session, tenancy, own) = self.enter(&request.lock, limit).await?;
        match self.wait_turn(&*session, &tenancy, &own, request, deadline).await {
            Ok(()) => Ok(self.tenant.hold(&request.lock, own, &tenancy)),
            Err(refused) => Err(self.tenant.give_up(&*session, own, refused, limit).await),
        }
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        self.tenant.release(lock).await
    }

    async fn close(&mut self) {
        self.tenant.close().await;
    }
}
