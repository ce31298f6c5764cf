//! `zk-curator`: the lock that comes with the `zookeeper-client` crate, in its Curator-compatible form: a lock nobody
//! here wrote.
//!
//! 1. `Client::lock` with `LockPrefix::new_curator`: it creates `_c_<uuid>-lock-` EPHEMERAL_SEQUENTIAL, finds it again
//!    after a lost reply, watches the data of the node just ahead, and answers when its own is the smallest;
//! 2. delete its node to release.
//!
//! The library does not tell what wakes it, so no `woken` is raised. It tells a holder of a lost connection, if that
//! asks: a careful one does. A try-lock is a short wait, since the library has none.
//!
//! Source: `Client::lock` of the crate, after Apache Curator's `InterProcessMutex`.

use async_trait::async_trait;

use super::lock_path;
use super::member::Member;
use super::session::ZkConnect;
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(Curator {
        member: Member::new(seat),
    })
}

struct Curator {
    member: Member,
}

#[async_trait(?Send)]
impl LockClient for Curator {
    async fn open(&mut self) -> Outcome<Grant> {
        self.member.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let (session, patience) = self.member.begin(request).await?;
        let parent = lock_path(&request.lock);
        let left = patience
            .deadline
            .saturating_sub(self.member.now())
            .max(self.member.seat.lease / 4);
        let path = match session.library_lock(&parent, left).await {
            Ok(Some(path)) => path,
            Ok(None) => return Err(NotOk::gave_up(request)),
            Err(error @ SessionError::Lost(_)) => {
                self.member.end_session();
                return Err(error.into());
            }
            Err(error) => return Err(error.into()),
        };
        // the library gives a path and no more: the token and a fresh proof have to be asked for
        let proof = self.member.proof(&*session);
        match self
            .member
            .insist(&*session, patience.limit, || session.exists(&path))
            .await
        {
            Ok((Some(node), _)) if self.member.is_sure(&*session, &proof) => {
                Ok(self.member.hold(&session, &request.lock, node, &proof))
            }
            Ok((None, _)) => Err(NotOk::Fail("own node is gone".into())),
            _ => {
                self.member.leftovers.remember(path);
                Err(NotOk::Info("the connection broke while the lock was granted".into()))
            }
        }
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        self.member.release(lock).await
    }

    async fn close(&mut self) {
        self.member.close().await;
    }
}
