//! A history in memory: the events, and the details that few of them have.

use super::answers::Refusal;
use super::entry::Rare;
use super::event::Header;
use super::event_table::EventTable;
use super::names::{NONE, Names, Symbol};
use super::nemesis::Nemesis;
use super::packed::{EventDetails, EventIndices, KeptDetails, PackedEvent};
use super::window::Window;
use crate::limits;

/// Marks values of registers that are no natural numbers; the rest is the symbol of the value's text. Values are only compared.
pub(crate) const NAMED_VALUE: u64 = 1 << 63;

/// A recorded history, whole or partial, in memory.
///
/// Events have the order of the file. [`crate::check`] judges them.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub(crate) header: Header,
    pub(crate) events: EventTable,
    pub(super) indices: EventIndices,
    pub(super) details: Vec<KeptDetails>,
    pub(super) rare: Vec<Rare>,
    pub(crate) nemesis: Vec<Nemesis>,
    /// The fault windows, by the lines of their starts.
    pub(super) windows: Vec<Window>,
    /// The counts of the taps by position: requests, replies, notifications and retries that had passed all links by then.
    pub(crate) wire: Vec<(u32, [u64; 4])>,
    /// The servers of replies to acquires, by position.
    pub(crate) nodes: Vec<(u32, Symbol)>,
    pub(crate) names: Names,
    /// Numbers in the file, by dense process number.
    pub(crate) processes: Vec<u32>,
    /// Clients by dense process number; `NONE` if no line names it.
    pub(crate) clients: Vec<u32>,
    /// Names of locks, and their dense number by name.
    pub(crate) locks: Vec<Symbol>,
    pub(crate) lock_of_name: Vec<u32>,
    pub(crate) order: OrderBasis,
    /// Whether values of registers with [`NAMED_VALUE`] are names.
    pub(crate) named_values: bool,
    /// Whether processes renewed leases: a hold is certain until its last renewal or release.
    pub(crate) is_renewed: bool,
    /// The value of registers before the first write.
    pub(crate) initial: Option<u64>,
    /// Whether a client's line has a time before that of a client's line above it.
    pub(crate) has_late_lines: bool,
    /// Whether a client's line has the time of a client's line above it, or an earlier one.
    pub(crate) has_equal_times: bool,
    /// Releases that were answered `fail`.
    pub(crate) failed_releases: u64,
    /// Whether a line has a number of permits.
    pub(crate) says_permits: bool,
    pub(crate) partial: Option<String>,
    pub(crate) inversions: u64,
    pub(crate) end_ns: u64,
    pub(crate) counts: Counts,
}

/// Numbers of events by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Lines without the header.
    pub events: u64,
    /// Calls of acquire and release.
    pub operations: u64,
    /// Acquires that were answered `ok`.
    pub acquires_ok: u64,
    /// Acquires that were refused.
    pub acquires_fail: u64,
    /// Acquires with an unknown outcome.
    pub acquires_info: u64,
    /// Releases that were answered `ok`.
    pub releases_ok: u64,
    /// Reads of a register that were answered `ok`.
    pub reads: u64,
    /// Writes of a register that were answered `ok`.
    pub writes: u64,
    /// Compare-and-sets that succeeded.
    pub compared: u64,
    /// Grants that the observer saw.
    pub granted: u64,
    /// Ends of grants that the observer saw.
    pub revoked: u64,
    /// Signals of woken waiters.
    pub woken: u64,
    /// Signals of holders that lost their lock.
    pub lost: u64,
    /// Processes that died.
    pub died: u64,
    /// Notifications that passed a link.
    pub notified: u64,
}

/// The order between the events of different processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum OrderBasis {
    /// The recorder's clock: our histories, in which a signal may be written later than it was raised.
    #[default]
    Time,
    /// The order of the file: Jepsen's histories.
    Position,
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

    /// Returns the dense number of an event's lock, if it has one.
    pub(crate) fn lock_number(&self, event: PackedEvent) -> Option<usize> {
        self.lock_of_name
            .get(event.lock as usize)
            .map(|number| *number as usize)
    }

    pub(crate) fn lock_name(&self, number: usize) -> &str {
        self.names.get(self.locks[number])
    }

    /// Returns the event at a position that exists.
    #[inline]
    pub(crate) fn event(&self, position: u32) -> PackedEvent {
        self.events.get(position as usize).expect("a position of the history")
    }

    /// Returns the instant of the event at a position: its time, or the position.
    #[inline]
    pub(crate) fn instant(&self, position: u32) -> u64 {
        match self.order {
            OrderBasis::Time => self.events.time(position),
            OrderBasis::Position => u64::from(position),
        }
    }

    /// Returns the instant of an event that is already decoded.
    #[inline]
    pub(crate) fn instant_of(&self, position: u32, event: PackedEvent) -> u64 {
        match self.order {
            OrderBasis::Time => event.time,
            OrderBasis::Position => u64::from(position),
        }
    }

    /// Returns the client of a dense process: its own number if no line names another.
    pub(crate) fn client_of(&self, process: u32) -> u32 {
        match self.clients[process as usize] {
            NONE => self.processes[process as usize],
            client => client,
        }
    }

    /// Returns the index of the event at a position.
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

    /// Returns the fencing token of the event at a position.
    #[inline]
    pub(crate) fn token_at(&self, position: u32) -> Option<u64> {
        self.details_at(self.events.details(position)).token
    }

    /// Returns the fencing token of an event.
    pub(crate) fn token(&self, event: PackedEvent) -> Option<u64> {
        self.details(event).token
    }

    /// Returns the server's name for the owner in an event.
    pub(crate) fn owner(&self, event: PackedEvent) -> Symbol {
        self.details(event).owner
    }

    /// Returns the wait of an acquire in milliseconds; `NONE` if it has none.
    pub(crate) fn wait_ms(&self, acquire: PackedEvent) -> u32 {
        self.says(acquire).map_or(NONE, |says| says.wait_ms)
    }

    /// Returns the wait of an acquire in nanoseconds, if it has one.
    pub(crate) fn wait_ns(&self, acquire: PackedEvent) -> Option<u64> {
        let wait_ms = self.wait_ms(acquire);
        (wait_ms != NONE).then(|| limits::ns(u64::from(wait_ms)))
    }

    /// Returns the number of a lock by its name, which stays when names are forgotten.
    pub(crate) fn number_of(&self, lock: Symbol) -> u32 {
        self.lock_of_name.get(lock as usize).copied().unwrap_or(NONE)
    }

    pub(crate) fn rare(&self, event: PackedEvent) -> Rare {
        self.says(event).copied().unwrap_or_default()
    }

    /// Returns the error of an answer, in words.
    pub(crate) fn error(&self, answer: PackedEvent) -> Option<&str> {
        self.name(self.rare(answer).error)
    }

    /// Returns whether an answer means a taken lock: at some instant of the call, or until the end of its wait.
    pub(crate) fn says_taken(&self, answer: PackedEvent) -> bool {
        self.error(answer).is_some_and(|said| Refusal::parse(said).is_taken())
    }

    /// Returns the rare fields of an event, if it has any.
    pub(crate) fn says(&self, event: PackedEvent) -> Option<&Rare> {
        self.rare.get(self.details(event).rare as usize)
    }
}
