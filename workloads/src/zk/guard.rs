//! The careful holder's doubt: a task that watches a held lock and says when it can no longer be sure of it.
//!
//! It doubts at the first sign: the connection broke, if only for a moment; a call on the session went wrong; the own
//! node is gone; or nothing proved the session alive for [`DOUBT_AFTER`] of its timeout, although no connection broke.
//! It never waits to be told that the session expired: the server has given the lock to another by then.

use std::rc::Rc;
use std::time::Duration;

use super::session::{Link, LinkState, ZkConnect, ZkSession};
use crate::host::{Host, Task, within};
use crate::recipe::Seat;

/// Without proof of life for this share of the session, in percent, a holder stops believing.
pub(super) const DOUBT_AFTER: u32 = 66;
/// A proof of life is asked for when the last one is as old as this share of the session, in percent.
const PROVE_AFTER: u32 = 33;

/// What is held, and since when it is known.
pub(super) struct Vigil {
    pub session: Rc<dyn ZkSession>,
    pub lock: String,
    pub path: String,
    /// When the question was asked whose answer proved the session alive.
    pub proof: Duration,
    /// The breaks of the connection before that question.
    pub breaks: u64,
}

/// Starts to watch over a held lock; raises `lost` once, at the first doubt.
pub(super) fn watch_over(seat: &Seat<dyn ZkConnect>, vigil: Vigil) -> Task {
    let (host, signals) = (seat.host.clone(), seat.signals.clone());
    seat.host.spawn(Box::pin(async move {
        let cause = doubt(&*host, &vigil).await;
        signals.lost(&vigil.lock, cause);
    }))
}

/// Returns with the cause at the first doubt.
async fn doubt(host: &dyn Host, vigil: &Vigil) -> String {
    let mut link = vigil.session.link();
    let mut proof = vigil.proof;
    loop {
        let now: Link = *link.borrow_and_update();
        if now.breaks != vigil.breaks {
            return broken(now);
        }
        tokio::select! {
            biased;
            changed = link.changed() => if changed.is_err() {
                return "session closed".into();
            },
            proved = prove(host, vigil, proof) => match proved {
                Ok(at) => proof = at,
                Err(cause) => return cause,
            },
        }
    }
}

fn broken(link: Link) -> String {
    let cause = if link.state == LinkState::Expired {
        "session expired"
    } else {
        "Disconnected"
    };
    cause.into()
}

/// Waits until the last proof of life has aged, and asks for the next one. Answers when it was asked for.
async fn prove(host: &dyn Host, vigil: &Vigil, proof: Duration) -> Result<Duration, String> {
    let timeout = vigil.session.timeout();
    host.sleep((proof + timeout * PROVE_AFTER / 100).saturating_sub(host.now()))
        .await;
    let asked = host.now();
    let left = (proof + timeout * DOUBT_AFTER / 100).saturating_sub(asked);
    match within(host, left, vigil.session.exists(&vigil.path)).await {
        Some(Ok(Some(_))) => Ok(asked),
        Some(Ok(None)) => Err("own node is gone".into()),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("no proof of life for {} ms", (host.now() - proof).as_millis())),
    }
}
