//! Chaos and linearizability tests for distributed lock implementations.
//!
//! # The way of the data
//!
//! ```text
//! what was typed ─► Config ─plan(seed)─► Plan ─┬─► Cluster   servers: docker or local
//!   cli::args       config                plan  ├─► Links     one proxied link for each client and server
//!                                               ├─► Crew      lock clients, each a child process
//!                                               └─► Schedule  fault windows, opened and healed
//!                  Recorder ◄── clients, observer, schedule, taps
//!                     │  history.jsonl, on disk before anything is decided
//!                     ▼
//!        harness_checkers::check ─► Findings ─► Diagnosis ─► terminal · html · json · junit · markdown ─► exit code
//! ```
//!
//! Every arrow is one function, and nothing flows back. Two streams leave a run: the **history**, which is the truth, and
//! **progress** ([`event`]), which is for the eyes, lossy, and never read again. `harness run` ends by calling exactly what
//! `harness check` calls, on the file that it wrote: a live run and a stored one cannot disagree.
//!
//! # Invariants
//!
//! - A certain hold is never longer than the truth: calls are stamped before they are sent, replies after they are read,
//!   and a signal carries the clock of the process that raised it ([`clock`]).
//! - What arrives over a link is a prefix of what was sent: no byte is lost in the middle, none comes out of order. A fault
//!   decides when bytes pass and whether the connection lives, nothing else ([`network`]).
//!   A tap reads along and alters nothing; a message that is dropped takes its connection with it ([`network::tap`]).
//! - A fault heals when its guard is dropped: at its time, on Ctrl-C, and when a panic unwinds ([`faults`]).
//! - A process whose operation ended unknown never acts again; its client comes back under a new number.
//! - Nothing outlives its run: child processes die with harness even when it is killed ([`process`]), and what cannot (a
//!   container, a folder) carries the name of its owner ([`cluster::leftovers`]).
//! - The plan is a function of the configuration and the seed ([`plan`]). Verdicts are a function of the history.
//! - A pass needs evidence: faults that left no trace make a run inconclusive ([`report::effect`]).
//! - A module imports only what stands below it; `tests/tidy.rs` has the layers.

pub mod backends;
pub mod cli;
pub mod client_role;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod event;
pub mod evidence;
pub mod exit;
pub mod faults;
pub mod limits;
/// The fault-injecting proxy, a crate of its own.
pub use harness_proxy as network;
pub mod ownership;
pub mod plan;
pub mod process;
pub mod report;
pub mod run;
pub mod store;
pub mod suite;
pub mod ui;
pub mod wall_clock;
