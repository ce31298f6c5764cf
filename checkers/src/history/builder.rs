//! Events in, a well-formed history out. Every reader ends here, and so do callers who have no file.
//!
//! Well-formedness is checked as events arrive, by the rules of [`super::form`]; an event that is refused is not added.

use super::entry::{Entry, F, NEMESIS, PackedEvent, Rare, SERVER};
use super::error::FormError;
use super::event::{Header, Kind, Process};
use super::form::{NEW, ProcessState, allowed};
use super::names::{FastMap, NONE, Symbol};
use super::{History, NemesisLine, OrderBasis, ReplyNode, WireReading};
use crate::limits::MAX_TIME_NS;

/// The largest number of events: positions are 32 bits, with a few values set aside.
const MAX_EVENTS: usize = 4_294_967_000;

/// Builds a [`History`] from events in the order in which they were recorded.
#[derive(Debug, Clone)]
pub struct HistoryBuilder {
    history: History,
    dense: FastMap<u32, u32>,
    states: Vec<ProcessState>,
    latest_ns: u64,
    latest_client_ns: u64,
    last_lock: Symbol,
    last_rare: Option<(u32, Rare)>,
}

impl HistoryBuilder {
    /// A history without events; the header says what was recorded and what the lock promised.
    pub fn new(header: Header) -> Self {
        Self {
            history: History::empty(header),
            dense: FastMap::default(),
            states: Vec::new(),
            latest_ns: 0,
            latest_client_ns: 0,
            last_lock: NONE,
            last_rare: None,
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
        if self.history.events.len() >= MAX_EVENTS {
            return Err(FormError::TooLong);
        }
        if entry.time_ns > MAX_TIME_NS {
            return Err(FormError::TooLate { time_ns: entry.time_ns });
        }
        allowed(entry)?;
        let lock = self.lock_of(entry)?;
        let process = self.process_of(entry)?;
        let mate = if entry.f.is_operation() {
            self.pair(entry, process, lock)?
        } else {
            NONE
        };
        self.watch_time(entry);
        self.store(entry, process, lock, mate);
        Ok(())
    }

    /// The history, whole unless [`Self::partial`] was called.
    pub fn finish(mut self) -> History {
        self.history.events.shrink_to_fit();
        self.history.see_phases();
        self.history
    }

    fn lock_of(&mut self, entry: &Entry<'_>) -> Result<Symbol, FormError> {
        let names = &mut self.history.names;
        match entry.lock {
            Some(name) if self.last_lock != NONE && names.get(self.last_lock) == name => Ok(self.last_lock),
            Some(name) => {
                let symbol = names.intern(name);
                if symbol as usize >= self.history.lock_of_name.len()
                    || self.history.lock_of_name[symbol as usize] == NONE
                {
                    self.history.add_lock(symbol);
                }
                self.last_lock = symbol;
                Ok(symbol)
            }
            None if matches!(entry.f, F::Lost | F::Died | F::Nemesis) => Ok(NONE),
            None => match self.history.header.locks.as_slice() {
                [only] => {
                    let symbol = names.intern(only);
                    self.history.add_lock(symbol);
                    Ok(symbol)
                }
                _ => Err(FormError::NoLock { f: entry.f.name() }),
            },
        }
    }

    fn process_of(&mut self, entry: &Entry<'_>) -> Result<u32, FormError> {
        let number = match entry.process {
            Process::Server => return Ok(SERVER),
            Process::Nemesis => return Ok(NEMESIS),
            Process::Client(number) => number,
        };
        let history = &mut self.history;
        let states = &mut self.states;
        let dense = *self.dense.entry(number).or_insert_with(|| {
            history.processes.push(number);
            history.clients.push(NONE);
            states.push(NEW);
            (states.len() - 1) as u32
        });
        let client = &mut history.clients[dense as usize];
        match entry.client {
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

    /// The call that this reply answers, after checking that the process may act at all.
    fn pair(&mut self, entry: &Entry<'_>, process: u32, lock: Symbol) -> Result<u32, FormError> {
        let number = self.history.processes[process as usize];
        let state = self.states[process as usize];
        let at = |position: u32| &self.history.events[position as usize];
        if state.last != NONE && self.history.order == OrderBasis::Time && at(state.last).time > entry.time_ns {
            let before = at(state.last);
            return Err(FormError::TimeBackwards {
                process: number,
                now_ns: entry.time_ns,
                before_ns: before.time,
                before_index: before.index,
            });
        }
        let f = entry.f.name();
        if entry.kind == Kind::Invoke {
            if state.unknown != NONE {
                return Err(FormError::ActsAfterUnknown {
                    process: number,
                    unknown_index: at(state.unknown).index,
                });
            }
            if state.died != NONE {
                return Err(FormError::ActsAfterDeath {
                    process: number,
                    died_index: at(state.died).index,
                });
            }
            if state.open != NONE {
                let open = at(state.open);
                let (open_f, open_index) = (open.f.name(), open.index);
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
        if open.f != entry.f || (open.lock != lock && entry.lock.is_some()) {
            let (open_f, open_index) = (open.f.name(), open.index);
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
    fn watch_time(&mut self, entry: &Entry<'_>) {
        if entry.kind != Kind::Signal {
            self.history.inversions += u64::from(entry.time_ns < self.latest_ns);
        }
        if matches!(entry.process, Process::Client(_)) {
            self.history.in_order &= entry.time_ns >= self.latest_client_ns;
            self.latest_client_ns = self.latest_client_ns.max(entry.time_ns);
        }
        self.latest_ns = self.latest_ns.max(entry.time_ns);
        self.history.end_ns = self.latest_ns;
    }

    fn store(&mut self, entry: &Entry<'_>, process: u32, lock: Symbol, mate: u32) {
        let position = self.history.events.len() as u32;
        let owner = entry.owner.map_or(NONE, |owner| self.history.names.intern(owner));
        let rare = self.rare(entry);
        let lock = if mate == NONE {
            lock
        } else {
            self.history.events[mate as usize].lock
        };
        let mode = if mate == NONE {
            entry.mode
        } else {
            self.history.events[mate as usize].mode
        };
        self.history.events.push(PackedEvent {
            time: entry.time_ns,
            index: entry.index,
            token: entry.token.unwrap_or(0),
            process,
            mate,
            lock,
            owner,
            rare,
            kind: entry.kind,
            f: entry.f,
            mode,
            has_token: entry.token.is_some(),
        });
        if mate != NONE {
            self.history.events[mate as usize].mate = position;
        }
        let reading = |counts| WireReading { position, counts };
        self.history.wire.extend(entry.wire.map(reading));
        if let Some(node) = entry.node {
            let node = self.history.names.intern(node);
            self.history.nodes.push(ReplyNode { position, node });
        }
        if entry.f == F::Nemesis {
            self.add_nemesis(entry, position);
        } else if let Some(state) = self.states.get_mut(process as usize) {
            state.step(entry, position);
        }
        self.history.count(entry);
    }

    /// Waits and permits are the same on most calls, so equal neighbours share one record.
    fn rare(&mut self, entry: &Entry<'_>) -> u32 {
        let names = &mut self.history.names;
        let rare = Rare {
            value: entry.value,
            expected: entry.expected,
            wait_ms: entry.wait_ms.map_or(NONE, |ms| ms.min(u64::from(NONE - 1)) as u32),
            permits: entry.permits.unwrap_or(NONE),
            cause: entry.cause.map_or(NONE, |cause| names.intern(cause)),
            error: entry.error.map_or(NONE, |error| names.intern(error)),
            fenced: entry.fenced,
        };
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

    fn add_nemesis(&mut self, entry: &Entry<'_>, position: u32) {
        let line = NemesisLine {
            position,
            name: entry.name.unwrap_or("fault").to_owned(),
            raw: entry.raw.unwrap_or("{}").to_owned(),
        };
        self.history.nemesis.push(line);
    }
}
