//! `redis-set-px-extend`: `redis-set-px-lua`, of which the user extends the time to live while it holds.
//!
//! 1. SET key value NX PX lease, with a random value; poll while it is taken;
//! 2. when the user asks for it, a script: PEXPIRE the key if it still has the value. A naive client sends a plain PEXPIRE, whatever the
//!    value is by now, and so may tell its user that it holds what is its successor's;
//! 3. a script to release: DEL the key if it still has the value.
//!
//! The user watches the lease: no `lost` is raised.
//!
//! Source: `Lock.reacquire` of redis-py: <https://redis.readthedocs.io/en/stable/lock.html>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = Recipe {
    extends: true,
    ..redis(
        "redis-set-px-extend",
        "as redis-set-px-lua; its user extends the lease while it holds",
        |context| Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Compared)),
    )
};
