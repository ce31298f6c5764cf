//! The session of every ZooKeeper recipe ([`LockSession`]), with the locks that are held, and the nodes that an unknown operation may have
//! left.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::hold_watch::{UNSURE_AFTER, WatchedHold, watch_hold};
use super::leftovers::Leftovers;
use super::{ZkContext, owner_name};
use crate::client::{LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::defects::has_defect;
use crate::host::within;
use crate::protocol::AcquireRequest;
use crate::session::zk::{ConnectionState, ConnectionStatus, WatchEvent, ZkSession, Znode};
use crate::session::{Retried, SessionError};

/// The pause before another try on a connection that is connected and yet answers with errors.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

pub(super) struct LockSession {
    pub context: ZkContext,
    leftovers: Leftovers,
    session: Option<Rc<dyn ZkSession>>,
    /// The held locks, with the paths of their nodes.
    held: ClientHolds<String>,
}

/// The limits of an acquire or a release, by the host's monotonic clock.
#[derive(Clone, Copy)]
pub(super) struct WaitLimits {
    /// The end of the wait for the lock.
    pub deadline: Duration,
    /// The latest begin of the last call, so that the client answers in time.
    pub call_limit: Duration,
}

/// The freshness of an answer: the time at which the call was sent, and the breaks of the connection by then.
pub(super) struct ProofOfLife {
    asked: Duration,
    breaks: u64,
}

/// The reason for which a wait ended without the lock.
pub(super) enum WaitEnd {
    TimedOut,
    /// The client's own node is not there any more.
    NodeGone,
    SessionOver,
    Refused(String),
}

impl LockSession {
    pub(super) fn new(context: ZkContext) -> Self {
        LockSession {
            held: ClientHolds::new(&context.signals),
            context,
            leftovers: Leftovers::default(),
            session: None,
        }
    }

    pub(super) fn now(&self) -> Duration {
        self.context.host.now()
    }

    pub(super) async fn open(&mut self) -> LockResult<LockGrant> {
        let session = self.session().await?;
        Ok(LockGrant::to(owner_name(session.id()), None))
    }

    /// Returns the session, or a new one if it is over. The nodes and leftovers of the old one went with it.
    async fn session(&mut self) -> Result<Rc<dyn ZkSession>, SessionError> {
        if let Some(session) = &self.session
            && session.connection().borrow().state != ConnectionState::Expired
        {
            return Ok(session.clone());
        }
        self.held.end_all();
        self.leftovers = Leftovers::default();
        let session = self.context.store.connect().await?;
        Ok(self.session.insert(session).clone())
    }

    /// Begins an acquire: makes a session if there is none, and deletes leftovers.
    pub(super) async fn begin(&mut self, request: &AcquireRequest) -> LockResult<(Rc<dyn ZkSession>, WaitLimits)> {
        let limits = self.limits(Duration::from_millis(request.wait_ms));
        self.forget_lost(&request.lock);
        loop {
            let session = self.session().await?;
            match self.leftovers.sweep(&*session, self.context.is_careful()).await {
                Ok(()) => return Ok((session, limits)),
                // leftovers went with the session
                Err(SessionError::Lost(_)) => self.end_session(),
                Err(error) => return Err(error.on_cleaning()),
            }
        }
    }

    pub(super) fn holds(&self, lock: &str) -> bool {
        self.held.get(lock).is_some()
    }

    /// Remembers a node whose delete was not answered, to delete it before the next acquire.
    pub(super) fn leave_node(&mut self, path: String) {
        self.leftovers.add_path(path);
        self.end_doubtful_session();
    }

    /// Remembers a create that was not answered, to delete its node; the name of that begins with `guid`.
    pub(super) fn leave_create(&mut self, parent: &str, guid: &str) {
        self.leftovers.add_create(parent, guid);
        self.end_doubtful_session();
    }

    /// A client that rests until its next acquire would keep its leftovers there by keeping its session alive. A careful one that holds
    /// nothing ends the session, and the node goes with it.
    pub(super) fn end_doubtful_session(&mut self) {
        if !self.context.is_careful() || !self.held.is_empty() {
            return;
        }
        if let Some(session) = self.session.take() {
            // one whose end is not heard of expires
            let closing = async move { session.close().await };
            self.context.host.spawn(Box::pin(closing)).detach();
        }
    }

    /// Ends the session, which is known to be over, whatever its connection says yet: the next acquire takes a new one.
    pub(super) fn end_session(&mut self) {
        self.session = None;
    }

    fn limits(&self, wait: Duration) -> WaitLimits {
        let deadline = self.now() + wait;
        WaitLimits {
            deadline,
            call_limit: deadline + self.context.lease / 2,
        }
    }

    /// Tries again, after each reconnection, until the answer is known or the limit has passed. Only for calls that may be
    /// repeated.
    pub(super) async fn retry<T>(
        &self,
        session: &dyn ZkSession,
        limit: Duration,
        attempt: impl AsyncFn() -> Result<T, SessionError>,
    ) -> Result<Retried<T>, SessionError> {
        let mut again = false;
        loop {
            let unknown = match attempt().await {
                Err(error @ SessionError::Indefinite(_)) => error,
                answer => return answer.map(|answer| Retried { answer, again }),
            };
            again = true;
            if !self.reconnected(session, limit).await {
                return Err(unknown);
            }
        }
    }

    /// Waits until the session is connected; `false` if it is not at the limit.
    pub(super) async fn reconnected(&self, session: &dyn ZkSession, limit: Duration) -> bool {
        let host = &*self.context.host;
        host.sleep(RETRY_PAUSE).await;
        let mut connection = session.connection();
        let left = limit.saturating_sub(host.now());
        let connected = connection.wait_for(|status: &ConnectionStatus| status.state != ConnectionState::Disconnected);
        !left.is_zero() && within(host, left, connected).await.is_some()
    }

    /// Lets a careful client wait until its server has applied all that was decided before, ahead of a look at the effect of an unanswered
    /// call. The server of a new connection may answer reads without the leader's changes of the old one, and the node that seems to be
    /// there, or not to be, is not.
    pub(super) async fn sync(&self, session: &dyn ZkSession, path: &str) -> Result<(), SessionError> {
        match self.context.is_careful() {
            true => session.sync(path).await,
            false => Ok(()),
        }
    }

    /// Returns the proof that the answer to a call will give that is sent now.
    pub(super) fn proof(&self, session: &dyn ZkSession) -> ProofOfLife {
        ProofOfLife {
            asked: self.now(),
            breaks: session.connection().borrow().breaks,
        }
    }

    /// Whether the client may believe an answer: a careful one if the connection has not broken since the call was sent,
    /// and the answer is fresh; a naive one always.
    pub(super) fn is_sure(&self, session: &dyn ZkSession, proof: &ProofOfLife) -> bool {
        let age = self.now().saturating_sub(proof.asked);
        let connection = *session.connection().borrow();
        let unbroken = connection.state == ConnectionState::Connected && connection.breaks == proof.breaks;
        !self.context.is_careful() || (unbroken && age < session.timeout() * UNSURE_AFTER / 100)
    }

    /// Raises `woken` if it was a notification that woke a waiter.
    pub(super) fn woken(&self, lock: &str, event: WatchEvent) -> Result<(), WaitEnd> {
        let WatchEvent::Fired { kind, path } = event else {
            return Err(WaitEnd::SessionOver);
        };
        self.context.signals.woken(lock, [kind, " ", last_part(&path)].concat());
        Ok(())
    }

    /// Returns `Ok` if a waiter may go on after an error: after an unknown answer it asks again when connected.
    pub(super) async fn ask_again(
        &self,
        session: &dyn ZkSession,
        error: SessionError,
        limits: WaitLimits,
    ) -> Result<(), WaitEnd> {
        match error {
            SessionError::Lost(_) => Err(WaitEnd::SessionOver),
            SessionError::Definite(reason) => Err(WaitEnd::Refused(reason)),
            SessionError::Indefinite(_) if self.reconnected(session, limits.deadline).await => Ok(()),
            SessionError::Indefinite(_) => Err(WaitEnd::TimedOut),
        }
    }

    /// Begins a hold by its node, and watches it if the client is careful.
    pub(super) fn begin_hold(
        &mut self,
        session: &Rc<dyn ZkSession>,
        lock: &str,
        node: Znode,
        proof: &ProofOfLife,
    ) -> LockGrant {
        let hold = || WatchedHold {
            session: session.clone(),
            lock: lock.to_owned(),
            path: node.path.clone(),
            proof: proof.asked,
            breaks: proof.breaks,
        };
        let watch = self.context.is_careful().then(|| watch_hold(&self.context, hold()));
        self.held.begin(lock, node.path, watch);
        LockGrant::to(owner_name(session.id()), u64::try_from(node.czxid).ok())
    }

    /// Deletes the client's own node; `false`: it was gone. After a try whose answer was lost, the node of another client may
    /// be at the same path: only the client's own is deleted then.
    async fn remove(
        &self,
        session: &dyn ZkSession,
        path: &str,
        limit: Duration,
    ) -> Result<Retried<bool>, SessionError> {
        let first = Cell::new(true);
        let removal = self.retry(session, limit, async || {
            if !first.replace(false) {
                self.sync(session, path).await?;
                let found = session.exists(path).await?;
                if found.is_none_or(|node| node.owner != session.id()) {
                    return Ok(false);
                }
            }
            session.delete(path).await
        });
        removal.await
    }

    /// Ends a wait without the lock; `path` is the client's own node, if there is one.
    pub(super) async fn withdraw(
        &mut self,
        session: &dyn ZkSession,
        request: &AcquireRequest,
        path: Option<String>,
        why: WaitEnd,
        limit: Duration,
    ) -> LockError {
        let refused = match why {
            WaitEnd::NodeGone => return LockError::refused("own node is gone"),
            WaitEnd::SessionOver => {
                self.end_session();
                return LockError::Unknown("session expired".into());
            }
            WaitEnd::TimedOut => LockError::wait_over(request),
            WaitEnd::Refused(reason) => LockError::refused(reason),
        };
        let Some(path) = path else { return refused };
        if has_defect("zk-predecessor-watch", "the node stays when the wait is over") {
            return refused;
        }
        match self.remove(session, &path, limit).await {
            Ok(_) => refused,
            Err(error) => {
                self.leave_node(path);
                LockError::Unknown(error.to_string())
            }
        }
    }

    /// Forgets a lock that was lost and never released; its node may be there still, and is deleted before the next
    /// acquire.
    fn forget_lost(&mut self, lock: &str) {
        if let Some(path) = self.held.end_lost(lock) {
            self.leftovers.add_path(path);
        }
    }

    pub(super) async fn release(&mut self, lock: &str) -> LockResult<()> {
        let path = self.held.end(lock)?;
        let session = self.session.clone().ok_or(LockError::NOT_HELD)?;
        let limit = self.limits(Duration::ZERO).call_limit;
        match self.remove(&*session, &path, limit).await {
            // the session is alive, so if the node is gone now, an earlier delete did it
            Ok(deleted) if deleted.answer || deleted.again => Ok(()),
            Ok(_) => Err(LockError::no_longer_held("own node is gone")),
            Err(error @ SessionError::Lost(_)) => {
                self.end_session();
                Err(error.on_release())
            }
            Err(error) => {
                if !has_defect("zk-predecessor-watch", "an unanswered delete is forgotten") {
                    self.leave_node(path);
                }
                Err(error.on_release())
            }
        }
    }

    pub(super) async fn close(&mut self) {
        self.held.end_all();
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }
}

pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
