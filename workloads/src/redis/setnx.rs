//! `redis-setnx`: a key without a time to live.
//!
//! 1. SETNX key value; poll while it is taken;
//! 2. DEL key to release.
//!
//! It never expires, so nothing is lost to a pause; and a holder that dies holds it for ever. So does one whose reply to
//! SETNX was lost, for it does not read the value back.
//!
//! Source: the SETNX page of the Redis documentation, as far as "the naive version" goes.

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, Setnx))
}

struct Setnx;

#[async_trait(?Send)]
impl Style for Setnx {
    fn expires(&self) -> bool {
        false
    }

    fn reads_back(&self) -> bool {
        false
    }

    fn compares(&self) -> bool {
        false
    }

    async fn take(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<Option<String>, SessionError> {
        let taken = at.session.set_nx(at.key, at.value, None).await?;
        Ok(taken.then(|| at.value.to_owned()))
    }

    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del(at.key).await
    }
}
