//! What a lock on one key does its own way; the defaults are those of most.

use std::time::Duration;

use async_trait::async_trait;

use super::session::{RedisConnect, RedisSession};
use crate::recipe::Seat;
use crate::session::SessionError;

/// A poll's pause is half the interval and up to this much of it more, so that waiters do not come in step.
const JITTER_PERCENT: u64 = 100;

/// What a recipe does its own way.
#[async_trait(?Send)]
pub(super) trait Style {
    /// Whether the key goes by itself when the lease is over.
    fn expires(&self) -> bool {
        true
    }

    /// Whether the holder renews the lease until it releases.
    fn renews(&self) -> bool {
        false
    }

    /// Whether a lost reply to the SET is settled by reading the value back.
    fn reads_back(&self) -> bool {
        true
    }

    /// Whether only the own value is ever deleted, so that a release may be repeated.
    fn compares(&self) -> bool {
        true
    }

    /// Takes the key unless it is taken; answers the value that it then has.
    async fn take(&self, _seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<Option<String>, SessionError> {
        let taken = at.session.set_nx(at.key, at.value, Some(at.lease)).await?;
        Ok(taken.then(|| at.value.to_owned()))
    }

    /// Gives the key back. `false`: it was not one's own.
    async fn give_back(&self, seat: &Seat<dyn RedisConnect>, at: Spot<'_>) -> Result<bool, SessionError>;

    /// Waits, at most for `time`, until it is worth another try.
    async fn pause(&self, seat: &Seat<dyn RedisConnect>, _at: Spot<'_>, time: Duration) {
        let interval = seat.options.interval;
        let draw = u32::try_from(seat.host.random() % (JITTER_PERCENT + 1)).expect("a percentage");
        seat.host.sleep((interval / 2 + interval * draw / 100).min(time)).await;
    }

    /// The wait is over, one way or the other.
    fn waited(&self) {}
}

/// One lock as one client sees it.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub session: &'a dyn RedisSession,
    pub lock: &'a str,
    pub key: &'a str,
    pub value: &'a str,
    pub lease: Duration,
}
