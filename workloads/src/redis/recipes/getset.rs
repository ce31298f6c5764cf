//! `redis-getset`: a key whose value is its deadline by the clients' wall clocks.
//!
//! 1. SETNX key deadline, with deadline = now + lease; if it was set, the lock is held;
//! 2. else GET key; if its deadline has passed, GETSET key deadline; if that answers the value just read, the lock is
//!    held, else another client was faster (and the key now has this client's deadline);
//! 3. poll from 1;
//! 4. DEL key to release, if the deadline has not passed.
//!
//! A random part after the deadline tells whose value it is; the algorithm does not look at it.
//!
//! Source: the Redis documentation, "SETNX", section "Design pattern: Locking with SETNX":
//! <https://redis.io/docs/latest/commands/setnx/>.

use async_trait::async_trait;

use super::redis;
use crate::recipe::Recipe;
use crate::redis::single_key::SingleKeyLock;
use crate::redis::variant::{KeyContext, Variant};
use crate::session::SessionError;

pub(super) const RECIPE: Recipe = Recipe {
    wall_clock: true,
    ..redis(
        "redis-getset",
        "SETNX of a deadline, GETSET when it has passed; DEL within it",
        |context| Box::new(SingleKeyLock::new(context, Getset)),
    )
};

struct Getset;

/// The deadline that a value carries, in milliseconds since 1970; a value that carries none has passed.
fn deadline_ms(value: &str) -> u128 {
    let digits = value.split_once(':').map_or(value, |(digits, _)| digits);
    digits.parse().unwrap_or(0)
}

#[async_trait(?Send)]
impl Variant for Getset {
    fn reads_back(&self) -> bool {
        false
    }

    async fn acquire(&self, at: KeyContext<'_>) -> Result<Option<String>, SessionError> {
        let now = at.recipe.host.wall_clock().as_millis();
        let own = format!("{}:{}", now + at.recipe.lease.as_millis(), at.value);
        if at.session.set_nx(at.key, &own, None).await? {
            return Ok(Some(own));
        }
        match at.session.get(at.key).await? {
            Some(taken) if deadline_ms(&taken) < now => {
                let before = at.session.get_set(at.key, &own).await?;
                Ok((before.as_ref() == Some(&taken)).then_some(own))
            }
            _ => Ok(None),
        }
    }

    async fn release(&self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        if deadline_ms(at.value) <= at.recipe.host.wall_clock().as_millis() {
            return Ok(false);
        }
        at.session.del(at.key).await
    }
}
