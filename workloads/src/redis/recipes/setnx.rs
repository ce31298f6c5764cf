//! `redis-setnx`: a key without a time to live.
//!
//! 1. SETNX key value; poll while it is taken;
//! 2. DEL key to release.
//!
//! It never expires, so a pause loses nothing; but a holder that dies holds it for ever. So does a client whose reply to
//! SETNX was lost, since it does not read the value back.
//!
//! Source: the Redis documentation, "SETNX", section "Design pattern: Locking with SETNX", without the deadline that the
//! page goes on to add: <https://redis.io/docs/latest/commands/setnx/>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, redis};

pub(super) const RECIPE: Recipe = Recipe {
    policies: false,
    lease: false,
    ..redis("redis-setnx", "SETNX without a time to live; DEL", |context| {
        Box::new(SingleKeyLock::new(context, SetForm::Forever, DeleteForm::Blind))
    })
};
