//! `redis-watchdog`: a key with a time to live that is renewed while it is held.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. every third of the lease, a script: PEXPIRE the key if it still has the value. A careful holder is told when that
//!    says that the key is gone, and when the lease ran out without an answer;
//! 3. a script to release: DEL the key if it still has the value.
//!
//! Source: Redisson's `RLock` and its lock watchdog.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, Watchdog))
}

struct Watchdog;

#[async_trait(?Send)]
impl Style for Watchdog {
    fn renews(&self) -> bool {
        true
    }

    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del_if(at.key, at.value).await
    }
}
