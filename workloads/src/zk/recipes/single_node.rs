//! `zk-single-node`: one node is the lock.
//!
//! 1. all create the same EPHEMERAL node; the client that succeeds holds the lock;
//! 2. a client that is told that the node exists sets a watch on it with `exists`; if it is gone already, go to 1;
//! 3. wait for the watch, and go to 1: every waiter is woken, and one of them succeeds;
//! 4. delete the node to release.
//!
//! A create whose reply was lost needs no GUID: the node that exists is the client's own if its owner is the client's
//! session.
//!
//! Source: Flavio Junqueira and Benjamin Reed, "ZooKeeper: Distributed Process Coordination", O'Reilly 2013, chapter 2,
//! "Implementing Primitives with ZooKeeper":
//! <https://www.oreilly.com/library/view/zookeeper/9781449361297/>.

use async_trait::async_trait;

use super::zk;
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::host::within;
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::SessionError;
use crate::session::zk::{ZkSession, Znode};
use crate::zk::lock_path;
use crate::zk::lock_session::{LockSession, ProofOfLife, WaitEnd, WaitLimits};

pub(super) const RECIPE: Recipe = Recipe {
    guid: false,
    fifo: false,
    ..zk(
        "zk-single-node",
        "one ephemeral node; the client that creates it holds, and all others watch it",
        |context| {
            Box::new(SingleNode {
                base: LockSession::new(context),
            })
        },
    )
};

struct SingleNode {
    base: LockSession,
}

/// Returns the one node of a lock: the only child of the lock's node.
fn node_path(lock: &str) -> String {
    format!("{}/lock", lock_path(lock))
}

impl SingleNode {
    /// Creates the node, and waits while it exists. `unknown` is set while a create of this client may have happened.
    async fn contend(
        &self,
        session: &dyn ZkSession,
        request: &AcquireRequest,
        limits: WaitLimits,
        unknown: &mut bool,
    ) -> Result<(Znode, ProofOfLife), WaitEnd> {
        let path = node_path(&request.lock);
        let host = &*self.base.context.host;
        loop {
            let proof = self.base.proof(session);
            let taken = match session.create(&path).await {
                Ok(Some(node)) => Ok(Some((node, None))),
                Ok(None) => session
                    .watch_exists(&path)
                    .await
                    .map(|(node, watch)| Some((node?, Some(watch)))),
                Err(error) => {
                    *unknown |= matches!(error, SessionError::Indefinite(_));
                    Err(error)
                }
            };
            let left = limits.deadline.saturating_sub(host.now());
            match taken {
                Ok(Some((node, _))) if node.owner == session.id() => {
                    *unknown = true;
                    if self.base.is_sure(session, &proof) {
                        return Ok((node, proof));
                    }
                    if !self.base.reconnected(session, limits.call_limit).await {
                        return Err(WaitEnd::TimedOut);
                    }
                }
                Ok(_) if left.is_zero() => return Err(WaitEnd::TimedOut),
                Ok(Some((_, Some(watch)))) => match within(host, left, watch).await {
                    Some(event) => self.base.woken(&request.lock, event)?,
                    None => return Err(WaitEnd::TimedOut),
                },
                Ok(_) => {}
                Err(error) => self.base.ask_again(session, error, limits).await?,
            }
        }
    }

    /// Ends a wait without the lock. An unknown create may have left a node, and the node of another client must not be
    /// deleted.
    async fn withdraw(
        &mut self,
        session: &dyn ZkSession,
        request: &AcquireRequest,
        limits: WaitLimits,
        why: WaitEnd,
        unknown: bool,
    ) -> LockError {
        let path = node_path(&request.lock);
        let mut own = None;
        if unknown {
            let look = async || {
                self.base.sync(session, &path).await?;
                session.exists(&path).await
            };
            match self.base.retry(session, limits.call_limit, look).await {
                Ok(found) => own = found.answer.filter(|node| node.owner == session.id()),
                Err(error) => {
                    self.base.leave_node(path);
                    return LockError::Unknown(error.to_string());
                }
            }
        }
        let own = own.map(|node| node.path);
        self.base.withdraw(session, request, own, why, limits.call_limit).await
    }
}

#[async_trait(?Send)]
impl LockClient for SingleNode {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let (session, limits) = self.base.begin(request).await?;
        if self.base.holds(&request.lock) {
            // the node is there, and is the client's own
            let left = limits.deadline.saturating_sub(self.base.now());
            self.base.context.host.sleep(left).await;
            return Err(LockError::wait_over(request));
        }
        let mut unknown = false;
        let why = match self.contend(&*session, request, limits, &mut unknown).await {
            Ok((node, proof)) => return Ok(self.base.begin_hold(&session, &request.lock, node, &proof)),
            Err(why) => why,
        };
        Err(self.withdraw(&*session, request, limits, why, unknown).await)
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.base.release(lock).await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
