//! A lock that a session of the server owns ([`SessionLock`]): it has no lease, and ends with its connection.
//!
//! 1. take the lock on a connection of its own, so that a lock of a transaction ends with no other;
//! 2. a careful client believes for as long as the connection lives, and raises `lost` when it ends;
//! 3. release on the same connection. One whose answer was lost is closed, and the server ends what it owned.

use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::{SqlContext, connected};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::protocol::AcquireRequest;
use crate::session::SessionError;
use crate::session::sql::{LockScope, SqlSession};

/// A client of a lock of a session.
pub(crate) struct SessionLock {
    context: SqlContext,
    scope: LockScope,
    /// Connections that own nothing.
    idle: Vec<Rc<dyn SqlSession>>,
    /// With the connections that own them.
    held: ClientHolds<Rc<dyn SqlSession>>,
}

impl SessionLock {
    pub(crate) fn new(context: SqlContext, scope: LockScope) -> Self {
        SessionLock {
            held: ClientHolds::new(&context.signals),
            context,
            scope,
            idle: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.context.host.now()
    }

    /// Returns a connection that owns nothing; tries until the limit.
    async fn session(&mut self, limit: Duration) -> Result<Rc<dyn SqlSession>, SessionError> {
        self.idle.retain(|session| !session.is_broken());
        match self.idle.pop() {
            Some(session) => Ok(session),
            None => connected(&self.context, limit).await,
        }
    }

    /// Takes the lock on one connection, and asks again at intervals where the server does not wait.
    async fn take(
        &self,
        session: &dyn SqlSession,
        lock: &str,
        deadline: Duration,
    ) -> Result<Option<String>, SessionError> {
        loop {
            let left = deadline.saturating_sub(self.now());
            let owner = session.lock(self.scope, lock, left).await?;
            let left = deadline.saturating_sub(self.now());
            if owner.is_some() || self.scope != LockScope::Row || left.is_zero() {
                return Ok(owner);
            }
            self.context.host.sleep(self.context.poll_pause().min(left)).await;
        }
    }

    fn hold(&mut self, lock: &str, session: Rc<dyn SqlSession>, owner: String) -> LockGrant {
        let watch = self.context.is_careful().then(|| {
            let (session, signals, lock) = (session.clone(), self.context.signals.clone(), lock.to_owned());
            self.context.host.spawn(Box::pin(async move {
                session.broken().await;
                signals.lost(&lock, "connection ended");
            }))
        });
        self.held.begin(lock, session, watch);
        LockGrant::to(owner, None)
    }
}

#[async_trait(?Send)]
impl LockClient for SessionLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        let limit = self.now() + self.context.lease;
        let session = self.session(limit).await?;
        if self.scope == LockScope::Row {
            session.prepare().await?;
        }
        self.idle.push(session);
        Ok(LockGrant::default())
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.now() + Duration::from_millis(request.wait_ms);
        // the connection of a lock that was lost is over
        self.held.end_lost(&request.lock);
        loop {
            let session = self.session(deadline).await?;
            match self.take(&*session, &request.lock, deadline).await {
                Ok(Some(owner)) => return Ok(self.hold(&request.lock, session, owner)),
                Ok(None) => {
                    self.idle.push(session);
                    return Err(LockError::wait_over(request));
                }
                // nothing was asked on it, or its locks went with it
                Err(SessionError::Lost(_)) if self.now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let session = self.held.end(lock)?;
        let released = session.unlock(self.scope, lock).await;
        match released {
            Ok(released) => {
                self.idle.push(session);
                released.then_some(()).ok_or(LockError::NOT_HELD)
            }
            Err(error) => Err(error.on_release()),
        }
    }

    async fn close(&mut self) {
        for (lock, hold) in self.held.end_all() {
            // a lock that stays ends with the connection
            let _ = hold.known.unlock(self.scope, &lock).await;
        }
        self.idle.clear();
    }
}
