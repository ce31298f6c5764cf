//! `etcd-queue`: one key is the lock, and each process sends one of its clients to contend for it.
//!
//! 1. delete what an earlier release of this client may have left: others in the line may be waiting for just that;
//! 2. wait for a turn in the process's own line for the lock, first come first served;
//! 3. create the key under the client's lease, if it does not exist, in one transaction; if that succeeds, the lock is
//!    held;
//! 4. else watch the key until it is deleted, and go to 3: one client a process is woken, however many wait in it;
//! 5. when the wait is over, leave the line;
//! 6. delete the key to release, if it still belongs to the client's lease, and let the next in line go on. A hold that
//!    lasts [`HOLD_LEASES`] leases is ended by the client itself, which raises `lost`.
//!
//! Source: the single-key lock of many etcd client libraries, python-etcd3's `Lock` among others
//! (<https://github.com/kragniz/python-etcd3/blob/master/etcd3/locks.py>), with a local queue that keeps the herd to one
//! client a process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use super::etcd;
use super::mutex::deletion;
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::etcd::lease_keeper::LeaseKeeper;
use crate::etcd::lease_session::{KeyNames, LeaseSession};
use crate::host::{Task, within};
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::RETRY_PAUSE;
use crate::session::etcd::{Created, EtcdKey};

pub(super) const RECIPE: Recipe = Recipe {
    fifo: false,
    ..etcd(
        "etcd-queue",
        "one leased key; clients of a process wait in a line of their own",
        |context| {
            Box::new(ProcessQueueLock {
                base: LeaseSession::new(context, KeyNames::Shared),
                held: BTreeMap::new(),
            })
        },
    )
};

/// The longest hold, in leases: long for any use of the lock, and short for a client that waits behind a forgotten one.
const HOLD_LEASES: u32 = 30;

struct ProcessQueueLock {
    base: LeaseSession,
    /// By lock: a slot at the head of the process's line, and the clock that ends a hold that is too long.
    held: BTreeMap<String, (LineSlot, Task)>,
}

/// The permit to be at the head of the process's line; `None` once it is given up.
type LineSlot = Rc<RefCell<Option<OwnedSemaphorePermit>>>;

impl ProcessQueueLock {
    /// Waits at the head of the line until the key belongs to the client.
    async fn contend(
        &mut self,
        request: &AcquireRequest,
        deadline: Duration,
    ) -> LockResult<(Rc<LeaseKeeper>, EtcdKey)> {
        let limit = deadline + self.base.context.lease / 2;
        loop {
            let (keeper, created) = self.base.create(&request.lock, limit, deadline).await?;
            let left = deadline.saturating_sub(self.base.now());
            match created {
                Created { key, .. } if key.lease == keeper.lease => {
                    if !self.base.context.is_careful() || keeper.is_sure(self.base.now()) {
                        return Ok((keeper, key));
                    }
                    let refused = LockError::refused("the lease is not sure");
                    return Err(self.base.withdraw(key.into(), refused, limit).await);
                }
                _ if left.is_zero() => return Err(LockError::wait_over(request)),
                taken => self.wait_for(&request.lock, &taken, left).await,
            }
        }
    }

    /// Waits until the key of another client is deleted, or it is time to look again.
    async fn wait_for(&self, lock: &str, taken: &Created, left: Duration) {
        let context = &self.base.context;
        let host = &*context.host;
        let gone = deletion(&*context.store, &taken.key.name, taken.revision + 1);
        match within(host, left.min(context.lease), gone).await {
            Some(Ok(())) => context.signals.woken(lock, format!("DELETE {}", taken.key.name)),
            Some(Err(_)) => host.sleep(RETRY_PAUSE.min(left)).await,
            None => {}
        }
    }

    /// Ends the hold by itself when it has lasted too long.
    fn clock(&self, lock: &str, own: &EtcdKey, slot: LineSlot) -> Task {
        let context = self.base.context.clone();
        let (lock, own) = (lock.to_owned(), own.clone());
        self.base.context.host.spawn(Box::pin(async move {
            context.host.sleep(context.lease * HOLD_LEASES).await;
            context.signals.lost(&lock, "held too long");
            // a key that stays is deleted when the client next acquires
            let _ = context.store.delete_owned(&own.name, own.lease).await;
            slot.take();
        }))
    }
}

#[async_trait(?Send)]
impl LockClient for ProcessQueueLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.base.now() + Duration::from_millis(request.wait_ms);
        self.base.begin(request).await?;
        self.held.remove(&request.lock);
        self.base.ready().await?;
        let line = self.base.context.host.line(&request.lock);
        let wait = Duration::from_millis(request.wait_ms);
        let permit = match within(&*self.base.context.host, wait, line.acquire_owned()).await {
            Some(permit) => permit.expect("a line is never closed"),
            None => return Err(LockError::wait_over(request)),
        };
        let (keeper, own) = self.contend(request, deadline).await?;
        let slot: LineSlot = Rc::new(RefCell::new(Some(permit)));
        let clock = self.clock(&request.lock, &own, slot.clone());
        self.held.insert(request.lock.clone(), (slot, clock));
        Ok(self.base.begin_hold(&request.lock, own, &keeper))
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let _next = self.held.remove(lock);
        self.base.release(lock).await
    }

    async fn close(&mut self) {
        self.held.clear();
        self.base.close().await;
    }
}
