//! Entries: the events of a history, for callers that add them and for callers that read them.
//!
//! [`super::packed`] has the form in which a million of them fit into memory. Start at [`Entry`].

use super::event::{Fenced, Fields, Kind, Line, Process};
use super::names::{NONE, Names, Symbol};

/// The operation or the signal of a line: the value of `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum F {
    /// A client acquires a lock.
    Acquire,
    /// A client releases a lock.
    Release,
    /// A holder extends its lease.
    Extend,
    /// A register is read.
    Read,
    /// A register is written.
    Write,
    /// Compare-and-set, of register histories only.
    Cas,
    /// A client learns that it no longer has a lock.
    Lost,
    /// A waiter is notified that it may try again.
    Woken,
    /// A process was killed or ended.
    Died,
    /// A notification that passed the client's link.
    Notified,
    /// The server made a client the owner of a lock.
    Granted,
    /// The server ended a grant.
    Revoked,
    /// A fault or a phase of the run; its name is in [`Entry::name`].
    Nemesis,
}

impl F {
    /// All operations and signals, in their order.
    pub(crate) const ALL: [Self; 13] = [
        Self::Acquire,
        Self::Release,
        Self::Extend,
        Self::Read,
        Self::Write,
        Self::Cas,
        Self::Lost,
        Self::Woken,
        Self::Died,
        Self::Notified,
        Self::Granted,
        Self::Revoked,
        Self::Nemesis,
    ];

    /// Returns the word that histories have for it; `nemesis` lines have the name of their fact instead.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; F::ALL.len()] = [
            "acquire", "release", "extend", "read", "write", "cas", "lost", "woken", "died", "notified", "granted",
            "revoked", "nemesis",
        ];
        NAMES[self as usize]
    }

    /// Returns the operation or signal of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut named = Self::ALL.into_iter().filter(|f| *f != Self::Nemesis);
        named.find(|f| f.name() == name)
    }

    /// Returns whether its lines are calls and replies.
    pub fn is_operation(self) -> bool {
        matches!(
            self,
            Self::Acquire | Self::Release | Self::Extend | Self::Read | Self::Write | Self::Cas
        )
    }
}

/// The mode of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Mode {
    /// It excludes all other holds.
    #[default]
    Write,
    /// It excludes only writers.
    Read,
}

impl Mode {
    /// Returns the mode of that name: `read` and `shared` are shared, every other name excludes.
    pub fn parse(name: &str) -> Self {
        if matches!(name, "read" | "shared") {
            Self::Read
        } else {
            Self::Write
        }
    }
}

/// One event of a history, borrowed.
///
/// `lock`, `token` and the rest are set where the line has them; [`Entry::new`] sets only the essential fields.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<'a> {
    /// The event's `index` in the file.
    pub index: u64,
    /// Nanoseconds since the recorder started.
    pub time_ns: u64,
    /// The process.
    pub process: Process,
    /// The client of the process; `None` if no line names it, and it has the process's number.
    pub client: Option<u32>,
    /// The type of the line: call, answer or signal.
    pub kind: Kind,
    /// The operation or the signal.
    pub f: F,
    /// Whether an acquire is an `extend` of a process that had lost the lock. An answer `ok` begins a new hold.
    pub extends: bool,
    /// The lock; `None` where the header names the only one.
    pub lock: Option<&'a str>,
    /// The fencing token of a grant.
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    pub owner: Option<&'a str>,
    /// The value that a register returned or was set to.
    pub value: Option<u64>,
    /// The value that a compare-and-set expected.
    pub expected: Option<u64>,
    /// The answer of a register that checks tokens to a write.
    pub fenced: Option<Fenced>,
    /// The mode of an acquire.
    pub mode: Mode,
    /// Permits of a semaphore; 1 without them.
    pub permits: Option<u32>,
    /// The longest wait of the call, in milliseconds; 0 is a try.
    pub wait_ms: Option<u64>,
    /// The delay of an acquire's call, in microseconds, if acquires are due at a rate and no client was free.
    pub late_us: Option<u32>,
    /// The reason for the end of a grant or a hold; on `revoked` lines see [`RevokeCause`](super::RevokeCause).
    pub cause: Option<&'a str>,
    /// The reason why an operation failed, or why its outcome is unknown; on lines of type `fail` see [`Refusal`](super::Refusal).
    pub error: Option<&'a str>,
    /// The fault's name, or `phase`, on nemesis lines.
    pub name: Option<&'a str>,
    /// Requests, replies, notifications and retries that had passed all links by then, on calls of release.
    pub wire: Option<[u64; 4]>,
    /// The server to which the client was connected, on replies to acquires, if it is known.
    pub node: Option<&'a str>,
    /// The whole line as it was written, on nemesis lines.
    pub raw: Option<&'a str>,
}

impl<'a> From<&'a Line<'a>> for Entry<'a> {
    /// Returns the entry of a line, without [`Entry::raw`].
    fn from(line: &'a Line<'a>) -> Self {
        let f = F::parse(line.f).filter(|_| line.process != Process::Nemesis);
        Self {
            client: line.client,
            name: (line.process == Process::Nemesis).then_some(line.f),
            ..Self::with_fields(
                Self::new(line.index, line.time, line.process, line.kind, f.unwrap_or(F::Nemesis)),
                &line.fields,
            )
        }
    }
}

impl<'a> Entry<'a> {
    /// Adds the other fields of an operation or a signal.
    #[must_use]
    pub fn with_fields(self, fields: &Fields<'a>) -> Self {
        Self {
            lock: fields.lock,
            token: fields.token,
            owner: fields.owner,
            value: fields.value,
            fenced: fields.fenced,
            mode: fields.mode.map_or(Mode::Write, Mode::parse),
            permits: fields.permits,
            wait_ms: fields.wait_ms,
            late_us: fields.late_us,
            cause: fields.cause,
            error: fields.error,
            wire: fields.wire.filter(|_| self.f == F::Release),
            node: fields.node,
            ..self
        }
    }

    /// Returns the entry of an event whose names are numbers of these, without [`Entry::name`] and [`Entry::raw`].
    pub(super) fn of(fields: &EventFields, rare: &RareFields, names: &'a Names) -> Self {
        let RareFields { rare, wire } = *rare;
        let known = |number: u32| (number != NONE).then_some(number);
        let name = |symbol: Symbol| known(symbol).map(|symbol| names.get(symbol));
        Self {
            client: fields.client,
            extends: rare.extends,
            lock: name(fields.lock),
            token: fields.token,
            owner: name(fields.owner),
            value: rare.value,
            expected: rare.expected,
            fenced: rare.fenced,
            mode: fields.mode,
            permits: known(rare.permits),
            wait_ms: known(rare.wait_ms).map(u64::from),
            late_us: known(rare.late_us),
            cause: name(rare.cause),
            error: name(rare.error),
            wire,
            node: name(fields.node),
            ..Self::new(fields.index, fields.time, fields.process, fields.kind, fields.f)
        }
    }
}

impl Entry<'_> {
    /// Creates an event with only the essential fields.
    pub fn new(index: u64, time_ns: u64, process: Process, kind: Kind, f: F) -> Self {
        Self {
            index,
            time_ns,
            process,
            client: None,
            kind,
            f,
            extends: false,
            lock: None,
            token: None,
            owner: None,
            value: None,
            expected: None,
            fenced: None,
            mode: Mode::Write,
            permits: None,
            wait_ms: None,
            late_us: None,
            cause: None,
            error: None,
            name: None,
            wire: None,
            node: None,
            raw: None,
        }
    }

    /// Returns the process's number, if the line is a client's.
    pub fn process_number(&self) -> Option<u32> {
        match self.process {
            Process::Client(number) => Some(number),
            Process::Server | Process::Nemesis => None,
        }
    }
}

/// The dense process number of server lines.
pub(crate) const SERVER: u32 = NONE - 1;
/// The dense process number of nemesis lines.
pub(crate) const NEMESIS: u32 = NONE - 2;

/// Fields that few events have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rare {
    pub value: Option<u64>,
    pub expected: Option<u64>,
    pub wait_ms: u32,
    pub late_us: u32,
    pub permits: u32,
    pub cause: Symbol,
    pub error: Symbol,
    pub fenced: Option<Fenced>,
    /// See [`Entry::extends`].
    pub extends: bool,
}

impl Default for Rare {
    fn default() -> Self {
        Self {
            value: None,
            expected: None,
            wait_ms: NONE,
            late_us: NONE,
            permits: NONE,
            cause: NONE,
            error: NONE,
            fenced: None,
            extends: false,
        }
    }
}

impl Rare {
    /// Returns a wait as it is stored: a wait of more than 49 days counts as unlimited.
    pub(crate) fn wait_of(ms: u64) -> u32 {
        ms.min(u64::from(NONE - 1)) as u32
    }
}

/// The fields of one event. Names are [`Symbol`]s, `NONE` where a line has none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventFields {
    pub time: u64,
    pub index: u64,
    pub token: Option<u64>,
    pub process: Process,
    pub client: Option<u32>,
    pub lock: Symbol,
    pub owner: Symbol,
    /// Of a reply to an acquire.
    pub node: Symbol,
    pub kind: Kind,
    pub f: F,
    pub mode: Mode,
    /// The number of its line in the block, from 1.
    pub line: u32,
    /// The place of its rare fields in its block; `NONE` without them.
    pub rare: u32,
}

impl EventFields {
    /// Creates an event with only the essential fields.
    #[inline]
    pub(crate) fn new(index: u64, time: u64, process: Process, kind: Kind, f: F) -> Self {
        Self {
            time,
            index,
            token: None,
            process,
            client: None,
            lock: NONE,
            owner: NONE,
            node: NONE,
            kind,
            f,
            mode: Mode::Write,
            line: 0,
            rare: NONE,
        }
    }

    /// Returns the fields of an entry without names.
    #[inline]
    pub(crate) fn of(entry: &Entry<'_>) -> Self {
        let f = if entry.extends { F::Extend } else { entry.f };
        Self {
            token: entry.token,
            client: entry.client,
            mode: entry.mode,
            ..Self::new(entry.index, entry.time_ns, entry.process, entry.kind, f)
        }
    }
}

/// Fields that few events have, as a line has them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RareFields {
    pub rare: Rare,
    /// Of a call of release.
    pub wire: Option<[u64; 4]>,
}

/// The `index` of a line that has none.
pub(super) const NO_INDEX: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_are_one() {
        for f in F::ALL.into_iter().filter(|f| *f != F::Nemesis) {
            assert_eq!(F::parse(f.name()), Some(f));
            assert_eq!(f.name(), format!("{f:?}").to_lowercase());
        }
        assert_eq!(F::parse("nemesis"), None);
        for kind in Kind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
