//! `zk-election`: leader election as a lock. Who acquires is the leader until it resigns, loses its session or dies.
//!
//! 1. create `n_` EPHEMERAL_SEQUENTIAL under the lock's node, which stands for the recipe's `ELECTION`;
//! 2. list the children; who has the smallest number is the leader;
//! 3. else watch the node just ahead, and go to 2 when it goes: it may have been a candidate and not the leader;
//! 4. delete the node to resign.
//!
//! Source: "Leader Election" of the ZooKeeper recipes page.

use async_trait::async_trait;

use super::queue::{Order, Place, Queue, Turn, behind};
use super::session::ZkConnect;
use crate::client::{LockClient, NotOk};
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    Box::new(Queue::new(seat, Election))
}

struct Election;

#[async_trait(?Send)]
impl Order for Election {
    fn kind(&self, _request: &Acquire) -> Result<&'static str, NotOk> {
        Ok("n_")
    }

    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError> {
        behind(place, |_| true).await
    }
}
