//! `redis-getset`: a key whose value is its deadline by the clients' wall clocks.
//!
//! 1. SETNX key deadline, with deadline = now + lease; if it was set, the lock is held;
//! 2. else GET key; if its deadline has passed, GETSET key deadline; if that answers the value just read, the lock is
//!    held, else another client was faster (and the key now has this client's deadline);
//! 3. poll from 1;
//! 4. DEL key to release, if the deadline has not passed.
//!
//! A random part after the deadline shows whose value it is; the algorithm does not look at it.
//!
//! Source: the Redis documentation, "SETNX", section "Design pattern: Locking with SETNX":
//! <https://redis.io/docs/latest/commands/setnx/>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = Recipe {
    wall_clock: true,
    ..redis(
        "redis-getset",
        "SETNX of a deadline, GETSET when it has passed; DEL within it",
        |context| Box::new(SingleKeyLock::new(context, SetForm::Deadline, DeleteForm::InTime)),
    )
};
