//! `redis-set-px-lua`: a key with a time to live and a random value, deleted by a script that compares.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. a script to release: DEL the key if it still has the value.
//!
//! Source: "Correct implementation with a single instance", in Redis's "Distributed locks" page.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, SetPxLua))
}

struct SetPxLua;

#[async_trait(?Send)]
impl Style for SetPxLua {
    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del_if(at.key, at.value).await
    }
}
