//! The timeline of the locks, turn by turn, from which pages draw the timeline itself, the latencies and the queue.
//!
//! A turn is one acquire and its outcome. It is read from the history as it is; nothing is decided here.

use std::collections::{BTreeMap, HashMap};

use harness_checkers::history::event::Kind;
use harness_checkers::{Ended, Entry, F, History};

use super::moment::Moment;
use super::owned::{OwnedBar, owned};
use super::roles::{Band, bands};

/// One acquire: its call, its reply if there is one, and the end of its hold.
#[derive(Debug, Clone, PartialEq)]
pub struct AcquireTurn {
    /// The index in [`Timeline::lanes`].
    pub lane: usize,
    pub process: u32,
    pub asked: Moment,
    /// The time when the call was due: earlier than the call if no client was free.
    pub due_ns: u64,
    /// The type of the reply: acquired, certainly not, or unknown; `None` without a reply in this history.
    pub answer: Option<Kind>,
    pub answered: Option<Moment>,
    pub token: Option<u64>,
    /// The server through which the reply came, if it is known: the index in [`Timeline::nodes`].
    pub node: Option<usize>,
    pub held: Option<(Moment, Ended)>,
}

/// An event that is no operation.
#[derive(Debug, Clone, PartialEq)]
pub struct TimelineSignal {
    pub lane: usize,
    pub at: Moment,
    /// That a client was woken, lost its lock, or died.
    pub kind: F,
    pub cause: String,
}

/// All events on the locks, by time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    /// Lock and client, by lock in the order of the header, then by client.
    pub lanes: Vec<(String, u32)>,
    pub turns: Vec<AcquireTurn>,
    pub signals: Vec<TimelineSignal>,
    /// Grants by their beginning.
    pub grants: Vec<OwnedBar>,
    /// Names of the servers through which replies came.
    pub nodes: Vec<String>,
    /// The roles of the servers, by server.
    pub bands: Vec<Band>,
    pub end_ns: u64,
    /// Whether an event of index `i` is line `i + 1` of the file.
    pub numbered: bool,
}

impl Timeline {
    pub fn of(history: &History) -> Self {
        let mut reading = TimelineReader {
            lanes: lanes(history),
            ..TimelineReader::default()
        };
        for hold in history.certain_holds() {
            let (ns, index) = (hold.to_ns, hold.end_index.unwrap_or(0));
            reading.holds.insert(hold.got_index, (Moment { ns, index }, hold.ended));
        }
        for entry in history.entries() {
            reading.see(&entry);
        }
        reading.turns.sort_by_key(|turn| turn.asked.ns);
        let mut lanes: Vec<_> = reading.lanes.into_iter().collect();
        lanes.sort_by_key(|(_, lane)| *lane);
        let lanes: Vec<(String, u32)> = lanes.into_iter().map(|(key, _)| key).collect();
        Self {
            grants: owned(history, &lanes),
            lanes,
            turns: reading.turns,
            signals: reading.signals,
            nodes: reading.nodes,
            bands: bands(history),
            end_ns: history.end_ns(),
            numbered: history.header().format == harness_checkers::history::event::FORMAT,
        }
    }

    /// Returns the number of waiting clients at each change: time in nanoseconds and number.
    pub fn queue(&self) -> Vec<(u64, u64)> {
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for turn in &self.turns {
            changes.push((turn.asked.ns, 1));
            if let Some(answered) = turn.answered {
                changes.push((answered.ns, -1));
            }
        }
        changes.sort_unstable();
        let mut waiting = 0_i64;
        let step = |(ns, change)| {
            waiting += change;
            (ns, waiting.max(0) as u64)
        };
        changes.into_iter().map(step).collect()
    }
}

/// Returns a lane for each lock and client that ever requested it.
fn lanes(history: &History) -> BTreeMap<(String, u32), usize> {
    let mut order: HashMap<&str, usize> = HashMap::new();
    for lock in history.header().locks.iter().map(String::as_str).chain(history.locks()) {
        let next = order.len();
        order.entry(lock).or_insert(next);
    }
    let asked = history.entries_of(F::Acquire);
    let mut keys: Vec<(usize, u32, &str)> = asked
        .filter_map(|entry| {
            let lock = entry.lock?;
            Some((*order.get(lock)?, client_of(&entry)?, lock))
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let numbered = keys.into_iter().enumerate();
    numbered
        .map(|(lane, (_, client, lock))| ((lock.to_owned(), client), lane))
        .collect()
}

fn client_of(entry: &Entry<'_>) -> Option<u32> {
    entry.client.or_else(|| entry.process_number())
}

/// Returns the index of a name; a new one is added at the end.
fn place_of(names: &mut Vec<String>, name: &str) -> usize {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

#[derive(Default)]
struct TimelineReader {
    lanes: BTreeMap<(String, u32), usize>,
    holds: HashMap<u64, (Moment, Ended)>,
    turns: Vec<AcquireTurn>,
    signals: Vec<TimelineSignal>,
    nodes: Vec<String>,
    /// The turn in which a process waits.
    open: HashMap<u32, usize>,
}

impl TimelineReader {
    fn see(&mut self, entry: &Entry<'_>) {
        let Some(process) = entry.process_number() else { return };
        let (ns, index) = (entry.time_ns, entry.index);
        let at = Moment { ns, index };
        match (entry.f, entry.kind) {
            (F::Acquire, Kind::Invoke) => self.ask(entry, process, at),
            (F::Acquire, _) => self.answer(entry, process, at),
            (F::Woken | F::Lost | F::Died, _) => self.signal(entry, at),
            _ => {}
        }
    }

    fn ask(&mut self, entry: &Entry<'_>, process: u32, asked: Moment) {
        let Some(lane) = self.lane_of(entry) else { return };
        self.open.insert(process, self.turns.len());
        self.turns.push(AcquireTurn {
            lane,
            process,
            asked,
            due_ns: asked.ns.saturating_sub(u64::from(entry.late_us.unwrap_or(0)) * 1000),
            answer: None,
            answered: None,
            token: None,
            node: None,
            held: None,
        });
    }

    fn answer(&mut self, entry: &Entry<'_>, process: u32, at: Moment) {
        let Some(turn) = self.open.remove(&process).and_then(|turn| self.turns.get_mut(turn)) else {
            return;
        };
        turn.answered = Some(at);
        turn.token = entry.token;
        turn.node = entry.node.map(|node| place_of(&mut self.nodes, node));
        turn.answer = Some(entry.kind);
        turn.held = self.holds.get(&entry.index).copied();
    }

    fn signal(&mut self, entry: &Entry<'_>, at: Moment) {
        // a signal without a lock concerns all holds of the client; one lane is enough to show it
        let client = client_of(entry);
        let lane = self.lane_of(entry).or_else(|| {
            let own = self.lanes.iter().find(|((_, of), _)| Some(*of) == client);
            own.map(|(_, lane)| *lane)
        });
        if let Some(lane) = lane {
            self.signals.push(TimelineSignal {
                lane,
                at,
                kind: entry.f,
                cause: entry.cause.unwrap_or_default().to_owned(),
            });
        }
    }

    fn lane_of(&self, entry: &Entry<'_>) -> Option<usize> {
        let key = (entry.lock?.to_owned(), client_of(entry)?);
        self.lanes.get(&key).copied()
    }
}
