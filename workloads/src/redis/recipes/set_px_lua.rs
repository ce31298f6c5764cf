//! `redis-set-px-lua`: a key with a time to live and a random value, deleted by a script that compares.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. a script to release: DEL the key if it still has the value.
//!
//! Source: the Redis documentation, "Distributed Locks with Redis", section "Correct Implementation with a Single
//! Instance":
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#correct-implementation-with-a-single-instance>.

use async_trait::async_trait;

use super::redis;
use crate::defects::has_defect;
use crate::recipe::Recipe;
use crate::redis::single_key::SingleKeyLock;
use crate::redis::variant::{KeyContext, Variant};
use crate::session::SessionError;

pub(super) const RECIPE: Recipe = redis(
    "redis-set-px-lua",
    "SET NX PX with a random value; a script compares and deletes",
    |context| Box::new(SingleKeyLock::new(context, SetPxLua)),
);

struct SetPxLua;

#[async_trait(?Send)]
impl Variant for SetPxLua {
    async fn release(&self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        match has_defect("redis-set-px-lua", "a release compares nothing") {
            true => at.session.del(at.key).await,
            false => at.session.del_if(at.key, at.value).await,
        }
    }
}
