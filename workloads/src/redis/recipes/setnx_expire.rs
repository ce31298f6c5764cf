//! `redis-setnx-expire`: a key whose time to live is set by a second command.
//!
//! 1. SETNX key value; poll while it is taken;
//! 2. PEXPIRE key lease. A client that dies between the two, or whose PEXPIRE is lost, leaves a lock that never expires;
//! 3. DEL key to release.
//!
//! Source: the usual lock before Redis 2.6.12, which brought `SET NX PX`; still found in many code bases. The SETNX page
//! of the Redis documentation names `SET` as its replacement: <https://redis.io/docs/latest/commands/setnx/>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = redis(
    "redis-setnx-expire",
    "SETNX, then EXPIRE as a second command; DEL",
    |context| Box::new(SingleKeyLock::new(context, SetForm::ThenExpire, DeleteForm::Blind)),
);
