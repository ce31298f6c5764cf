//! Observers: an unproxied connection to the servers that shows who owns which lock, and the log of what it saw.
//!
//! An observer is an independent witness: without it a phantom grant, an orphaned lock and a silent loss cannot be told
//! apart. Its lines carry the time at which it heard, so they come after what they tell of, and never before it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::RevokeCause;
use harness_checkers::history::event::Fields;

use super::owners::{Contender, OwnerChange};
use crate::clock::GroundClock;
use crate::cluster::BoxFuture;

/// Pause before a lost connection is made again: short, since what happens meanwhile is not seen.
pub const RECONNECT: Duration = Duration::from_millis(20);

/// A grant that is seen to end so soon after its owner asked for that has ended because of it: the server is not asked.
const RELEASED_NS: u64 = 250_000_000;

/// A connected observer. It observes until its future is dropped, and connects again whenever it lost the servers.
pub type Observer = Box<dyn FnOnce(ObservationLog) -> BoxFuture<'static, ()> + Send>;

/// An observer, from what it does with a log.
pub fn observing<F: Future<Output = ()> + Send + 'static>(
    observe: impl FnOnce(ObservationLog) -> F + Send + 'static,
) -> Observer {
    Box::new(move |log| -> BoxFuture<'static, ()> { Box::pin(observe(log)) })
}

/// What an observer writes to: a run records everything, and others what they want to know.
pub trait ObservationSink: Send + Sync {
    /// A line of the server's: `granted` or `revoked`, heard at `at`, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    fn signal(&self, name: &'static str, fields: Fields<'_>, at: u64);

    /// The observer has heard nothing of `source` since `heard`, a reading of `CLOCK_MONOTONIC` in nanoseconds, and hears
    /// nothing until [`ObservationSink::back`].
    fn lost(&self, _source: &str, _heard: u64) {}

    fn back(&self, _source: &str) {}

    /// When the owner asked for the end of its grant, a reading of `CLOCK_MONOTONIC` in nanoseconds; `None` when it did not.
    /// Asking forgets.
    fn released_at(&self, _lock: &str, _contender: &Contender) -> Option<u64> {
        None
    }

    /// The observer watches the server at this address from now on.
    fn watches(&self, _address: SocketAddr) {}
}

/// Why a grant ended when its owner did not ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// The session, lease or key expired.
    Expired,
    /// Another client removed it while its owner lived.
    Deleted,
    /// A request wrote another owner over it.
    Overwritten,
    /// The server does not say.
    Unknown,
}

/// Records what an observer saw.
#[derive(Clone)]
pub struct ObservationLog {
    sink: Arc<dyn ObservationSink>,
    /// By which the observer waits and stamps what it hears.
    pub clock: GroundClock,
}

impl ObservationLog {
    pub fn new(sink: Arc<dyn ObservationSink>, clock: GroundClock) -> Self {
        Self { sink, clock }
    }

    /// Records a grant that was heard of at `at`, a reading of `CLOCK_MONOTONIC`.
    pub fn granted(&self, lock: &str, contender: &Contender, at: u64) {
        self.sink.signal("granted", fields(lock, contender, None), at);
    }

    pub fn revoked(&self, lock: &str, contender: &Contender, cause: Option<RevokeCause>, at: u64) {
        let cause = cause.as_ref().map(RevokeCause::name);
        self.sink.signal("revoked", fields(lock, contender, cause), at);
    }

    /// Records that a grant is out of sight since `at`: how it ends is never known.
    pub fn lost_sight(&self, lock: &str, contender: &Contender, at: u64) {
        self.revoked(lock, contender, Some(RevokeCause::OutOfSight), at);
    }

    /// Records `changes` that were heard of at `at`; for a grant that ended unasked, `why` finds out, and may take its time.
    pub async fn record<F: Future<Output = Unasked>>(
        &self,
        lock: &str,
        changes: Vec<OwnerChange>,
        at: u64,
        why: impl Fn(Contender) -> F,
    ) {
        for change in changes {
            match change {
                OwnerChange::Granted(contender) => self.granted(lock, &contender, at),
                OwnerChange::Revoked(contender) => {
                    let released_at = self.sink.released_at(lock, &contender);
                    let cause = match released_at {
                        Some(released_at) if at.saturating_sub(released_at) < RELEASED_NS => {
                            Some(RevokeCause::Released)
                        }
                        asked => match why(contender.clone()).await {
                            // what was released may still have ended by itself
                            Unasked::Expired => Some(RevokeCause::Expired),
                            _ if asked.is_some() => Some(RevokeCause::Released),
                            Unasked::Deleted => Some(RevokeCause::Deleted),
                            Unasked::Overwritten => Some(RevokeCause::Overwritten),
                            Unasked::Unknown => None,
                        },
                    };
                    self.revoked(lock, &contender, cause, at);
                }
            }
        }
    }

    /// See [`ObservationSink::lost`]: what happens until [`ObservationLog::back`] is never recorded.
    pub fn lost(&self, source: &str, heard: u64) {
        self.sink.lost(source, heard);
    }

    pub fn back(&self, source: &str) {
        self.sink.back(source);
    }

    pub fn watches(&self, address: SocketAddr) {
        self.sink.watches(address);
    }

    /// Waits before a lost connection is made again.
    pub async fn pause(&self) {
        self.clock.sleep(RECONNECT).await;
    }
}

fn fields<'a>(lock: &'a str, contender: &'a Contender, cause: Option<&'a str>) -> Fields<'a> {
    Fields {
        owner: contender.owner.as_deref(),
        token: contender.token,
        cause,
        ..Fields::of(lock)
    }
}
