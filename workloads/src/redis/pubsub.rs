//! `redis-pubsub`: as `redis-watchdog`, but waiters are told instead of polling.
//!
//! 1. SET key value NX PX lease, with a random value;
//! 2. while it is taken, subscribe to the lock's channel, try once more, and then after each message; a holder that died
//!    publishes nothing, so a waiter also tries again by itself when a renewal would have been due;
//! 3. renew as `redis-watchdog` does;
//! 4. a script to release: if the key still has the value, DEL it and PUBLISH on the channel. Every subscriber is woken.
//!
//! Source: Redisson's `RLock`, whose waiters subscribe to `redisson_lock__channel`.

use std::cell::RefCell;
use std::time::Duration;

use async_trait::async_trait;

use super::keyed::Keyed;
use super::session::{RedisConnect, Subscription};
use super::style::{Spot, Style};
use crate::client::LockClient;
use crate::host::within;
use crate::recipe::Seat;
use crate::session::SessionError;

/// A waiter that hears nothing tries again this often in a lease.
const TRIES_A_LEASE: u32 = 3;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    Box::new(Keyed::new(
        seat,
        Pubsub {
            subscription: RefCell::new(None),
        },
    ))
}

struct Pubsub {
    /// The subscription of the wait that is on.
    subscription: RefCell<Option<Box<dyn Subscription>>>,
}

/// The channel on which a lock's releases are published.
fn channel(key: &str) -> String {
    format!("{key}:released")
}

#[async_trait(?Send)]
impl Style for Pubsub {
    fn renews(&self) -> bool {
        true
    }

    async fn give_back(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError> {
        at.session.del_if_and_publish(at.key, at.value, &channel(at.key)).await
    }

    async fn pause(&self, seat: &Seat<dyn RedisConnect>, at: Spot<'_>, time: Duration) {
        let Some(mut subscription) = self.subscription.take() else {
            match at.session.subscribe(&channel(at.key)).await {
                // a release may have come before the subscription: try once more first
                Ok(subscription) => drop(self.subscription.replace(Some(subscription))),
                Err(_) => seat.host.sleep(seat.options.interval.min(time)).await,
            }
            return;
        };
        match within(&*seat.host, time.min(at.lease / TRIES_A_LEASE), subscription.next()).await {
            Some(Some(message)) => seat.signals.woken(at.lock, format!("message {message}")),
            // the connection is gone, and with it the subscription
            Some(None) => return,
            None => {}
        }
        self.subscription.replace(Some(subscription));
    }

    fn waited(&self) {
        self.subscription.take();
    }
}
