//! `redis-setnx-expire`: a key whose time to live is set by a second command.
//!
//! 1. SETNX key value; poll while it is taken;
//! 2. PEXPIRE key lease. A client that dies between the two, or whose PEXPIRE is lost, leaves a lock that never expires;
//! 3. DEL key to release.
//!
//! Source: the usual lock before Redis 2.6.12, which brought `SET NX PX`; still found in many code bases. The SETNX page
//! of the Redis documentation names `SET` as its replacement: <https://redis.io/docs/latest/commands/setnx/>.

use async_trait::async_trait;

use super::redis;
use crate::recipe::Recipe;
use crate::redis::single_key::SingleKeyLock;
use crate::redis::variant::{KeyContext, Variant};
use crate::session::SessionError;

pub(super) const RECIPE: Recipe = redis(
    "redis-setnx-expire",
    "SETNX, then EXPIRE as a second command; DEL",
    |context| Box::new(SingleKeyLock::new(context, SetnxExpire)),
);

struct SetnxExpire;

#[async_trait(?Send)]
impl Variant for SetnxExpire {
    fn reads_back(&self) -> bool {
        false
    }

    async fn acquire(&self, at: KeyContext<'_>) -> Result<Option<String>, SessionError> {
        if !at.session.set_nx(at.key, at.value, None).await? {
            return Ok(None);
        }
        match at.session.expire(at.key, at.recipe.lease).await {
            // refused or unknown, the key stays: it is not surely free
            Err(error) => Err(SessionError::Indefinite(format!("expire: {error}"))),
            Ok(_) => Ok(Some(at.value.to_owned())),
        }
    }
}
