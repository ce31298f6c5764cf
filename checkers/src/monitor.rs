//! Linearizability while a history grows, as a library: the monitor gives the events to a sweep and describes the violations that it finds.

use std::collections::VecDeque;
use std::time::Duration;

use crate::context::Context;
use crate::finding::Violation;
use crate::history::event::{Header, Process};
use crate::history::names::FastSet;
use crate::history::{Entry, F, FormError, History};
use crate::linearizability::{Counterexample, OnlineSweep};
use crate::model::{Model, NotOnline};
use crate::narrative;
use crate::options::Options;

/// The default of [`Monitor::with_signal_delay`].
const SIGNAL_DELAY: Duration = Duration::from_secs(1);

/// The default of [`Monitor::set_fault_delay`]: a command that a server is given may take a minute.
const FAULT_DELAY: Duration = Duration::from_secs(60);

/// Decides linearizability (HL002) event by event, with memory only for pending operations and holds.
///
/// The verdict on each lock is that of [`check`](crate::check) on the whole history, for all models with owners, if no line is written
/// later than [`Self::with_signal_delay`] after its time. Lines of the server and operations on registers are ignored. A violation by
/// a `busy` answer is returned a minute after the answer ([`Self::set_fault_delay`]): the line of a fault, which excuses it, is written
/// when the fault is active.
///
/// ```
/// use harness_checkers::{Entry, F, Header, Kind, Model, Monitor, Process};
///
/// let mut monitor = Monitor::new(Header::of_locks(["l0"]), Model::OwnerMutex)?;
/// let mut violation = None;
/// for (index, (process, kind)) in [(0, Kind::Invoke), (0, Kind::Ok), (1, Kind::Invoke), (1, Kind::Ok)].into_iter().enumerate() {
///     let time_ns = index as u64 * 1_000;
///     let entry = Entry::new(index as u64, time_ns, Process::Client(process), kind, F::Acquire);
///     violation = violation.or(monitor.push(&entry)?);
/// }
/// // A signal of an earlier time may still follow.
/// assert!(violation.is_none());
/// assert_eq!(monitor.finish()[0].class, "two-holders");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Monitor {
    sweep: OnlineSweep,
    told: ToldViolations,
    fault_delay_ns: u64,
}

impl Monitor {
    /// Creates a monitor of a history with this header.
    ///
    /// # Errors
    /// Fails for registers and the plain `mutex`.
    pub fn new(header: Header, model: Model) -> Result<Self, NotOnline> {
        Ok(Self {
            sweep: OnlineSweep::new(header, model, nanoseconds(SIGNAL_DELAY))?,
            told: ToldViolations::default(),
            fault_delay_ns: nanoseconds(FAULT_DELAY),
        })
    }

    /// Creates a monitor with the model of the header.
    ///
    /// # Errors
    /// Fails as [`Self::new`] does.
    pub fn of_header(header: Header) -> Result<Self, NotOnline> {
        let model = Model::of_beginning(&header);
        Self::new(header, model)
    }

    /// Sets the longest delay of a line after its time; the default is one second. Violations are reported after that delay, and the events
    /// of that time are kept in memory.
    #[must_use]
    pub fn with_signal_delay(mut self, delay: Duration) -> Self {
        self.sweep.delay_ns = nanoseconds(delay);
        self
    }

    /// Sets the longest time from the beginning of a fault to its line; the default is a minute. It may change at any time: a recorder that
    /// knows which faults are beginning waits for their lines alone.
    pub fn set_fault_delay(&mut self, delay: Duration) {
        self.fault_delay_ns = nanoseconds(delay);
    }

    /// Returns the model.
    pub fn model(&self) -> Model {
        self.sweep.model
    }

    /// Returns the number of calls, answers and signals of holders so far.
    pub fn events(&self) -> u64 {
        self.sweep.events
    }

    /// Returns the number of lines that were written after the delay. They have the earliest time that is still open, so the verdict on the
    /// finished history may differ. The line of a fault counts if it excused an answer.
    pub fn late(&self) -> u64 {
        self.sweep.late + self.told.excused
    }

    /// Adds the next event, and returns a violation that is certain now, of an event at least the delay ago. Each lock is reported once; of
    /// several violations at one time, the others follow with the next events.
    ///
    /// # Errors
    /// Fails if the history is no longer well formed; the event is then not added.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<Option<Box<Violation>>, FormError> {
        let of_lock = matches!(entry.f, F::Acquire | F::Release | F::Extend | F::Lost | F::Died);
        if of_lock && matches!(entry.process, Process::Client(_)) {
            let model = self.sweep.model;
            let tell =
                &mut |history: &History, lock: u32, fault: &Counterexample| self.told.add(history, model, lock, fault);
            self.sweep.push(entry, tell)?;
        }
        if entry.f == F::Nemesis {
            let history = self.sweep.see_nemesis(entry);
            self.told.excuse(history);
        }
        Ok(self.told.certain(self.sweep.latest_ns, self.fault_delay_ns))
    }

    /// Advances the time without an event; returns as [`Self::push`] does.
    pub fn advance(&mut self, time_ns: u64) -> Option<Box<Violation>> {
        let model = self.sweep.model;
        let tell =
            &mut |history: &History, lock: u32, fault: &Counterexample| self.told.add(history, model, lock, fault);
        self.sweep.advance(time_ns, tell);
        self.told.certain(self.sweep.latest_ns, self.fault_delay_ns)
    }

    /// Ends the history, and returns all violations that were not reported yet.
    pub fn finish(self) -> Vec<Violation> {
        let Self { sweep, mut told, .. } = self;
        let model = sweep.model;
        sweep.finish(&mut |history: &History, lock: u32, fault: &Counterexample| told.add(history, model, lock, fault));
        told.violations.into_iter().map(|(_, violation)| *violation).collect()
    }
}

fn nanoseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// The violations of a monitor, one a lock, that are not yet returned.
#[derive(Debug, Clone, Default)]
struct ToldViolations {
    /// The locks with a violation, by their dense numbers.
    locks: FastSet<u32>,
    /// Each with the time of the busy answer that it is of, if any. Boxed, since a violation is large to move and rare.
    violations: VecDeque<(Option<u64>, Box<Violation>)>,
    /// The number of those that were removed, since the line of a fault came later.
    excused: u64,
}

impl ToldViolations {
    #[cold]
    fn add(&mut self, history: &History, model: Model, lock: u32, fault: &Counterexample) {
        if !self.locks.insert(lock) {
            return;
        }
        let options = Options {
            model: Some(model),
            ..Options::still()
        };
        let context = Context::new(history, &options);
        let mut violation = narrative::linearizability::explain(&context, lock as usize, fault);
        // A monitor does not find overlaps of holds.
        violation.follows = None;
        violation.id = format!("HL002-{}", self.locks.len());
        let busy_ns = match fault {
            Counterexample::SpuriousBusy { busy, .. } => Some(history.event(*busy).time),
            _ => None,
        };
        self.violations.push_back((busy_ns, Box::new(violation)));
        self.excuse(history);
    }

    /// Removes the violations of busy answers that a fault excuses.
    fn excuse(&mut self, history: &History) {
        let before = self.violations.len();
        self.violations
            .retain(|(busy_ns, _)| !busy_ns.is_some_and(|ns| history.is_under_fault(ns)));
        self.excused += (before - self.violations.len()) as u64;
    }

    /// Removes and returns the first violation that the line of no fault can excuse any more.
    fn certain(&mut self, latest_ns: u64, fault_delay_ns: u64) -> Option<Box<Violation>> {
        let mut times = self.violations.iter().map(|(busy_ns, _)| *busy_ns);
        let place = times.position(|busy_ns| busy_ns.is_none_or(|ns| ns.saturating_add(fault_delay_ns) < latest_ns))?;
        self.violations.remove(place).map(|(_, violation)| violation)
    }
}
