//! One event as it goes into a history and as it comes out again.
//!
//! [`Entry`] is what callers see; [`super::packed`] is how a million of them fit into memory. Start at [`Entry`].

use super::answers::{Refusal, RevokeCause};
use super::event::{Fenced, Fields, Kind, Line, Process};
use super::names::{NONE, Symbol};

/// What a line is about: the value of `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum F {
    /// A client asks for a lock.
    Acquire,
    /// A client gives a lock back.
    Release,
    /// A holder asks for more time.
    Extend,
    /// A register is read.
    Read,
    /// A register is written.
    Write,
    /// Compare and set, of register histories only.
    Cas,
    /// A client learns that it no longer has a lock.
    Lost,
    /// A waiter is told that it may try again.
    Woken,
    /// A process was killed or ended.
    Died,
    /// A notification that passed the client's link.
    Notified,
    /// The server made a client the owner of a lock.
    Granted,
    /// The server ended that.
    Revoked,
    /// A fault or a phase of the run; its name is [`Entry::name`].
    Nemesis,
}

impl F {
    /// All of them, in their order.
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

    /// The word that a history has for it; `nemesis` lines have the name of their fact instead.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; F::ALL.len()] = [
            "acquire", "release", "extend", "read", "write", "cas", "lost", "woken", "died", "notified", "granted",
            "revoked", "nemesis",
        ];
        NAMES[self as usize]
    }

    /// The operation or signal of that name.
    pub fn parse(name: &str) -> Option<Self> {
        let mut named = Self::ALL.into_iter().filter(|f| *f != Self::Nemesis);
        named.find(|f| f.name() == name)
    }

    /// Whether lines of it come as a call and a reply.
    pub fn is_operation(self) -> bool {
        matches!(
            self,
            Self::Acquire | Self::Release | Self::Extend | Self::Read | Self::Write | Self::Cas
        )
    }
}

/// Whether a hold excludes everybody or only writers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Mode {
    /// It excludes all others.
    #[default]
    Write,
    /// It excludes writers.
    Read,
}

impl Mode {
    /// The mode of that name: `read` and `shared` share, everything else excludes.
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
/// Give `lock`, `token` and the rest where the line has them; [`Entry::new`] fills in nothing but the essentials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Entry<'a> {
    /// The event's `index`: its line is found by it.
    pub index: u64,
    /// Nanoseconds since the recorder started.
    pub time_ns: u64,
    /// Who it is about.
    pub process: Process,
    /// The client that the process is an incarnation of; the process's own number when no line says.
    pub client: Option<u32>,
    /// Call, answer or signal.
    pub kind: Kind,
    /// What it is about.
    pub f: F,
    /// Of an acquire: it was asked for by an `extend`, by a process that had lost the lock. An answer `ok` is a new hold.
    pub extends: bool,
    /// The lock; `None` where the header names the only one.
    pub lock: Option<&'a str>,
    /// The fencing token that came with a grant.
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    pub owner: Option<&'a str>,
    /// What a register was read to be, or was set to.
    pub value: Option<u64>,
    /// What a compare-and-set expected.
    pub expected: Option<u64>,
    /// What a register that checks tokens did with a write.
    pub fenced: Option<Fenced>,
    /// Whether an acquire shares.
    pub mode: Mode,
    /// Permits of a semaphore; 1 when no line says.
    pub permits: Option<u32>,
    /// How long the caller is ready to wait, in milliseconds; 0 is a try.
    pub wait_ms: Option<u64>,
    /// How long before its call an acquire was due, in microseconds, where acquires come due at a rate and no client was free.
    pub late_us: Option<u32>,
    /// Why a grant or a hold ended; see [`Self::revoke_cause`].
    pub cause: Option<&'a str>,
    /// Why an operation failed, or why its outcome is unknown; see [`Self::refusal`].
    pub error: Option<&'a str>,
    /// The fault's name, or `phase`, on lines of the nemesis.
    pub name: Option<&'a str>,
    /// Requests, replies, notifications and retries that had passed all links by then, on calls of release.
    pub wire: Option<[u64; 4]>,
    /// The server that the client was connected to, on replies to acquires of which that is known.
    pub node: Option<&'a str>,
    /// The whole line as it was written, on lines of the nemesis.
    pub raw: Option<&'a str>,
}

impl<'a> From<&'a Line<'a>> for Entry<'a> {
    /// What a line says, but for [`Entry::raw`].
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
    /// The same event with what else an operation or a signal carries.
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

    /// The same event with what few events have.
    pub(super) fn with_rare(self, rare: &Rare, name: impl Fn(Symbol) -> Option<&'a str>) -> Self {
        let known = |number: u32| (number != NONE).then_some(number);
        Self {
            extends: rare.extends,
            value: rare.value,
            expected: rare.expected,
            fenced: rare.fenced,
            permits: known(rare.permits),
            wait_ms: known(rare.wait_ms).map(u64::from),
            late_us: known(rare.late_us),
            cause: name(rare.cause),
            error: name(rare.error),
            ..self
        }
    }
}

impl Entry<'_> {
    /// An event with nothing said beyond who, what and when.
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

    /// Why it was refused, on lines of type `fail` that say why.
    pub fn refusal(&self) -> Option<Refusal> {
        self.error.filter(|_| self.kind == Kind::Fail).map(Refusal::parse)
    }

    /// Why the server took the lock back, on `revoked` lines that say why.
    pub fn revoke_cause(&self) -> Option<RevokeCause> {
        self.cause.filter(|_| self.f == F::Revoked).map(RevokeCause::parse)
    }

    /// The process's number, where the line is a client's.
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

/// What few events have.
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
    /// A fault was on during the call, or shortly before: of an acquire that failed.
    pub disturbed: bool,
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
            disturbed: false,
            extends: false,
        }
    }
}

impl Rare {
    /// A wait as it is kept: one that is longer than 49 days is as good as without an end.
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
    /// On replies to acquires.
    pub node: Symbol,
    pub kind: Kind,
    pub f: F,
    pub mode: Mode,
    /// The number of its line in the block, from 1.
    pub line: u32,
    /// The place, in its block, of what few events have; `NONE` where it has nothing of that.
    pub rare: u32,
}

impl EventFields {
    /// An event with nothing said beyond who, what and when.
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

    /// What an entry says without names.
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

/// What few events have, as a line says it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct RareFields {
    pub rare: Rare,
    /// On calls of release.
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
