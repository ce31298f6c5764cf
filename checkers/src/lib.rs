//! Histories in, findings out: decides whether a distributed lock did what a lock must do.
//!
//! [`History::open`] reads a recorded history, [`check`] decides about it: eleven properties, each with a verdict and, when
//! it is violated, the few events that prove it. No clock but the one in [`Options`], no I/O but reading, and threads only for
//! large histories.

#![warn(missing_docs)]

// what is taken in from `tests/` calls this crate by its name
#[cfg(test)]
extern crate self as harness_checkers;

mod calls;
mod calm;
mod check;
mod context;
#[cfg(test)]
#[path = "../tests/dice.rs"]
mod dice;
mod early_loss;
mod exclusion;
mod extensions;
mod fairness;
mod fencing;
pub mod finding;
mod grants;
mod herd;
pub mod history;
mod holds;
pub mod limits;
pub mod linearizability;
mod lost_update;
mod model;
mod monitor;
mod narrative;
mod observer_sight;
mod options;
mod order_drawing;
mod overlaps;
mod phantom;
mod progress;
mod range_max;
mod releases;
pub mod shrink;
mod signal_grants;
mod silent_loss;
mod span_ends;
mod standstill;
mod starvation;
mod text_drawing;
mod tickets;
mod wait;
mod watched;

pub use check::{check, check_property};
pub use finding::*;
pub use history::event::{Bounds, Header, Kind, Process, Promises};
pub use history::{
    AcquireTimes, Counts, Entry, EventStream, F, FormError, History, HistoryBuilder, Mode, Nemesis, PhaseStart,
    ReadError, ReadOptions, Window, write_edn,
};
pub use holds::{CertainHold, Ended};
pub use model::{MODEL_NAMES, Model, NotOnline, UnknownModel};
pub use monitor::Monitor;
pub use narrative::thousands;
pub use options::{Budget, Clock, Options};
pub use order_drawing::{DrawnOperation, OrderDrawing};
pub use text_drawing::draw_as_text;
