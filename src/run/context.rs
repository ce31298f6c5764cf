//! The run context, which all parts of a run share: the recorder, the register, the holders, the counters of the live view, and
//! the ways to stop.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use harness_checkers::history::{NemesisFact, PhaseFact};
use tokio::sync::{SetOnce, watch};

use super::RunSpec;
use super::clock::RunClock;
use super::holders::Holders;
use super::locked::locked;
use super::recorder::Recorder;
use super::register::GuardedRegister;
use super::routes::Routes;
use super::terms::Terms;
use crate::event::{ProgressEvent, ProgressSender};
use crate::evidence::SentUnderFaults;
use crate::own_delays::OwnDelays;
use harness_proxy::TapHub;

/// The number of recent latencies for the live view.
const RECENT: usize = 2000;

pub struct RunContext {
    pub spec: Arc<RunSpec>,
    pub terms: Terms,
    pub clock: RunClock,
    pub recorder: Recorder,
    pub register: GuardedRegister,
    pub holders: Holders,
    pub counters: RunCounters,
    /// The traffic of the links, and the role of each client.
    pub exchange: Arc<TapHub>,
    /// The server that each client is connected to.
    pub routes: Routes,
    /// The server that the observer watches, if it watches one of several.
    pub observed: watch::Sender<Option<SocketAddr>>,
    /// Requests under faults, after the last fault.
    pub sent_under_faults: OnceLock<SentUnderFaults>,
    /// The time at which TCP has certainly sent dropped packets again, in nanoseconds of the run's clock.
    sent_again_ns: AtomicU64,
    /// On after the lock had all its grants: clients acquire once more, in the recovery.
    pub granted: RunSwitch,
    /// On in the recovery, in which every client is to acquire once before the run ends.
    pub recovery: RunSwitch,
    /// On when clients are to end their holds and to acquire no more.
    pub stopping: RunSwitch,
    /// Whether a violation that the online check found has ended the run.
    is_violated: AtomicBool,
    /// The reason for which the run cannot continue: the first one.
    fatal: SetOnce<String>,
}

/// A switch of a run, which stays on.
#[derive(Debug, Default)]
pub struct RunSwitch(SetOnce<()>);

impl RunSwitch {
    pub fn turn_on(&self) {
        // it may be on already
        let _ = self.0.set(());
    }

    pub fn is_on(&self) -> bool {
        self.0.initialized()
    }

    /// Waits until it is on.
    pub async fn until_on(&self) {
        self.0.wait().await;
    }
}

/// Counters for the live view; verdicts come from the history.
#[derive(Debug, Default)]
pub struct RunCounters {
    pub acquires: AtomicU64,
    pub unknown: AtomicU64,
    pub refused: AtomicU64,
    pub waiting: AtomicI64,
    pub lost: AtomicU64,
    /// The largest lateness of a timer of harness since it was last shown.
    pub delay_us: AtomicU64,
    /// The number of stalls of harness.
    pub stalls: AtomicU64,
    /// The last recorded delays.
    pub own_delays: watch::Sender<Option<OwnDelays>>,
    recent: Mutex<VecDeque<Duration>>,
    /// Whether an acquire was answered as a lock answers: granted, taken, or at the end of its wait.
    pub answered: AtomicBool,
    /// The last error of an acquire.
    last_error: watch::Sender<Option<String>>,
}

impl RunContext {
    pub fn new(spec: Arc<RunSpec>, terms: Terms, recorder: Recorder, exchange: Arc<TapHub>, routes: Routes) -> Self {
        let clock = recorder.clock;
        Self {
            spec,
            terms,
            clock,
            recorder,
            register: GuardedRegister::default(),
            holders: Holders::new(clock),
            counters: RunCounters::default(),
            exchange,
            routes,
            observed: watch::channel(None).0,
            sent_under_faults: OnceLock::new(),
            sent_again_ns: AtomicU64::new(0),
            granted: RunSwitch::default(),
            recovery: RunSwitch::default(),
            stopping: RunSwitch::default(),
            is_violated: AtomicBool::new(false),
            fatal: SetOnce::new(),
        }
    }

    /// Returns the counts of the traffic of all links so far, in the form of the history; `None` if no tap reads them.
    pub fn wire(&self) -> Option<[u64; 4]> {
        self.spec.config.has_taps().then(|| self.exchange.counts().columns())
    }

    /// Returns the sender of progress events.
    pub fn progress(&self) -> &ProgressSender {
        &self.spec.progress
    }

    /// Records that a fault with dropped packets healed now after this time: the next attempt of a sender comes within the same
    /// time, since TCP doubles the time between two attempts.
    pub fn dropped_for(&self, lasted: Duration) {
        let again = self.clock.now() + lasted;
        self.sent_again_ns.fetch_max(again.as_nanos() as u64, Relaxed);
    }

    /// Returns the time for which connections may still be silent because of dropped packets.
    pub fn until_sent_again(&self) -> Duration {
        Duration::from_nanos(self.sent_again_ns.load(Relaxed)).saturating_sub(self.clock.now())
    }

    /// Waits, after the lock had all its grants, until the recovery, in which each client acquires once. Returns whether a client
    /// is to do that now.
    pub async fn is_to_acquire(&self, had_its_last: bool) -> bool {
        if self.recovery.is_on() && !had_its_last {
            return true;
        }
        tokio::select! {
            biased;
            () = self.stopping.until_on() => {}
            () = self.recovery.until_on(), if !had_its_last => {}
        }
        false
    }

    /// Counts an acquire that was answered after this time.
    pub fn acquired(&self, after: Duration) {
        self.counters.acquired(after);
        let wanted = self.spec.config.grants;
        if wanted.is_some_and(|grants| self.counters.acquires.load(Relaxed) >= u64::from(grants)) {
            self.granted.turn_on();
        }
    }

    /// Ends the run because of a violation.
    pub fn end_violated(&self) {
        self.is_violated.store(true, Relaxed);
        self.stopping.turn_on();
    }

    pub fn is_violated(&self) -> bool {
        self.is_violated.load(Relaxed)
    }

    /// Ends the run, which cannot continue. The first reason is the one that is reported.
    pub fn fail(&self, why: String) {
        let _ = self.fatal.set(why);
        self.stopping.turn_on();
    }

    /// Waits until the run cannot continue; returns the reason.
    pub async fn failed(&self) -> String {
        self.fatal.wait().await.clone()
    }

    pub fn failure(&self) -> Option<String> {
        self.fatal.get().cloned()
    }

    /// Records the begin of a phase, and shows it.
    pub fn begin_phase(&self, phase: PhaseFact, text: String) {
        let name = phase.name();
        self.recorder.nemesis(&NemesisFact::Phase(phase));
        self.progress().send(ProgressEvent::Phase { name, text });
    }

    /// Counts the loss of a lock by a client, and shows it.
    pub fn note_loss(&self, client: u32, cause: &str) {
        self.counters.lost.fetch_add(1, Relaxed);
        let cause = cause.to_owned();
        self.progress().send(ProgressEvent::Lost { client, cause });
    }
}

impl RunCounters {
    pub fn acquired(&self, after: Duration) {
        self.acquires.fetch_add(1, Relaxed);
        let mut recent = locked(&self.recent);
        if recent.len() == RECENT {
            recent.pop_front();
        }
        recent.push_back(after);
    }

    pub fn said(&self, error: &str) {
        self.last_error.send_replace(Some(error.to_owned()));
    }

    pub fn last_error(&self) -> Option<String> {
        self.last_error.borrow().clone()
    }

    /// Returns the median and the 99th percentile of the recent latencies.
    pub fn percentiles(&self) -> (Duration, Duration) {
        let mut recent: Vec<Duration> = locked(&self.recent).iter().copied().collect();
        recent.sort_unstable();
        let at = |share: f64| {
            let place = (recent.len() as f64 * share) as usize;
            recent.get(place).copied().unwrap_or_default()
        };
        (at(0.5), at(0.99))
    }
}
