//! What the recipes on the server's own services share: the server queues for its client, and the client waits for one
//! answer. Its key is `name/<lease>`, so it can be found again when the answer is lost.

use std::rc::Rc;
use std::time::Duration;

use super::lock_prefix;
use super::session::{EtcdSession, Key};
use super::tenancy::Tenancy;
use super::tenant::Tenant;
use crate::client::{NotOk, Outcome};
use crate::protocol::Acquire;
use crate::session::SessionError;

/// Before the next try when a call failed.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A try-lock gives the server this part of the lease to answer: its services know no try.
const TRIES_A_LEASE: u32 = 4;

/// The name that the server is given for a lock; it puts a `/` and the lease after it.
pub(super) fn service_name(lock: &str) -> String {
    lock_prefix(lock).trim_end_matches('/').to_owned()
}

/// Asks the server for the lock until it answers or the wait is over. A question that ended without an answer may have
/// left a key, which is deleted before the next one; so does an answer that a careful client cannot believe, since it was
/// on its way for longer than the lease is sure to last.
pub(super) async fn ask<T>(
    tenant: &mut Tenant,
    request: &Acquire,
    question: impl AsyncFn(&dyn EtcdSession, i64, Duration) -> Result<T, SessionError>,
) -> Outcome<(T, Rc<dyn EtcdSession>, Rc<Tenancy>)> {
    let deadline = tenant.now() + Duration::from_millis(request.wait_ms);
    let limit = deadline + tenant.seat.lease / 2;
    tenant.forget_lost(&request.lock);
    loop {
        let (session, tenancy) = tenant.settle().await?;
        let wait = deadline
            .saturating_sub(tenant.now())
            .max(tenant.seat.lease / TRIES_A_LEASE);
        let answer = question(&*session, tenancy.lease, wait).await;
        let is_sure = !tenant.seat.is_careful() || tenancy.is_sure(tenant.now());
        let refused = match answer {
            Ok(answer) if is_sure => return Ok((answer, session, tenancy)),
            // the lease is gone: a new one, if there is time
            Err(SessionError::Definite(reason)) => {
                tenant.evict();
                NotOk::Fail(reason)
            }
            doubtful => {
                let name = format!("{}{:x}", lock_prefix(&request.lock), tenancy.lease);
                let own = Key {
                    name,
                    lease: tenancy.lease,
                    ..Key::default()
                };
                let refused = match doubtful {
                    Ok(_) => NotOk::Fail("the lease is not sure".into()),
                    Err(_) => NotOk::gave_up(request),
                };
                match tenant.give_up(&*session, own, refused, limit).await {
                    unknown @ NotOk::Info(_) => return Err(unknown),
                    refused => refused,
                }
            }
        };
        if tenant.now() >= deadline {
            return Err(refused);
        }
        tenant.seat.host.sleep(RETRY_PAUSE).await;
    }
}
