//! The keeper that renews a lease ([`LeaseKeeper`]), and how long its owner may be sure of it ([`LeaseState`]).
//!
//! The server counts the lease from when it received the last renewal; the client counts from when it *sent* the last one
//! that was acknowledged, so it never believes longer than the server. A renewal is sent every third of the lease, and
//! again after a failure, for as long as the lease may be alive.
//!
//! Source: the keep-alive of etcd's `clientv3`, which renews at a third of the time to live as well:
//! <https://github.com/etcd-io/etcd/blob/main/client/v3/lease.go>. That a careful client stops before the lease is over is
//! an addition.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::watch;

use super::{EtcdContext, owner_name};
use crate::defects::has_defect;
use crate::host::{RecipeHost, Task};
use crate::recipe::{RENEWALS_A_LEASE, VALIDITY};
use crate::session::etcd::EtcdSession;
use crate::session::{RETRY_PAUSE, SessionError};

/// The state of a lease, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseState {
    /// Whether the server said that there is no such lease.
    pub gone: bool,
    /// The earliest time at which it began to run, by the host's monotonic clock.
    since: Duration,
    ttl: Duration,
}

impl LeaseState {
    /// Returns until when a careful client believes.
    pub(super) fn sure_until(&self) -> Duration {
        let late = has_defect("etcd-mutex", "doubt comes after the lease");
        self.since + self.ttl * if late { 150 } else { VALIDITY } / 100
    }

    pub(super) fn is_sure(&self, now: Duration) -> bool {
        !self.gone && now < self.sure_until()
    }

    fn is_over(&self, now: Duration) -> bool {
        self.gone || now >= self.since + self.ttl
    }
}

/// One lease and the task that renews it; dropping it ends the renewals, not the lease.
pub(super) struct LeaseKeeper {
    pub lease: i64,
    state: watch::Receiver<LeaseState>,
    _renewals: Task,
}

impl LeaseKeeper {
    pub(super) async fn start(context: &EtcdContext) -> Result<Self, SessionError> {
        let asked = context.host.now();
        let lease = context.store.grant_lease(context.lease).await?;
        let (sender, state) = watch::channel(LeaseState {
            gone: false,
            since: asked,
            ttl: lease.ttl,
        });
        let renewals = renew_until_gone(context.host.clone(), context.store.clone(), lease.id, sender);
        Ok(LeaseKeeper {
            lease: lease.id,
            state,
            _renewals: context.host.spawn(Box::pin(renewals)),
        })
    }

    pub(super) fn owner(&self) -> String {
        owner_name(self.lease)
    }

    pub(super) fn state(&self) -> watch::Receiver<LeaseState> {
        self.state.clone()
    }

    pub(super) fn is_sure(&self, now: Duration) -> bool {
        self.state.borrow().is_sure(now)
    }

    /// Whether the lease surely has ended, or has by this clock.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.state.borrow().is_over(now)
    }
}

async fn renew_until_gone(
    host: Rc<dyn RecipeHost>,
    session: Rc<dyn EtcdSession>,
    lease: i64,
    state: watch::Sender<LeaseState>,
) {
    let mut next = state.borrow().since + state.borrow().ttl / RENEWALS_A_LEASE;
    loop {
        host.sleep(next.saturating_sub(host.now())).await;
        let asked = host.now();
        match session.keep_alive(lease).await {
            Ok(Some(ttl)) => {
                state.send_modify(|state| {
                    *state = LeaseState {
                        gone: false,
                        since: asked,
                        ttl,
                    }
                });
                next = asked + ttl / RENEWALS_A_LEASE;
            }
            Ok(None) => {
                state.send_modify(|state| state.gone = true);
                return;
            }
            // a renewal that arrives twice does no harm
            Err(_) => next = host.now() + RETRY_PAUSE,
        }
    }
}

/// Waits for the first reason not to be sure of the lease, and returns it as the cause of a `lost`.
pub(super) async fn first_doubt(host: &dyn RecipeHost, mut state: watch::Receiver<LeaseState>) -> String {
    loop {
        let now = *state.borrow_and_update();
        if now.gone {
            return "lease gone".into();
        }
        if !now.is_sure(host.now()) {
            return "lease ran out".into();
        }
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() {
                return "lease given up".into();
            },
            () = host.sleep(now.sure_until().saturating_sub(host.now())) => {}
        }
    }
}
