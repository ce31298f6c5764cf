//! `redis-set-px-get-del`: a key with a time to live and a random value, compared by the client before DEL.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. GET key to release; if it still has the value, DEL key. Between the two the key may expire and be taken by another
//!    client, whose lock is then deleted.
//!
//! Source: the advice of the Redis documentation followed by half, the comparison without the script: "Distributed Locks
//! with Redis", section "Correct Implementation with a Single Instance":
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#correct-implementation-with-a-single-instance>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = redis(
    "redis-set-px-get-del",
    "SET NX PX with a random value; GET, compare, DEL",
    |context| Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Read)),
);
