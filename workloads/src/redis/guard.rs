//! What goes on while a key is held: the careful holder's clock, and the renewal of the lease.
//!
//! Time is counted from before the command was sent that gave it, so it never runs longer here than on the server.

use std::time::Duration;

use super::connection::Connection;
use super::keyed::VALIDITY;
use super::session::RedisConnect;
use crate::host::{Task, within};
use crate::recipe::Seat;
use crate::session::SessionError;

/// How often a lease is renewed while it lasts.
const RENEWALS_A_LEASE: u32 = 3;

/// What is held, and when the command was sent that took it.
pub(super) struct Vigil {
    pub lock: String,
    pub key: String,
    pub value: String,
    pub asked: Duration,
}

/// Raises `lost` when the validity ends.
pub(super) fn watch_over(seat: &Seat<dyn RedisConnect>, vigil: Vigil) -> Task {
    let (host, signals) = (seat.host.clone(), seat.signals.clone());
    let end = vigil.asked + seat.lease * VALIDITY / 100;
    seat.host.spawn(Box::pin(async move {
        host.sleep(end.saturating_sub(host.now())).await;
        signals.lost(&vigil.lock, "validity ended");
    }))
}

/// Renews the lease until the task is dropped. When it cannot, a careful holder is told; a naive one is not.
pub(super) fn renew(seat: &Seat<dyn RedisConnect>, connection: Connection, vigil: Vigil) -> Task {
    let inner = seat.clone();
    seat.host.spawn(Box::pin(async move {
        let cause = keep_renewing(&inner, connection, &vigil).await;
        if inner.is_careful() {
            inner.signals.lost(&vigil.lock, cause);
        }
    }))
}

/// Returns with the cause when the lease is not sure any more.
async fn keep_renewing(seat: &Seat<dyn RedisConnect>, mut connection: Connection, vigil: &Vigil) -> String {
    let host = &*seat.host;
    let mut since = vigil.asked;
    loop {
        let end = since + seat.lease * VALIDITY / 100;
        host.sleep(
            (since + seat.lease / RENEWALS_A_LEASE)
                .min(end)
                .saturating_sub(host.now()),
        )
        .await;
        let renewed = async {
            loop {
                let asked = host.now();
                match renew_once(seat, &mut connection, vigil, end).await {
                    Ok(true) => return Ok(asked),
                    Ok(false) => return Err("renewal failed: key gone".to_owned()),
                    // an unknown renewal may be repeated: it only ever lengthens one's own lease
                    Err(_) => host.sleep(seat.options.interval).await,
                }
            }
        };
        match within(host, end.saturating_sub(host.now()), renewed).await {
            Some(Ok(asked)) => since = asked,
            Some(Err(cause)) => return cause,
            None => return "lease ran out".into(),
        }
    }
}

async fn renew_once(
    seat: &Seat<dyn RedisConnect>,
    connection: &mut Connection,
    vigil: &Vigil,
    limit: Duration,
) -> Result<bool, SessionError> {
    let session = connection.session(limit).await?;
    session.expire_if(&vigil.key, &vigil.value, seat.lease).await
}
