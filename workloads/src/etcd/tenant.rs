//! What every etcd recipe has: a session, a lease, and keys that an unknown operation may have left.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::session::{EtcdConnect, EtcdSession, Key};
use super::tenancy::{Tenancy, doubt};
use crate::client::{Grant, NotOk, Outcome};
use crate::host::{Host, Task, within};
use crate::recipe::Seat;
use crate::session::SessionError;

/// Between two tries that failed at once.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// How often in a lease a careful holder looks whether its own key is still there.
const LOOKS_A_LEASE: u32 = 3;

/// Whose the keys of a recipe can be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// The lease is in the name, so a key can be nobody else's.
    Own,
    /// All contend for one name, so a key may be another's by now.
    Shared,
}

pub(super) struct Tenant {
    pub seat: Seat<dyn EtcdConnect>,
    keys: Keys,
    session: Option<Rc<dyn EtcdSession>>,
    tenancy: Option<Rc<Tenancy>>,
    held: BTreeMap<String, Held>,
    /// Keys whose create or delete was not answered, with the lease they are one's own by.
    leftovers: Vec<(String, i64)>,
}

struct Held {
    key: String,
    lease: i64,
    losses: u64,
    guard: Option<Task>,
}

impl Tenant {
    pub(super) fn new(seat: Seat<dyn EtcdConnect>, keys: Keys) -> Self {
        Tenant {
            seat,
            keys,
            session: None,
            tenancy: None,
            held: BTreeMap::new(),
            leftovers: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.seat.host.now()
    }

    pub(super) async fn open(&mut self) -> Outcome<Grant> {
        let (_, tenancy) = self.settle().await?;
        Ok(Grant {
            token: None,
            owner: Some(tenancy.owner()),
        })
    }

    /// The session and a lease that is not over, and nothing left from before.
    ///
    /// Whatever goes wrong here, nothing was asked for yet: it is `fail`. (A lease whose grant was not answered ends by
    /// itself and holds nothing.)
    pub(super) async fn settle(&mut self) -> Result<(Rc<dyn EtcdSession>, Rc<Tenancy>), NotOk> {
        let refused = |error: SessionError| NotOk::Fail(error.to_string());
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self
                .session
                .insert(self.seat.store.connect().await.map_err(refused)?)
                .clone(),
        };
        while let Some((key, lease)) = self.leftovers.last() {
            self.delete(&*session, key, *lease).await.map_err(refused)?;
            self.leftovers.pop();
        }
        let now = self.now();
        if let Some(tenancy) = self.tenancy.as_ref().filter(|tenancy| !tenancy.is_over(now)) {
            return Ok((session, tenancy.clone()));
        }
        let tenancy = self
            .insist(self.now() + self.seat.lease / 2, || {
                Tenancy::begin(&self.seat, &session)
            })
            .await;
        let tenancy = Rc::new(tenancy.map_err(refused)?.0);
        Ok((session, self.tenancy.insert(tenancy).clone()))
    }

    /// Gives up a lease that the server does not know.
    pub(super) fn evict(&mut self) {
        self.tenancy = None;
    }

    /// Remembers a key that may be there, to delete it before the next acquire.
    pub(super) fn remember(&mut self, key: String, lease: i64) {
        self.leftovers.push((key, lease));
    }

    /// A lock that was lost and never released: its key may be there still.
    pub(super) fn forget_lost(&mut self, lock: &str) {
        let losses = self.seat.signals.losses(lock);
        if self.held.get(lock).is_some_and(|held| held.losses != losses)
            && let Some(held) = self.held.remove(lock)
        {
            self.leftovers.push((held.key, held.lease));
        }
    }

    /// Holds a lock by its key, and watches over it if the holder is careful.
    pub(super) fn hold(&mut self, lock: &str, key: Key, tenancy: &Rc<Tenancy>) -> Grant {
        let guard = self
            .seat
            .is_careful()
            .then(|| self.watch_over(lock, &key.name, tenancy))
            .flatten();
        let losses = self.seat.signals.losses(lock);
        let held = Held {
            key: key.name,
            lease: tenancy.lease,
            losses,
            guard,
        };
        self.held.insert(lock.to_owned(), held);
        Grant {
            token: u64::try_from(key.create_revision).ok().filter(|token| *token > 0),
            owner: Some(tenancy.owner()),
        }
    }

    pub(super) fn holds(&self, lock: &str) -> bool {
        self.held.contains_key(lock)
    }

    /// Ends a hold, and says by which key it was.
    pub(super) fn let_go(&mut self, lock: &str) -> Outcome<(Rc<dyn EtcdSession>, String, i64)> {
        let mut held = self.held.remove(lock).ok_or_else(NotOk::not_held)?;
        held.guard = None;
        let session = self.session.clone().ok_or_else(NotOk::not_held)?;
        Ok((session, held.key, held.lease))
    }

    /// Tries again until the answer is known or the limit passed; says whether it took more than one try. Only for what
    /// may be done twice.
    pub(super) async fn insist<T>(
        &self,
        limit: Duration,
        attempt: impl AsyncFn() -> Result<T, SessionError>,
    ) -> Result<(T, bool), SessionError> {
        let mut again = false;
        loop {
            match attempt().await {
                Err(SessionError::Indefinite(_)) if self.now() < limit => again = true,
                answer => return answer.map(|answer| (answer, again)),
            }
            self.seat.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Deletes one's own key to leave a queue; what it was left for is answered if that is sure.
    pub(super) async fn give_up(
        &mut self,
        session: &dyn EtcdSession,
        own: Key,
        refused: NotOk,
        limit: Duration,
    ) -> NotOk {
        match self.remove(session, &own.name, own.lease, limit).await {
            Ok(_) => refused,
            Err(error) => {
                self.remember(own.name, own.lease);
                NotOk::Info(error.to_string())
            }
        }
    }

    /// Deletes one's own key to release.
    pub(super) async fn release(&mut self, lock: &str) -> Outcome<()> {
        let (session, key, lease) = self.let_go(lock)?;
        let limit = self.now() + self.seat.lease / 2;
        match self.remove(&*session, &key, lease, limit).await {
            Ok((true, _)) => Ok(()),
            Ok((false, false)) => Err(NotOk::Fail("not held: own key is gone".into())),
            // the lease is alive, so it was the first delete that did it
            Ok((false, true)) if self.tenancy.as_ref().is_some_and(|tenancy| tenancy.is_sure(self.now())) => Ok(()),
            Ok((false, true)) => Err(NotOk::Info("the reply to the delete was lost".into())),
            Err(error) => {
                self.remember(key, lease);
                Err(error.on_release())
            }
        }
    }

    /// Deletes a key of this lease, and says whether this did it and whether it took more than one try.
    async fn remove(
        &self,
        session: &dyn EtcdSession,
        key: &str,
        lease: i64,
        limit: Duration,
    ) -> Result<(bool, bool), SessionError> {
        self.insist(limit, || self.delete(session, key, lease)).await
    }

    async fn delete(&self, session: &dyn EtcdSession, key: &str, lease: i64) -> Result<bool, SessionError> {
        match self.keys {
            Keys::Own => session.delete(key).await,
            Keys::Shared => session.delete_owned(key, lease).await,
        }
    }

    fn watch_over(&self, lock: &str, key: &str, tenancy: &Rc<Tenancy>) -> Option<Task> {
        let (session, standing) = (self.session.clone()?, tenancy.standing());
        let (host, signals) = (self.seat.host.clone(), self.seat.signals.clone());
        let (lock, key) = (lock.to_owned(), key.to_owned());
        let pause = self.seat.lease / LOOKS_A_LEASE;
        Some(self.seat.host.spawn(Box::pin(async move {
            let cause = tokio::select! {
                biased;
                cause = doubt(&*host, standing) => cause,
                () = until_deleted(&*host, &*session, &key, pause) => "own key is gone".into(),
            };
            signals.lost(&lock, cause);
        })))
    }

    /// Ends the lease, and all its keys with it.
    pub(super) async fn close(&mut self) {
        self.held.clear();
        if let (Some(session), Some(tenancy)) = (self.session.take(), self.tenancy.take()) {
            let revoked = session.revoke_lease(tenancy.lease);
            let _ = within(&*self.seat.host, self.seat.lease / 2, revoked).await;
        }
    }
}

/// Looks at a key again and again. It does not watch the key: that would be told of one's own release.
async fn until_deleted(host: &dyn Host, session: &dyn EtcdSession, key: &str, pause: Duration) {
    loop {
        host.sleep(pause).await;
        // an error says nothing about the key; the lease's own clock runs on
        if let Ok(None) = session.get(key).await {
            return;
        }
    }
}
