//! What all locks on one key share: take the key, hold it for as long as its time to live allows, give it back. What
//! differs is the recipe's [`Style`].
//!
//! 1. SET the key to a random value unless it exists; poll with jitter while it does;
//! 2. a SET whose reply was lost is never believed to have failed: the value is read back, on the same connection, where
//!    answers come in order. What stays unknown is `info`, and is deleted by its value before the next acquire;
//! 3. a careful holder believes for [`VALIDITY`] of the lease, counted from before the SET was sent;
//! 4. release as the recipe says.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::connection::Connection;
use super::guard::{Vigil, renew, watch_over};
use super::lock_key;
use super::session::{RedisConnect, RedisSession};
use super::style::{Spot, Style};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::Task;
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// How much of the lease a careful holder believes in, in percent. The rest is for clocks that differ, and for whoever
/// uses the lock to stop in time.
pub(super) const VALIDITY: u32 = 85;

/// A client of a lock on one key.
pub(super) struct Keyed<S> {
    seat: Seat<dyn RedisConnect>,
    style: S,
    connection: Connection,
    held: BTreeMap<String, Held>,
    /// Locks and values that an unknown SET or release may have left.
    leftovers: Vec<(String, String)>,
}

struct Held {
    value: String,
    /// When the SET was sent.
    asked: Duration,
    losses: u64,
    guard: Option<Task>,
}

/// A try to take a lock, over as many SETs as it needs.
struct Bid<'a> {
    lock: &'a str,
    key: String,
    value: String,
    deadline: Duration,
    unsure: Option<Unsure>,
}

impl Bid<'_> {
    fn spot<'a>(&'a self, session: &'a dyn RedisSession, lease: Duration) -> Spot<'a> {
        Spot {
            session,
            lock: self.lock,
            key: &self.key,
            value: &self.value,
            lease,
        }
    }
}

/// A SET whose fate is unknown.
struct Unsure {
    /// When the first such was sent.
    since: Duration,
    /// The connection that the last one went over.
    session: Rc<dyn RedisSession>,
}

impl<S: Style> Keyed<S> {
    pub(super) fn new(seat: Seat<dyn RedisConnect>, style: S) -> Self {
        let connection = Connection::new(seat.clone());
        Keyed {
            seat,
            style,
            connection,
            held: BTreeMap::new(),
            leftovers: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.seat.host.now()
    }

    /// Tries until the key is taken or the wait is over; answers when the SET was sent that took it, if one did.
    async fn bid(&mut self, bid: &mut Bid<'_>) -> Outcome<Option<Duration>> {
        let taken = self.bid_on(bid).await;
        self.style.waited();
        taken
    }

    async fn bid_on(&mut self, bid: &mut Bid<'_>) -> Outcome<Option<Duration>> {
        loop {
            let session = self.connection.session(bid.deadline).await?;
            let asked = self.now();
            let refused = match self.style.take(&self.seat, bid.spot(&*session, self.seat.lease)).await {
                Ok(Some(value)) => {
                    bid.value = value;
                    return Ok(Some(asked));
                }
                Ok(None) => None,
                Err(SessionError::Definite(reason)) => {
                    self.connection.go_on();
                    Some(reason)
                }
                Err(error) if !self.style.reads_back() => return Err(error.into()),
                Err(_) => {
                    let since = bid.unsure.as_ref().map_or(asked, |unsure| unsure.since);
                    bid.unsure = Some(Unsure {
                        since,
                        session: session.clone(),
                    });
                    None
                }
            };
            if bid.unsure.is_some()
                && let Some(since) = self.read_back(bid).await
            {
                return Ok(Some(since));
            }
            let left = bid.deadline.saturating_sub(self.now());
            match refused {
                Some(reason) if left.is_zero() && bid.unsure.is_none() => return Err(NotOk::Fail(reason)),
                _ if left.is_zero() => return Ok(None),
                _ => {
                    self.style
                        .pause(&self.seat, bid.spot(&*session, self.seat.lease), left)
                        .await
                }
            }
        }
    }

    /// Settles an unknown SET if it can be settled: answers when it was sent, if it did take the key.
    async fn read_back(&mut self, bid: &mut Bid<'_>) -> Option<Duration> {
        let unsure = bid.unsure.as_ref()?;
        let session = self.connection.session(bid.deadline).await.ok()?;
        let value = session.get(&bid.key).await.ok()?;
        if value.as_ref() == Some(&bid.value) {
            return Some(unsure.since);
        }
        if Rc::ptr_eq(&session, &unsure.session) {
            bid.unsure = None;
        }
        None
    }

    /// Makes a taken key a held lock, unless its time is over already.
    fn hold(&mut self, bid: &Bid<'_>, asked: Duration) -> Option<Grant> {
        let expires = self.style.expires().then_some(asked + self.seat.lease * VALIDITY / 100);
        if self.seat.is_careful() && expires.is_some_and(|end| end <= self.now()) {
            return None;
        }
        let vigil = Vigil {
            lock: bid.lock.to_owned(),
            key: bid.key.clone(),
            value: bid.value.clone(),
            asked,
        };
        let guard = match (expires, self.style.renews()) {
            (Some(_), true) => Some(renew(&self.seat, self.connection.clone(), vigil)),
            (Some(_), false) if self.seat.is_careful() => Some(watch_over(&self.seat, vigil)),
            _ => None,
        };
        let losses = self.seat.signals.losses(bid.lock);
        let held = Held {
            value: bid.value.clone(),
            asked,
            losses,
            guard,
        };
        self.held.insert(bid.lock.to_owned(), held);
        Some(Grant {
            token: None,
            owner: Some(bid.value.clone()),
        })
    }

    /// Ends a bid that is no grant: what it may have left is deleted, now or before the next acquire.
    async fn withdraw(&mut self, bid: Bid<'_>, taken: bool, refused: NotOk) -> NotOk {
        if bid.unsure.is_none() && !taken {
            return refused;
        }
        let limit = self.now() + self.seat.lease / 4;
        let deleted = match self.connection.session(limit).await {
            Ok(session) => session.del_if(&bid.key, &bid.value).await.map(|_| session),
            Err(error) => Err(error),
        };
        match (deleted, bid.unsure) {
            // in order on one connection: the SET was before
            (Ok(_), None) => refused,
            (Ok(session), Some(unsure)) if Rc::ptr_eq(&session, &unsure.session) => refused,
            _ => {
                self.leftovers.push((bid.key, bid.value));
                NotOk::Info("the reply to SET was lost".into())
            }
        }
    }

    /// Whether a careful holder knows that it holds no longer.
    fn is_over(&self, lock: &str, held: &Held) -> bool {
        let ran_out = self.now() >= held.asked + self.seat.lease * VALIDITY / 100;
        let timed = self.style.expires() && !self.style.renews();
        self.seat.is_careful() && (held.losses != self.seat.signals.losses(lock) || (timed && ran_out))
    }

    /// A lock that was lost and never released: its key may be there still.
    fn forget_lost(&mut self, lock: &str) {
        if self.held.get(lock).is_some_and(|held| self.is_over(lock, held))
            && let Some(held) = self.held.remove(lock)
            && self.style.compares()
        {
            self.leftovers.push((lock_key(lock), held.value));
        }
    }

    /// Deletes what unknown operations may have left.
    async fn sweep(&mut self, limit: Duration) -> Result<(), SessionError> {
        while let Some((key, value)) = self.leftovers.last() {
            let session = self.connection.session(limit).await?;
            session.del_if(key, value).await?;
            self.leftovers.pop();
        }
        Ok(())
    }

    /// Gives the key back, again after an unknown answer if that can do no harm.
    async fn give_back(&mut self, lock: &str, key: &str, held: &Held) -> Outcome<()> {
        let limit = self.now() + self.seat.lease / 2;
        let mut unknown = None;
        loop {
            let session = self.connection.session(limit).await;
            let given = match session {
                Ok(session) => {
                    let spot = Spot {
                        session: &*session,
                        lock,
                        key,
                        value: &held.value,
                        lease: self.seat.lease,
                    };
                    self.style.give_back(&self.seat, spot).await
                }
                Err(error) => Err(SessionError::Indefinite(error.to_string())),
            };
            let in_time = self.now() < held.asked + self.seat.lease;
            match (given, unknown.take()) {
                (Ok(true), _) => return Ok(()),
                (Ok(false), None) => return Err(NotOk::not_held()),
                // it had not expired, so the delete before did it
                (Ok(false), Some(_)) if in_time => return Ok(()),
                (Ok(false), Some(reason)) => return Err(NotOk::Info(reason)),
                (Err(error), _) if !self.style.compares() => return Err(error.on_release()),
                (Err(error), _) if self.now() >= limit => {
                    self.leftovers.push((key.to_owned(), held.value.clone()));
                    return Err(NotOk::Info(error.to_string()));
                }
                (Err(error), _) => unknown = Some(error.to_string()),
            }
        }
    }
}

#[async_trait(?Send)]
impl<S: Style> LockClient for Keyed<S> {
    async fn open(&mut self) -> Outcome<Grant> {
        let limit = self.now() + self.seat.lease;
        self.connection.session(limit).await?;
        Ok(Grant::default())
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let deadline = self.now() + Duration::from_millis(request.wait_ms);
        self.forget_lost(&request.lock);
        self.sweep(deadline)
            .await
            .map_err(|error| NotOk::Fail(format!("cleaning up first: {error}")))?;
        let value = format!("{:016x}{:016x}", self.seat.host.random(), self.seat.host.random());
        let key = lock_key(&request.lock);
        let mut bid = Bid {
            lock: &request.lock,
            key,
            value,
            deadline,
            unsure: None,
        };
        let taken = match self.bid(&mut bid).await {
            Ok(taken) => taken,
            Err(refused) => return Err(self.withdraw(bid, false, refused).await),
        };
        if let Some(asked) = taken
            && let Some(grant) = self.hold(&bid, asked)
        {
            return Ok(grant);
        }
        Err(self.withdraw(bid, taken.is_some(), NotOk::gave_up(request)).await)
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        let Some(mut held) = self.held.remove(lock) else {
            return Err(NotOk::not_held());
        };
        held.guard = None;
        if !self.style.compares() && self.is_over(lock, &held) {
            return Err(NotOk::Fail("not held: its time was over".into()));
        }
        self.give_back(lock, &lock_key(lock), &held).await
    }

    async fn close(&mut self) {
        for (lock, held) in std::mem::take(&mut self.held) {
            // a key that stays goes with its time to live
            let _ = self.give_back(&lock, &lock_key(&lock), &held).await;
        }
        self.connection.close();
    }
}
