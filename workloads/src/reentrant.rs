//! Reentrancy for any lock ([`Reentrant`]): a count on the client's side, as in Java's `ReentrantLock` and Apache Curator's
//! `InterProcessMutex` (<https://curator.apache.org/docs/recipes-shared-reentrant-lock>).
//!
//! 1. the first acquire is the lock's own; while it is held, further ones only count, and answer the same grant;
//! 2. a release counts down, and the last one is the lock's own;
//! 3. when the client learns that the lock is lost, the count is void.

use async_trait::async_trait;

use crate::client::{LockClient, LockGrant, LockResult, SignalSink};
use crate::client_holds::ClientHolds;
use crate::protocol::AcquireRequest;

pub(crate) struct Reentrant {
    inner: Box<dyn LockClient>,
    held: ClientHolds<CountedHold>,
}

struct CountedHold {
    grant: LockGrant,
    count: u32,
}

impl Reentrant {
    pub(crate) fn new(inner: Box<dyn LockClient>, signals: &SignalSink) -> Self {
        Reentrant {
            inner,
            held: ClientHolds::new(signals),
        }
    }

    fn current_hold(&mut self, lock: &str) -> Option<&mut CountedHold> {
        match self.held.is_lost(lock) {
            true => None,
            false => self.held.get_mut(lock),
        }
    }
}

#[async_trait(?Send)]
impl LockClient for Reentrant {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.inner.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        if let Some(hold) = self.current_hold(&request.lock) {
            hold.count += 1;
            return Ok(hold.grant.clone());
        }
        let _ = self.held.end(&request.lock);
        let grant = self.inner.acquire(request).await?;
        let counted = CountedHold {
            grant: grant.clone(),
            count: 1,
        };
        self.held.begin(&request.lock, counted, None);
        Ok(grant)
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        if let Some(hold) = self.current_hold(lock)
            && hold.count > 1
        {
            hold.count -= 1;
            return Ok(());
        }
        let _ = self.held.end(lock);
        self.inner.release(lock).await
    }

    async fn extend(&mut self, lock: &str) -> LockResult<()> {
        self.inner.extend(lock).await
    }

    async fn close(&mut self) {
        self.inner.close().await;
    }
}
