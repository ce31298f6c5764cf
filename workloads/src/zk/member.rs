//! What every ZooKeeper recipe has: a session, the locks it holds, and nodes that an unknown operation may have left.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::guard::{DOUBT_AFTER, Vigil, watch_over};
use super::leftovers::Leftovers;
use super::owner_name;
use super::session::{Link, LinkState, Node, WatchEvent, ZkConnect, ZkSession};
use crate::client::{Grant, NotOk, Outcome};
use crate::host::{Task, within};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// Between two tries on a connection that says it is well and yet answers with errors.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct Member {
    pub seat: Seat<dyn ZkConnect>,
    pub leftovers: Leftovers,
    session: Option<Rc<dyn ZkSession>>,
    held: BTreeMap<String, Held>,
}

struct Held {
    path: String,
    losses: u64,
    _guard: Option<Task>,
}

/// When a wait ends, and when the last call may begin that still belongs to it.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    pub deadline: Duration,
    pub limit: Duration,
}

/// What a grant is known by: when the question was asked that answered it, and the breaks of the connection by then.
pub(super) struct Proof {
    asked: Duration,
    breaks: u64,
}

/// Why a wait ended without the lock.
pub(super) enum Stay {
    TooLong,
    Gone,
    SessionOver,
    Refused(String),
}

impl Member {
    pub(super) fn new(seat: Seat<dyn ZkConnect>) -> Self {
        Member {
            seat,
            leftovers: Leftovers::default(),
            session: None,
            held: BTreeMap::new(),
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.seat.host.now()
    }

    pub(super) async fn open(&mut self) -> Outcome<Grant> {
        let session = self.session().await?;
        Ok(Grant {
            token: None,
            owner: Some(owner_name(session.id())),
        })
    }

    /// The session, or a new one if it is over. What belonged to the old one went with it.
    async fn session(&mut self) -> Result<Rc<dyn ZkSession>, SessionError> {
        if let Some(session) = &self.session
            && session.link().borrow().state != LinkState::Expired
        {
            return Ok(session.clone());
        }
        self.held.clear();
        self.leftovers = Leftovers::default();
        let session = self.seat.store.connect().await?;
        Ok(self.session.insert(session).clone())
    }

    /// Makes ready for an acquire: a session, and nothing left from before.
    pub(super) async fn begin(&mut self, request: &Acquire) -> Outcome<(Rc<dyn ZkSession>, Patience)> {
        let patience = self.patience(Duration::from_millis(request.wait_ms));
        self.forget_lost(&request.lock);
        loop {
            let session = self.session().await?;
            match self.leftovers.sweep(&*session).await {
                Ok(()) => return Ok((session, patience)),
                // what was left went with the session
                Err(SessionError::Lost(_)) => self.end_session(),
                Err(error) => return Err(NotOk::Fail(format!("cleaning up first: {error}"))),
            }
        }
    }

    /// The session is known to be over, whatever its connection says yet: the next acquire takes a new one.
    pub(super) fn end_session(&mut self) {
        self.session = None;
    }

    fn patience(&self, wait: Duration) -> Patience {
        let deadline = self.now() + wait;
        Patience {
            deadline,
            limit: deadline + self.seat.lease / 2,
        }
    }

    /// Tries again, after each reconnection, until the answer is known or the limit passed; says whether it took more
    /// than one try. Only for what may be done twice.
    pub(super) async fn insist<T>(
        &self,
        session: &dyn ZkSession,
        limit: Duration,
        attempt: impl AsyncFn() -> Result<T, SessionError>,
    ) -> Result<(T, bool), SessionError> {
        let mut again = false;
        loop {
            let unknown = match attempt().await {
                Err(error @ SessionError::Indefinite(_)) => error,
                answer => return answer.map(|answer| (answer, again)),
            };
            again = true;
            if !self.reconnected(session, limit).await {
                return Err(unknown);
            }
        }
    }

    /// Waits until the session is connected; `false` when the limit passed before.
    pub(super) async fn reconnected(&self, session: &dyn ZkSession, limit: Duration) -> bool {
        let host = &*self.seat.host;
        host.sleep(RETRY_PAUSE).await;
        let mut link = session.link();
        let left = limit.saturating_sub(host.now());
        let connected = link.wait_for(|link: &Link| link.state != LinkState::Disconnected);
        !left.is_zero() && within(host, left, connected).await.is_some()
    }

    /// What a question asked now will prove.
    pub(super) fn proof(&self, session: &dyn ZkSession) -> Proof {
        Proof {
            asked: self.now(),
            breaks: session.link().borrow().breaks,
        }
    }

    /// Whether a careful client may believe what it was told: the connection has held since it asked, and the answer
    /// is fresh. A naive one believes.
    pub(super) fn is_sure(&self, session: &dyn ZkSession, proof: &Proof) -> bool {
        let age = self.now().saturating_sub(proof.asked);
        let link = *session.link().borrow();
        let unbroken = link.state == LinkState::Connected && link.breaks == proof.breaks;
        !self.seat.is_careful() || (unbroken && age < session.timeout() * DOUBT_AFTER / 100)
    }

    /// Tells what woke a waiter, if it was a notification.
    pub(super) fn woken(&self, lock: &str, event: WatchEvent) -> Result<(), Stay> {
        let WatchEvent::Fired { kind, path } = event else {
            return Err(Stay::SessionOver);
        };
        self.seat.signals.woken(lock, format!("{kind} {}", last_part(&path)));
        Ok(())
    }

    /// What an error means to a waiter: an unknown answer means to ask again when connected.
    pub(super) async fn ask_again(
        &self,
        session: &dyn ZkSession,
        error: SessionError,
        patience: Patience,
    ) -> Result<(), Stay> {
        match error {
            SessionError::Lost(_) => Err(Stay::SessionOver),
            SessionError::Definite(reason) => Err(Stay::Refused(reason)),
            SessionError::Indefinite(_) if self.reconnected(session, patience.deadline).await => Ok(()),
            SessionError::Indefinite(_) => Err(Stay::TooLong),
        }
    }

    /// Holds a lock by its node, and watches over it if the holder is careful.
    pub(super) fn hold(&mut self, session: &Rc<dyn ZkSession>, lock: &str, node: Node, proof: &Proof) -> Grant {
        let vigil = || Vigil {
            session: session.clone(),
            lock: lock.to_owned(),
            path: node.path.clone(),
            proof: proof.asked,
            breaks: proof.breaks,
        };
        let guard = self.seat.is_careful().then(|| watch_over(&self.seat, vigil()));
        let losses = self.seat.signals.losses(lock);
        self.held.insert(
            lock.to_owned(),
            Held {
                path: node.path,
                losses,
                _guard: guard,
            },
        );
        Grant {
            token: u64::try_from(node.czxid).ok(),
            owner: Some(owner_name(session.id())),
        }
    }

    /// Deletes one's own node, and says whether this did it and whether it took more than one try. After a try whose
    /// answer was lost, another's node may be at the same path: only one's own is deleted then.
    async fn remove(&self, session: &dyn ZkSession, path: &str, limit: Duration) -> Result<(bool, bool), SessionError> {
        let first = Cell::new(true);
        let removal = self.insist(session, limit, async || {
            if !first.replace(false)
                && session
                    .exists(path)
                    .await?
                    .is_none_or(|node| node.owner != session.id())
            {
                return Ok(false);
            }
            session.delete(path).await
        });
        removal.await
    }

    /// Ends a wait without the lock; `path` is one's own node, if there is one.
    pub(super) async fn give_up(
        &mut self,
        session: &dyn ZkSession,
        request: &Acquire,
        path: Option<String>,
        why: Stay,
        limit: Duration,
    ) -> NotOk {
        let refused = match why {
            Stay::Gone => return NotOk::Fail("own node is gone".into()),
            Stay::SessionOver => {
                self.end_session();
                return NotOk::Info("session expired".into());
            }
            Stay::TooLong => NotOk::gave_up(request),
            Stay::Refused(reason) => NotOk::Fail(reason),
        };
        let Some(path) = path else { return refused };
        match self.remove(session, &path, limit).await {
            Ok(_) => refused,
            Err(error) => {
                self.leftovers.remember(path);
                NotOk::Info(error.to_string())
            }
        }
    }

    /// A lock that was lost and never released: its node may be there still.
    fn forget_lost(&mut self, lock: &str) {
        let losses = self.seat.signals.losses(lock);
        if self.held.get(lock).is_some_and(|held| held.losses != losses)
            && let Some(held) = self.held.remove(lock)
        {
            self.leftovers.remember(held.path);
        }
    }

    pub(super) async fn release(&mut self, lock: &str) -> Outcome<()> {
        let Some(Held { path, .. }) = self.held.remove(lock) else {
            return Err(NotOk::not_held());
        };
        let Some(session) = self.session.clone() else {
            return Err(NotOk::not_held());
        };
        let limit = self.patience(Duration::ZERO).limit;
        match self.remove(&*session, &path, limit).await {
            // the session is alive, so if the node is gone now, an earlier delete did it
            Ok((true, _)) | Ok((false, true)) => Ok(()),
            Ok((false, false)) => Err(NotOk::Fail("not held: own node is gone".into())),
            Err(error @ SessionError::Lost(_)) => {
                self.end_session();
                Err(error.on_release())
            }
            Err(error) => {
                self.leftovers.remember(path);
                Err(error.on_release())
            }
        }
    }

    pub(super) async fn close(&mut self) {
        self.held.clear();
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
