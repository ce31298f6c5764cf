//! What can be wrong with a history, said so that its writer finds the line.

use thiserror::Error;

/// Why a history could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Reading failed.
    #[error("cannot read the history: {0}")]
    Io(#[from] std::io::Error),
    /// There is nothing to read.
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
    /// The text of a line is not what its format says.
    #[error("line {line}, column {column}: found {found}, expected {expected}")]
    Syntax {
        /// The number of the line, from 1.
        line: u64,
        /// The byte of the line, from 1.
        column: usize,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: String,
    },
    /// The line can be read and says something that has no meaning.
    #[error("line {line}: found {found}, expected {expected}")]
    Meaning {
        /// The number of the line, from 1.
        line: u64,
        /// What it says.
        found: String,
        /// What it could say.
        expected: String,
    },
    /// The lines are right one by one and not together.
    #[error("line {line}: the history is not well formed: {fault}")]
    NotWellFormed {
        /// The number of the line, from 1.
        line: u64,
        /// What is wrong.
        fault: FormError,
    },
}

impl ReadError {
    /// What a line says has no meaning.
    pub(super) fn meaning(line: u64, found: impl Into<String>, expected: &str) -> Self {
        Self::Meaning {
            line,
            found: found.into(),
            expected: expected.to_owned(),
        }
    }

    /// The same about a line that this many lines stand before.
    pub(super) fn behind(mut self, lines: u64) -> Self {
        match &mut self {
            Self::Io(_) | Self::Empty | Self::Compressed { .. } => {}
            Self::Syntax { line, .. } | Self::Meaning { line, .. } | Self::NotWellFormed { line, .. } => *line += lines,
        }
        self
    }
}

/// What a well-formed history never shows. Nothing is decided about one that does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FormError {
    /// A process calls while its last call has no reply.
    #[error("process {process} calls {f} while its {open_f} of event {open_index} has no reply")]
    TwoOpen {
        /// The number of the process.
        process: u32,
        /// What the event is about.
        f: &'static str,
        /// What the open call is about.
        open_f: &'static str,
        /// The `index` of the open call.
        open_index: u64,
    },
    /// A reply to nothing.
    #[error("process {process} gets a reply to {f} without a call")]
    ReplyWithoutCall {
        /// The number of the process.
        process: u32,
        /// What it answers.
        f: &'static str,
    },
    /// A reply to something else than what was called.
    #[error("process {process} gets a reply to {f}, and its open call is the {open_f} of event {open_index}")]
    WrongReply {
        /// The number of the process.
        process: u32,
        /// What the event is about.
        f: &'static str,
        /// What the open call is about.
        open_f: &'static str,
        /// The `index` of the open call.
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
        /// The `index` of the outcome that is unknown.
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
    /// A process is said to be of two clients.
    #[error("process {process} belongs to client {before} and to client {now}")]
    TwoClients {
        /// The number of the process.
        process: u32,
        /// The client that was named first.
        before: u32,
        /// The other one.
        now: u32,
    },
    /// An event of a lock that names none, where there is not exactly one.
    #[error("{f} names no lock, and the header does not name exactly one")]
    NoLock {
        /// What the event is about.
        f: &'static str,
    },
    /// A line that its author cannot write: a grant by a client.
    #[error("a line of {who} with the type `{kind}` cannot have the f `{f}`")]
    NotTheirs {
        /// Who wrote the line.
        who: &'static str,
        /// Its type.
        kind: &'static str,
        /// What the event is about.
        f: &'static str,
    },
    #[error(
        "the time {time_ns} ns is more than 146 years; times are nanoseconds since the recorder started, or since 1970"
    )]
    /// A time that leaves no room for lengths.
    TooLate {
        /// The time.
        time_ns: u64,
    },
    /// More events than positions.
    #[error("a history has at most 4,294,967,000 events")]
    TooLong,
}
