//! Jepsen's histories, EDN or JSON: a vector of maps, or one map after the other.
//!
//! The format: <https://github.com/jepsen-io/history>, <https://github.com/edn-format/edn>.
//!
//! The order of the file is the order of events. A lock is named by the value (a word, or the key of an independent pair), or by a field
//! that the caller names, or there is one lock for all events; other parts of a value are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;

use super::builder::HistoryBuilder;
use super::datum::{Data, Datum, Stop};
use super::entry::{Entry, F, Mode};
use super::error::ReadError;
use super::event::{Header, Kind, Process};
use super::renewals::{Renewals, SignalPlace};
use super::{History, NAMED_VALUE};

/// The options for a format whose files lack some facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOptions {
    /// Jepsen histories: the field with the name of the lock (`value` when the locks are independent keys).
    pub lock_key: Option<String>,
    /// Jepsen histories: the value of a register before the first write, as EDN (`0`); no value for `None`.
    pub initial: Option<String>,
}

/// The lock of a history without names of locks.
const THE_LOCK: &str = "lock";
const OPERATIONS: &str = "one of :acquire, :release, :lock, :unlock, :extend, :refresh, :read, :write, :cas";

pub(super) fn read(input: impl BufRead, json: bool, options: &ReadOptions) -> Result<History, ReadError> {
    let mut data = Data::new(input, json);
    let mut reading = JepsenReading {
        builder: HistoryBuilder::new(Header::of_locks([THE_LOCK])).in_order_of_position(),
        options,
        open: BTreeMap::new(),
        renewals: Renewals::default(),
        faults: Vec::new(),
        begun: BTreeSet::new(),
        action: None,
        locks: false,
    };
    let stopped = reading.all(&mut data);
    match stopped {
        Ok(()) => {}
        Err(Stop::End) => reading
            .builder
            .partial(format!("the last operation, in line {}, is torn", data.line)),
        Err(Stop::Wrong(error)) => return Err(error),
    }
    let locks = reading.locks;
    let initial = options
        .initial
        .as_deref()
        .map(|text| reading.initial(text))
        .transpose()?;
    let known = reading.renewals.known(reading.builder.finish());
    let mut history = known.map_err(|fault| ReadError::NotWellFormed { line: data.line, fault })?;
    history.named_values = true;
    history.initial = initial.flatten();
    if !locks && history.counts.reads + history.counts.writes + history.counts.compared > 0 {
        history.header.model = "cas-register".to_owned();
    }
    Ok(history)
}

struct JepsenReading<'a> {
    builder: HistoryBuilder,
    options: &'a ReadOptions,
    /// The lock and mode of each process's pending call: replies need not name them again.
    open: BTreeMap<u32, (String, Mode)>,
    renewals: Renewals,
    /// The active faults, and all that ever began.
    faults: Vec<String>,
    begun: BTreeSet<String>,
    /// The action of the nemesis that was begun last, and is not known to have ended.
    action: Option<String>,
    locks: bool,
}

impl JepsenReading<'_> {
    fn all<R: BufRead>(&mut self, data: &mut Data<R>) -> Result<(), Stop> {
        let close = match data.next_visible()? {
            Some(b'[') => Some(b']'),
            Some(b'(') => Some(b')'),
            None => return Err(Stop::Wrong(ReadError::Empty)),
            Some(_) => None,
        };
        if close.is_some() {
            data.skip();
        }
        loop {
            match data.next_visible()? {
                None if close.is_some() => return Err(Stop::End),
                None => return Ok(()),
                Some(byte) if Some(byte) == close => return Ok(()),
                Some(_) => {
                    let line = data.line;
                    let operation = data.value(0)?;
                    self.one(&operation, line).map_err(Stop::Wrong)?;
                }
            }
        }
    }

    fn one(&mut self, operation: &Datum, line: u64) -> Result<(), ReadError> {
        let wrong = |found: String, expected: &str| ReadError::meaning(line, found, expected);
        if !matches!(operation, Datum::Map(_)) {
            return Err(wrong(
                "a value that is not a map".into(),
                "a map with :type, :f and :process",
            ));
        }
        let name = operation.get("f").and_then(Datum::word);
        let name = name.ok_or_else(|| wrong("no `:f`".into(), OPERATIONS))?;
        let kind = operation.get("type").and_then(Datum::word).and_then(Kind::parse);
        let kind = kind
            .filter(|kind| *kind != Kind::Signal)
            .ok_or_else(|| wrong("no such `:type`".into(), "one of :invoke, :ok, :fail, :info"))?;
        let index = operation
            .get("index")
            .and_then(Datum::number)
            .unwrap_or(self.builder.len() as u64);
        let time = operation.get("time").and_then(Datum::number).unwrap_or(index);
        match operation.get("process") {
            Some(Datum::Int(number)) => {
                let process = u32::try_from(*number);
                let process = process.map_err(|_| wrong(format!("the process {number}"), "a process below 2^32"))?;
                if name == "refresh" {
                    self.refresh(operation, kind, (index, time), process);
                    return Ok(());
                }
                let f = operation_of(name).ok_or_else(|| wrong(format!("the f `{name}`"), OPERATIONS))?;
                let entry = Entry::new(index, time, Process::Client(process), kind, f);
                self.operation(operation, entry, process, line)
            }
            // a generator that gives its nemesis no type has calls of it that are `invoke`
            Some(Datum::Word(word)) if kind != Kind::Info && word != "nemesis" => {
                Err(wrong(format!("the process `{word}`"), "a number"))
            }
            Some(Datum::Word(_)) => self.nemesis(operation, name, (index, time), line),
            _ => Err(wrong("no `:process`".into(), "a number or :nemesis")),
        }
    }

    fn operation(&mut self, map: &Datum, entry: Entry<'_>, process: u32, line: u64) -> Result<(), ReadError> {
        // From here on, the entry is borrowed.
        let mut entry = entry;
        let is_of_lock = matches!(entry.f, F::Acquire | F::Release | F::Extend);
        self.locks |= is_of_lock;
        let (key, value) = split(map.get("value").unwrap_or(&Datum::Nil), entry.f);
        let named = self.named_lock(map, key, value, is_of_lock);
        let mode = map.get("mode").and_then(Datum::word).map(Mode::parse);
        if entry.kind == Kind::Invoke {
            let lock = named.unwrap_or_else(|| THE_LOCK.to_owned());
            self.open.insert(process, (lock, mode.unwrap_or_default()));
        }
        (entry.expected, entry.value) = self.register_values(entry.f, entry.kind, value, line)?;
        let open = self.open.get(&process);
        if entry.kind == Kind::Ok && is_refusal(entry.f, value, open, self.names_by_value()) {
            entry.kind = Kind::Fail;
        }
        entry.lock = open.map(|(lock, _)| lock.as_str());
        entry.mode = open.map(|(_, mode)| *mode).unwrap_or_default();
        let field = |name: &str| map.get(name).or_else(|| value.get(name)).and_then(Datum::number);
        entry.token = field("token").or_else(|| field("fence"));
        entry.permits = field("permits").and_then(|permits| u32::try_from(permits).ok());
        entry.client = field("client").and_then(|client| u32::try_from(client).ok());
        entry.error = map.get("error").and_then(|error| match error {
            Datum::List(words) => words.first()?.word(),
            error => error.word(),
        });
        entry.owner = map.get("owner").and_then(Datum::word);
        self.builder
            .push(&entry)
            .map_err(|fault| ReadError::NotWellFormed { line, fault })?;
        if let Some((lock, _)) = open {
            let place = SignalPlace {
                events: self.builder.len(),
                index: entry.index,
                time_ns: entry.time_ns,
            };
            match (entry.f, entry.kind) {
                (F::Acquire, Kind::Ok) => self.renewals.acquired(process, lock, place),
                (F::Release, Kind::Ok) => self.renewals.released(process, lock, true),
                (F::Release, Kind::Fail) => self.renewals.released(process, lock, false),
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether the value of a call may be the name of its lock.
    fn names_by_value(&self) -> bool {
        matches!(self.options.lock_key.as_deref(), None | Some("value"))
    }

    /// Returns the lock of an operation.
    fn named_lock(&self, map: &Datum, key: Option<&Datum>, value: &Datum, is_of_lock: bool) -> Option<String> {
        match self.options.lock_key.as_deref() {
            Some("value") | None => key.and_then(text).or_else(|| {
                let by_value = is_of_lock && (self.options.lock_key.is_some() || value.word().is_some());
                by_value.then(|| text(value)).flatten()
            }),
            Some(other) => map.get(other).and_then(text),
        }
    }

    /// Returns the value that an operation on a register expects, and the value that it reads or writes.
    fn register_values(
        &mut self,
        f: F,
        kind: Kind,
        value: &Datum,
        line: u64,
    ) -> Result<(Option<u64>, Option<u64>), ReadError> {
        let wrong = |found: String, expected: &str| ReadError::meaning(line, found, expected);
        let asks = kind == Kind::Invoke;
        match (f, value) {
            (F::Write, Datum::Nil) if asks => Err(wrong("a write of nil".to_owned(), "a value that is written")),
            (F::Read | F::Write, value) => Ok((None, self.register_value(value))),
            (F::Cas, Datum::List(both)) if both.len() == 2 && !(asks && both.contains(&Datum::Nil)) => {
                Ok((self.register_value(&both[0]), self.register_value(&both[1])))
            }
            (F::Cas, value) if asks => Err(wrong(
                format!("a compare-and-set of {value}"),
                "[the value that is expected, the new value]",
            )),
            _ => Ok((None, None)),
        }
    }

    /// Returns a value as registers store it: a natural number as it is, every other value by its name.
    fn register_value(&mut self, value: &Datum) -> Option<u64> {
        match value {
            Datum::Nil => None,
            value => Some(value.number().unwrap_or_else(|| {
                let symbol = self.builder.names().intern(&value.to_string());
                NAMED_VALUE | u64::from(symbol)
            })),
        }
    }

    /// Returns the initial value of registers in the caller's options.
    fn initial(&mut self, text: &str) -> Result<Option<u64>, ReadError> {
        let whole = Data::new(text.as_bytes(), false).value(0);
        match whole {
            Ok(value) => Ok(self.register_value(&value)),
            Err(Stop::Wrong(error)) => Err(error),
            Err(Stop::End) => Err(ReadError::meaning(
                0,
                format!("the initial value `{text}`"),
                "a value of EDN",
            )),
        }
    }

    /// Handles the renewal of a holder's lease.
    fn refresh(&mut self, map: &Datum, kind: Kind, (index, time_ns): (u64, u64), process: u32) {
        let (key, value) = split(map.get("value").unwrap_or(&Datum::Nil), F::Acquire);
        let open = self.open.get(&process);
        match kind {
            Kind::Invoke => {
                let named = self.named_lock(map, key, value, true);
                let lock = named.or_else(|| open.map(|(lock, _)| lock.clone()));
                let events = self.builder.len();
                let place = SignalPlace { events, index, time_ns };
                let lock = lock.unwrap_or_else(|| THE_LOCK.to_owned());
                self.renewals.called(process, &lock, place);
                self.open.insert(process, (lock, Mode::default()));
            }
            Kind::Ok => {
                let is_ok = !is_refusal(F::Acquire, value, open, self.names_by_value());
                self.renewals.answered(process, is_ok);
            }
            Kind::Fail => self.renewals.answered(process, false),
            _ => {}
        }
    }

    /// Handles a line of the nemesis: exported signals and lines of our own are restored, every other line starts or ends a fault.
    fn nemesis(&mut self, map: &Datum, name: &str, at: (u64, u64), line: u64) -> Result<(), ReadError> {
        let value = map.get("value").unwrap_or(&Datum::Nil);
        let signal = F::parse(name).filter(|f| !f.is_operation() && matches!(value, Datum::Map(_)));
        let (raw, fault);
        let mut entry = Entry::new(at.0, at.1, Process::Nemesis, Kind::Info, F::Nemesis);
        if let Some(f) = signal {
            let number = |name: &str| value.get(name).and_then(Datum::number);
            let process = number("process").and_then(|number| u32::try_from(number).ok());
            entry.process = process.map_or(Process::Server, Process::Client);
            (entry.kind, entry.f) = (Kind::Signal, f);
            entry.token = number("token");
            entry.lock = value.get("lock").and_then(Datum::word);
            entry.owner = value.get("owner").and_then(Datum::word);
            entry.cause = value.get("cause").and_then(Datum::word);
        } else if let Some(own) = value.word().filter(|text| is_line_of(text, name)) {
            entry.raw = Some(own);
            entry.name = Some(name);
        } else {
            let (begun, phase) = self.phase(name);
            fault = begun;
            raw = serde_json::json!({ "f": fault, "phase": phase }).to_string();
            entry.raw = Some(&raw);
            entry.name = Some(&fault);
        }
        self.builder
            .push(&entry)
            .map_err(|fault| ReadError::NotWellFormed { line, fault })
    }

    /// Returns the phase of an action. Jepsen writes each one twice, at its beginning and its end, with the same type: the first counts. An
    /// action of any other name may be a fault, which stays if no action ends it; one that only looks is none (`check-clock-offsets`).
    fn phase(&mut self, name: &str) -> (String, &'static str) {
        if self.action.take_if(|begun| begun == name).is_some() || name.starts_with("check") {
            return (name.to_owned(), "note");
        }
        self.action = Some(name.to_owned());
        let named = |word: &str| name.strip_prefix(word).map(|rest| rest.trim_start_matches('-'));
        let active = |fault: &str| self.faults.iter().position(|active| active == fault);
        let is_known = |fault: &str| self.begun.contains(fault);
        // without a kill before, `start` begins a fault
        let pair = ENDS.iter().find(|(end, _)| *end == name);
        let pair = pair.filter(|(end, fault)| *end != "start" || is_known(fault));
        let healed = pair.map(|(_, fault)| *fault);
        let healed = healed.or_else(|| WORDS_OF_ENDS.into_iter().find_map(named));
        if let Some(fault) = healed {
            let fault = if fault.is_empty() { UNNAMED } else { fault };
            // a single active fault may be healed by another name, unless that is the name of one that is over
            let is_other = !is_known(fault) && name != RESET && (fault == UNNAMED || self.faults.len() == 1);
            let last = || self.faults.len().checked_sub(1).filter(|_| is_other);
            return match active(fault).or_else(last) {
                Some(place) => (self.faults.remove(place), "heal"),
                None => (name.to_owned(), "note"),
            };
        }
        let fault = match named("start") {
            Some("") => UNNAMED,
            Some(rest) => rest,
            // one reset ends both
            None if name == "strobe-clock" => BUMP,
            None => name,
        };
        if active(fault).is_some() {
            return (name.to_owned(), "note");
        }
        self.begun.insert(fault.to_owned());
        self.faults.push(fault.to_owned());
        (fault.to_owned(), "start")
    }
}

/// The fault of a `start` without a name.
const UNNAMED: &str = "fault";
/// Words with which names of actions begin that end a fault.
const WORDS_OF_ENDS: [&str; 5] = ["stop", "heal", "resume", "recover", "reset"];
const BUMP: &str = "bump-clock";
const RESET: &str = "reset-clock";
/// Actions that end a fault of another name: a server that was killed starts, one that was paused resumes, a clock is set right.
const ENDS: [(&str, &str); 3] = [("start", "kill"), ("resume", "pause"), (RESET, BUMP)];

/// Returns whether a value is a whole nemesis line of ours, as the export writes it.
fn is_line_of(text: &str, name: &str) -> bool {
    let fields: Result<serde_json::Map<String, serde_json::Value>, _> = serde_json::from_str(text);
    fields.is_ok_and(|fields| fields.get("f").and_then(|f| f.as_str()) == Some(name))
}

fn operation_of(name: &str) -> Option<F> {
    match name {
        "lock" => Some(F::Acquire),
        "unlock" => Some(F::Release),
        _ => F::parse(name).filter(|f| f.is_operation()),
    }
}

/// Returns whether an `ok` of a lock is a refusal: its value is `false`, or empty, which is no token, after a call with the lock's name.
fn is_refusal(f: F, value: &Datum, call: Option<&(String, Mode)>, by_value: bool) -> bool {
    let named = call.map(|(lock, _)| lock.as_str());
    let says_no = match value {
        Datum::Word(word) if word.is_empty() => by_value && named.is_some_and(|lock| ![THE_LOCK, ""].contains(&lock)),
        Datum::Word(word) => word == "false" && named != Some("false"),
        Datum::Other(other) => other == "false",
        _ => false,
    };
    says_no && matches!(f, F::Acquire | F::Release | F::Extend)
}

/// Splits an independent pair into its key and its value. The two values of a compare-and-set are no such pair.
fn split(value: &Datum, f: F) -> (Option<&Datum>, &Datum) {
    match value {
        Datum::List(pair) if pair.len() == 2 && (f != F::Cas || matches!(pair[1], Datum::List(_))) => {
            (Some(&pair[0]), &pair[1])
        }
        _ => (None, value),
    }
}

fn text(value: &Datum) -> Option<String> {
    match value {
        Datum::Word(word) => Some(word.clone()),
        Datum::Int(number) => Some(number.to_string()),
        _ => None,
    }
}
