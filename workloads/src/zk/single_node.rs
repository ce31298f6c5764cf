//! `zk-single-node`: one node is the lock.
//!
//! 1. all create the same EPHEMERAL node; who succeeds, holds;
//! 2. who is told that it exists, sets a watch on it with `exists`; if it is gone already, go to 1;
//! 3. wait for the watch, and go to 1: every waiter is woken, and one of them wins;
//! 4. delete the node to release.
//!
//! A create whose reply was lost needs no GUID: the node that exists is one's own if its owner is one's session.
//!
//! Source: "Simple Lock Example" in O'Reilly's "ZooKeeper: Distributed Process Coordination", chapter 2.

use async_trait::async_trait;

use super::lock_path;
use super::member::{Member, Patience, Proof, Stay};
use super::session::{Node, ZkConnect, ZkSession};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::within;
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(SingleNode {
        member: Member::new(seat),
    })
}

struct SingleNode {
    member: Member,
}

/// The one node of a lock: the only child of the lock's node.
fn node_path(lock: &str) -> String {
    format!("{}/lock", lock_path(lock))
}

impl SingleNode {
    /// Creates the node, or waits until it may be worth trying again. `unknown` is set while a create of one's own may
    /// have happened.
    async fn contend(
        &self,
        session: &dyn ZkSession,
        request: &Acquire,
        patience: Patience,
        unknown: &mut bool,
    ) -> Result<(Node, Proof), Stay> {
        let path = node_path(&request.lock);
        let host = &*self.member.seat.host;
        loop {
            let proof = self.member.proof(session);
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
            let left = patience.deadline.saturating_sub(host.now());
            match taken {
                Ok(Some((node, _))) if node.owner == session.id() => {
                    *unknown = true;
                    if self.member.is_sure(session, &proof) {
                        return Ok((node, proof));
                    }
                    if !self.member.reconnected(session, patience.limit).await {
                        return Err(Stay::TooLong);
                    }
                }
                Ok(_) if left.is_zero() => return Err(Stay::TooLong),
                Ok(Some((_, Some(watch)))) => match within(host, left, watch).await {
                    Some(event) => self.member.woken(&request.lock, event)?,
                    None => return Err(Stay::TooLong),
                },
                Ok(_) => {}
                Err(error) => self.member.ask_again(session, error, patience).await?,
            }
        }
    }

    /// Ends a wait without the lock. An unknown create may have left a node, and nobody else's may be deleted.
    async fn give_up(
        &mut self,
        session: &dyn ZkSession,
        request: &Acquire,
        patience: Patience,
        why: Stay,
        unknown: bool,
    ) -> NotOk {
        let path = node_path(&request.lock);
        let mut own = None;
        if unknown {
            match self
                .member
                .insist(session, patience.limit, || session.exists(&path))
                .await
            {
                Ok((found, _)) => own = found.filter(|node| node.owner == session.id()).map(|node| node.path),
                Err(error) => {
                    self.member.leftovers.remember(path);
                    return NotOk::Info(error.to_string());
                }
            }
        }
        self.member.give_up(session, request, own, why, patience.limit).await
    }
}

#[async_trait(?Send)]
impl LockClient for SingleNode {
    async fn open(&mut self) -> Outcome<Grant> {
        self.member.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let (session, patience) = self.member.begin(request).await?;
        let mut unknown = false;
        let why = match self.contend(&*session, request, patience, &mut unknown).await {
            Ok((node, proof)) => return Ok(self.member.hold(&session, &request.lock, node, &proof)),
            Err(why) => why,
        };
        Err(self.give_up(&*session, request, patience, why, unknown).await)
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        self.member.release(lock).await
    }

    async fn close(&mut self) {
        self.member.close().await;
    }
}
