//! What is told of a run: one [`Diagnosis`], made from the history and its findings, and its renderings.
//!
//! Pure: no clock, no I/O. Every screen and file is a rendering of the one diagnosis, so no two can disagree.

pub mod bite;
pub mod diagnosis;
pub mod drawing;
mod pokes;
pub mod terminal;
mod words;

pub use diagnosis::{Diagnosis, diagnose};
