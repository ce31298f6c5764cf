//! Events in, a well-formed history out. Every reader ends here, and so do callers who have no file.
//!
//! Well-formedness is checked as events arrive, by the rules of [`super::form`]; an event that is refused is not added.

use super::entry::{Entry, F, Mode, NEMESIS, Rare, SERVER};
use super::error::FormError;
use super::event::{Header, Kind, Line, Process};
use super::form::{NEW, ProcessState, allowed};
use super::lines::{EventFields, RareFields};
use super::names::{DenseNumbers, NONE, Names, Symbol};
use super::packed::{EventDetails, PackedEvent};
use super::{History, NemesisLine, OrderBasis, ReplyNode, WireReading};
use crate::limits::MAX_TIME_NS;

/// The largest number of events: positions are 32 bits, with a few values set aside.
const MAX_EVENTS: usize = 4_294_967_000;

/// Builds a [`History`] from events in the order in which they were recorded.
#[derive(Debug, Clone)]
pub struct HistoryBuilder {
    pub(super) history: History,
    pub(super) dense: DenseNumbers,
    pub(super) states: Vec<ProcessState>,
    latest_ns: u64,
    latest_client_ns: u64,
    pub(super) last_rare: Option<(u32, Rare)>,
    /// The last details without a token or an owner.
    pub(super) last_details: u32,
}

impl HistoryBuilder {
    /// A history without events; the header says what was recorded and what the lock promised.
    pub fn new(header: Header) -> Self {
        Self {
            history: History::empty(header),
            dense: DenseNumbers::default(),
            states: Vec::new(),
            latest_ns: 0,
            latest_client_ns: 0,
            last_rare: None,
            last_details: NONE,
        }
    }

    /// Goes by the order of the events alone, as Jepsen's histories want it: their `time` is not always monotone.
    pub fn in_order_of_position(mut self) -> Self {
        self.history.order = OrderBasis::Position;
        self
    }

    /// Says that the history is not whole, and why. The first reason given stays.
    pub fn partial(&mut self, reason: impl Into<String>) {
        self.history.partial.get_or_insert_with(|| reason.into());
    }

    /// Events so far.
    pub fn len(&self) -> usize {
        self.history.events.len()
    }

    /// Whether there are none yet.
    pub fn is_empty(&self) -> bool {
        self.history.events.is_empty()
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When the history would no longer be well formed; the event is then not added.
    pub fn push(&mut self, entry: &Entry<'_>) -> Result<(), FormError> {
        let names = &mut self.history.names;
        let mut intern = |name: Option<&str>| name.map_or(NONE, |name| names.intern(name));
        let fields = EventFields {
            time: entry.time_ns,
            index: entry.index,
            token: entry.token,
            process: entry.process,
            client: entry.client,
            lock: intern(entry.lock),
            owner: intern(entry.owner),
            node: intern(entry.node),
            kind: entry.kind,
            f: entry.f,
            mode: entry.mode,
            line: 0,
            rare: NONE,
        };
        let rare = RareFields {
            rare: Rare {
                value: entry.value,
                expected: entry.expected,
                wait_ms: entry.wait_ms.map_or(NONE, Rare::wait_of),
                permits: entry.permits.unwrap_or(NONE),
                cause: intern(entry.cause),
                error: intern(entry.error),
                fenced: entry.fenced,
            },
            wire: entry.wire,
        };
        self.add(&fields, Some(&rare))?;
        if entry.f == F::Nemesis {
            self.add_nemesis(entry.name.unwrap_or("fault"), entry.raw.unwrap_or("{}"));
        }
        Ok(())
    }

    /// Adds what a line says, as if it had been written to a file and read again.
    ///
    /// # Errors
    /// As [`Self::push`].
    pub fn push_line(&mut self, line: &Line<'_>) -> Result<(), FormError> {
        let is_nemesis = line.process == Process::Nemesis;
        let raw = is_nemesis.then(|| serde_json::to_string(line).expect("a line is plain data"));
        let fields = &line.fields;
        let f = F::parse(line.f).filter(|_| !is_nemesis).unwrap_or(F::Nemesis);
        self.push(&Entry {
            client: line.client,
            lock: fields.lock,
            token: fields.token,
            owner: fields.owner,
            value: fields.value,
            fenced: fields.fenced,
            mode: fields.mode.map_or(Mode::Write, Mode::parse),
            permits: fields.permits,
            wait_ms: fields.wait_ms,
            cause: fields.cause,
            error: fields.error,
            name: is_nemesis.then_some(line.f),
            wire: fields.wire.filter(|_| f == F::Release),
            node: fields.node,
            raw: raw.as_deref(),
            ..Entry::new(line.index, line.time, line.process, line.kind, f)
        })
    }

    /// Adds an event whose names are numbers of [`Self::names`]. What the nemesis says comes with [`Self::add_nemesis`].
    ///
    /// # Errors
    /// As [`Self::push`].
    #[inline]
    pub(crate) fn add(&mut self, fields: &EventFields, rare: Option<&RareFields>) -> Result<(), FormError> {
        if self.history.events.len() >= MAX_EVENTS {
            return Err(FormError::TooLong);
        }
        if fields.time > MAX_TIME_NS {
            return Err(FormError::TooLate { time_ns: fields.time });
        }
        allowed(fields)?;
        let lock = self.lock_of(fields)?;
        let process = self.process_of(fields)?;
        let mate = if fields.f.is_operation() {
            self.pair(fields, process, lock)?
        } else {
            NONE
        };
        self.watch_time(fields);
        self.store(fields, rare, process, (lock, mate));
        Ok(())
    }

    /// Keeps the name and the line of the nemesis event that was added last.
    pub(super) fn add_nemesis(&mut self, name: &str, raw: &str) {
        self.history.parsed.take();
        self.history.nemesis.push(NemesisLine {
            position: self.history.events.len() as u32 - 1,
            name: name.to_owned(),
            raw: raw.to_owned(),
        });
    }

    /// The names of all events.
    pub(crate) fn names(&mut self) -> &mut Names {
        &mut self.history.names
    }

    /// The history, whole unless [`Self::partial`] was called.
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

    /// The call that this reply answers, after checking that the process may act at all.
    fn pair(&mut self, fields: &EventFields, process: u32, lock: Symbol) -> Result<u32, FormError> {
        let number = self.history.processes[process as usize];
        let state = self.states[process as usize];
        let at = |position: u32| &self.history.events[position as usize];
        if state.last != NONE && self.history.order == OrderBasis::Time && at(state.last).time > fields.time {
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
            return Ok(NONE);
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
        Ok(state.open)
    }

    /// Signals are stamped by the client or the observer that raised them, so only the recorder's own lines count.
    fn watch_time(&mut self, fields: &EventFields) {
        if fields.kind != Kind::Signal {
            self.history.inversions += u64::from(fields.time < self.latest_ns);
        }
        if matches!(fields.process, Process::Client(_)) {
            self.history.in_order &= fields.time >= self.latest_client_ns;
            self.latest_client_ns = self.latest_client_ns.max(fields.time);
        }
        self.latest_ns = self.latest_ns.max(fields.time);
        self.history.end_ns = self.latest_ns;
    }

    fn store(&mut self, fields: &EventFields, rare: Option<&RareFields>, process: u32, (lock, mate): (Symbol, u32)) {
        let position = self.history.events.len() as u32;
        let wire = rare.and_then(|rare| rare.wire);
        let rare = rare.map_or(NONE, |rare| self.rare(rare.rare));
        let details = self.details(EventDetails {
            token: fields.token,
            owner: fields.owner,
            rare,
        });
        let lock = if mate == NONE {
            lock
        } else {
            self.history.events[mate as usize].lock
        };
        let mode = if mate == NONE {
            fields.mode
        } else {
            self.history.events[mate as usize].mode
        };
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
            self.history.events[mate as usize].mate = position;
        }
        let reading = |counts| WireReading { position, counts };
        self.history.wire.extend(wire.map(reading));
        if fields.node != NONE {
            let node = fields.node;
            self.history.nodes.push(ReplyNode { position, node });
        }
        if let Some(state) = self.states.get_mut(process as usize) {
            state.step(fields, position);
        }
        self.history.count(fields);
    }

    fn details(&mut self, details: EventDetails) -> u32 {
        if details == EventDetails::NOTHING {
            return NONE;
        }
        if self.history.details.get(self.last_details as usize) == Some(&details) {
            return self.last_details;
        }
        let at = self.history.details.len() as u32;
        self.history.details.push(details);
        if details.token.is_none() && details.owner == NONE {
            self.last_details = at;
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
        self.history.rare.push(rare);
        if rare.value.is_none() {
            self.last_rare = Some((at, rare));
        }
        at
    }
}
