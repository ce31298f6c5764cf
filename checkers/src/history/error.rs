//! What can be wrong with a history, said so that its writer finds the line.

use thiserror::Error;

/// Why a history could not be read.
#[derive(Debug, Error)]
pub enum ReadError {
    #[error("cannot read the history: {0}")]
    Io(#[from] std::io::Error),
    #[error("the history is empty: expected a header with \"format\":\"harness-history\", or a Jepsen history")]
    Empty,
    /// The text of a line is not what its format says.
    #[error("line {line}, column {column}: found {found}, expected {expected}")]
    Syntax {
        line: u64,
        column: usize,
        found: String,
        expected: String,
    },
    /// The line can be read and says something that has no meaning.
    #[error("line {line}: found {found}, expected {expected}")]
    Meaning { line: u64, found: String, expected: String },
    /// The lines are right one by one and not together.
    #[error("line {line}: the history is not well formed: {fault}")]
    NotWellFormed { line: u64, fault: FormError },
}

impl ReadError {
    /// The same about a line that this many lines stand before.
    pub(super) fn behind(mut self, lines: u64) -> Self {
        match &mut self {
            Self::Io(_) | Self::Empty => {}
            Self::Syntax { line, .. } | Self::Meaning { line, .. } | Self::NotWellFormed { line, .. } => *line += lines,
        }
        self
    }
}

/// What a well-formed history never shows. Nothing is decided about one that does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormError {
    #[error("process {process} calls {f} while its {open_f} of event {open_index} has no reply")]
    TwoOpen {
        process: u32,
        f: &'static str,
        open_f: &'static str,
        open_index: u64,
    },
    #[error("process {process} gets a reply to {f} without a call")]
    ReplyWithoutCall { process: u32, f: &'static str },
    #[error("process {process} gets a reply to {f} while {open_f} of event {open_index} is what it called")]
    WrongReply {
        process: u32,
        f: &'static str,
        open_f: &'static str,
        open_index: u64,
    },
    #[error("time goes backwards for process {process}: {now_ns} ns after {before_ns} ns of event {before_index}")]
    TimeBackwards {
        process: u32,
        now_ns: u64,
        before_ns: u64,
        before_index: u64,
    },
    #[error(
        "process {process} acts after the unknown outcome of event {unknown_index}; its client needs a new process"
    )]
    ActsAfterUnknown { process: u32, unknown_index: u64 },
    #[error("process {process} acts after it died at event {died_index}")]
    ActsAfterDeath { process: u32, died_index: u64 },
    #[error("process {process} belongs to client {before} and to client {now}")]
    TwoClients { process: u32, before: u32, now: u32 },
    #[error("{f} names no lock, and the header does not name exactly one")]
    NoLock { f: &'static str },
    #[error("`{kind}` lines of {who} cannot say {f}")]
    NotTheirs {
        who: &'static str,
        kind: &'static str,
        f: &'static str,
    },
    #[error(
        "the time {time_ns} ns is more than 146 years; times are nanoseconds since the recorder started, or since 1970"
    )]
    TooLate { time_ns: u64 },
    #[error("a history has at most 4,294,967,000 events")]
    TooLong,
}
