//! `redis-set-px-get-del`: a key with a time to live and a random value, compared by the client before DEL.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. GET key to release; if it still has the value, DEL key. Between the two the key may expire and be taken by
//!    another, whose lock is then deleted.
//!
//! Source: the usual half of the Redis documentation's advice: the comparison without the script.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, SetPxGetDel))
}

struct SetPxGetDel;

#[async_trait(?Send)]
impl Style for SetPxGetDel {
    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        if at.session.get(at.key).await?.as_deref() != Some(at.value) {
            return Ok(false);
        }
        at.session.del(at.key).await
    }
}
