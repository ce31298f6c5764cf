//! A lease in a row of a table ([`RowLease`]): owner, fencing token and the time at which it ends, by the server's clock.
//!
//! 1. write the row unless it is another's and has not run out; poll with jitter while it is;
//! 2. a write whose answer was lost may have taken the lease: the acquire is `info`, and what it left is ended before the next;
//! 3. a careful client believes for [`VALIDITY`](crate::recipe::VALIDITY) percent of the lease, counted from before the write was sent;
//! 4. release: end the lease if it is still the client's own.
//!
//! [`LeaseForm::Blind`] leaves a comparison out.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::{SqlContext, connected};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::host::random_name;
use crate::protocol::AcquireRequest;
use crate::session::sql::{LeaseForm, SqlSession};
use crate::session::{RETRY_PAUSE, SessionError};

/// A client of a lease in a row.
pub(crate) struct RowLease {
    context: SqlContext,
    /// The way in which the lease is taken; a blind one is first read, and then written.
    takes: LeaseForm,
    /// The way in which it is given back.
    gives: LeaseForm,
    session: Option<Rc<dyn SqlSession>>,
    held: ClientHolds<HeldLease>,
    /// Locks and owners of leases that an unknown operation may have left.
    leftovers: Vec<(String, String)>,
}

struct HeldLease {
    owner: String,
    /// The time at which the write was sent.
    asked: Duration,
}

impl RowLease {
    pub(crate) fn new(context: SqlContext, takes: LeaseForm, gives: LeaseForm) -> Self {
        RowLease {
            held: ClientHolds::new(&context.signals),
            context,
            takes,
            gives,
            session: None,
            leftovers: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.context.host.now()
    }

    /// Returns the connection, or a new one if it broke; tries until the limit.
    async fn session(&mut self, limit: Duration) -> Result<Rc<dyn SqlSession>, SessionError> {
        if let Some(session) = self.session.as_ref().filter(|session| !session.is_broken()) {
            return Ok(session.clone());
        }
        let session = connected(&self.context, limit).await?;
        Ok(self.session.insert(session).clone())
    }

    /// Tries until the lease is taken or the wait is over; answers when the write was sent, and the token.
    async fn take(
        &mut self,
        lock: &str,
        owner: &str,
        deadline: Duration,
    ) -> Result<Option<(Duration, u64)>, SessionError> {
        loop {
            let session = self.session(deadline).await.map_err(unsent)?;
            let asked = self.now();
            let lease = self.context.lease;
            let token = match self.takes {
                LeaseForm::Blind if !session.is_free(lock).await.map_err(unsent)? => None,
                form => session.take_lease(form, lock, owner, lease).await?,
            };
            if let Some(token) = token {
                return Ok(Some((asked, token)));
            }
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                return Ok(None);
            }
            self.context.host.sleep(self.context.poll_pause().min(left)).await;
        }
    }

    fn hold(&mut self, lock: &str, owner: String, asked: Duration, token: u64) -> LockGrant {
        let watch = self.context.watch_validity(lock, self.context.valid_until(asked));
        let held = HeldLease {
            owner: owner.clone(),
            asked,
        };
        self.held.begin(lock, held, watch);
        LockGrant::to(owner, Some(token))
    }

    /// Whether a careful client knows that it no longer holds the lock.
    fn is_over(&self, lock: &str) -> bool {
        let Some(held) = self.held.get(lock) else { return false };
        self.context.is_careful() && (self.held.is_lost(lock) || self.now() >= self.context.valid_until(held.asked))
    }

    /// Forgets a lock that was lost and never released; its lease may be there still, and is ended before the next acquire.
    fn forget_lost(&mut self, lock: &str) {
        if self.is_over(lock)
            && let Ok(held) = self.held.end(lock)
        {
            self.leftovers.push((lock.to_owned(), held.owner));
        }
    }

    /// Ends leases that unknown operations may have left.
    async fn sweep(&mut self, limit: Duration) -> Result<(), SessionError> {
        while let Some((lock, owner)) = self.leftovers.last().cloned() {
            let session = self.session(limit).await?;
            session.end_lease(LeaseForm::Compared, &lock, &owner).await?;
            self.leftovers.pop();
        }
        Ok(())
    }

    /// Ends a lease to release it; repeats that after an unknown answer, if it can do no harm.
    async fn give(&mut self, lock: &str, held: &HeldLease) -> LockResult<()> {
        let limit = self.now() + self.context.lease / 2;
        let mut unknown = None;
        loop {
            let ended = match self.session(limit).await {
                Ok(session) => session.end_lease(self.gives, lock, &held.owner).await,
                Err(error) => Err(SessionError::Indefinite(error.to_string())),
            };
            let in_time = self.now() < held.asked + self.context.lease;
            match (ended, unknown.take()) {
                (Ok(true), _) => return Ok(()),
                (Ok(false), before) => return LockError::of_nothing_released(before, in_time),
                (Err(error), _) if self.gives == LeaseForm::Blind => return Err(error.on_release()),
                (Err(error), _) if self.now() >= limit => {
                    self.leftovers.push((lock.to_owned(), held.owner.clone()));
                    return Err(LockError::Unknown(error.to_string()));
                }
                (Err(SessionError::Indefinite(reason)), _) => unknown = Some(reason),
                // this try did nothing, so it is open only whether one before it did
                (Err(_), before) => {
                    unknown = before;
                    self.context.host.sleep(RETRY_PAUSE).await;
                }
            }
        }
    }
}

/// Converts the error of a call that changes nothing: it is definite.
fn unsent(error: SessionError) -> SessionError {
    SessionError::Definite(error.to_string())
}

#[async_trait(?Send)]
impl LockClient for RowLease {
    async fn open(&mut self) -> LockResult<LockGrant> {
        let limit = self.now() + self.context.lease;
        self.session(limit).await?.prepare().await?;
        Ok(LockGrant::default())
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.now() + Duration::from_millis(request.wait_ms);
        let lock = &request.lock;
        self.forget_lost(lock);
        self.sweep(deadline).await.map_err(SessionError::on_cleaning)?;
        let owner = random_name(&*self.context.host);
        match self.take(lock, &owner, deadline).await {
            Ok(Some((asked, token))) if !self.context.is_careful() || self.now() < self.context.valid_until(asked) => {
                Ok(self.hold(lock, owner, asked, token))
            }
            // its time is over already
            Ok(Some(_)) => {
                self.leftovers.push((lock.clone(), owner));
                match self.sweep(self.now() + self.context.lease / 4).await {
                    Ok(()) => Err(LockError::wait_over(request)),
                    // it is there until its end
                    Err(error) => Err(LockError::Unknown(error.to_string())),
                }
            }
            Ok(None) => Err(LockError::wait_over(request)),
            Err(SessionError::Definite(reason)) => Err(LockError::refused(reason)),
            Err(error) => {
                self.leftovers.push((lock.clone(), owner));
                Err(LockError::Unknown(error.to_string()))
            }
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let is_over = self.gives == LeaseForm::Blind && self.is_over(lock);
        let held = self.held.end_unless(is_over, lock)?;
        self.give(lock, &held).await
    }

    async fn close(&mut self) {
        for (lock, hold) in self.held.end_all() {
            // a lease that stays runs out
            let _ = self.give(&lock, &hold.known).await;
        }
        self.session = None;
    }
}
