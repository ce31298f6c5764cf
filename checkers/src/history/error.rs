//! Errors in a history, with the line of each.

use thiserror::Error;

/// The reason why a history cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading failed.
    #[error("cannot read the history: {0}")]
    Io(#[from] std::io::Error),
    /// The input is empty.
    #[error("the history is empty: expected a header with \"format\":\"harness-history\", or a Jepsen history")]
    Empty,
    /// The text is compressed, and this build cannot decompress it.
    #[error(
        "the history is compressed with {feature}: build with the feature `{feature}` of harness-checkers, or decompress it"
    )]
    Compressed {
        /// The feature of this crate that is off.
        feature: &'static str,
    },
    /// The text of a line does not have the form of its format.
    #[error("line {line}, column {column}: found {found}, expected {expected}")]
    Syntax {
        /// The number of the line, from 1.
        line: u64,
        /// The byte of the line, from 1.
        column: usize,
        /// The text at that place.
        found: String,
        /// The text that is expected there.
        expected: String,
    },
    /// The line can be read and has no meaning.
    #[error("line {line}: found {found}, expected {expected}")]
    Meaning {
        /// The number of the line, from 1.
        line: u64,
        /// The text without a meaning.
        found: String,
        /// The texts that have one.
        expected: String,
    },
    /// Each line is right, and all together are not.
    #[error("line {line}: the history is not well formed: {fault}")]
    NotWellFormed {
        /// The number of the line, from 1.
        line: u64,
        /// The error.
        fault: FormError,
    },
}

impl ReadError {
    /// Creates an error for a line without a meaning.
    pub(super) fn meaning(line: u64, found: impl Into<String>, expected: &str) -> Self {
        Self::Meaning {
            line,
            found: found.into(),
            expected: expected.to_owned(),
        }
    }

    /// Adds the number of lines before the block to the line of the error.
    pub(super) fn behind(mut self, lines: u64) -> Self {
        match &mut self {
            Self::Io(_) | Self::Empty | Self::Compressed { .. } => {}
            Self::Syntax { line, .. } | Self::Meaning { line, .. } | Self::NotWellFormed { line, .. } => *line += lines,
        }
        self
    }
}

/// A violation of well-formedness. Such a history is not decided.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormError {
    /// A process calls while its last call is pending.
    #[error("process {process} calls {f} while its {open_f} of event {open_index} has no reply")]
    TwoOpen {
        /// The number of the process.
        process: u32,
        /// The operation of the event.
        f: &'static str,
        /// The operation of the pending call.
        open_f: &'static str,
        /// The `index` of the pending call.
        open_index: u64,
    },
    /// A reply without a call.
    #[error("process {process} gets a reply to {f} without a call")]
    ReplyWithoutCall {
        /// The number of the process.
        process: u32,
        /// The operation of the reply.
        f: &'static str,
    },
    /// A reply to another operation than the call's.
    #[error("process {process} gets a reply to {f}, and its open call is the {open_f} of event {open_index}")]
    WrongReply {
        /// The number of the process.
        process: u32,
        /// The operation of the event.
        f: &'static str,
        /// The operation of the pending call.
        open_f: &'static str,
        /// The `index` of the pending call.
        open_index: u64,
    },
    /// An event of a process is older than the one before.
    #[error("time goes backwards for process {process}: {now_ns} ns after {before_ns} ns of event {before_index}")]
    TimeBackwards {
        /// The number of the process.
        process: u32,
        /// The time of the event.
        now_ns: u64,
        /// The time of the event before.
        before_ns: u64,
        /// The `index` of the event before.
        before_index: u64,
    },
    #[error(
        "process {process} acts after the unknown outcome of event {unknown_index}; its client needs a new process"
    )]
    /// A process acts although the outcome of its last operation is unknown.
    ActsAfterUnknown {
        /// The number of the process.
        process: u32,
        /// The `index` of the unknown outcome.
        unknown_index: u64,
    },
    /// A process acts after it died.
    #[error("process {process} acts after it died at event {died_index}")]
    ActsAfterDeath {
        /// The number of the process.
        process: u32,
        /// The `index` of its death.
        died_index: u64,
    },
    /// A process has two clients.
    #[error("process {process} belongs to client {before} and to client {now}")]
    TwoClients {
        /// The number of the process.
        process: u32,
        /// The client that was named first.
        before: u32,
        /// The other client.
        now: u32,
    },
    /// An event without a lock, where there is not exactly one.
    #[error("{f} names no lock, and the header does not name exactly one")]
    NoLock {
        /// The operation of the event.
        f: &'static str,
    },
    /// A line of a wrong author, such as a grant by a client.
    #[error("a line of {who} with the type `{kind}` cannot have the f `{f}`")]
    NotTheirs {
        /// The author of the line.
        who: &'static str,
        /// Its type.
        kind: &'static str,
        /// The operation of the event.
        f: &'static str,
    },
    #[error(
        "the time {time_ns} ns is more than 146 years; times are nanoseconds since the recorder started, or since 1970"
    )]
    /// A time so late that sums of times could overflow.
    TooLate {
        /// The time.
        time_ns: u64,
    },
    /// More events than positions.
    #[error("a history has at most 4,294,967,000 events")]
    TooLong,
}
