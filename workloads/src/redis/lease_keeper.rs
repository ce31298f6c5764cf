//! The lease of a held key: its renewal, which raises `lost` when a careful client can no longer be sure.
//!
//! Time is counted from before the command was sent that set the time to live, so it never runs longer here than on the
//! server.

use std::time::Duration;

use super::RedisContext;
use super::failover_connection::FailoverConnection;
use crate::defects::has_defect;
use crate::host::{Task, within};
use crate::recipe::{RENEWALS_A_LEASE, VALIDITY};
use crate::session::SessionError;

/// A held key, and the time at which the command was sent that took it.
pub(super) struct KeyLease {
    pub lock: String,
    pub key: String,
    pub value: String,
    /// By the host's monotonic clock.
    pub asked: Duration,
}

/// Returns until when a careful client believes in a lease that was asked for at `asked`.
pub(super) fn valid_until(context: &RedisContext, asked: Duration) -> Duration {
    let late = has_defect("redis-set-px-lua", "doubt comes after the lease");
    asked + context.lease * if late { 150 } else { VALIDITY } / 100
}

/// For defects: returns the time at which a lease was asked for that is believed in for all its length from now on.
pub(super) fn counted_from_reply(context: &RedisContext) -> Duration {
    context.host.now() + context.lease * (100 - VALIDITY) / 100
}

/// Renews the lease until the task is dropped. When that fails, a careful client raises `lost`; a naive one does not.
pub(super) fn keep_renewing(context: &RedisContext, connection: FailoverConnection, held: KeyLease) -> Task {
    let inner = context.clone();
    context.host.spawn(Box::pin(async move {
        let cause = renew_until_unsure(&inner, connection, &held).await;
        if inner.is_careful() {
            inner.signals.lost(&held.lock, cause);
        }
    }))
}

/// Returns with the cause when the lease is not sure any more.
async fn renew_until_unsure(context: &RedisContext, mut connection: FailoverConnection, held: &KeyLease) -> String {
    let host = &*context.host;
    let mut since = held.asked;
    loop {
        let end = valid_until(context, since);
        let due = (since + context.lease / RENEWALS_A_LEASE).min(end);
        host.sleep(due.saturating_sub(host.now())).await;
        let renewed = async {
            loop {
                let asked = host.now();
                match renew_once(context, &mut connection, held, end).await {
                    Ok(true) => return Ok(asked),
                    Ok(false) => return Err("renewal failed: key gone".to_owned()),
                    Err(_) if has_defect("redis-watchdog", "an error ends the renewal") => std::future::pending().await,
                    // an unknown renewal may be repeated: it only ever lengthens this client's own lease
                    Err(_) => host.sleep(context.options.interval).await,
                }
            }
        };
        let left = match has_defect("redis-watchdog", "an error ends the renewal") {
            true => Duration::MAX / 2,
            false => end.saturating_sub(host.now()),
        };
        match within(host, left, renewed).await {
            Some(Ok(asked)) => since = asked,
            Some(Err(cause)) => return cause,
            None => return "lease ran out".into(),
        }
    }
}

async fn renew_once(
    context: &RedisContext,
    connection: &mut FailoverConnection,
    held: &KeyLease,
    limit: Duration,
) -> Result<bool, SessionError> {
    let session = connection.session(limit).await?;
    session.expire_if(&held.key, &held.value, context.lease).await
}
