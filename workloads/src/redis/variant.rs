//! What differs between locks on a single key ([`Variant`]): how the key is taken and released, how a waiter waits. The
//! defaults are what most of them do.

use std::time::Duration;

use async_trait::async_trait;

use super::RedisContext;
use crate::session::SessionError;
use crate::session::redis::RedisSession;

/// How a recipe differs from the other locks on a single key.
#[async_trait(?Send)]
pub(super) trait Variant {
    /// Whether a lost reply to the SET is settled by reading the value back.
    fn reads_back(&self) -> bool {
        true
    }

    /// Whether a release deletes the client's own value only, so that it may be repeated.
    fn compares(&self) -> bool {
        self.reads_back()
    }

    /// Takes the key unless it is taken; answers the value that it then has.
    async fn acquire(&self, at: KeyContext<'_>) -> Result<Option<String>, SessionError> {
        let taken = at.session.set_nx(at.key, at.value, Some(at.recipe.lease)).await?;
        Ok(taken.then(|| at.value.to_owned()))
    }

    /// Deletes the key to release the lock. `false`: the lock was not the client's own.
    async fn release(&self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        match self.compares() {
            true => at.session.del_if(at.key, at.value).await,
            false => at.session.del(at.key).await,
        }
    }

    /// Gives the key a new time to live, where the lock's user extends its lease. `false`: the lock was not the client's own.
    async fn extend(&self, at: KeyContext<'_>) -> Result<bool, SessionError> {
        at.session.expire_if(at.key, at.value, at.recipe.lease).await
    }

    /// Waits until another try is worthwhile, for at most `limit`.
    async fn wait_for_retry(&self, at: KeyContext<'_>, limit: Duration) {
        at.recipe.host.sleep(at.recipe.poll_pause().min(limit)).await;
    }

    /// Called when a wait has ended, with the lock or without.
    fn wait_ended(&self) {}
}

/// One lock as one client sees it.
#[derive(Clone, Copy)]
pub(super) struct KeyContext<'a> {
    pub recipe: &'a RedisContext,
    pub session: &'a dyn RedisSession,
    pub lock: &'a str,
    pub key: &'a str,
    /// The value that the client sets; see [`Variant::acquire`].
    pub value: &'a str,
}
