//! Histories: the vocabulary of their lines, how they are read, and how they are kept.
//!
//! A [`History`] is well formed by construction: [`HistoryBuilder`] refuses what is not. It decides nothing.

mod access;
mod answers;
mod blocks;
mod builder;
mod busy;
mod compressed;
mod datum;
mod entry;
mod error;
pub mod event;
pub(crate) mod event_table;
mod export;
mod forget;
mod form;
mod jepsen;
mod lines;
pub(crate) mod names;
mod nemesis;
pub(crate) mod packed;
mod phase_fact;
mod read;
mod recorded;
mod renewals;
mod scan;
mod standstills;
mod stream;
mod window_facts;
mod windows;

pub use access::{AcquireTimes, Counts};
pub use answers::{Refusal, RevokeCause, Role};
pub use builder::HistoryBuilder;
pub(crate) use busy::BusyTime;
pub use entry::{Entry, F, Mode};
pub use error::{FormError, ReadError};
pub use export::write_edn;
pub use nemesis::{ChurnFact, NemesisFact, ObserverFact, ProxyChange};
pub use phase_fact::{AskedAgain, ClientSession, MessageCounts, PhaseFact, RequestCount, SeenViolation, TapTotals};
pub use read::ReadOptions;
pub use standstills::Standstill;
pub use stream::EventStream;
pub use window_facts::{Acquires, EffectCounters, EvidenceCounter, MessageMatch, Requirement, WindowHeal, WindowStart};
pub use windows::{Nemesis, PhaseStart, ServerEnd, Window};

pub(crate) use entry::{NEMESIS, Rare, SERVER};
use event::Header;
use event_table::EventTable;
pub(crate) use forget::Renumbered;
pub(crate) use lines::{EventFields, RareFields};
use names::{NONE, Names, Symbol};
pub(crate) use packed::PackedEvent;
use packed::{EventIndices, KeptDetails};

/// Set in values of registers that are no natural numbers; the rest is the symbol of the value's text. Values are only compared.
pub(crate) const NAMED_VALUE: u64 = 1 << 63;

/// A recorded history, whole or partial, in memory.
///
/// Events keep the order of the file. [`crate::check`] decides about it.
#[derive(Debug, Clone)]
pub struct History {
    pub(crate) header: Header,
    pub(crate) events: EventTable,
    indices: EventIndices,
    details: Vec<KeptDetails>,
    rare: Vec<Rare>,
    pub(crate) nemesis: Vec<NemesisLine>,
    /// The same, understood.
    pub(crate) parsed: Vec<Nemesis>,
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
    /// No line of a client has a time before that of a client's line above it.
    pub(crate) in_order: bool,
    /// Each line of a client has a time after that of the client's line above it.
    pub(crate) distinct_times: bool,
    /// Releases that were answered `fail`.
    pub(crate) failed_releases: u64,
    /// Some line says how many permits it is about.
    pub(crate) says_permits: bool,
    pub(crate) partial: Option<String>,
    pub(crate) inversions: u64,
    pub(crate) end_ns: u64,
    pub(crate) counts: Counts,
}

/// What "before" means between the events of different processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OrderBasis {
    /// The recorder's clock: own histories, where a signal may be written later than it was raised.
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

/// A line of the nemesis as it was written.
#[derive(Debug, Clone)]
pub(crate) struct NemesisLine {
    pub position: u32,
    pub name: String,
    pub raw: String,
}

impl History {
    pub(crate) fn empty(header: Header) -> Self {
        Self {
            header,
            events: EventTable::default(),
            indices: EventIndices::default(),
            details: Vec::new(),
            rare: Vec::new(),
            nemesis: Vec::new(),
            parsed: Vec::new(),
            wire: Vec::new(),
            nodes: Vec::new(),
            names: Names::default(),
            processes: Vec::new(),
            clients: Vec::new(),
            locks: Vec::new(),
            lock_of_name: Vec::new(),
            order: OrderBasis::Time,
            named_values: false,
            is_renewed: false,
            initial: None,
            in_order: true,
            distinct_times: true,
            failed_releases: 0,
            says_permits: false,
            partial: None,
            inversions: 0,
            end_ns: 0,
            counts: Counts::default(),
        }
    }

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
