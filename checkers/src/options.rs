//! The options of a check: the model, the budget, other bounds.

use std::time::Duration;

use crate::history::History;
use crate::history::event::Bounds;
use crate::model::Model;

/// The options of a check. The default takes everything from the history's header.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The model, in place of the header's.
    pub model: Option<Model>,
    /// The budget of the general search; the fast paths need none.
    pub budget: Budget,
    /// Bounds in place of the header's.
    pub bounds: Bounds,
    /// Whether the finding on linearizability has the order that proves it.
    pub certificate: bool,
    /// The largest error of a stamp of a client, where the clients have several clocks: two events of different processes are in order only
    /// if their stamps are more than twice that apart. All properties allow for it.
    pub clock_error: Duration,
    /// The clock of `check_us` and of the time budget.
    pub clock: Clock,
}

impl Options {
    /// Returns the default with a clock that never moves: two checks of one history are equal to the last bit.
    pub fn still() -> Self {
        Self {
            clock: Clock::still(),
            ..Self::default()
        }
    }

    /// Returns the model by which a history is judged.
    pub(crate) fn model_of(&self, history: &History) -> Model {
        let model = self.model.unwrap_or_else(|| Model::of_history(history));
        match (model.start(), history.initial) {
            // a register starts with the value in the history, unless the model names one
            (Some(None), Some(start)) => model.with(start).unwrap_or(model),
            _ => model,
        }
    }
}

/// The limits of the general search, beyond which the verdict is "inconclusive".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Time, by the clock of the options.
    pub time: Duration,
    /// Bytes of remembered configurations.
    pub memory: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(60),
            memory: 1 << 30,
        }
    }
}

/// A monotonic clock: nanoseconds since some fixed instant. [`Clock::still`] makes two checks equal to the last bit.
#[derive(Debug, Clone, Copy)]
pub struct Clock(pub fn() -> u64);

impl Clock {
    /// Returns a clock that never moves: no time passes, no time budget ends.
    pub fn still() -> Self {
        Self(|| 0)
    }

    pub(crate) fn now_ns(self) -> u64 {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self(elapsed_ns)
    }
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
fn elapsed_ns() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64
}

/// Returns 0: without a clock, no time passes.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
fn elapsed_ns() -> u64 {
    0
}
