//! A hunt: a campaign of short experiments on one lock, each with another seed, load and faults, until a property is
//! violated or the time is over; [`shrink`], which cuts a violation's plan down to the windows that matter; and [`bisect`], which
//! finds the version that introduced it.
//!
//! ```text
//! HuntSpace ─draw(seed, index)─► HuntDraw ─options of `harness run`─► one run ─► Diagnosis ─► HuntRecord ─► hunt.json
//! faults, loads and               turn, faults, load                  on kept                  finds by cause
//! bounds                                                              servers
//! ```
//!
//! Everything here is pure; `cli::hunt` runs the experiments. An experiment is a list of options of `harness run`, drawn
//! from the seed of the campaign and its number, so any of them can be repeated as a single run. The draws
//! cycle through four kinds, and through a fifth on models or for a majority of servers, since each finds other violations:
//!
//! - **any**: every fault that such a lock withstands, a few at a time;
//! - **aimed**: one or two windows, longer than the lease, on the holder, a waiter, the servers or the network;
//! - **message**: single messages that are lost or late;
//! - **load**: many locks, removed and created again, short waits, tries, holds of every length, under a mild fault or none;
//! - **points**, on models: up to six acts on the n-th message of the run, of any kind;
//! - **minority**, for a lock on a majority of independent servers: one of them is away for longer than the progress bound.
//!
//! Without `--fault` a hunt has every fault that a correct lock with a lease withstands ([`faults`]): a violation is then a
//! defect of the lock. A fault that no such lock withstands (`pause-holder`, `failover`) is used only if it is named.
//!
//! Faults whose windows have no effect are left out after a few windows, such as the clock of a client that reads none. The
//! servers are kept between the experiments, and emptied; a plan that changes them for good (a replica that is promoted, a
//! stepped clock of a server) has servers of its run alone.
//!
//! Finds are sorted by cause: the property and class of each violation that follows from no other. The record keeps the
//! first run of each cause, and counts the rest. It is one file, written after each experiment, from which an interrupted
//! hunt continues.

pub mod bisect;
pub mod counts;
pub mod coverage;
pub mod draw;
pub mod exhaustive;
pub mod experiment;
pub mod faults;
pub mod find;
pub mod hit_rate;
pub mod junit;
pub mod merge;
pub mod page;
pub mod record;
pub mod render;
pub mod shrink;
pub mod states;
#[cfg(test)]
mod testing;
pub mod typed_fault;

pub use counts::HuntCounts;
pub use draw::{HuntDraw, HuntSpace};
pub use experiment::{ExperimentOutcome, ExperimentResult};
pub use find::HuntFind;
pub use hit_rate::HitRate;
pub use merge::merge;
pub use record::HuntRecord;
