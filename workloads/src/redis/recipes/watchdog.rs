//! `redis-watchdog`: a key with a time to live that is renewed while it is held.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. every third of the lease, a script: PEXPIRE the key if it still has the value. A careful client raises `lost` when
//!    the script says that the key is gone, and when the lease ran out without an answer;
//! 3. a script to release: DEL the key if it still has the value.
//!
//! Source: the lock watchdog of Redisson's `RLock`:
//! <https://github.com/redisson/redisson/wiki/8.-Distributed-locks-and-synchronizers>. Redisson's lock is a hash that
//! counts reentrant holds; here it is a plain value.

use super::{DeleteForm, LockClient, Recipe, RedisContext, SetForm, SingleKeyLock, redis};

pub(crate) const RECIPE: Recipe = Recipe {
    renews: true,
    ..redis(
        "redis-watchdog",
        "SET NX PX, renewed every third of the lease while held",
        client,
    )
};

/// Makes a client, for a session that compares in its own way.
pub(crate) fn client(context: RedisContext) -> Box<dyn LockClient> {
    Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Compared))
}
