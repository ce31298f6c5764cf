//! Access to a history for reports: its events, its clients, its counts.

use std::collections::BTreeSet;

use super::entry::{Entry, EventFields, F, NEMESIS, RareFields, SERVER};
use super::event::{Header, Kind, Process};
use super::names::{NONE, Symbol};
use super::{Counts, History, NAMED_VALUE, OrderBasis, PackedEvent};

/// The times of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquireTimes {
    /// The time of the call, in nanoseconds of the history.
    pub called_ns: u64,
    /// The delay of the call after the time at which its rate made it due, in microseconds.
    pub late_us: u32,
    /// The outcome and the time of the answer; `None` without one.
    pub answered: Option<(Kind, u64)>,
}

impl History {
    /// Returns the header, line 1.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns all events in the order of the file.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        (0..self.events.len()).map(|position| self.entry(position))
    }

    /// Returns the events of one operation or signal, in the order of the file. The others are skipped, without an entry for each.
    pub fn entries_of(&self, wanted: F) -> impl Iterator<Item = Entry<'_>> {
        let of_it = self.events.iter().enumerate();
        let of_it = of_it.filter(move |(_, event)| event.f == wanted);
        of_it.map(|(position, _)| self.entry(position))
    }

    /// Calls `see` with the times of each acquire, in the order of the calls, without an entry for each event.
    pub fn each_acquire(&self, mut see: impl FnMut(AcquireTimes)) {
        self.each_ask(|_, _, call| {
            let late_us = self.says(call).map_or(NONE, |says| says.late_us);
            see(AcquireTimes {
                called_ns: call.time,
                late_us: if late_us == NONE { 0 } else { late_us },
                answered: self.events.answer(call.mate),
            });
        });
    }

    /// Returns the event at a position, from 0 to [`Self::len`].
    ///
    /// # Panics
    /// If there is no such event.
    pub fn entry(&self, position: usize) -> Entry<'_> {
        let position = position as u32;
        let event = self.event(position);
        let said = || at_position(&self.nemesis, position, |line| line.position);
        let line = if event.process == NEMESIS { said() } else { None };
        // the answer to an extension by which the holder lost the lock is stored as a loss
        let (f, kind) = match event.f {
            F::Lost if event.mate != NONE => (F::Extend, Kind::Fail),
            f => (f, event.kind),
        };
        let is_client = (event.process as usize) < self.clients.len();
        let wire = at_position(&self.wire, position, |(at, _)| *at).map(|(_, counts)| *counts);
        let node = at_position(&self.nodes, position, |(at, _)| *at).map_or(NONE, |(_, node)| *node);
        let fields = EventFields {
            token: self.token(event),
            client: is_client.then(|| self.client_of(event.process)),
            lock: event.lock,
            owner: self.owner(event),
            node,
            mode: event.mode,
            ..EventFields::new(self.index(position), event.time, self.process(event), kind, f)
        };
        let rare = self.rare(event);
        Entry {
            name: line.map(|line| line.fact.f()),
            raw: line.map(|line| line.raw.as_str()),
            ..Entry::of(&fields, &RareFields { rare, wire }, &self.names)
        }
    }

    /// Returns the reason why the history is partial, if it is: a torn last line, a run that was stopped.
    pub fn partial(&self) -> Option<&str> {
        self.partial.as_deref()
    }

    /// Returns the numbers of all clients, ascending.
    pub fn clients(&self) -> Vec<u32> {
        let numbers: BTreeSet<u32> = (0..self.processes.len()).map(|at| self.client_of(at as u32)).collect();
        numbers.into_iter().collect()
    }

    /// Returns the names of all locks, in the order in which they appear.
    pub fn locks(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(|name| self.names.get(*name))
    }

    /// Returns the answer to a call, if there is one.
    #[inline]
    pub(crate) fn reply(&self, call: PackedEvent) -> Option<PackedEvent> {
        self.events.get(call.mate as usize)
    }

    /// Calls `see` with the events of some kinds that name a lock: the number of the lock, the position, and the event.
    #[inline]
    pub(crate) fn each_of_locks(&self, wanted: impl Fn(F, Kind) -> bool, mut see: impl FnMut(usize, u32, PackedEvent)) {
        self.events.each_of(wanted, |position, event| {
            if let Some(lock) = self.lock_number(event) {
                see(lock, position, event);
            }
        });
    }

    /// Calls `see` with some calls and answers that name a lock in the order of their instants: a line may be below lines of later times.
    #[inline]
    pub(crate) fn each_in_time(&self, wanted: impl Fn(F, Kind) -> bool, mut see: impl FnMut(usize, u32, PackedEvent)) {
        if self.order == OrderBasis::Position || self.inversions == 0 {
            return self.each_of_locks(wanted, see);
        }
        let mut all = Vec::new();
        self.each_of_locks(wanted, |lock, position, event| all.push((event.time, position, lock)));
        all.sort_unstable();
        for (_, position, lock) in all {
            see(lock, position, self.event(position));
        }
    }

    /// Calls `see` with the calls of acquires that name a lock, in the order of their instants.
    #[inline]
    pub(crate) fn each_ask(&self, see: impl FnMut(usize, u32, PackedEvent)) {
        self.each_in_time(|f, kind| f == F::Acquire && kind == Kind::Invoke, see);
    }

    /// Returns the death of each process, by dense number; `u64::MAX` for those that did not die.
    pub(crate) fn deaths(&self) -> Vec<u64> {
        let mut died = vec![u64::MAX; self.processes.len()];
        if self.counts.died == 0 {
            return died;
        }
        for event in self.events.iter().filter(|event| event.f == F::Died) {
            let first = &mut died[event.process as usize];
            *first = event.time.min(*first);
        }
        died
    }

    /// Returns the value of a register as the file has it: a number, or another value of a Jepsen history.
    pub fn value_text(&self, value: u64) -> String {
        let symbol = Symbol::try_from(value & !NAMED_VALUE).ok();
        let name =
            symbol.filter(|symbol| self.named_values && value >= NAMED_VALUE && (*symbol as usize) < self.names.len());
        name.map_or_else(|| value.to_string(), |symbol| self.names.get(symbol).to_owned())
    }

    /// Returns the value of registers before the first write, if the options of the reader had one.
    pub fn initial_value(&self) -> Option<u64> {
        self.initial
    }

    /// Returns the numbers of events by kind.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the latest time of any event, in nanoseconds.
    pub fn end_ns(&self) -> u64 {
        self.end_ns
    }

    /// Returns the number of the recorder's lines (not signals) with a time before that of a line above them.
    pub fn time_inversions(&self) -> u64 {
        self.inversions
    }

    pub(crate) fn name(&self, symbol: Symbol) -> Option<&str> {
        (symbol != NONE).then(|| self.names.get(symbol))
    }

    pub(crate) fn process(&self, event: PackedEvent) -> Process {
        match event.process {
            SERVER => Process::Server,
            NEMESIS => Process::Nemesis,
            dense => Process::Client(self.processes[dense as usize]),
        }
    }

    pub(super) fn count(&mut self, fields: &EventFields) {
        let counts = &mut self.counts;
        counts.events += 1;
        let slot = match (fields.f, fields.kind) {
            (F::Acquire | F::Release | F::Extend, Kind::Invoke) => &mut counts.operations,
            (F::Acquire, Kind::Ok) => &mut counts.acquires_ok,
            (F::Acquire, Kind::Fail) => &mut counts.acquires_fail,
            (F::Acquire, _) => &mut counts.acquires_info,
            (F::Release, Kind::Ok) => &mut counts.releases_ok,
            (F::Release, Kind::Fail) => &mut self.failed_releases,
            (F::Read, Kind::Ok) => &mut counts.reads,
            (F::Write, Kind::Ok) => &mut counts.writes,
            (F::Cas, Kind::Ok) => &mut counts.compared,
            (F::Granted, _) => &mut counts.granted,
            (F::Revoked, _) => &mut counts.revoked,
            (F::Woken, _) => &mut counts.woken,
            (F::Lost, _) => &mut counts.lost,
            (F::Died, _) => &mut counts.died,
            (F::Notified, _) => &mut counts.notified,
            _ => return,
        };
        *slot += 1;
    }
}

/// Returns the item at a position, among items that are sorted by theirs.
fn at_position<T>(items: &[T], position: u32, position_of: impl Fn(&T) -> u32) -> Option<&T> {
    let found = items.binary_search_by_key(&position, position_of);
    found.ok().map(|place| &items[place])
}
