//! `redis-set-px-del`: a key with a time to live, and a plain DEL.
//!
//! 1. SET key value NX PX lease; poll while it is taken;
//! 2. DEL key to release, whoever's it is by now. A careful client leaves that out when its own time is over; a naive
//!    one deletes what is there, and so may free the lock of its successor.
//!
//! Source: the SET page of the Redis documentation, "the command SET resource-name anystring NX EX max-lock-time is a
//! simple way to implement a locking system", without the improvement it goes on to recommend.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, SetPxDel))
}

struct SetPxDel;

#[async_trait(?Send)]
impl Style for SetPxDel {
    fn compares(&self) -> bool {
        false
    }

    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del(at.key).await
    }
}
