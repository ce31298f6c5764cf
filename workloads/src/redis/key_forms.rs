//! The differences of locks on a single key: in the command that sets the key ([`SetForm`]), in the one that deletes it ([`DeleteForm`]),
//! and in the wait of a waiter ([`RetryWait`]).

use std::cell::RefCell;
use std::time::Duration;

use super::RedisContext;
use crate::contract::Wakeup;
use crate::defects::has_defect;
use crate::host::within;
use crate::session::SessionError;
use crate::session::redis::{RedisSession, Subscription};

/// A waiter that receives no message tries again this often in a lease.
const TRIES_A_LEASE: u32 = 3;

/// One lock as one client sees it.
#[derive(Clone, Copy)]
pub(super) struct KeyContext<'a> {
    pub recipe: &'a RedisContext,
    pub session: &'a dyn RedisSession,
    pub lock: &'a str,
    pub key: &'a str,
    /// The value that the client sets; see [`SetForm::set`].
    pub value: &'a str,
}

/// The command that sets the key to take the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetForm {
    /// With the lease as its time to live, in one command. A lost reply is settled by reading the value back.
    WithLease,
    /// Without a time to live.
    Forever,
    /// With a time to live that a second command sets.
    ThenExpire,
    /// To a deadline by the wall clock, also over one that has passed.
    Deadline,
}

/// The command that deletes the key to release the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DeleteForm {
    /// If it has the client's own value, in one script or command.
    Compared,
    /// The same, and published on the lock's channel.
    Published,
    /// If it had the client's own value when it was read just before.
    Read,
    /// Whatever its value is.
    Blind,
    /// Whatever its value is, if the client's own deadline has not passed.
    InTime,
}

impl SetForm {
    /// Takes the key unless it is taken; returns the value that it then has.
    pub(super) async fn set(self, at: KeyContext<'_>) -> Result<Option<String>, SessionError> {
        let lease = at.recipe.lease;
        let taken = match self {
            SetForm::WithLease => at.session.set_nx(at.key, at.value, Some(lease)).await?,
            SetForm::Forever | SetForm::ThenExpire => at.session.set_nx(at.key, at.value, None).await?,
            SetForm::Deadline => return set_deadline(at).await,
        };
        if taken && self == SetForm::ThenExpire {
            // refused or unknown, the key stays: it is not surely free
            let expires = at.session.expire(at.key, lease).await;
            expires.map_err(|error| SessionError::Indefinite(format!("expire: {error}")))?;
        }
        Ok(taken.then(|| at.value.to_owned()))
    }
}

async fn set_deadline(at: KeyContext<'_>) -> Result<Option<String>, SessionError> {
    let now = at.recipe.host.wall_clock().as_millis();
    let own = format!("{}:{}", now + at.recipe.lease.as_millis(), at.value);
    if at.session.set_nx(at.key, &own, None).await? {
        return Ok(Some(own));
    }
    match at.session.get(at.key).await? {
        Some(taken) if deadline_ms(&taken) < now => {
            let before = at.session.get_set(at.key, &own).await?;
            Ok((before.as_ref() == Some(&taken)).then_some(own))
        }
        _ => Ok(None),
    }
}

/// Returns the deadline in a value, in milliseconds since 1970; a value without one has passed.
fn deadline_ms(value: &str) -> u128 {
    let digits = value.split_once(':').map_or(value, |(digits, _)| digits);
    digits.parse().unwrap_or(0)
}

/// Returns the channel on which a lock's releases are published.
fn channel(key: &str) -> String {
    format!("{key}:released")
}

impl DeleteForm {
    /// Whether it deletes the client's own value only, so that it may be repeated.
    pub(super) fn compares(self) -> bool {
        matches!(self, DeleteForm::Compared | DeleteForm::Published | DeleteForm::Read)
    }

    /// Deletes the key. `false`: the lock was not the client's own.
    pub(super) async fn delete(self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        let KeyContext {
            session, key, value, ..
        } = at;
        let deletes = match self {
            DeleteForm::Compared if !has_defect("redis-set-px-lua", "a release compares nothing") => {
                return session.del_if(key, value).await;
            }
            DeleteForm::Published => return session.del_if_and_publish(key, value, &channel(key)).await,
            DeleteForm::Read => session.get(key).await?.as_deref() == Some(value),
            DeleteForm::InTime => deadline_ms(value) > at.recipe.host.wall_clock().as_millis(),
            DeleteForm::Compared | DeleteForm::Blind => true,
        };
        match deletes {
            true => session.del(key).await,
            false => Ok(false),
        }
    }
}

/// The wait of a waiter until another try is worthwhile: it polls, or it hears of releases.
#[derive(Default)]
pub(super) struct RetryWait {
    /// The subscription of the current wait.
    subscription: RefCell<Option<Box<dyn Subscription>>>,
}

impl RetryWait {
    /// Waits for at most `limit`.
    pub(super) async fn wait(&self, at: KeyContext<'_>, limit: Duration) {
        let host = &*at.recipe.host;
        if at.recipe.options.recipe.wakeup == Wakeup::Polling {
            return host.sleep(at.recipe.poll_pause().min(limit)).await;
        }
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

    /// Ends a wait, with the lock or without.
    pub(super) fn end(&self) {
        self.subscription.take();
    }
}
