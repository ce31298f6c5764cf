//! The observer of a run: connected to the servers without a proxy, it writes its observations into the history.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Process};
use harness_checkers::history::{NemesisFact, ObserverFact};

use super::context::RunContext;
use super::holders::GrantId;
use crate::backends::ConnectingObserver;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, ObservationSink, Observer};
use crate::backends::owners::Contender;
use crate::clock::RunningTask;
use crate::cluster::EndpointsReceiver;

/// Connects the observer of a run.
pub type ConnectObserver = Box<dyn Fn(EndpointsReceiver, LockKeys) -> ConnectingObserver + Send + Sync>;

/// Connects and starts to observe, until the returned task is dropped; the error has the reason for a failure.
pub async fn start(
    observe: &ConnectObserver,
    endpoints: EndpointsReceiver,
    run: Arc<RunContext>,
) -> Result<RunningTask, String> {
    let observer = observe(endpoints, run.terms.keys.clone()).await.map_err(of_observer)?;
    let clock = run.clock.by;
    let log = ObservationLog::new(run, clock);
    Ok(clock.spawn(observed(observer, log)))
}

/// Returns the reason for which an observer does not connect, as a sentence of its own.
pub fn of_observer(why: String) -> String {
    format!("the observer: {why}")
}

/// Observes, and records the times at which this task did not run: it read the messages of those times late.
async fn observed(observer: Observer, log: ObservationLog) {
    if log.clock.is_virtual() {
        return observer(log).await;
    }
    let observing = observer(log.clone());
    tokio::join!(biased; observing, note_delays(&log));
}

/// The time between two timers in the task of the observer, which show its lateness.
const EVERY: Duration = Duration::from_millis(50);
/// The lateness of a timer from which the observer was late, by more than its grants may be.
const LATE: Duration = Duration::from_millis(100);
/// The source that is lost while the observer is late.
const OWN_TASK: &str = "observer";

async fn note_delays(log: &ObservationLog) {
    loop {
        let set = log.clock.now_ns();
        if log.clock.lateness_of(EVERY).await > LATE {
            log.lost(OWN_TASK, set);
            log.back(OWN_TASK);
        }
    }
}

impl ObservationSink for RunContext {
    fn signal(&self, name: &'static str, fields: Fields<'_>, at: u64) {
        self.recorder.signal(Process::Server, None, name, fields, Some(at));
    }

    fn lost(&self, source: &str, heard: u64) {
        let watched = source.to_owned();
        let since_ns = Some(self.clock.stamp_of(heard));
        let fact = NemesisFact::Observer(ObserverFact::Lost { watched, since_ns });
        self.recorder.nemesis(&fact);
    }

    fn back(&self, source: &str) {
        let watched = source.to_owned();
        let fact = NemesisFact::Observer(ObserverFact::Back { watched });
        self.recorder.nemesis(&fact);
    }

    fn released_at(&self, lock: &str, contender: &Contender, at: u64) -> Option<u64> {
        let by_token = contender.token.map(GrantId::Token);
        let by_owner = contender.owner.clone().map(GrantId::Owner);
        // each is removed, since the query forgets it
        let grants = by_token.into_iter().chain(by_owner);
        let calls = grants.filter_map(|grant| self.holders.released_at(lock, &grant, at));
        calls.max()
    }

    fn watches(&self, address: SocketAddr) {
        self.observed.send_replace(Some(address));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use harness_simulation::World;

    use super::*;
    use crate::backends::observer::observing;
    use crate::clock::GroundClock;

    /// The lines of an observer: lost sources, with the reading since when, and sources that are back.
    #[derive(Default)]
    struct Written(Mutex<Vec<(String, Option<u64>)>>);

    impl ObservationSink for Written {
        fn signal(&self, _: &'static str, _: Fields<'_>, _: u64) {}

        fn lost(&self, source: &str, heard: u64) {
            self.0.lock().unwrap().push((source.to_owned(), Some(heard)));
        }

        fn back(&self, source: &str) {
            self.0.lock().unwrap().push((source.to_owned(), None));
        }
    }

    /// Blocks its thread for this time, and then waits.
    fn busy(time: Duration) -> Observer {
        observing(move |log| async move {
            log.clock.sleep(Duration::from_millis(1)).await;
            std::thread::sleep(time);
            log.clock.sleep(Duration::from_secs(1)).await;
        })
    }

    #[test]
    fn an_observer_that_did_not_run_was_out_of_hearing() {
        let written = Arc::new(Written::default());
        let log = ObservationLog::new(written.clone(), GroundClock::Real);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let before = GroundClock::Real.now_ns();
        runtime.block_on(async {
            let observing = observed(busy(Duration::from_millis(400)), log);
            let _ = tokio::time::timeout(Duration::from_millis(600), observing).await;
        });
        let after = GroundClock::Real.now_ns();
        let written = written.0.lock().unwrap();
        let (source, since) = &written[0];
        assert_eq!(source, OWN_TASK);
        assert!((before..after - 400_000_000).contains(&since.unwrap()));
        assert_eq!(written[1], (OWN_TASK.to_owned(), None));
    }

    #[test]
    fn an_observer_that_runs_in_time_writes_nothing_of_itself() {
        let written = Arc::new(Written::default());
        let sink = written.clone();
        World::run(7, |world| async move {
            let clock = GroundClock::Virtual(world);
            let log = ObservationLog::new(sink, clock);
            let _ = clock.within(Duration::from_secs(2), note_delays(&log)).await;
        });
        assert!(written.0.lock().unwrap().is_empty());
    }
}
