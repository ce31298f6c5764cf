//! Observers: a connection to the servers without a proxy that shows the owners of locks, and the log of its observations.
//!
//! An observer is an independent witness: without it a phantom grant, an orphaned lock and a silent loss are the same. Its lines
//! have the time of their arrival, so they are never before their events.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::RevokeCause;
use harness_checkers::history::event::Fields;
use serde::Deserialize;

use super::owners::{Contender, OwnerChange};
use crate::clock::GroundClock;
use crate::cluster::BoxFuture;

/// The pause before a reconnection: short, since events of that time are not seen.
pub const RECONNECT: Duration = Duration::from_millis(20);

/// The time within which the end of a grant after its owner's release has that cause: the server is not queried.
pub const RELEASED_NS: u64 = 250_000_000;

/// A connected observer. It observes until its future is dropped, and connects again whenever it lost the servers.
pub type Observer = Box<dyn FnOnce(ObservationLog) -> BoxFuture<'static, ()> + Send>;

/// Returns the observer with this activity.
pub fn observing<F: Future<Output = ()> + Send + 'static>(
    observe: impl FnOnce(ObservationLog) -> F + Send + 'static,
) -> Observer {
    Box::new(move |log| -> BoxFuture<'static, ()> { Box::pin(observe(log)) })
}

/// The receiver of observations: a run records all of them, others use some.
pub trait ObservationSink: Send + Sync {
    /// Receives a `granted` or `revoked` of the server, which arrived at `at`, a reading of `CLOCK_MONOTONIC` in nanoseconds.
    fn signal(&self, name: &'static str, fields: Fields<'_>, at: u64);

    /// Marks `source` as lost: nothing of it is received from `heard`, a reading of `CLOCK_MONOTONIC` in nanoseconds, until
    /// [`ObservationSink::back`].
    fn lost(&self, _source: &str, _heard: u64) {}

    fn back(&self, _source: &str) {}

    /// Returns the time at which the owner called the release that may have ended its grant at `at`, or `None` if it called none. Both
    /// are readings of `CLOCK_MONOTONIC` in nanoseconds. The query forgets the call.
    fn released_at(&self, _lock: &str, _contender: &Contender, _at: u64) -> Option<u64> {
        None
    }

    /// Receives the address of the server that the observer watches from now on.
    fn watches(&self, _address: SocketAddr) {}
}

/// The cause of the end of a grant that its owner did not request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unasked {
    /// The session, lease or key expired.
    Expired,
    /// Another client removed it while its owner's session lived.
    Deleted,
    /// A request replaced the owner.
    Overwritten,
    /// The server does not show the cause: an observer that knows none names none.
    #[serde(skip)]
    Unknown,
}

/// The log of an observer.
#[derive(Clone)]
pub struct ObservationLog {
    sink: Arc<dyn ObservationSink>,
    /// The clock of the observer's waits and of the arrivals.
    pub clock: GroundClock,
}

impl ObservationLog {
    pub fn new(sink: Arc<dyn ObservationSink>, clock: GroundClock) -> Self {
        Self { sink, clock }
    }

    /// Records a grant that arrived at `at`, a reading of `CLOCK_MONOTONIC`.
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

    /// Records `changes` that arrived at `at`; `why` finds out the cause of a grant's end without a release, and may take time.
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
                    let since_release = self.since_release(lock, &contender, at);
                    let why = match since_release {
                        Some(ns) if ns < RELEASED_NS => Unasked::Unknown,
                        _ => why(contender.clone()).await,
                    };
                    self.revoked(lock, &contender, cause_of(since_release, why), at);
                }
            }
        }
    }

    /// Records the end of a grant, which arrived at `at`; `why` is the cause if it was not released.
    pub fn ended(&self, lock: &str, contender: &Contender, why: Unasked, at: u64) {
        let since_release = self.since_release(lock, contender, at);
        self.revoked(lock, contender, cause_of(since_release, why), at);
    }

    /// Returns the nanoseconds from the call of a grant's release to its end, which arrived at `at`. A release that was called
    /// after that did not cause the end: it may wait to be recorded.
    fn since_release(&self, lock: &str, contender: &Contender, at: u64) -> Option<u64> {
        at.checked_sub(self.sink.released_at(lock, contender, at)?)
    }

    /// See [`ObservationSink::lost`].
    pub fn lost(&self, source: &str, heard: u64) {
        self.sink.lost(source, heard);
    }

    pub fn back(&self, source: &str) {
        self.sink.back(source);
    }

    pub fn watches(&self, address: SocketAddr) {
        self.sink.watches(address);
    }

    /// Waits before a reconnection.
    pub async fn pause(&self) {
        self.clock.sleep(RECONNECT).await;
    }
}

/// Returns the cause of a grant's end so many nanoseconds after the call of its release. A released grant may still have ended by
/// itself.
fn cause_of(since_release: Option<u64>, why: Unasked) -> Option<RevokeCause> {
    match (since_release, why) {
        (Some(ns), _) if ns < RELEASED_NS => Some(RevokeCause::Released),
        (_, Unasked::Expired) => Some(RevokeCause::Expired),
        (Some(_), _) => Some(RevokeCause::Released),
        (None, Unasked::Deleted) => Some(RevokeCause::Deleted),
        (None, Unasked::Overwritten) => Some(RevokeCause::Overwritten),
        (None, Unasked::Unknown) => None,
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

/// A receiver for tests, and its lines in virtual time.
#[cfg(test)]
pub mod told {
    use std::sync::Mutex;

    use harness_simulation::World;

    use super::*;

    /// Returns the lines that an observer records within this time, which is virtual.
    pub fn told_within<F: Future<Output = ()>>(
        time: Duration,
        observe: impl FnOnce(ObservationLog) -> F,
    ) -> Vec<String> {
        World::run(7, |world| async move {
            let clock = GroundClock::Virtual(world);
            let (log, told) = ToldLines::of(clock);
            clock.within(time, observe(log)).await;
            told.lines()
        })
    }

    /// The recorded lines, in their order.
    #[derive(Default)]
    pub struct ToldLines(Mutex<Vec<String>>);

    impl ToldLines {
        /// Returns a log, and its lines.
        pub fn of(clock: GroundClock) -> (ObservationLog, Arc<Self>) {
            let told = Arc::<Self>::default();
            let sink = Arc::clone(&told) as Arc<dyn ObservationSink>;
            (ObservationLog::new(sink, clock), told)
        }

        pub fn lines(&self) -> Vec<String> {
            self.0.lock().unwrap().clone()
        }

        fn add(&self, line: String) {
            self.0.lock().unwrap().push(line);
        }
    }

    impl ObservationSink for ToldLines {
        fn signal(&self, name: &'static str, fields: Fields<'_>, _: u64) {
            let owner = fields.owner.unwrap_or("unnamed");
            let token = fields.token.map(|token| token.to_string());
            let words = [Some(name), fields.lock, Some(owner), token.as_deref(), fields.cause];
            self.add(words.into_iter().flatten().collect::<Vec<_>>().join(" "));
        }

        fn lost(&self, _: &str, heard: u64) {
            self.add(format!("lost at {} ms", heard / 1_000_000));
        }

        fn back(&self, _: &str) {
            self.add("back".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A run whose owners called their release at 5 s, and the causes that it was told.
    #[derive(Default)]
    struct ReleasedAtFive(Mutex<Vec<Option<String>>>);

    impl ObservationSink for ReleasedAtFive {
        fn signal(&self, _: &'static str, fields: Fields<'_>, _: u64) {
            self.0.lock().unwrap().push(fields.cause.map(str::to_owned));
        }

        fn released_at(&self, _: &str, _: &Contender, _: u64) -> Option<u64> {
            Some(5_000_000_000)
        }
    }

    #[test]
    fn only_a_release_before_the_end_of_a_grant_may_be_its_cause() {
        let told = Arc::<ReleasedAtFive>::default();
        let log = ObservationLog::new(Arc::clone(&told) as Arc<dyn ObservationSink>, GroundClock::Real);
        // an end that waits to be recorded, one right after the call, and two long after it
        for (at_ms, why) in [
            (4_999, Unasked::Deleted),
            (5_001, Unasked::Expired),
            (6_000, Unasked::Expired),
            (6_000, Unasked::Deleted),
        ] {
            log.ended("l0", &Contender::default(), why, at_ms * 1_000_000);
        }
        let causes = ["deleted", "released", "expired", "released"].map(|cause| Some(cause.to_owned()));
        assert_eq!(*told.0.lock().unwrap(), causes);
    }
}
