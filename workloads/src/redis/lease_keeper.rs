//! The lease of a held key, and its renewal ([`keep_renewing`]).
//!
//! Time is counted from before the command was sent that set the time to live, so it never runs longer here than on the
//! server.

use std::time::Duration;

use super::failover_connection::FailoverConnection;
use super::{RedisContext, lock_key};
use crate::host::Task;
use crate::recipe::VALIDITY;
use crate::session::SessionError;

/// For defects: returns the time at which a lease was asked for that is believed in for all its length from now on.
pub(super) fn counted_from_reply(context: &RedisContext) -> Duration {
    context.host.now() + context.lease * (100 - VALIDITY) / 100
}

/// Renews the lease of a key with this value, which was asked for at `asked`, until the task is dropped. When that fails, a careful client
/// raises `lost`; a naive one does not.
pub(super) fn keep_renewing(
    context: &RedisContext,
    connection: &FailoverConnection,
    lock: &str,
    value: &str,
    asked: Duration,
) -> Task {
    let (inner, mut connection) = (context.clone(), connection.clone());
    let (lock, value) = (lock.to_owned(), value.to_owned());
    context.host.spawn(Box::pin(async move {
        let key = lock_key(&lock);
        let renew = async |limit: Duration| renew_once(&inner, &mut connection, &key, &value, limit).await;
        let cause = inner.renew_until_unsure(asked, inner.options.interval, renew).await;
        if inner.is_careful() {
            inner.signals.lost(&lock, cause);
        }
    }))
}

async fn renew_once(
    context: &RedisContext,
    connection: &mut FailoverConnection,
    key: &str,
    value: &str,
    limit: Duration,
) -> Result<Result<Duration, &'static str>, SessionError> {
    let asked = context.host.now();
    let session = connection.session(limit).await?;
    let renewed = session.expire_if(key, value, context.lease).await?;
    Ok(renewed.then_some(asked).ok_or("renewal failed: key gone"))
}
