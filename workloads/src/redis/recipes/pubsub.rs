//! `redis-pubsub`: as `redis-watchdog`, but waiters are notified by a message instead of polling.
//!
//! 1. SET key value NX PX lease, with a random value;
//! 2. while it is taken, subscribe to the lock's channel, try once more, and then after each message; a holder that died
//!    publishes nothing, so a waiter also tries again when a renewal would have been due;
//! 3. renew as `redis-watchdog` does;
//! 4. a script to release: if the key still has the value, DEL it and PUBLISH on the channel. Every subscriber is woken.
//!
//! Source: Redisson's `RLock`, whose waiters subscribe to `redisson_lock__channel`:
//! <https://github.com/redisson/redisson/blob/master/redisson/src/main/java/org/redisson/RedissonLock.java>.

use super::{DeleteForm, Recipe, SetForm, SingleKeyLock, Wakeup, redis};

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Notified,
    renews: true,
    ..redis(
        "redis-pubsub",
        "as redis-watchdog; waiters are told by a message",
        |context| Box::new(SingleKeyLock::new(context, SetForm::WithLease, DeleteForm::Published)),
    )
};
