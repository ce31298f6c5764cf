//! A history in memory: the events, and what few of them have beside that.

use super::answers::Refusal;
use super::entry::Rare;
use super::event::Header;
use super::event_table::EventTable;
use super::names::{NONE, Names, Symbol};
use super::nemesis::Nemesis;
use super::packed::{EventDetails, EventIndices, KeptDetails, PackedEvent};
use crate::limits;

/// Set in values of registers that are no natural numbers; the rest is the symbol of the value's text. Values are only compared.
pub(crate) const NAMED_VALUE: u64 = 1 << 63;

/// A recorded history, whole or partial, in memory.
///
/// Events keep the order of the file. [`crate::check`] decides about it.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(crate) header: Header,
    pub(crate) events: EventTable,
    pub(super) indices: EventIndices,
    pub(super) details: Vec<KeptDetails>,
    pub(super) rare: Vec<Rare>,
    pub(crate) nemesis: Vec<Nemesis>,
    /// By position.
    pub(crate) wire: Vec<WireReading>,
    /// By position.
    pub(crate) nodes: Vec<ReplyNode>,
    pub(crate) names: Names,
    /// Numbers as recorded, by dense process number.
    pub(crate) processes: Vec<u32>,
    /// Clients by dense process number; `NONE` when no line says.
    pub(crate) clients: Vec<u32>,
    /// Names of locks, and their dense number by name.
    pub(crate) locks: Vec<Symbol>,
    pub(crate) lock_of_name: Vec<u32>,
    pub(crate) order: OrderBasis,
    /// Values of registers with [`NAMED_VALUE`] are names.
    pub(crate) named_values: bool,
    /// Processes renewed leases: a hold is known until its last renewal or release.
    pub(crate) is_renewed: bool,
    /// What registers have before the first write.
    pub(crate) initial: Option<u64>,
    /// Some line of a client has a time before that of a client's line above it.
    pub(crate) has_late_lines: bool,
    /// Some line of a client has the time of a client's line above it, or an earlier one.
    pub(crate) has_equal_times: bool,
    /// Releases that were answered `fail`.
    pub(crate) failed_releases: u64,
    /// Some line says how many permits it is about.
    pub(crate) says_permits: bool,
    pub(crate) partial: Option<String>,
    pub(crate) inversions: u64,
    pub(crate) end_ns: u64,
    pub(crate) counts: Counts,
}

/// How much of everything there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines but the header.
    pub events: u64,
    /// Calls of acquire and release.
    pub operations: u64,
    /// Acquires that were answered ok.
    pub acquires_ok: u64,
    /// Acquires that were refused.
    pub acquires_fail: u64,
    /// Acquires with an unknown outcome.
    pub acquires_info: u64,
    /// Releases that were answered ok.
    pub releases_ok: u64,
    /// Reads of a register that were answered ok.
    pub reads: u64,
    /// Writes of a register that were answered ok.
    pub writes: u64,
    /// Compare-and-sets that succeeded.
    pub compared: u64,
    /// Grants that the observer saw.
    pub granted: u64,
    /// Ends of grants that the observer saw.
    pub revoked: u64,
    /// Signals of waiters that were woken.
    pub woken: u64,
    /// Signals of holders that lost their lock.
    pub lost: u64,
    /// Processes that died.
    pub died: u64,
    /// Notifications that passed a link.
    pub notified: u64,
}

/// What "before" means between the events of different processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OrderBasis {
    /// The recorder's clock: own histories, where a signal may be written later than it was raised.
    #[default]
    Time,
    /// The order of the file: Jepsen's histories.
    Position,
}

/// What taps had counted at an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireReading {
    pub position: u32,
    /// Requests, replies, notifications and retries that had passed all links by then.
    pub counts: [u64; 4],
}

/// The server that a reply to an acquire came through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplyNode {
    pub position: u32,
    pub node: Symbol,
}

impl History {
    pub(crate) fn add_lock(&mut self, name: Symbol) {
        if self.lock_of_name.len() <= name as usize {
            self.lock_of_name.resize(name as usize + 1, NONE);
        }
        if self.lock_of_name[name as usize] == NONE {
            self.lock_of_name[name as usize] = self.locks.len() as u32;
            self.locks.push(name);
        }
    }

    /// The dense number of an event's lock. Events without one have none.
    pub(crate) fn lock_number(&self, event: PackedEvent) -> Option<usize> {
        self.lock_of_name
            .get(event.lock as usize)
            .map(|number| *number as usize)
    }

    pub(crate) fn lock_name(&self, number: usize) -> &str {
        self.names.get(self.locks[number])
    }

    /// The event at a position, which must be one.
    #[inline]
    pub(crate) fn event(&self, position: u32) -> PackedEvent {
        self.events.get(position as usize).expect("a position of the history")
    }

    /// The place of an event among the others: its time, or its position.
    #[inline]
    pub(crate) fn instant(&self, position: u32) -> u64 {
        match self.order {
            OrderBasis::Time => self.events.time(position),
            OrderBasis::Position => u64::from(position),
        }
    }

    /// The same for an event that is at hand.
    #[inline]
    pub(crate) fn instant_of(&self, position: u32, event: PackedEvent) -> u64 {
        match self.order {
            OrderBasis::Time => event.time,
            OrderBasis::Position => u64::from(position),
        }
    }

    /// The client of a dense process: its own number when no line says otherwise.
    pub(crate) fn client_of(&self, process: u32) -> u32 {
        match self.clients[process as usize] {
            NONE => self.processes[process as usize],
            client => client,
        }
    }
}

impl History {
    /// The index of the event at a position: its line is found by it.
    pub(crate) fn index(&self, position: u32) -> u64 {
        self.indices.get(position)
    }

    fn details(&self, event: PackedEvent) -> EventDetails {
        self.details_at(event.details)
    }

    #[inline]
    fn details_at(&self, place: u32) -> EventDetails {
        let kept = self.details.get(place as usize);
        kept.map_or(EventDetails::NOTHING, |kept| kept.details())
    }

    /// The fencing token of the event at a position.
    #[inline]
    pub(crate) fn token_at(&self, position: u32) -> Option<u64> {
        self.details_at(self.events.details(position)).token
    }

    /// The fencing token of an event.
    pub(crate) fn token(&self, event: PackedEvent) -> Option<u64> {
        self.details(event).token
    }

    /// The server's name for the owner that an event names.
    pub(crate) fn owner(&self, event: PackedEvent) -> Symbol {
        self.details(event).owner
    }

    /// How long an acquire was to wait, in milliseconds; `NONE` where it does not say.
    pub(crate) fn wait_ms(&self, acquire: PackedEvent) -> u32 {
        self.says(acquire).map_or(NONE, |says| says.wait_ms)
    }

    /// The same in nanoseconds, where it says so.
    pub(crate) fn wait_ns(&self, acquire: PackedEvent) -> Option<u64> {
        let wait_ms = self.wait_ms(acquire);
        (wait_ms != NONE).then(|| limits::ns(u64::from(wait_ms)))
    }

    /// The number of a lock by its name, which stays when names are forgotten.
    pub(crate) fn number_of(&self, lock: Symbol) -> u32 {
        self.lock_of_name.get(lock as usize).copied().unwrap_or(NONE)
    }

    pub(crate) fn rare(&self, event: PackedEvent) -> Rare {
        self.says(event).copied().unwrap_or_default()
    }

    /// What an answer says of why it is not `ok`, in words.
    pub(crate) fn error(&self, answer: PackedEvent) -> Option<&str> {
        self.name(self.rare(answer).error)
    }

    /// Whether an answer says that the lock is taken: at some instant of the call, or until its wait was over.
    pub(crate) fn says_taken(&self, answer: PackedEvent) -> bool {
        self.error(answer).is_some_and(|said| Refusal::parse(said).is_taken())
    }

    /// What few events have, where it has something of that.
    pub(crate) fn says(&self, event: PackedEvent) -> Option<&Rare> {
        self.rare.get(self.details(event).rare as usize)
    }
}
