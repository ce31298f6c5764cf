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

use std::cell::RefCell;
use std::time::Duration;

use async_trait::async_trait;

use super::redis;
use crate::contract::Wakeup;
use crate::host::within;
use crate::recipe::Recipe;
use crate::redis::single_key::SingleKeyLock;
use crate::redis::variant::{KeyContext, Variant};
use crate::session::SessionError;
use crate::session::redis::Subscription;

pub(super) const RECIPE: Recipe = Recipe {
    wakeup: Wakeup::Notified,
    renews: true,
    ..redis(
        "redis-pubsub",
        "as redis-watchdog; waiters are told by a message",
        |context| Box::new(SingleKeyLock::new(context, Pubsub::default())),
    )
};

/// A waiter that receives no message tries again this often in a lease.
const TRIES_A_LEASE: u32 = 3;

#[derive(Default)]
struct Pubsub {
    /// The subscription of the current wait.
    subscription: RefCell<Option<Box<dyn Subscription>>>,
}

/// The channel on which a lock's releases are published.
fn channel(key: &str) -> String {
    format!("{key}:released")
}

#[async_trait(?Send)]
impl Variant for Pubsub {
    async fn release(&self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        at.session.del_if_and_publish(at.key, at.value, &channel(at.key)).await
    }

    async fn wait_for_retry(&self, at: KeyContext<'_>, limit: Duration) {
        let host = &*at.recipe.host;
        let Some(mut subscription) = self.subscription.take() else {
            match at.session.subscribe(&channel(at.key)).await {
                // a release may have come before the subscription: try once more first
                Ok(subscription) => drop(self.subscription.replace(Some(subscription))),
                Err(_) => host.sleep(at.recipe.options.interval.min(limit)).await,
            }
            return;
        };
        match within(host, limit.min(at.recipe.lease / TRIES_A_LEASE), subscription.next()).await {
            Some(Some(message)) => at.recipe.signals.woken(at.lock, format!("message {message}")),
            // the connection is gone, and with it the subscription
            Some(None) => return,
            None => {}
        }
        self.subscription.replace(Some(subscription));
    }

    fn wait_ended(&self) {
        self.subscription.take();
    }
}
