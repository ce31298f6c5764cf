//! A lease that is kept alive, and how long its tenant may be sure of it.
//!
//! The server counts the lease from when it got the last renewal; the tenant counts from when it *sent* the last one
//! that was acknowledged, so it never believes longer than the server. A renewal is sent every third of the lease, and
//! again after a failure, for as long as the lease may be alive.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;

use super::owner_name;
use super::session::{EtcdConnect, EtcdSession};
use crate::host::{Host, Task};
use crate::recipe::Seat;
use crate::session::SessionError;

/// How often a lease is renewed while it lasts.
const RENEWALS_A_LEASE: u32 = 3;
/// How much of a lease a careful holder believes in without a renewal, in percent.
const VALIDITY: u32 = 85;
/// Between two renewals that failed at once.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// What is known of a lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// The server said that there is no such lease.
    pub gone: bool,
    /// Since when it runs, at the earliest.
    since: Duration,
    ttl: Duration,
}

impl Standing {
    /// Until when a careful holder believes.
    pub(super) fn sure_until(&self) -> Duration {
        self.since + self.ttl * VALIDITY / 100
    }

    pub(super) fn is_sure(&self, now: Duration) -> bool {
        !self.gone && now < self.sure_until()
    }

    fn is_over(&self, now: Duration) -> bool {
        self.gone || now >= self.since + self.ttl
    }
}

/// One lease and the task that renews it; dropping it ends the renewals, not the lease.
pub(super) struct Tenancy {
    pub lease: i64,
    standing: watch::Receiver<Standing>,
    _keeper: Task,
}

impl Tenancy {
    pub(super) async fn begin(
        seat: &Seat<dyn EtcdConnect>,
        session: &Rc<dyn EtcdSession>,
    ) -> Result<Self, SessionError> {
        let asked = seat.host.now();
        let lease = session.grant_lease(seat.lease).await?;
        let (sender, standing) = watch::channel(Standing {
            gone: false,
            since: asked,
            ttl: lease.ttl,
        });
        let keeper = keep(seat.host.clone(), session.clone(), lease.id, sender);
        Ok(Tenancy {
            lease: lease.id,
            standing,
            _keeper: seat.host.spawn(Box::pin(keeper)),
        })
    }

    pub(super) fn owner(&self) -> String {
        owner_name(self.lease)
    }

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    pub(super) fn is_sure(&self, now: Duration) -> bool {
        self.standing.borrow().is_sure(now)
    }

    /// Whether the lease surely has ended, or has by this clock.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.standing.borrow().is_over(now)
    }
}

async fn keep(host: Rc<dyn Host>, session: Rc<dyn EtcdSession>, lease: i64, standing: watch::Sender<Standing>) {
    let mut next = standing.borrow().since + standing.borrow().ttl / RENEWALS_A_LEASE;
    loop {
        host.sleep(next.saturating_sub(host.now())).await;
        let asked = host.now();
        match session.keep_alive(lease).await {
            Ok(Some(ttl)) => {
                standing.send_modify(|standing| {
                    *standing = Standing {
                        gone: false,
                        since: asked,
                        ttl,
                    }
                });
                next = asked + ttl / RENEWALS_A_LEASE;
            }
            Ok(None) => {
                standing.send_modify(|standing| standing.gone = true);
                return;
            }
            // asked twice is renewed twice, which does no harm
            Err(_) => next = host.now() + RETRY_PAUSE,
        }
    }
}

/// Waits for the first reason not to be sure of the lease, and tells it.
pub(super) async fn doubt(host: &dyn Host, mut standing: watch::Receiver<Standing>) -> String {
    loop {
        let now = *standing.borrow_and_update();
        if now.gone {
            return "lease gone".into();
        }
        if !now.is_sure(host.now()) {
            return "lease ran out".into();
        }
        tokio::select! {
            biased;
            changed = standing.changed() => if changed.is_err() {
                return "lease given up".into();
            },
            () = host.sleep(now.sure_until().saturating_sub(host.now())) => {}
        }
    }
}
