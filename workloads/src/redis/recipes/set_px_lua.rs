//! `redis-set-px-lua`: a key with a time to live and a random value, deleted by a script that compares.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. a script to release: DEL the key if it still has the value.
//!
//! Source: the Redis documentation, "Distributed Locks with Redis", section "Correct Implementation with a Single
//! Instance":
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#correct-implementation-with-a-single-instance>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = redis(
    "redis-set-px-lua",
    "SET NX PX with a random value; a script compares and deletes",
    |context| Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Compared)),
);
