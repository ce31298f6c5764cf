//! Histories: the vocabulary of their lines, their readers, and their form in memory.
//!
//! A [`History`] is well formed by construction, since [`HistoryBuilder`] refuses other events. No verdict is decided here.

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
mod extending;
mod forget;
mod form;
mod in_memory;
mod jepsen;
mod lines;
pub(crate) mod names;
mod nemesis;
pub(crate) mod packed;
mod phase_fact;
mod read;
mod recorded;
mod renewals;
mod standstills;
mod stream;
mod window;
mod window_facts;
mod windows;

pub use access::AcquireTimes;
pub use answers::{Refusal, RevokeCause, Role};
pub use builder::HistoryBuilder;
pub(crate) use busy::BusyTime;
pub use entry::{Entry, F, Mode};
pub use error::{FormError, ReadError};
pub use export::write_edn;
pub use in_memory::{Counts, History};
pub use jepsen::ReadOptions;
pub use nemesis::{ChurnFact, Nemesis, NemesisFact, ObserverFact, ProxyChange, ServerEnd};
pub use phase_fact::{AskedAgain, ClientSession, MessageCounts, PhaseFact, RequestCount, SeenViolation, TapTotals};
pub use standstills::Standstill;
pub use stream::EventStream;
pub use window::Window;
pub(crate) use window::{client_number, is_client};
pub use window_facts::{Acquires, EffectCounters, EvidenceCounter, MessageMatch, Requirement, WindowHeal, WindowStart};
pub use windows::PhaseStart;

pub(crate) use entry::{EventFields, NEMESIS, Rare, RareFields, SERVER};
pub(crate) use forget::Renumbered;
pub(crate) use in_memory::{NAMED_VALUE, OrderBasis};
pub(crate) use packed::PackedEvent;
