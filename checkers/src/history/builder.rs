//! The builder of a well-formed history from events, for every reader and for callers without a file.
//!
//! Well-formedness is checked for each event, by the rules of [`super::form`]; an event that is refused is not added.

use serde_json::{Map, Value};

use super::entry::{Entry, EventFields, F, Mode, NEMESIS, Rare, RareFields, SERVER};
use super::error::FormError;
use super::event::{Header, Kind, Line, Process};
use super::form::{NEW, ProcessState, allowed};
use super::names::{DenseNumbers, FastMap, NONE, Names, Symbol};
use super::nemesis::NemesisFact;
use super::packed::{EventDetails, KeptDetails, MAX_RARE, PackedEvent};
use super::window::Window;
use super::{History, Nemesis, OrderBasis};
use crate::limits::MAX_TIME_NS;

/// The largest number of events: positions are 32 bits, with a few values set aside.
const MAX_EVENTS: usize = 4_294_967_000;

/// A call with its reply.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnsweredCall {
    position: u32,
    event: PackedEvent,
}

/// Returns the fields of a nemesis line; none if it is no object.
fn fields_of(raw: &str) -> Map<String, Value> {
    serde_json::from_str(raw).unwrap_or_default()
}

/// Builds a [`History`] from events in the order in which they were recorded.
#[derive(Debug, Clone, Default)]
pub struct HistoryBuilder {
    pub(super) history: History,
    pub(super) dense: DenseNumbers,
    pub(super) states: Vec<ProcessState>,
    /// By process and the number of a lock, the mode of the last acquire that was answered `ok`, and its permits without those that were
    /// released since; not if it was for writing, with one permit.
    pub(super) grants: FastMap<(u32, u32), (Mode, u32)>,
    /// The lock of the last event that had one.
    pub(super) last_lock: Option<Symbol>,
    latest_ns: u64,
    /// The latest time of a client's line, plus one; 0 before the first.
    after_clients_ns: u64,
    pub(super) last_rare: Option<(u32, Rare)>,
    /// The last details without a token or an owner.
    pub(super) last_details: Option<(u32, EventDetails)>,
}

impl HistoryBuilder {
    /// Creates a builder without events; the header has the contract of the lock.
    pub fn new(header: Header) -> Self {
        let history = History {
            header,
            ..History::default()
        };
        Self {
            history,
            ..Self::default()
        }
    }

    /// Creates a builder with room for a known number of events.
    pub fn with_capacity(header: Header, events: usize) -> Self {
        let mut builder = Self::new(header);
        builder.history.events.reserve(events);
        builder.history.details.reserve(events / 2);
        builder
    }

    /// Orders the events by position only, as Jepsen's histories need it: their `time` is not always monotone.
    pub fn in_order_of_position(mut self) -> Self {
        self.history.order = OrderBasis::Position;
        self
    }

    /// Marks the history as partial, with a reason. The first reason stays.
    pub fn partial(&mut self, reason: impl Into<String>) {
        self.history.partial.get_or_insert_with(|| reason.into());
    }

    /// Returns the number of events so far.
    pub fn len(&self) -> usize {
        self.history.events.len()
    }

    /// Returns whether there are no events yet.
    pub fn is_empty(&self) -> bool {
        self.history.events.is_empty()
    }

    /// Adds an event.
    ///
    /// # Errors
    /// Fails if the history would no longer be well formed; the event is then not added.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), FormError> {
        self.push_event(entry)?;
        if entry.f == F::Nemesis {
            self.add_nemesis(entry.name.unwrap_or("fault"), entry.raw.unwrap_or("{}"));
        }
        Ok(())
    }

    /// Adds an event without the fact of a nemesis line.
    fn push_event(&mut self, entry: &Entry<'_>) -> Result<(), FormError> {
        let names = &mut self.history.names;
        let lock = match entry.lock {
            // most lines name the lock of the line before
            Some(lock) if self.last_lock.is_some_and(|last| names.get(last) == lock) => self.last_lock,
            lock => lock.map(|lock| names.intern(lock)),
        };
        self.last_lock = lock.or(self.last_lock);
        let mut intern = |name: Option<&str>| name.map_or(NONE, |name| names.intern(name));
        let fields = EventFields {
            lock: lock.unwrap_or(NONE),
            owner: intern(entry.owner),
            node: intern(entry.node),
            ..EventFields::of(entry)
        };
        let rare = RareFields {
            rare: Rare {
                value: entry.value,
                expected: entry.expected,
                wait_ms: entry.wait_ms.map_or(NONE, Rare::wait_of),
                late_us: entry.late_us.unwrap_or(NONE),
                permits: entry.permits.unwrap_or(NONE),
                cause: intern(entry.cause),
                error: intern(entry.error),
                fenced: entry.fenced,
                extends: false,
            },
            wire: entry.wire,
        };
        self.add(&fields, Some(&rare))
    }

    /// Adds a line, as if it had been written to a file and read again.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn push_line(&mut self, line: &Line<'_>) -> Result<(), FormError> {
        match line.process {
            Process::Nemesis => self.push_fact(line, &NemesisFact::read(line.f, line.extra.clone())),
            Process::Client(_) | Process::Server => self.push(&Entry::from(line)),
        }
    }

    /// Adds a nemesis line whose fact is known, so that it is not read from the line's fields.
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    pub fn push_fact(&mut self, line: &Line<'_>, fact: &NemesisFact) -> Result<(), FormError> {
        debug_assert_eq!(*fact, NemesisFact::read(line.f, line.extra.clone()));
        self.push_event(&Entry::from(line))?;
        let raw = serde_json::to_string(line).expect("a line is plain data");
        self.keep_fact(raw, fact.clone());
        Ok(())
    }

    /// Adds an event whose names are numbers of [`Self::names`]. The fact of a nemesis line is added with [`Self::add_nemesis`].
    ///
    /// # Errors
    /// Fails as [`Self::push`] does.
    #[inline]
    pub(crate) fn add(&mut self, fields: &EventFields, rare: Option<&RareFields>) -> Result<(), FormError> {
        if self.history.events.len() >= MAX_EVENTS || self.history.rare.len() >= MAX_RARE {
            return Err(FormError::TooLong);
        }
        if fields.time > MAX_TIME_NS {
            return Err(FormError::TooLate { time_ns: fields.time });
        }
        allowed(fields)?;
        let lock = self.lock_of(fields)?;
        let process = self.process_of(fields)?;
        if fields.f == F::Extend {
            return self.add_extension(fields, rare, process, lock);
        }
        let call = if fields.f.is_operation() {
            self.pair(fields, process, lock)?
        } else {
            None
        };
        self.watch_time(fields);
        self.store(fields, rare, process, (lock, call));
        Ok(())
    }

    /// Stores the fact and the line of the nemesis event that was added last.
    pub(super) fn add_nemesis(&mut self, name: &str, raw: &str) {
        self.keep_fact(raw.to_owned(), NemesisFact::read(name, fields_of(raw)));
    }

    fn keep_fact(&mut self, raw: String, fact: NemesisFact) {
        let position = self.history.events.len() as u32 - 1;
        let (index, time_ns) = (self.history.index(position), self.history.event(position).time);
        Window::see(&mut self.history.windows, &fact, (index, time_ns));
        let nemesis = Nemesis {
            index,
            time_ns,
            fact,
            position,
            raw,
        };
        self.history.nemesis.push(nemesis);
    }

    /// Opens or heals a fault window by a line of the nemesis, which is not added.
    pub(crate) fn see_nemesis(&mut self, line: &Entry<'_>) {
        let fact = NemesisFact::read(line.name.unwrap_or_default(), fields_of(line.raw.unwrap_or("{}")));
        Window::see(&mut self.history.windows, &fact, (line.index, line.time_ns));
    }

    /// Returns the names of all events.
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.history.names
    }

    /// Returns the history, whole unless [`Self::partial`] was called.
    pub fn finish(mut self) -> History {
        self.history.events.shrink_to_fit();
        self.history.see_phases();
        self.history
    }

    fn lock_of(&mut self, fields: &EventFields) -> Result<Symbol, FormError> {
        let history = &mut self.history;
        let symbol = match fields.lock {
            NONE if matches!(fields.f, F::Lost | F::Died | F::Nemesis) => return Ok(NONE),
            NONE => match history.header.locks.as_slice() {
                [only] => history.names.intern(only),
                _ => return Err(FormError::NoLock { f: fields.f.name() }),
            },
            symbol => symbol,
        };
        if history
            .lock_of_name
            .get(symbol as usize)
            .is_none_or(|number| *number == NONE)
        {
            history.add_lock(symbol);
        }
        Ok(symbol)
    }

    #[inline]
    fn process_of(&mut self, fields: &EventFields) -> Result<u32, FormError> {
        let number = match fields.process {
            Process::Server => return Ok(SERVER),
            Process::Nemesis => return Ok(NEMESIS),
            Process::Client(number) => number,
        };
        let dense = self.dense.get(number).unwrap_or_else(|| self.add_process(number));
        let history = &mut self.history;
        let client = &mut history.clients[dense as usize];
        match fields.client {
            Some(now) if *client == NONE => *client = now,
            Some(now) if *client != now => {
                return Err(FormError::TwoClients {
                    process: number,
                    before: *client,
                    now,
                });
            }
            _ => {}
        }
        Ok(dense)
    }

    #[cold]
    fn add_process(&mut self, number: u32) -> u32 {
        let dense = self.states.len() as u32;
        self.history.processes.push(number);
        self.history.clients.push(NONE);
        self.states.push(NEW);
        self.dense.insert(number, dense);
        dense
    }

    /// Returns the call of this reply, after a check that the process may act at all.
    #[inline]
    pub(super) fn pair(
        &mut self,
        fields: &EventFields,
        process: u32,
        lock: Symbol,
    ) -> Result<Option<AnsweredCall>, FormError> {
        let number = self.history.processes[process as usize];
        let state = self.states[process as usize];
        let at = |position: u32| self.history.event(position);
        if state.last_ns > fields.time && self.history.order == OrderBasis::Time {
            let before = at(state.last);
            return Err(FormError::TimeBackwards {
                process: number,
                now_ns: fields.time,
                before_ns: before.time,
                before_index: self.history.index(state.last),
            });
        }
        let f = fields.f.name();
        if fields.kind == Kind::Invoke {
            if state.unknown != NONE {
                return Err(FormError::ActsAfterUnknown {
                    process: number,
                    unknown_index: self.history.index(state.unknown),
                });
            }
            if state.died != NONE {
                return Err(FormError::ActsAfterDeath {
                    process: number,
                    died_index: self.history.index(state.died),
                });
            }
            if state.open != NONE {
                let open = at(state.open);
                let (open_f, open_index) = (open.f.name(), self.history.index(state.open));
                return Err(FormError::TwoOpen {
                    process: number,
                    f,
                    open_f,
                    open_index,
                });
            }
            return Ok(None);
        }
        if state.open == NONE {
            return Err(FormError::ReplyWithoutCall { process: number, f });
        }
        let open = at(state.open);
        if open.f != fields.f || (open.lock != lock && fields.lock != NONE) {
            let (open_f, open_index) = (open.f.name(), self.history.index(state.open));
            return Err(FormError::WrongReply {
                process: number,
                f,
                open_f,
                open_index,
            });
        }
        Ok(Some(AnsweredCall {
            position: state.open,
            event: open,
        }))
    }

    /// Signals have the time of the client or the observer that raised them, so only the recorder's own lines count.
    #[inline]
    pub(super) fn watch_time(&mut self, fields: &EventFields) {
        if fields.kind != Kind::Signal {
            self.history.inversions += u64::from(fields.time < self.latest_ns);
        }
        if matches!(fields.process, Process::Client(_)) {
            self.history.has_late_lines |= fields.time + 1 < self.after_clients_ns;
            self.history.has_equal_times |= fields.time < self.after_clients_ns;
            self.after_clients_ns = self.after_clients_ns.max(fields.time + 1);
        }
        self.latest_ns = self.latest_ns.max(fields.time);
        self.history.end_ns = self.latest_ns;
    }

    #[inline]
    pub(super) fn store(
        &mut self,
        fields: &EventFields,
        rare: Option<&RareFields>,
        process: u32,
        (lock, call): (Symbol, Option<AnsweredCall>),
    ) {
        let position = self.history.events.len() as u32;
        let wire = rare.and_then(|rare| rare.wire);
        let rare = rare.map_or(NONE, |rare| self.rare(rare.rare));
        let details = self.details(EventDetails {
            token: fields.token,
            owner: fields.owner,
            rare,
        });
        let (lock, mode) = call.map_or((lock, fields.mode), |call| (call.event.lock, call.event.mode));
        let mate = call.map_or(NONE, |call| call.position);
        self.history.events.push(PackedEvent {
            time: fields.time,
            process,
            mate,
            lock,
            details,
            kind: fields.kind,
            f: fields.f,
            mode,
        });
        self.history.indices.push(position, fields.index);
        if mate != NONE {
            self.history.events.set_mate(mate, position);
        }
        self.history.wire.extend(wire.map(|counts| (position, counts)));
        if fields.node != NONE {
            self.history.nodes.push((position, fields.node));
        }
        let number = self.history.number_of(lock);
        if let Some(state) = self.states.get_mut(process as usize) {
            state.step(fields, (position, mate != NONE), number);
        }
        if mode == Mode::Read || self.history.says_permits || !self.grants.is_empty() {
            self.see_grant((process, number), position);
        }
        self.history.count(fields);
    }

    /// Stores the mode and the permits with which a process has a lock, which an extension need not name.
    fn see_grant(&mut self, own: (u32, u32), position: u32) {
        let event = self.history.event(position);
        let grant = (event.mode, self.history.permits(event));
        if event.is_ok(F::Acquire) {
            if grant == (Mode::Write, 1) {
                self.grants.remove(&own);
            } else {
                self.grants.insert(own, grant);
            }
        } else if event.is_call(F::Release)
            && let Some((_, permits)) = self.grants.get_mut(&own)
        {
            *permits = permits.saturating_sub(grant.1).max(1);
        }
    }

    fn details(&mut self, details: EventDetails) -> u32 {
        if details == EventDetails::NOTHING {
            return NONE;
        }
        if let Some((at, last)) = self.last_details
            && last == details
        {
            return at;
        }
        let at = self.history.details.len() as u32;
        self.history.details.push(KeptDetails::of(details));
        if details.token.is_none() && details.owner == NONE {
            self.last_details = Some((at, details));
        }
        at
    }

    /// Waits and permits are the same on most calls, so equal neighbours share one record.
    fn rare(&mut self, rare: Rare) -> u32 {
        if rare == Rare::default() {
            return NONE;
        }
        if let Some((at, last)) = self.last_rare
            && last == rare
        {
            return at;
        }
        let at = self.history.rare.len() as u32;
        self.history.says_permits |= rare.permits != NONE;
        self.history.rare.push(rare);
        if rare.value.is_none() {
            self.last_rare = Some((at, rare));
        }
        at
    }
}
