//! The order of events for linearizability: by time if the history has times, else by the file.
//!
//! A lost signal may be older than the lines above it; it moves to its own time, though never before the reply that began the hold which it
//! ends ([`crate::signal_grants`] finds it). At one time, it comes first among the events of its process: no line of the recorder shows the
//! order, and an earlier loss is never less legal.
//!
//! A grant that was lost before its answer, or at that instant, is void: its process never had a hold. The grant of a process that died
//! then is not void, since its answer had come.

use crate::history::event::Kind;
use crate::history::names::{FastSet, NONE};
use crate::history::{F, History, Mode, OrderBasis, PackedEvent};
use crate::signal_grants::GrantedLocks;

/// Returns whether the order of events is that of the file, and no two have one instant.
pub(super) fn is_strict(history: &History) -> bool {
    !has_signals(history) && (history.order == OrderBasis::Position || !history.has_equal_times)
}

/// Returns whether some holds ended by a signal, which may have been written late.
fn has_signals(history: &History) -> bool {
    history.counts.lost + history.counts.died > 0
}

/// One event in order. A signal that ends the holds of all locks comes once for each that its process ever acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrderedEvent {
    pub instant: u64,
    pub position: u32,
    /// Dense; `NONE` for an event without a lock.
    pub lock: u32,
    /// Whether it is the answer of a grant that was lost by then.
    pub void: bool,
}

impl OrderedEvent {
    /// Returns the event at a position, at the instant of its own line.
    #[inline]
    pub(super) fn of(history: &History, position: u32, event: PackedEvent) -> Self {
        Self {
            instant: history.instant_of(position, event),
            position,
            lock: history.number_of(event.lock),
            void: false,
        }
    }
}

/// An event with its place: by instant, then by rank among those of its instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RankedEvent {
    pub instant: u64,
    pub rank: u64,
    pub position: u32,
    pub lock: u32,
    pub void: bool,
}

impl RankedEvent {
    pub(super) fn ordered(&self) -> OrderedEvent {
        OrderedEvent {
            instant: self.instant,
            position: self.position,
            lock: self.lock,
            void: self.void,
        }
    }
}

/// The events of a history's clients in order. `None` is the order of the file.
pub(crate) struct EventOrder(Option<Vec<OrderedEvent>>);

impl EventOrder {
    pub(crate) fn of(history: &History) -> Self {
        if !has_signals(history) && (history.order == OrderBasis::Position || !history.has_late_lines) {
            return Self(None);
        }
        Self::widened(history, &Widening::default())
    }

    /// Returns the order of events with clock errors: acquires are answered later and releases called earlier by the error, and some events
    /// are left out.
    pub(super) fn widened(history: &History, widening: &Widening) -> Self {
        let mut ranked = ranked(history, widening);
        if !ranked.is_sorted() {
            ranked.sort_unstable();
        }
        Self(Some(ranked.iter().map(RankedEvent::ordered).collect()))
    }

    /// Returns whether it is that of the file, and no two events have one instant.
    pub(super) fn is_strict(&self, history: &History) -> bool {
        self.0.is_none() && is_strict(history)
    }

    /// Calls `see` with each event in order.
    pub(crate) fn each(&self, history: &History, mut see: impl FnMut(OrderedEvent, PackedEvent)) {
        if self.is_strict(history) {
            return each_sorted_in_file(history, |_, _| 1, |_, ordered, event| see(ordered, event));
        }
        self.instants(history, |same| {
            same.iter().for_each(|event| see(*event, history.event(event.position)));
        });
    }

    /// Calls `see` with the events of each instant, in order: each process's own events keep theirs.
    pub(crate) fn instants(&self, history: &History, mut see: impl FnMut(&[OrderedEvent])) {
        if let Some(order) = &self.0 {
            return order.chunk_by(|a, b| a.instant == b.instant).for_each(see);
        }
        let events = &history.events;
        // Lines of the server and of the nemesis have times of other clocks, and are between the clients' lines.
        let is_client = |event: &PackedEvent| (event.process as usize) < history.processes.len();
        let timed = history.order == OrderBasis::Time;
        let ordered = |position: usize, event| OrderedEvent::of(history, position as u32, event);
        let mut same = Vec::new();
        let mut rest = events
            .iter()
            .enumerate()
            .filter(|(_, event)| is_client(event))
            .peekable();
        while let Some((position, event)) = rest.next() {
            let of_instant = |(_, next): &(usize, PackedEvent)| timed && next.time == event.time;
            let Some((next, other)) = rest.next_if(of_instant) else {
                see(&[ordered(position, event)]);
                continue;
            };
            same.clear();
            same.extend([ordered(position, event), ordered(next, other)]);
            while let Some((next, other)) = rest.next_if(of_instant) {
                same.push(ordered(next, other));
            }
            see(&same);
        }
    }
}

/// Calls `see` with each event of a client and its sort, by its operation and kind, in the order of the file; events of sort 0 are skipped.
#[inline]
pub(super) fn each_sorted_in_file(
    history: &History,
    sort: impl Fn(F, Kind) -> u8,
    mut see: impl FnMut(u8, OrderedEvent, PackedEvent),
) {
    let clients = history.processes.len();
    history.events.each_sorted(sort, |sort, position, event| {
        if (event.process as usize) < clients {
            see(sort, OrderedEvent::of(history, position, event), event);
        }
    });
}

/// The largest error of stamps, and the events that are left out because of it.
#[derive(Debug, Default)]
pub(super) struct Widening {
    pub error_ns: u64,
    pub left_out: FastSet<u32>,
}

impl Widening {
    /// Returns the instant of an event: the latest one if it gives the lock to a process, the earliest one if it ends a hold.
    pub(super) fn instant(&self, history: &History, event: PackedEvent, instant: u64) -> u64 {
        let takes = matches!(event.f, F::Lost | F::Died) || event.is_call(F::Release);
        let shares = event.is_call(F::Acquire) && event.mode == Mode::Read;
        debug_assert!(
            self.error_ns == 0 || history.order == OrderBasis::Time,
            "stamps are of clocks"
        );
        match event.is_ok(F::Acquire) {
            true => instant.saturating_add(self.error_ns),
            false if takes || shares => instant.saturating_sub(self.error_ns),
            false => instant,
        }
    }
}

/// Returns each event with its rank among those of its instant.
fn ranked(history: &History, widening: &Widening) -> Vec<RankedEvent> {
    let mut acquired = AcquiredLocks::of(history);
    let mut granted = vec![GrantedLocks::default(); history.processes.len()];
    // Only a loss may end a grant before the latest.
    let passed = if history.counts.lost > 0 { 0 } else { u64::MAX };
    let mut ranked = Vec::with_capacity(history.events.len());
    let mut void: FastSet<u32> = FastSet::default();
    for (position, event) in history.events.iter().enumerate() {
        let Some(granted) = granted.get_mut(event.process as usize) else {
            continue;
        };
        let position = position as u32;
        if widening.left_out.contains(&position) {
            continue;
        }
        let lock = history.number_of(event.lock);
        let stamp = history.instant(position);
        let instant = widening.instant(history, event, stamp);
        let mut add = |rank: u64, instant: u64, lock: u32| {
            ranked.push(RankedEvent {
                instant,
                rank,
                position,
                lock,
                void: false,
            });
        };
        if !matches!(event.f, F::Lost | F::Died) {
            if event.is_ok(F::Acquire) {
                let began = (stamp, u64::from(position));
                granted.insert(lock, history.instant(event.mate), began, passed);
                acquired.got(event.process, lock);
            } else if event.is_call(F::Release) {
                granted.releases(lock);
            }
            add(u64::from(position) * 2 + 2, instant, lock);
            continue;
        }
        let ended = if event.f == F::Lost && lock != NONE {
            vec![lock]
        } else {
            acquired.ended(event.process, instant)
        };
        for lock in ended {
            let latest = granted.latest(lock);
            let ends = granted.of_signal(lock, (event.f == F::Lost).then_some(stamp));
            if ends != latest {
                // The latest grant goes on, and another signal may end it.
                acquired.got(event.process, lock);
            }
            let counts = |position: u32| widening.instant(history, history.event(position), history.instant(position));
            match ends.map(|(_, reply)| (counts(reply as u32), reply)) {
                Some((began, reply)) if began >= instant => {
                    if event.f == F::Lost {
                        void.insert(reply as u32);
                    }
                    add(reply * 2 + 3, began, lock);
                }
                _ => add(0, instant, lock),
            }
        }
    }
    if !void.is_empty() {
        for event in &mut ranked {
            event.void = void.contains(&event.position);
        }
    }
    ranked
}

/// The locks of which a signal without a lock may end holds.
struct AcquiredLocks {
    /// By process, all that it ever acquired.
    all: Vec<Vec<u32>>,
    /// By process, those that it acquired since such a signal, in the order of the lines, and the latest instant of one. A signal of a
    /// later instant ends no hold of the others.
    since: Vec<(FastSet<u32>, u64)>,
}

impl AcquiredLocks {
    fn of(history: &History) -> Self {
        let all = locks_by_process(history);
        // If a line has a time before one above it, an acquire that is written later may come before a signal.
        let in_order = history.order == OrderBasis::Position || history.inversions == 0;
        Self {
            since: vec![Default::default(); if in_order { all.len() } else { 0 }],
            all,
        }
    }

    fn got(&mut self, process: u32, lock: u32) {
        if let Some((since, _)) = self.since.get_mut(process as usize) {
            since.insert(lock);
        }
    }

    /// Returns the locks of which a signal of this instant may end holds.
    fn ended(&mut self, process: u32, instant: u64) -> Vec<u32> {
        match self.since.get_mut(process as usize) {
            Some((since, last)) if *last <= instant => {
                *last = instant;
                let mut ended: Vec<u32> = std::mem::take(since).into_iter().collect();
                ended.sort_unstable();
                ended
            }
            _ => self.all.get(process as usize).cloned().unwrap_or_default(),
        }
    }
}

/// Returns the locks that each process ever acquired, if a signal ends the holds of all of them.
fn locks_by_process(history: &History) -> Vec<Vec<u32>> {
    let of_all = |event: PackedEvent| event.f == F::Died || event.f == F::Lost && history.lock_number(event).is_none();
    if !history.events.iter().any(of_all) {
        return Vec::new();
    }
    let mut acquired: Vec<Vec<u32>> = vec![Vec::new(); history.processes.len()];
    for event in history.events.iter().filter(|event| event.is_ok(F::Acquire)) {
        if let Some(lock) = history.lock_number(event) {
            let own = &mut acquired[event.process as usize];
            if own.last() != Some(&(lock as u32)) {
                own.push(lock as u32);
            }
        }
    }
    for own in &mut acquired {
        own.sort_unstable();
        own.dedup();
    }
    acquired
}
