//! Histories: the vocabulary of their lines, how they are read, and how they are kept.
//!
//! A [`History`] is well formed by construction: [`HistoryBuilder`] refuses what is not. It decides nothing.

mod access;
mod answers;
mod builder;
mod datum;
mod entry;
mod error;
pub mod event;
mod export;
mod form;
mod jepsen;
pub(crate) mod names;
mod nemesis;
mod read;
mod scan;
mod window_facts;
mod windows;

pub use access::Counts;
pub use answers::{Refusal, RevokeCause, Role};
pub use builder::HistoryBuilder;
pub use entry::{Entry, F, Mode};
pub use error::{FormError, ReadError};
pub use export::write_edn;
pub use nemesis::{ChurnFact, MessageCounts, NemesisFact, ObserverFact, PhaseFact, ProxyChange, TapTotals};
pub use read::ReadOptions;
pub use window_facts::{EffectCounters, MessageMatch, Requirement, WindowHeal, WindowStart};
pub use windows::{Nemesis, Phase, Window};

pub(crate) use entry::{Event, NEMESIS, Rare, SERVER};
use event::Header;
use names::{NONE, Names, Symbol};

/// A recorded history, whole or partial, in memory.
///
/// Events keep the order of the file. [`crate::check`] decides about it.
#[derive(Debug, Clone)]
pub struct History {
    pub(crate) header: Header,
    pub(crate) events: Vec<Event>,
    pub(crate) rare: Vec<Rare>,
    pub(crate) nemesis: Vec<NemesisLine>,
    /// By position: requests, replies, notifications and retries that had passed all links by then.
    pub(crate) wire: Vec<(u32, [u64; 4])>,
    /// By position: the server behind the reply to an acquire.
    pub(crate) nodes: Vec<(u32, Symbol)>,
    pub(crate) names: Names,
    /// Numbers as recorded, by dense process number.
    pub(crate) processes: Vec<u32>,
    /// Clients by dense process number; `NONE` when nobody said.
    pub(crate) clients: Vec<u32>,
    /// Names of locks, and their dense number by name.
    pub(crate) locks: Vec<Symbol>,
    pub(crate) lock_of_name: Vec<u32>,
    pub(crate) order: Order,
    /// No line of a client is older than the client's lines above it.
    pub(crate) in_order: bool,
    pub(crate) partial: Option<String>,
    pub(crate) inversions: u64,
    pub(crate) end_ns: u64,
    pub(crate) counts: Counts,
}

/// What "before" means between the events of different processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// The recorder's clock: own histories, where a signal may be written later than it was raised.
    Time,
    /// The order of the file: Jepsen's histories.
    Position,
}

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
            events: Vec::new(),
            rare: Vec::new(),
            nemesis: Vec::new(),
            wire: Vec::new(),
            nodes: Vec::new(),
            names: Names::default(),
            processes: Vec::new(),
            clients: Vec::new(),
            locks: Vec::new(),
            lock_of_name: Vec::new(),
            order: Order::Time,
            in_order: true,
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
    pub(crate) fn lock_number(&self, event: &Event) -> Option<usize> {
        self.lock_of_name
            .get(event.lock as usize)
            .map(|number| *number as usize)
    }

    pub(crate) fn lock_name(&self, number: usize) -> &str {
        self.names.get(self.locks[number])
    }

    /// Where an event stands among the others: its time, or its position.
    pub(crate) fn instant(&self, position: u32) -> u64 {
        match self.order {
            Order::Time => self.events[position as usize].time,
            Order::Position => u64::from(position),
        }
    }

    pub(crate) fn rare(&self, event: &Event) -> Rare {
        self.rare.get(event.rare as usize).copied().unwrap_or_default()
    }

    /// The client of a dense process: its own number when nobody said otherwise.
    pub(crate) fn client_of(&self, process: u32) -> u32 {
        match self.clients[process as usize] {
            NONE => self.processes[process as usize],
            client => client,
        }
    }
}
