//! `zk-curator`: the lock that comes with the `zookeeper-client` crate, in its Curator-compatible form: a lock that was not
//! written for this project.
//!
//! 1. `Client::lock` with `LockPrefix::new_curator`: it creates `_c_<uuid>-lock-` EPHEMERAL_SEQUENTIAL, finds it again
//!    after a lost reply, watches the data of the node just ahead, and answers when its own is the smallest;
//! 2. delete its node to release.
//!
//! The library does not report what wakes it, so `woken` is never raised. It reports a lost connection to a holder that
//! asks; a careful client does. A try-lock is a short wait, since the library has none.
//!
//! Where a server is silent for two fifths of the session's timeout the library reports another error than a lost connection, and
//! does not look for its node, which then has the lock for as long as the session lives. A careful client ends the session.
//!
//! Source: `Client::lock` of the crate, <https://docs.rs/zookeeper-client/latest/zookeeper_client/struct.Client.html>, after
//! Apache Curator's `InterProcessMutex`: <https://curator.apache.org/docs/recipes-shared-reentrant-lock>.

use async_trait::async_trait;

use super::zk;
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::contract::Wakeup;
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::session::{Retried, SessionError};
use crate::zk::lock_path;
use crate::zk::lock_session::LockSession;

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Unreported,
    guid: false,
    ..zk(
        "zk-curator",
        "the lock of the zookeeper-client crate, compatible with Apache Curator",
        |context| {
            Box::new(Curator {
                base: LockSession::new(context),
            })
        },
    )
};

struct Curator {
    base: LockSession,
}

#[async_trait(?Send)]
impl LockClient for Curator {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let (session, limits) = self.base.begin(request).await?;
        let parent = lock_path(&request.lock);
        let left = limits.deadline.saturating_sub(self.base.now());
        let wait = left.max(self.base.context.lease / 4);
        let path = match session.library_lock(&parent, wait).await {
            Ok(Some(path)) => path,
            Ok(None) => return Err(LockError::wait_over(request)),
            Err(error @ SessionError::Lost(_)) => {
                self.base.end_session();
                return Err(error.into());
            }
            Err(error) => {
                self.base.end_doubtful_session();
                return Err(error.into());
            }
        };
        // the library gives a path and no more: the token and a fresh proof have to be asked for
        let proof = self.base.proof(&*session);
        let look = || session.exists(&path);
        match self.base.retry(&*session, limits.call_limit, look).await {
            Ok(Retried { answer: Some(node), .. }) if self.base.is_sure(&*session, &proof) => {
                Ok(self.base.begin_hold(&session, &request.lock, node, &proof))
            }
            Ok(Retried { answer: None, .. }) => Err(LockError::refused("own node is gone")),
            _ => {
                self.base.leave_node(path);
                Err(LockError::Unknown(
                    "the connection broke while the lock was granted".into(),
                ))
            }
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.base.release(lock).await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
