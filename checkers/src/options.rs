//! What a caller may ask for: the model, the budget, other bounds.

use std::time::Duration;

use crate::history::History;
use crate::history::event::Bounds;
use crate::model::Model;

/// How to check a history. The default takes everything from the history's header.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Judge by this model and not by the one that the header names.
    pub model: Option<Model>,
    /// For the general search; the fast paths need neither.
    pub budget: Budget,
    /// Bounds that win over those of the header.
    pub bounds: Bounds,
    /// Add to the verdict on linearizability the order that proves it.
    pub certificate: bool,
    /// How far from the true time any stamp of a client may be, where the clients' clocks are not one: two events of different
    /// processes are in order only where their stamps are more than twice that apart. Mutual exclusion, linearizability,
    /// fencing tokens, silent and early losses go by it.
    pub clock_error: Duration,
    /// Where `check_us` and the time budget come from.
    pub clock: Clock,
}

impl Options {
    /// The default, with a clock that never moves: two checks of one history are equal to the last bit.
    pub fn still() -> Self {
        Self {
            clock: Clock::still(),
            ..Self::default()
        }
    }

    /// The model that a history is judged by.
    pub(crate) fn model_of(&self, history: &History) -> Model {
        let model = self.model.unwrap_or_else(|| Model::of_history(history));
        match (model.start(), history.initial) {
            // a register has the value that the reader of the history was told, unless the model names one
            (Some(None), Some(start)) => model.with(start).unwrap_or(model),
            _ => model,
        }
    }
}

/// What the general search may use up before it answers "inconclusive".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Time by the clock of the options.
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
    /// A clock that never moves: no time passes, no time budget ends.
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

/// There is no clock, so no time passes.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
fn elapsed_ns() -> u64 {
    0
}
