//! `redis-set-px-del`: a key with a time to live, and a plain DEL.
//!
//! 1. SET key value NX PX lease; poll while it is taken;
//! 2. DEL key to release, whatever its value is by now. A careful client leaves that out when its own time is over; a
//!    naive one deletes what is there, and so may free the lock of its successor.
//!
//! Source: the Redis documentation, "SET", section "Patterns": "the command `SET resource-name anystring NX EX
//! max-lock-time` is a simple way to implement a locking system with Redis", without the comparison that the page goes on
//! to recommend: <https://redis.io/docs/latest/commands/set/>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = redis(
    "redis-set-px-del",
    "SET NX PX; a plain DEL deletes whatever is there",
    |context| Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Blind)),
);
