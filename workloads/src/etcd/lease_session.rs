//! The session of every etcd recipe ([`LeaseSession`]), with a lease that is renewed, the keys that are held, and the keys that an unknown
//! operation may have left.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::lease_keeper::{LeaseKeeper, first_doubt};
use super::{EtcdContext, lock_prefix};
use crate::client::{LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::defects::has_defect;
use crate::host::{RecipeHost, Task, within};
use crate::protocol::AcquireRequest;
use crate::session::etcd::{Created, EtcdKey, EtcdSession};
use crate::session::{RETRY_PAUSE, Retried, SessionError};

/// The number of times in a lease that a careful client looks whether its own key is still there.
const LOOKS_A_LEASE: u32 = 3;

/// The names of a recipe's keys, which decide whether a key of that name is surely the client's own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyNames {
    /// The lease is in the name, so only this client creates it.
    PerLease,
    /// All clients contend for one name, so the key may belong to another by now.
    Shared,
}

pub(super) struct LeaseSession {
    pub context: EtcdContext,
    names: KeyNames,
    keeper: Option<Rc<LeaseKeeper>>,
    held: ClientHolds<OwnKey>,
    /// Keys that may be there although they should not: their create was not answered, or their delete was not done.
    leftovers: Vec<OwnKey>,
    /// Whether a call under the lease was not answered, and may still be done.
    unanswered: Cell<bool>,
}

/// A key of this client.
#[derive(Clone)]
pub(super) struct OwnKey {
    pub name: Rc<str>,
    /// The lease that it belongs to, which distinguishes it from another client's key of the same name.
    pub lease: i64,
}

impl From<EtcdKey> for OwnKey {
    fn from(EtcdKey { name, lease, .. }: EtcdKey) -> Self {
        OwnKey { name, lease }
    }
}

impl LeaseSession {
    pub(super) fn new(context: EtcdContext, names: KeyNames) -> Self {
        LeaseSession {
            held: ClientHolds::new(&context.signals),
            context,
            names,
            keeper: None,
            leftovers: Vec::new(),
            unanswered: Cell::new(false),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.context.host.now()
    }

    pub(super) async fn open(&mut self) -> LockResult<LockGrant> {
        let keeper = self.ready().await?;
        Ok(LockGrant::to(keeper.owner(), None))
    }

    /// Returns a lease that is not over; leftovers are deleted first.
    ///
    /// A careful client takes a new lease when a call under the old one was not answered ([`Self::give_up_lease`]). The key of a lease
    /// has one name: a delete that a stopped server held back, or the clean-up of its lock service after a client that went elsewhere,
    /// would delete the key of the next hold.
    ///
    /// # Errors
    ///
    /// Always a refusal, since no lock was asked for yet. (A lease whose grant was not answered ends by itself and holds
    /// nothing.)
    pub(super) async fn ready(&mut self) -> LockResult<Rc<LeaseKeeper>> {
        let refused = |error: SessionError| LockError::refused(error.to_string());
        while let Some(key) = self.leftovers.last() {
            let deleted = self.delete(key).await;
            self.note(&deleted);
            deleted.map_err(refused)?;
            self.leftovers.pop();
        }
        self.give_up_doubtful_lease();
        let now = self.now();
        if let Some(keeper) = self.keeper.as_ref().filter(|keeper| !keeper.is_over(now)) {
            return Ok(keeper.clone());
        }
        let keeper = self
            .retry(self.now() + self.context.lease / 2, || {
                LeaseKeeper::start(&self.context)
            })
            .await;
        let keeper = Rc::new(keeper.map_err(refused)?.answer);
        self.keeper = Some(keeper.clone());
        // a grant without an answer is no call under this one
        self.unanswered.set(false);
        Ok(keeper)
    }

    /// Returns the client's key for a lock under a lease.
    pub(super) fn own_key(&self, lock: &str, lease: i64) -> OwnKey {
        let prefix = lock_prefix(lock);
        let name = match self.names {
            KeyNames::PerLease => format!("{prefix}{lease:x}"),
            KeyNames::Shared => format!("{prefix}lock"),
        };
        let name = name.into();
        OwnKey { name, lease }
    }

    /// Creates the client's key for a lock unless there is one of its name: with the lease in it, it is the same key however often it is
    /// created. Where the lease is gone a new one is taken, if it is not too late yet.
    pub(super) async fn create(
        &mut self,
        lock: &str,
        limit: Duration,
        too_late: Duration,
    ) -> LockResult<(Rc<LeaseKeeper>, Created)> {
        loop {
            let keeper = self.ready().await?;
            let own = self.own_key(lock, keeper.lease);
            let store = &self.context.store;
            match self.retry(limit, || store.create(&own.name, "", own.lease)).await {
                Ok(created) => return Ok((keeper, created.answer)),
                Err(SessionError::Definite(reason)) => {
                    self.drop_lease();
                    if self.now() >= too_late {
                        return Err(LockError::refused(reason));
                    }
                }
                Err(error) => {
                    self.add_leftover(own);
                    return Err(LockError::Unknown(error.to_string()));
                }
            }
            self.context.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Forgets a lease that the server does not know, or that is not to be used again.
    pub(super) fn drop_lease(&mut self) {
        self.keeper = None;
        self.unanswered.set(false);
    }

    /// Whether it may give up its lease.
    fn holds_nothing_and_is_careful(&self) -> bool {
        self.held.is_empty() && self.context.is_careful()
    }

    /// Gives up a lease under which a call was not answered: a create that a stopped server held back would make a key that is nobody's, and
    /// a client that rests until its next acquire would keep it there by renewing the lease.
    fn give_up_doubtful_lease(&mut self) {
        if self.unanswered.get() && self.holds_nothing_and_is_careful() {
            self.give_up_lease();
        }
    }

    /// Ends the renewals of the lease, and revokes it: otherwise calls that the server does late would have effect until it ends. A create
    /// that comes after that is refused.
    fn give_up_lease(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            let (store, lease) = (self.context.store.clone(), keeper.lease);
            let revoking = async move {
                // one that is not answered ends by itself
                let _ = store.revoke_lease(lease).await;
            };
            self.context.host.spawn(Box::pin(revoking)).detach();
        }
        self.drop_lease();
    }

    /// Notes whether a call was answered.
    pub(super) fn note<T>(&self, answer: &Result<T, SessionError>) {
        if matches!(answer, Err(SessionError::Indefinite(_))) {
            self.unanswered.set(true);
        }
    }

    /// Remembers a key that may be there, to delete it before the next acquire. A client that rests until then would keep the key from
    /// all others by renewing its lease, so a careful one gives the lease up at once.
    fn add_leftover(&mut self, key: OwnKey) {
        self.leftovers.push(key);
        if self.holds_nothing_and_is_careful() {
            self.give_up_lease();
        }
    }

    /// Begins an acquire. One of a lock that the client holds is refused: the key of a lease has one name, so that its create would find
    /// the key of the hold and take it for its own, and its withdrawal would delete that.
    pub(super) async fn begin(&mut self, request: &AcquireRequest) -> LockResult<()> {
        self.forget_lost(&request.lock);
        if self.held.get(&request.lock).is_none() {
            return Ok(());
        }
        let wait = Duration::from_millis(request.wait_ms);
        self.context.host.sleep(wait).await;
        Err(LockError::wait_over(request))
    }

    /// Forgets a lock that was lost and never released; its key may be there still, and is deleted before the next
    /// acquire.
    fn forget_lost(&mut self, lock: &str) {
        if let Some(key) = self.held.end_lost(lock) {
            self.leftovers.push(key);
        }
    }

    /// Begins a hold by its key, and watches it if the client is careful.
    pub(super) fn begin_hold(&mut self, lock: &str, key: EtcdKey, keeper: &Rc<LeaseKeeper>) -> LockGrant {
        let watch = (self.context.is_careful() && !has_defect("etcd-mutex", "nobody doubts"))
            .then(|| self.watch_hold(lock, &key.name, keeper));
        let own = OwnKey {
            name: key.name,
            lease: keeper.lease,
        };
        self.held.begin(lock, own, watch);
        let token = u64::try_from(key.create_revision).ok().filter(|token| *token > 0);
        LockGrant::to(keeper.owner(), token)
    }

    /// Tries again until the answer is known or the limit has passed. Only for calls that may be repeated.
    async fn retry<T>(
        &self,
        limit: Duration,
        attempt: impl AsyncFn() -> Result<T, SessionError>,
    ) -> Result<Retried<T>, SessionError> {
        let mut again = false;
        loop {
            let answer = attempt().await;
            self.note(&answer);
            match answer {
                Err(SessionError::Indefinite(_)) if self.now() < limit => again = true,
                // it may be an earlier attempt that is done, and still to come
                Err(SessionError::Definite(reason)) if again => return Err(SessionError::Indefinite(reason)),
                answer => return answer.map(|answer| Retried { answer, again }),
            }
            self.context.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Deletes the client's own key to leave a queue. Answers `refused`, or that it is unknown whether the key is gone.
    pub(super) async fn withdraw(&mut self, own: OwnKey, refused: LockError, limit: Duration) -> LockError {
        if has_defect("etcd-mutex", "the key stays when the wait is over") {
            return refused;
        }
        let deleted = self.retry(limit, || self.delete(&own)).await;
        let gone = match deleted {
            Ok(_) if self.context.is_careful() && self.unanswered.get() => self.end_lease(limit).await,
            deleted => deleted.map(drop),
        };
        match gone {
            Ok(()) => refused,
            Err(error) => {
                self.add_leftover(own);
                LockError::Unknown(error.to_string())
            }
        }
    }

    /// Releases the lock by a call that answers the same whether or not the lock was still held.
    pub(super) async fn release_by(
        &mut self,
        lock: &str,
        call: impl AsyncFn(&dyn EtcdSession, &str) -> Result<(), SessionError>,
    ) -> LockResult<()> {
        let key = self.held.end(lock)?;
        let limit = self.now() + self.context.lease / 2;
        match self.retry(limit, || call(&*self.context.store, &key.name)).await {
            Ok(_) => {
                self.give_up_doubtful_lease();
                Ok(())
            }
            Err(error) => {
                // the key is there also after a call that was surely not done, and the service grants it again, as it was
                self.add_leftover(key);
                Err(error.on_release())
            }
        }
    }

    /// Revokes a lease under which a call was not answered. A create that is still on its way would make its key again after the
    /// delete; under a lease that is gone it is refused.
    async fn end_lease(&mut self, limit: Duration) -> Result<(), SessionError> {
        let Some(keeper) = self.keeper.clone() else {
            return Ok(());
        };
        if !self.held.is_empty() {
            return Err(SessionError::Indefinite(
                "a call under the lease was not answered".into(),
            ));
        }
        let store = &self.context.store;
        self.retry(limit, || store.revoke_lease(keeper.lease)).await?;
        self.drop_lease();
        Ok(())
    }

    /// Deletes the client's own key to release the lock.
    pub(super) async fn release(&mut self, lock: &str) -> LockResult<()> {
        let key = self.held.end(lock)?;
        let limit = self.now() + self.context.lease / 2;
        let deleted = self.retry(limit, || self.delete(&key)).await;
        let is_sure = self.keeper.as_ref().is_some_and(|keeper| keeper.is_sure(self.now()));
        self.give_up_doubtful_lease();
        match deleted.map(|Retried { answer, again }| (answer, again)) {
            Ok((true, _)) => Ok(()),
            Ok((false, false)) => Err(LockError::no_longer_held("own key is gone")),
            // the lease is alive, so it was the first delete that did it
            Ok((false, true)) if is_sure => Ok(()),
            Ok((false, true)) => Err(LockError::Unknown("the reply to the delete was lost".into())),
            Err(error) => {
                self.add_leftover(key);
                Err(error.on_release())
            }
        }
    }

    async fn delete(&self, key: &OwnKey) -> Result<bool, SessionError> {
        match self.names {
            KeyNames::PerLease => self.context.store.delete(&key.name).await,
            KeyNames::Shared => self.context.store.delete_owned(&key.name, key.lease).await,
        }
    }

    fn watch_hold(&self, lock: &str, key: &str, keeper: &Rc<LeaseKeeper>) -> Task {
        let (store, state) = (self.context.store.clone(), keeper.state());
        let (host, signals) = (self.context.host.clone(), self.context.signals.clone());
        let (lock, key) = (lock.to_owned(), key.to_owned());
        let pause = self.context.lease / LOOKS_A_LEASE;
        self.context.host.spawn(Box::pin(async move {
            let cause = tokio::select! {
                biased;
                cause = first_doubt(&*host, state) => cause,
                () = until_deleted(&*host, &*store, &key, pause) => "own key is gone".into(),
            };
            signals.lost(&lock, cause);
        }))
    }

    /// Ends the lease, and all its keys with it.
    pub(super) async fn close(&mut self) {
        self.held.end_all();
        if let Some(keeper) = self.keeper.take() {
            let revoked = self.context.store.revoke_lease(keeper.lease);
            let _ = within(&*self.context.host, self.context.lease / 2, revoked).await;
        }
    }
}

/// Reads a key at intervals until it is gone. A watch would be notified of the client's own release as well.
async fn until_deleted(host: &dyn RecipeHost, session: &dyn EtcdSession, key: &str, pause: Duration) {
    loop {
        host.sleep(pause).await;
        // an error says nothing about the key; the clock of the lease runs on
        if let Ok(None) = session.get(key).await {
            return;
        }
    }
}
