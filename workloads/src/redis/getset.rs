//! `redis-getset`: a key whose value is its deadline, by the clients' wall clocks.
//!
//! 1. SETNX key deadline, with deadline = now + lease; if it was set, the lock is held;
//! 2. else GET key; if its deadline has passed, GETSET key deadline; if that answers the value just read, the lock is
//!    held, else another was faster (and now has one's own deadline);
//! 3. poll from 1;
//! 4. DEL key to release, if one's deadline has not passed.
//!
//! A random part after the deadline tells whose value it is; the algorithm does not look at it.
//!
//! Source: the SETNX page of the Redis documentation, "Design pattern: Locking with SETNX".

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::RedisConnect;
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::recipe::Seat;
use crate::session::SessionError;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(seat, Getset))
}

struct Getset;

/// The deadline that a value carries, in milliseconds since 1970; what carries none has passed.
fn deadline(value: &str) -> u128 {
    value
        .split(':')
        .next()
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[async_trait(?Send)]
impl Style for Getset {
    fn reads_back(&self) -> bool {
        false
    }

    fn compares(&self) -> bool {
        false
    }

    async fn take(&self, seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<Option<String>, SessionError> {
        let now = seat.host.wall_clock().as_millis();
        let own = format!("{}:{}", now + at.lease.as_millis(), at.value);
        if at.session.set_nx(at.key, &own, None).await? {
            return Ok(Some(own));
        }
        match at.session.get(at.key).await? {
            Some(taken) if deadline(&taken) < now => {
                let before = at.session.get_set(at.key, &own).await?;
                Ok((before.as_ref() == Some(&taken)).then_some(own))
            }
            _ => Ok(None),
        }
    }

    async fn give_back(&self, seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        if deadline(at.value) <= seat.host.wall_clock().as_millis() {
            return Ok(false);
        }
        at.session.del(at.key).await
    }
}
