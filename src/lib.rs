//! Chaos and linearizability tests for distributed lock implementations.
//!
//! `docs/ARCHITECTURE.md` has the data flow, the modules and the invariants; `docs/GLOSSARY.md` has the terms. The invariants
//! that a change here can break:
//!
//! - A certain hold is never longer than the real one: calls are stamped before they are sent, replies after they are read, a
//!   signal carries the clock of the process that raised it ([`clock`]), and the time of death of a process is the last moment at
//!   which it was known to live ([`process::activity`]).
//! - The bytes that arrive over a link are a prefix of the bytes that were sent. A fault decides only the times of bytes and the
//!   end of the connection ([`harness_proxy`]).
//! - A fault heals when it is dropped: at its time, on Ctrl-C, and when a panic unwinds ([`faults`]).
//! - Nothing outlives its run: child processes die with harness even when it is killed ([`process`]), and other leftovers (a
//!   container, a folder) have the name of their owner ([`cluster::leftovers`]).
//! - The plan is a function of the configuration and the seed ([`plan`]). Verdicts are a function of the history.
//! - A pass needs evidence: faults without effect make a run inconclusive ([`report::effect`]).
//! - A module imports only from the layers under it; `tests/tidy/main.rs` has the layers.

/// Writes to stderr. That of the standard library panics if its reader has closed the pipe, as `harness run 2>&1 | head` does.
macro_rules! eprint {
    ($($told:tt)*) => {{
        let _ = ::std::io::Write::write_fmt(&mut ::std::io::stderr(), ::std::format_args!($($told)*));
    }};
}

/// Writes a line to stderr, as `eprint!` does.
macro_rules! eprintln {
    ($($told:tt)*) => {
        eprint!("{}\n", ::std::format_args!($($told)*))
    };
}

pub mod adapters;
pub mod backends;
pub mod cli;
pub mod client_role;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod disks;
pub mod event;
pub mod evidence;
pub mod exit;
pub mod faults;
pub mod hunt;
pub mod in_virtual_time;
pub mod installing;
pub mod kube;
pub mod limits;
pub mod own_delays;
pub mod ownership;
pub mod plan;
pub mod process;
pub mod report;
pub mod run;
pub mod simulated;
pub mod store;
pub mod suite;
pub mod survey;
pub mod ui;
pub mod wall_clock;
