//! Linearizability while a history grows: a sweep of what is in flight, and the violations that it finds in words.

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

/// How long a signal may be written after the time that it carries, where a caller does not say.
const SIGNAL_DELAY: Duration = Duration::from_secs(1);

/// Decides linearizability (HL002) event by event, in memory of what is in flight.
///
/// The verdict on each lock is that of [`check`](crate::check) on the whole history, for all models with owners, as long as no
/// line is written later than [`Self::with_signal_delay`] after its time. Lines of the server and of the nemesis, and operations
/// on registers, are passed over.
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
/// // Nobody knows yet that no signal of an earlier time is still to come.
/// assert!(violation.is_none());
/// assert_eq!(monitor.finish()[0].class, "two-holders");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Monitor {
    sweep: OnlineSweep,
    told: ToldViolations,
}

impl Monitor {
    /// A monitor of a history with this header, by a model.
    ///
    /// # Errors
    /// For registers and the plain `mutex`.
    pub fn new(header: Header, model: Model) -> Result<Self, NotOnline> {
        Ok(Self {
            sweep: OnlineSweep::new(header, model, nanoseconds(SIGNAL_DELAY))?,
            told: ToldViolations::default(),
        })
    }

    /// A monitor by the model that the header names.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_header(header: Header) -> Result<Self, NotOnline> {
        let model = Model::of_beginning(&header);
        Self::new(header, model)
    }

    /// The same for a history in which lines are written up to so long after the time that they carry; one second where
    /// nobody says. A violation is told after that time, and the events of that time are remembered.
    #[must_use]
    pub fn with_signal_delay(mut self, delay: Duration) -> Self {
        self.sweep.delay_ns = nanoseconds(delay);
        self
    }

    /// The model that it decides by.
    pub fn model(&self) -> Model {
        self.sweep.model
    }

    /// Calls, answers and signals of holders so far.
    pub fn events(&self) -> u64 {
        self.sweep.events
    }

    /// Lines that were written later than the delay after their time: they count as of the earliest time that is still
    /// open. Where there are any, the finished history may be judged otherwise.
    pub fn late(&self) -> u64 {
        self.sweep.late
    }

    /// Takes the next event, and answers with a violation that is certain now, of an event at least the delay ago. Each lock is
    /// told of once; of several violations at one time, the others follow with the next events.
    ///
    /// # Errors
    /// When the history is no longer well formed; the event is then not taken.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<Option<Box<Violation>>, FormError> {
        let of_lock = matches!(entry.f, F::Acquire | F::Release | F::Extend | F::Lost | F::Died);
        if of_lock && matches!(entry.process, Process::Client(_)) {
            let model = self.sweep.model;
            let tell =
                &mut |history: &History, lock: u32, fault: &Counterexample| self.told.add(history, model, lock, fault);
            self.sweep.push(entry, tell)?;
        }
        if entry.f == F::Nemesis {
            self.sweep.see_nemesis(entry);
        }
        Ok(self.told.violations.pop_front())
    }

    /// Says that time has gone on, where no event says so; answers as [`Self::push`].
    pub fn advance(&mut self, time_ns: u64) -> Option<Box<Violation>> {
        let model = self.sweep.model;
        let tell =
            &mut |history: &History, lock: u32, fault: &Counterexample| self.told.add(history, model, lock, fault);
        self.sweep.advance(time_ns, tell);
        self.told.violations.pop_front()
    }

    /// Ends the history, and answers with all violations that were not told yet.
    pub fn finish(self) -> Vec<Violation> {
        let Self { sweep, mut told } = self;
        let model = sweep.model;
        sweep.finish(&mut |history: &History, lock: u32, fault: &Counterexample| told.add(history, model, lock, fault));
        told.violations.into_iter().map(|violation| *violation).collect()
    }
}

fn nanoseconds(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// The violations of a monitor: one a lock.
#[derive(Debug, Clone, Default)]
struct ToldViolations {
    /// By dense number.
    locks: FastSet<u32>,
    /// Boxed, since a violation is large to move and there is hardly ever one.
    violations: VecDeque<Box<Violation>>,
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
        // Overlaps of holds are told by nothing here.
        violation.follows = None;
        violation.id = format!("HL002-{}", self.locks.len());
        self.violations.push_back(Box::new(violation));
    }
}
