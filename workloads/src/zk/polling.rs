//! `zk-polling`: a queue whose waiters ask again and again.
//!
//! 1. create `lock-` EPHEMERAL_SEQUENTIAL under the lock's node;
//! 2. list the children; if one's own is the smallest, the lock is held;
//! 3. sleep for the interval, and go to 2;
//! 4. delete the node to release.
//!
//! Source: the first lock that most people write on ZooKeeper, and what "How to do distributed coordination" posts show
//! before they come to watches. It wakes nobody, and pays with a list of n names from each of n waiters every interval.

use std::time::Duration;

use async_trait::async_trait;

use super::queue::{Order, Place, Queue, Turn, ahead_of};
use super::session::ZkConnect;
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

/// Long, as a poll must be that does not burden the servers.
pub const INTERVAL: Duration = Duration::from_secs(1);

pub fn open(seat: Seat<dyn ZkConnect>) -> Box<dyn LockClient> {
    let interval = seat.options.interval;
    Box::new(Queue::new(seat, Polling { interval }))
}

struct Polling {
    interval: Duration,
}

#[async_trait(?Send)]
impl Order for Polling {
    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError> {
        let names = place.session.children(place.parent).await?;
        Ok(match ahead_of(place.name, names) {
            None => Turn::Gone,
            Some(ahead) if ahead.is_empty() => Turn::Mine,
            Some(_) => Turn::Later(self.interval),
        })
    }
}
