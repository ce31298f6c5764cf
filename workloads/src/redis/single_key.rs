//! The client of all locks on a single key ([`SingleKeyLock`]): take the key, hold it for as long as its time to live allows, release it.
//! [`SetForm`] and [`DeleteForm`] are the differences of recipes.
//!
//! 1. SET the key to a random value unless it exists; poll with jitter while it does;
//! 2. a SET whose reply was lost is never believed to have failed: the value is read back, on the same connection, where
//!    answers come in order. What stays unknown is `info`, and is deleted by its value before the next acquire;
//! 3. a careful client believes for [`VALIDITY`](crate::recipe::VALIDITY) percent of the lease, counted from before
//!    the SET was sent;
//! 4. release as the recipe says.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::failover_connection::{FailoverConnection, RETRY_PAUSE};
use super::key_forms::{DeleteForm, KeyContext, RetryWait, SetForm};
use super::lease_keeper::{counted_from_reply, keep_renewing};
use super::{RedisContext, lock_key};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::defects::has_defect;
use crate::host::random_name;
use crate::protocol::AcquireRequest;
use crate::session::SessionError;
use crate::session::redis::RedisSession;

/// A client of a lock on a single key.
pub(super) struct SingleKeyLock {
    context: RedisContext,
    takes: SetForm,
    gives: DeleteForm,
    retry: RetryWait,
    connection: FailoverConnection,
    held: ClientHolds<HeldValue>,
    /// Keys that an unknown SET or release may have left, with the values that they then have.
    leftovers: Vec<(String, String)>,
}

struct HeldValue {
    value: String,
    /// The time at which the SET was sent.
    asked: Duration,
}

/// An attempt to take a lock, over as many SETs as it needs.
struct SetAttempt<'a> {
    lock: &'a str,
    key: String,
    value: String,
    deadline: Duration,
    unknown_set: Option<UnknownSet>,
}

/// A SET of which it is not known whether it happened.
struct UnknownSet {
    /// The time at which the first such was sent.
    since: Duration,
    /// The connection of the last one.
    session: Rc<dyn RedisSession>,
}

impl SingleKeyLock {
    pub(super) fn new(context: RedisContext, takes: SetForm, gives: DeleteForm) -> Self {
        let connection = FailoverConnection::new(context.clone());
        SingleKeyLock {
            held: ClientHolds::new(&context.signals),
            context,
            takes,
            gives,
            retry: RetryWait::default(),
            connection,
            leftovers: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.context.host.now()
    }

    /// Returns a lock on one connection.
    fn at<'a>(&'a self, session: &'a dyn RedisSession, lock: &'a str, key: &'a str, value: &'a str) -> KeyContext<'a> {
        KeyContext {
            recipe: &self.context,
            session,
            lock,
            key,
            value,
        }
    }

    /// Tries until the key is taken or the wait is over; returns the time at which the SET was sent that took it, if one did.
    async fn take(&mut self, attempt: &mut SetAttempt<'_>) -> LockResult<Option<Duration>> {
        loop {
            let session = self.connection.session(attempt.deadline).await?;
            let asked = self.now();
            let at = self.at(&*session, attempt.lock, &attempt.key, &attempt.value);
            let refused = match self.takes.set(at).await {
                Ok(Some(value)) => {
                    attempt.value = value;
                    let is_late = has_defect("redis-set-px-lua", "all of the lease counts from the reply");
                    return Ok(Some(if is_late {
                        counted_from_reply(&self.context)
                    } else {
                        asked
                    }));
                }
                Ok(None) => None,
                Err(SessionError::Definite(reason)) => {
                    self.connection.next_server();
                    Some(reason)
                }
                Err(error) if self.takes != SetForm::WithLease => return Err(error.into()),
                Err(_) if has_defect("redis-set-px-lua", "an unanswered SET has failed") => None,
                Err(_) if has_defect("redis-set-px-lua", "an unanswered SET has succeeded") => return Ok(Some(asked)),
                Err(_) => {
                    let since = attempt.unknown_set.as_ref().map_or(asked, |unknown| unknown.since);
                    attempt.unknown_set = Some(UnknownSet {
                        since,
                        session: session.clone(),
                    });
                    None
                }
            };
            if attempt.unknown_set.is_some()
                && let Some(since) = self.read_back(attempt).await
            {
                return Ok(Some(since));
            }
            let left = attempt.deadline.saturating_sub(self.now());
            match refused {
                Some(reason) if left.is_zero() && attempt.unknown_set.is_none() => {
                    return Err(LockError::refused(reason));
                }
                _ if left.is_zero() => return Ok(None),
                _ => {
                    let at = self.at(&*session, attempt.lock, &attempt.key, &attempt.value);
                    self.retry.wait(at, left).await;
                }
            }
        }
    }

    /// Settles an unknown SET if it can be settled: returns the time at which it was sent, if it did take the key.
    async fn read_back(&mut self, attempt: &mut SetAttempt<'_>) -> Option<Duration> {
        let unknown = attempt.unknown_set.as_ref()?;
        let session = self.connection.session(attempt.deadline).await.ok()?;
        let value = session.get(&attempt.key).await.ok()?;
        if value.as_ref() == Some(&attempt.value) {
            return Some(unknown.since);
        }
        if Rc::ptr_eq(&session, &unknown.session) {
            attempt.unknown_set = None;
        }
        None
    }

    /// Makes a taken key a held lock, unless its time is over already.
    fn hold(&mut self, attempt: &SetAttempt<'_>, asked: Duration) -> Option<LockGrant> {
        let recipe = self.context.options.recipe;
        let expires = recipe.lease.then(|| self.context.valid_until(asked));
        if self.context.is_careful() && expires.is_some_and(|end| end <= self.now()) {
            return None;
        }
        let (lock, value) = (attempt.lock, attempt.value.clone());
        let watch = match expires {
            Some(_) if recipe.renews => Some(keep_renewing(&self.context, &self.connection, lock, &value, asked)),
            Some(end) if !recipe.extends => self.context.watch_validity(lock, end),
            _ => None,
        };
        let grant = LockGrant::to(value.clone(), None);
        self.held.begin(lock, HeldValue { value, asked }, watch);
        Some(grant)
    }

    /// Ends an attempt that is no grant: its leftovers are deleted, now or before the next acquire.
    async fn withdraw(&mut self, attempt: SetAttempt<'_>, taken: bool, refused: LockError) -> LockError {
        if attempt.unknown_set.is_none() && !taken {
            return refused;
        }
        let limit = self.now() + self.context.lease / 4;
        let deleted = match self.connection.session(limit).await {
            Ok(session) => session.del_if(&attempt.key, &attempt.value).await.map(|_| session),
            Err(error) => Err(error),
        };
        match (deleted, attempt.unknown_set) {
            // in order on one connection: the SET was before
            (Ok(_), None) => refused,
            (Ok(session), Some(unknown)) if Rc::ptr_eq(&session, &unknown.session) => refused,
            _ => {
                self.leftovers.push((attempt.key, attempt.value));
                LockError::Unknown("the reply to SET was lost".into())
            }
        }
    }

    /// Whether a careful client knows that it no longer holds the lock.
    fn is_over(&self, lock: &str) -> bool {
        let Some(held) = self.held.get(lock) else { return false };
        let ran_out = self.now() >= self.context.valid_until(held.asked);
        let recipe = self.context.options.recipe;
        let timed = recipe.lease && !recipe.renews;
        self.context.is_careful() && (self.held.is_lost(lock) || (timed && ran_out))
    }

    /// Forgets a lock that was lost and never released; its key may be there still, and is deleted before the next
    /// acquire.
    fn forget_lost(&mut self, lock: &str) {
        if self.is_over(lock)
            && let Ok(held) = self.held.end(lock)
            && self.gives.compares()
        {
            self.leftovers.push((lock_key(lock), held.value));
        }
    }

    /// Deletes keys that unknown operations may have left.
    async fn sweep(&mut self, limit: Duration) -> Result<(), SessionError> {
        while let Some((key, value)) = self.leftovers.last() {
            let session = self.connection.session(limit).await?;
            session.del_if(key, value).await?;
            self.leftovers.pop();
        }
        Ok(())
    }

    /// Deletes the key to release the lock; repeats that after an unknown answer, if it can do no harm.
    async fn release_key(&mut self, lock: &str, held: &HeldValue) -> LockResult<()> {
        let limit = self.now() + self.context.lease / 2;
        let key = lock_key(lock);
        let mut unknown = None;
        loop {
            let released = match self.connection.session(limit).await {
                Ok(session) => self.gives.delete(self.at(&*session, lock, &key, &held.value)).await,
                Err(error) => Err(SessionError::Indefinite(error.to_string())),
            };
            let in_time = self.now() < held.asked + self.context.lease;
            match (released, unknown.take()) {
                (Ok(true), _) => return Ok(()),
                (Ok(false), before) => return LockError::of_nothing_released(before, in_time),
                (Err(_), _) if has_defect("redis-set-px-lua", "a release is always ok") => return Ok(()),
                (Err(error), _) if !self.gives.compares() => return Err(error.on_release()),
                (Err(error), _) if self.now() >= limit => {
                    self.leftovers.push((key, held.value.clone()));
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

#[async_trait(?Send)]
impl LockClient for SingleKeyLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        let limit = self.now() + self.context.lease;
        self.connection.session(limit).await?;
        Ok(LockGrant::default())
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.now() + Duration::from_millis(request.wait_ms);
        self.forget_lost(&request.lock);
        self.sweep(deadline).await.map_err(SessionError::on_cleaning)?;
        let value = random_name(&*self.context.host);
        let key = lock_key(&request.lock);
        let mut attempt = SetAttempt {
            lock: &request.lock,
            key,
            value,
            deadline,
            unknown_set: None,
        };
        let taken = self.take(&mut attempt).await;
        self.retry.end();
        let taken = match taken {
            Ok(taken) => taken,
            Err(refused) => return Err(self.withdraw(attempt, false, refused).await),
        };
        if let Some(asked) = taken
            && let Some(grant) = self.hold(&attempt, asked)
        {
            return Ok(grant);
        }
        Err(self
            .withdraw(attempt, taken.is_some(), LockError::wait_over(request))
            .await)
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let is_over = !self.gives.compares() && self.is_over(lock);
        let held = self.held.end_unless(is_over, lock)?;
        self.release_key(lock, &held).await
    }

    async fn extend(&mut self, lock: &str) -> LockResult<()> {
        let held = self.held.get(lock).ok_or(LockError::NOT_HELD)?;
        let (key, value) = (lock_key(lock), held.value.clone());
        let asked = self.now();
        let session = self.connection.session(asked + self.context.lease / 2).await?;
        let lease = self.context.lease;
        let extended = match self.context.options.recipe.extends && !self.context.is_careful() {
            true => session.expire(&key, lease).await,
            false => session.expire_if(&key, &value, lease).await,
        };
        if !extended? {
            return Err(LockError::NOT_HELD);
        }
        self.held.get_mut(lock).expect("it is held").asked = asked;
        Ok(())
    }

    async fn close(&mut self) {
        for (lock, hold) in self.held.end_all() {
            // a key that stays expires with its time to live
            let _ = self.release_key(&lock, &hold.known).await;
        }
        self.connection.close();
    }
}
