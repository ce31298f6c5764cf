//! The wait of the recipes on the server's own services ([`ask`]): the server queues on behalf of its client, and the client waits for one
//! answer. Its key is `name/<lease>`, so it can be found again when the answer is lost.

use std::rc::Rc;
use std::time::Duration;

use super::lease_keeper::LeaseKeeper;
use super::lease_session::LeaseSession;
use super::{RETRY_PAUSE, lock_prefix};
use crate::client::{LockError, LockResult};
use crate::protocol::AcquireRequest;
use crate::session::SessionError;
use crate::session::etcd::EtcdSession;

/// A try-lock gives the server the lease divided by this to answer: its services have no try-lock.
const TRIES_A_LEASE: u32 = 4;

/// Returns the server's name for a lock; the server puts a `/` and the lease after it.
pub(super) fn service_name(lock: &str) -> String {
    lock_prefix(lock).trim_end_matches('/').to_owned()
}

/// Asks the server for the lock until it answers or the wait is over.
///
/// A call that ended without an answer may have left a key, which is deleted before the next call. So may an answer that a
/// careful client cannot believe, since it was on its way for longer than the lease is sure to last.
pub(super) async fn ask<T>(
    lease_session: &mut LeaseSession,
    request: &AcquireRequest,
    call: impl AsyncFn(&dyn EtcdSession, i64, Duration) -> Result<T, SessionError>,
) -> LockResult<(T, Rc<LeaseKeeper>)> {
    let deadline = lease_session.now() + Duration::from_millis(request.wait_ms);
    let limit = deadline + lease_session.context.lease / 2;
    lease_session.begin(request).await?;
    loop {
        let keeper = lease_session.ready().await?;
        let wait = deadline
            .saturating_sub(lease_session.now())
            .max(lease_session.context.lease / TRIES_A_LEASE);
        let answer = call(&*lease_session.context.store, keeper.lease, wait).await;
        lease_session.note(&answer);
        let is_sure = !lease_session.context.is_careful() || keeper.is_sure(lease_session.now());
        let refused = match answer {
            Ok(answer) if is_sure => return Ok((answer, keeper)),
            // the lease is gone: a new one, if there is time
            Err(SessionError::Definite(reason)) => {
                lease_session.drop_lease();
                LockError::refused(reason)
            }
            unbelieved => {
                let own = lease_session.own_key(&request.lock, keeper.lease);
                let refused = match unbelieved {
                    Ok(_) => LockError::refused("the lease is not sure"),
                    Err(_) => LockError::wait_over(request),
                };
                match lease_session.withdraw(own, refused, limit).await {
                    unknown @ LockError::Unknown(_) => return Err(unknown),
                    refused => refused,
                }
            }
        };
        if lease_session.now() >= deadline {
            return Err(refused);
        }
        lease_session.context.host.sleep(RETRY_PAUSE).await;
    }
}
