//! `etcd-queue`: one key is the lock, and each process sends one of its clients to contend for it.
//!
//! 1. delete what an earlier release of one's own may have left: others in the line may be waiting for just that;
//! 2. wait for one's turn in the process's own line for the lock, first come first;
//! 3. create the key under one's lease, if it does not exist, in one transaction; if that succeeds, the lock is held;
//! 4. else watch the key until it is deleted, and go to 3: one client a process is woken, however many wait in it;
//! 5. when the wait is over, leave the line;
//! 6. delete the key to release, if it is still of one's lease, and let the next in line go on. A hold that lasts
//!    [`HOLD_LEASES`] leases is ended by the client itself, which raises `lost`.
//!
//! Source: the single-key lock of many etcd client libraries (python-etcd3's `Lock`, among others), with the local queue
//! that keeps their herd to one a process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OwnedSemaphorePermit;

use super::lock_prefix;
use super::mutex::deletion;
use super::session::{Created, EtcdConnect, EtcdSession, Key};
use super::tenancy::Tenancy;
use super::tenant::{Keys, Tenant};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::{Task, within};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// The longest hold, in leases: long for any use of the lock, and short for whoever waits behind one that was forgotten.
const HOLD_LEASES: u32 = 30;
/// Before the next try when a call failed.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

pub fn open(seat: Seat<dyn EtcdConnect>) -> Box<dyn LockClient> {
    Box::new(Queue {
        tenant: Tenant::new(seat, Keys::Shared),
        held: BTreeMap::new(),
    })
}

struct Queue {
    tenant: Tenant,
    held: BTreeMap<String, Held>,
}

/// One's place at the head of the process's line, and the clock that ends a hold that is too long.
struct Held {
    _place: Place,
    _clock: Task,
}

/// A place at the head of the line, until it is given up.
type Place = Rc<RefCell<Option<OwnedSemaphorePermit>>>;

fn key_name(lock: &str) -> String {
    format!("{}lock", lock_prefix(lock))
}

impl Queue {
    /// Waits at the head of the line until the key is one's own.
    async fn contend(
        &mut self,
        request: &Acquire,
        deadline: Duration,
    ) -> Outcome<(Rc<dyn EtcdSession>, Rc<Tenancy>, Key)> {
        let limit = deadline + self.tenant.seat.lease / 2;
        let name = key_name(&request.lock);
        loop {
            let (session, tenancy) = self.tenant.settle().await?;
            let created = self
                .tenant
                .insist(limit, || session.create(&name, "", tenancy.lease))
                .await;
            let left = deadline.saturating_sub(self.tenant.now());
            match created {
                Ok((Created { key, .. }, _)) if key.lease == tenancy.lease => {
                    if !self.tenant.seat.is_careful() || tenancy.is_sure(self.tenant.now()) {
                        return Ok((session, tenancy, key));
                    }
                    let refused = NotOk::Fail("the lease is not sure".into());
                    return Err(self.tenant.give_up(&*session, key, refused, limit).await);
                }
                Ok(_) if left.is_zero() => return Err(NotOk::gave_up(request)),
                Ok((taken, _)) => self.wait_for(&*session, &request.lock, &taken, left).await,
                // the lease is gone: a new one, if there is time
                Err(SessionError::Definite(reason)) => {
                    self.tenant.evict();
                    if left.is_zero() {
                        return Err(NotOk::Fail(reason));
                    }
                    self.tenant.seat.host.sleep(RETRY_PAUSE).await;
                }
                Err(error) => {
                    self.tenant.remember(name, tenancy.lease);
                    return Err(NotOk::Info(error.to_string()));
                }
            }
        }
    }

    /// Waits until the key of another goes, or it is time to look again.
    async fn wait_for(&self, session: &dyn EtcdSession, lock: &str, taken: &Created, left: Duration) {
        let host = &*self.tenant.seat.host;
        let gone = deletion(session, &taken.key.name, taken.revision + 1);
        match within(host, left.min(self.tenant.seat.lease), gone).await {
            Some(Ok(())) => self
                .tenant
                .seat
                .signals
                .woken(lock, format!("DELETE {}", taken.key.name)),
            Some(Err(_)) => host.sleep(RETRY_PAUSE.min(left)).await,
            None => {}
        }
    }

    /// Ends the hold by itself when it has lasted too long.
    fn clock(&self, session: Rc<dyn EtcdSession>, lock: &str, own: &Key, place: Place) -> Task {
        let (host, signals) = (self.tenant.seat.host.clone(), self.tenant.seat.signals.clone());
        let (lock, own) = (lock.to_owned(), own.clone());
        let time = self.tenant.seat.lease * HOLD_LEASES;
        self.tenant.seat.host.spawn(Box::pin(async move {
            host.sleep(time).await;
            signals.lost(&lock, "held too long");
            // what stays goes when the client next acquires
            let _ = session.delete_owned(&own.name, own.lease).await;
            place.take();
        }))
    }
}

#[async_trait(?Send)]
impl LockClient for Queue {
    async fn open(&mut self) -> Outcome<Grant> {
        self.tenant.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let deadline = self.tenant.now() + Duration::from_millis(request.wait_ms);
        self.tenant.forget_lost(&request.lock);
        if !self.tenant.holds(&request.lock) {
            self.held.remove(&request.lock);
        }
        self.tenant.settle().await?;
        let line = self.tenant.seat.host.line(&request.lock);
        let wait = Duration::from_millis(request.wait_ms);
        let place = match within(&*self.tenant.seat.host, wait, line.acquire_owned()).await {
            Some(place) => place.expect("a line is never closed"),
            None => return Err(NotOk::gave_up(request)),
        };
        let (session, tenancy, own) = self.contend(request, deadline).await?;
        let place: Place = Rc::new(RefCell::new(Some(place)));
        let clock = self.clock(session, &request.lock, &own, place.clone());
        self.held.insert(
            request.lock.clone(),
            Held {
                _place: place,
                _clock: clock,
            },
        );
        Ok(self.tenant.hold(&request.lock, own, &tenancy))
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        let _next = self.held.remove(lock);
        self.tenant.release(lock).await
    }

    async fn close(&mut self) {
        self.held.clear();
        self.tenant.close().await;
    }
}
