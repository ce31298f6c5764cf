//! The watch of a hold for a careful client, which raises `lost` when it can no longer be sure ([`watch_hold`]).
//!
//! The first sign decides: the connection broke, if only for a moment; a call on the session failed; the client's own
//! node is gone; or nothing proved the session alive for [`UNSURE_AFTER`] percent of its timeout, although no connection
//! broke. The server's word that the session expired comes too late: it has given the lock to another client by then.
//!
//! Source: Apache Curator's advice to treat a suspended connection as a lost lock, "Shared Reentrant Lock", section "Error
//! Handling": <https://curator.apache.org/docs/recipes-shared-reentrant-lock>.

use std::rc::Rc;
use std::time::Duration;

use super::ZkContext;
use crate::defects::has_defect;
use crate::host::{RecipeHost, Task, within};
use crate::session::zk::{ConnectionState, ConnectionStatus, ZkSession};

/// A careful client stops believing when the last proof of life is as old as this share of the session timeout, in
/// percent.
pub(super) const UNSURE_AFTER: u32 = 66;
/// The next proof of life is asked for when the last one is as old as this share of the session timeout, in percent.
const PROVE_AFTER: u32 = 33;

/// A held lock, and the last proof that its session is alive.
pub(super) struct WatchedHold {
    pub session: Rc<dyn ZkSession>,
    pub lock: String,
    pub path: String,
    /// The time at which the call was sent whose answer proved the session alive, by the host's monotonic clock.
    pub proof: Duration,
    /// The breaks of the connection before that call.
    pub breaks: u64,
}

/// Starts to watch a held lock; raises `lost` once.
pub(super) fn watch_hold(context: &ZkContext, hold: WatchedHold) -> Task {
    let (host, signals) = (context.host.clone(), context.signals.clone());
    context.host.spawn(Box::pin(async move {
        let cause = first_doubt(&*host, &hold).await;
        signals.lost(&hold.lock, cause);
    }))
}

/// Returns with the cause when the client can no longer be sure.
async fn first_doubt(host: &dyn RecipeHost, hold: &WatchedHold) -> String {
    let mut connection = hold.session.connection();
    let mut proof = hold.proof;
    loop {
        let now: ConnectionStatus = *connection.borrow_and_update();
        let is_late = has_defect("zk-predecessor-watch", "doubt comes with the end of the session");
        if now.breaks != hold.breaks && (!is_late || now.state == ConnectionState::Expired) {
            return broken(now);
        }
        tokio::select! {
            biased;
            changed = connection.changed() => if changed.is_err() {
                return "session closed".into();
            },
            proved = prove(host, hold, proof), if !is_late => match proved {
                Ok(at) => proof = at,
                Err(cause) => return cause,
            },
        }
    }
}

fn broken(connection: ConnectionStatus) -> String {
    let cause = if connection.state == ConnectionState::Expired {
        "session expired"
    } else {
        "Disconnected"
    };
    cause.into()
}

/// Waits until the last proof of life has aged, and asks for the next one. Returns the time at which it was asked for.
async fn prove(host: &dyn RecipeHost, hold: &WatchedHold, proof: Duration) -> Result<Duration, String> {
    let timeout = hold.session.timeout();
    host.sleep((proof + timeout * PROVE_AFTER / 100).saturating_sub(host.now()))
        .await;
    let asked = host.now();
    let left = (proof + timeout * UNSURE_AFTER / 100).saturating_sub(asked);
    match within(host, left, hold.session.exists(&hold.path)).await {
        Some(Ok(Some(_))) => Ok(asked),
        Some(Ok(None)) => Err("own node is gone".into()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("no proof of life for {} ms", (host.now() - proof).as_millis())),
    }
}
