//! `redis-setnx-expire`: a time to live, as a second command.
//!
//! 1. SETNX key value; poll while it is taken;
//! 2. EXPIRE key lease (PEXPIRE, since leases are in milliseconds): whoever dies in between holds the lock for ever;
//! 3. DEL key to release, whoever's it is by now. A careful client leaves that out when its own time is over.
//!
//! Source: what was written before Redis 2.6.12 gave SET its options, and is still found in many code bases.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, SetnxExpire))
}

struct SetnxExpire;

#[async_trait(?Send)]
impl Style for SetnxExpire {
    fn reads_back(&self) -> bool {
        false
    }

    fn compares(&self) -> bool {
        false
    }

    async fn take(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<Option<String>, SessionError> {
        if !at.session.set_nx(at.key, at.value, None).await? {
            return Ok(None);
        }
        match at.session.expire(at.key, at.lease).await {
            // refused or unknown, the key stays: it is not surely free
            Err(error) => Err(SessionError::Indefinite(format!("expire: {error}"))),
            Ok(_) => Ok(Some(at.value.to_owned())),
        }
    }

    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del(at.key).await
    }
}
