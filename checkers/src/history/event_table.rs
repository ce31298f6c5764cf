//! The table of all events of a history: the latest as they are, the others in blocks of half their size.
//!
//! A block stores times and places of details as distances from the smallest one, mates as distances between two lines, and numbers of
//! processes and locks in 16 bits. A block with an event that does not fit, as with 65,536 processes, stores its events as they are.

use std::slice;

use super::entry::{F, Mode};
use super::event::Kind;
use super::names::NONE;
use super::packed::PackedEvent;

/// Events of a block, a power of two.
const BLOCK: usize = 1 << 10;
/// The most events that wait for a block: by then, most calls are answered.
const TAIL: usize = 8 * BLOCK;

/// The events of a history by position.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventTable {
    blocks: Vec<EventBlock>,
    /// The number of events in blocks.
    sealed: usize,
    tail: Vec<PackedEvent>,
}

#[derive(Debug, Clone)]
enum EventBlock {
    Small { base: BlockBase, events: Box<[SmallEvent]> },
    Large(Box<[PackedEvent]>),
}

/// The numbers from which a block has distances.
#[derive(Debug, Clone, Copy)]
struct BlockBase {
    time: u64,
    details: u32,
    /// The details before the others, which all calls share.
    shared: u32,
}

/// An event in a block.
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(2))]
struct SmallEvent {
    /// The distance from the base, with eight more bits above it.
    time: u32,
    time_above: u8,
    /// The place in [`WORDS`].
    words: u8,
    process: u16,
    lock: u16,
    /// The distance to the mate; 0 where there is none.
    mate: i16,
    details: u16,
}

/// Kinds, operations and modes of events, by one number.
const WORDS: [(Kind, F, Mode); WORD_COUNT] = words();
const WORD_COUNT: usize = Kind::ALL.len() * F::ALL.len() * 2;

const fn words() -> [(Kind, F, Mode); WORD_COUNT] {
    let mut words = [(Kind::Invoke, F::Acquire, Mode::Write); WORD_COUNT];
    let mut at = 0;
    while at < WORD_COUNT {
        let mode = if at % 2 == 0 { Mode::Write } else { Mode::Read };
        words[at] = (Kind::ALL[at / 2 / F::ALL.len()], F::ALL[at / 2 % F::ALL.len()], mode);
        at += 1;
    }
    words
}

/// Returns the place of an event in [`WORDS`].
#[inline]
fn word(event: &PackedEvent) -> usize {
    (event.kind as usize * F::ALL.len() + event.f as usize) * 2 + event.mode as usize
}

/// The 16-bit numbers from here on stand for the last ones of 32 bits: `NONE`, the server, the nemesis.
const LAST: u16 = u16::MAX - 7;
/// The number for the base's shared details.
const SHARED: u16 = LAST;

fn narrow(number: u32) -> Option<u16> {
    match number {
        _ if number < u32::from(LAST) => Some(number as u16),
        _ if number >= NONE - 7 => Some(number as u16),
        _ => None,
    }
}

fn wide(number: u16) -> u32 {
    let above = if number >= LAST { 0xffff_0000 } else { 0 };
    u32::from(number) | above
}

impl EventTable {
    pub(crate) fn len(&self) -> usize {
        self.sealed + self.tail.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the event at a position, if there is one.
    #[inline]
    pub(crate) fn get(&self, position: usize) -> Option<PackedEvent> {
        match position.checked_sub(self.sealed) {
            Some(at) => self.tail.get(at).copied(),
            None => Some(self.blocks[position / BLOCK].get(position)),
        }
    }

    /// Returns the event that was added last, if there is one: it is never in a block.
    #[inline]
    pub(crate) fn last(&self) -> Option<PackedEvent> {
        self.tail.last().copied()
    }

    /// Returns a part of the event at a position; of an event in a block, nothing else is decoded.
    #[inline]
    fn part<T>(
        &self,
        position: u32,
        of_small: impl FnOnce(&BlockBase, SmallEvent) -> T,
        of_packed: impl FnOnce(&PackedEvent) -> T,
    ) -> T {
        match (position as usize).checked_sub(self.sealed) {
            Some(at) => of_packed(&self.tail[at]),
            None => match &self.blocks[position as usize / BLOCK] {
                EventBlock::Small { base, events } => of_small(base, events[position as usize % BLOCK]),
                EventBlock::Large(events) => of_packed(&events[position as usize % BLOCK]),
            },
        }
    }

    /// Returns the time of the event at a position.
    #[inline]
    pub(crate) fn time(&self, position: u32) -> u64 {
        self.part(position, BlockBase::time_of, |event| event.time)
    }

    /// Returns the position of the mate of the event at a position.
    #[inline]
    pub(crate) fn mate(&self, position: u32) -> u32 {
        self.part(position, |_, small| mate_of(small, position), |event| event.mate)
    }

    /// Returns the place of the details of the event at a position.
    #[inline]
    pub(super) fn details(&self, position: u32) -> u32 {
        self.part(position, BlockBase::details_of, |event| event.details)
    }

    /// Returns the outcome and the time of an answer by its position; `None` without an answer.
    #[inline]
    pub(crate) fn answer(&self, mate: u32) -> Option<(Kind, u64)> {
        if mate as usize >= self.len() {
            return None;
        }
        let of_small = |base: &BlockBase, small: SmallEvent| (WORDS[small.words as usize].0, base.time_of(small));
        Some(self.part(mate, of_small, |event| (event.kind, event.time)))
    }

    /// Returns all events in order.
    pub(crate) fn iter(&self) -> EventsFrom<'_> {
        let mut events = EventsFrom {
            table: self,
            base: BlockBase::NONE,
            small: [].iter(),
            large: [].iter(),
            position: 0,
        };
        events.go_to(0);
        events
    }

    /// Calls `see` with the position of each event of a wanted operation and kind, and with the event. The others are not decoded, which
    /// would be most of their cost.
    #[inline]
    pub(crate) fn each_of(&self, wanted: impl Fn(F, Kind) -> bool, mut see: impl FnMut(u32, PackedEvent)) {
        let sort = |f, kind| u8::from(wanted(f, kind));
        self.each_sorted(sort, |_, position, event| see(position, event));
    }

    /// Calls `see` with each event and its sort, by its operation and kind; events of sort 0 are skipped.
    #[inline]
    pub(crate) fn each_sorted(&self, sort: impl Fn(F, Kind) -> u8, mut see: impl FnMut(u8, u32, PackedEvent)) {
        // As many as a byte has values, so that no look-up needs a check of bounds.
        let mut sorts = [0; 1 << u8::BITS];
        for (found, (kind, f, _)) in sorts.iter_mut().zip(WORDS) {
            *found = sort(f, kind);
        }
        for (first, block) in (0u32..).step_by(BLOCK).zip(&self.blocks) {
            match block {
                EventBlock::Small { base, events } => {
                    for (position, small) in (first..).zip(events) {
                        let sort = sorts[small.words as usize];
                        if sort != 0 {
                            see(sort, position, base.event(*small, position));
                        }
                    }
                }
                EventBlock::Large(events) => each_wanted(events, first, &sorts, &mut see),
            }
        }
        each_wanted(&self.tail, self.sealed as u32, &sorts, &mut see);
    }

    #[inline]
    pub(super) fn push(&mut self, event: PackedEvent) {
        if self.tail.len() >= TAIL {
            self.seal();
        }
        self.tail.push(event);
    }

    /// Sets the other event of a call and its reply.
    #[inline]
    pub(super) fn set_mate(&mut self, position: u32, mate: u32) {
        match (position as usize).checked_sub(self.sealed) {
            Some(at) => self.tail[at].mate = mate,
            None => self.blocks[position as usize / BLOCK].set_mate(position, mate),
        }
    }

    /// Reserves memory for more events, as far as they are not in blocks.
    pub(super) fn reserve(&mut self, events: usize) {
        self.tail.reserve(events.min(TAIL));
    }

    /// Frees unused memory, but for the events that wait for a block: a move of these would cost more.
    pub(super) fn shrink_to_fit(&mut self) {
        self.blocks.shrink_to_fit();
    }

    /// Replaces all events.
    pub(super) fn refill(&mut self, events: &[PackedEvent]) {
        self.blocks.clear();
        self.sealed = 0;
        self.tail.clear();
        self.tail.extend_from_slice(events);
    }

    /// Moves all events but the last ones into blocks.
    #[cold]
    fn seal(&mut self) {
        for events in self.tail[..TAIL - BLOCK].chunks_exact(BLOCK) {
            self.blocks.push(EventBlock::of(events, self.sealed as u32));
            self.sealed += BLOCK;
        }
        self.tail.drain(..TAIL - BLOCK);
    }
}

/// The events from some position on. Parts that a caller does not use are not read.
#[derive(Debug, Clone)]
pub(crate) struct EventsFrom<'a> {
    table: &'a EventTable,
    base: BlockBase,
    /// The rest of a block, or of the tail.
    small: slice::Iter<'a, SmallEvent>,
    large: slice::Iter<'a, PackedEvent>,
    /// The position of the next event.
    position: u32,
}

impl EventsFrom<'_> {
    fn go_to(&mut self, position: usize) {
        self.position = position as u32;
        (self.small, self.large) = ([].iter(), [].iter());
        let table = self.table;
        match table.blocks.get(position / BLOCK) {
            Some(EventBlock::Small { base, events }) => {
                self.base = *base;
                self.small = events[position % BLOCK..].iter();
            }
            Some(EventBlock::Large(events)) => self.large = events[position % BLOCK..].iter(),
            None => {
                let tail = position.checked_sub(table.sealed).and_then(|at| table.tail.get(at..));
                self.large = tail.unwrap_or_default().iter();
            }
        }
    }

    #[cold]
    fn next_block(&mut self) -> Option<PackedEvent> {
        if self.position as usize >= self.table.len() {
            return None;
        }
        self.go_to(self.position as usize);
        self.next()
    }
}

impl Iterator for EventsFrom<'_> {
    type Item = PackedEvent;

    #[inline]
    fn next(&mut self) -> Option<PackedEvent> {
        let event = if let Some(small) = self.small.next() {
            self.base.event(*small, self.position)
        } else if let Some(event) = self.large.next() {
            *event
        } else {
            return self.next_block();
        };
        self.position += 1;
        Some(event)
    }

    fn nth(&mut self, passed_over: usize) -> Option<PackedEvent> {
        let position = (self.position as usize).saturating_add(passed_over);
        self.go_to(position.min(self.table.len()));
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.table.len() - self.position as usize;
        (left, Some(left))
    }
}

impl EventBlock {
    fn of(events: &[PackedEvent], first: u32) -> Self {
        let base = BlockBase::of(events);
        // A collection of options would not know its length.
        let mut small = Vec::with_capacity(events.len());
        for (position, event) in (first..).zip(events) {
            match base.small(event, position) {
                Some(event) => small.push(event),
                None => return Self::Large(events.into()),
            }
        }
        let events = small.into_boxed_slice();
        Self::Small { base, events }
    }

    #[inline]
    fn get(&self, position: usize) -> PackedEvent {
        match self {
            Self::Small { base, events } => base.event(events[position % BLOCK], position as u32),
            Self::Large(events) => events[position % BLOCK],
        }
    }

    fn set_mate(&mut self, position: u32, mate: u32) {
        let at = position as usize % BLOCK;
        if let Self::Small { events, .. } = self {
            if let Some(mate) = distance(position, mate) {
                events[at].mate = mate;
                return;
            }
            let first = position as usize - at;
            *self = Self::Large((first..first + BLOCK).map(|position| self.get(position)).collect());
        }
        if let Self::Large(events) = self {
            events[at].mate = mate;
        }
    }
}

fn each_wanted(
    events: &[PackedEvent],
    first: u32,
    sorts: &[u8; 1 << u8::BITS],
    see: &mut impl FnMut(u8, u32, PackedEvent),
) {
    for (position, event) in (first..).zip(events) {
        let sort = sorts[word(event)];
        if sort != 0 {
            see(sort, position, *event);
        }
    }
}

/// Returns the distance to a mate, if it fits.
fn distance(position: u32, mate: u32) -> Option<i16> {
    if mate == NONE {
        return Some(0);
    }
    i16::try_from(i64::from(mate) - i64::from(position)).ok()
}

#[inline]
fn mate_of(small: SmallEvent, position: u32) -> u32 {
    match small.mate {
        0 => NONE,
        distance => position.wrapping_add_signed(distance.into()),
    }
}

impl BlockBase {
    const NONE: Self = Self {
        time: 0,
        details: 0,
        shared: 0,
    };

    fn of(events: &[PackedEvent]) -> Self {
        let numbers = || {
            events
                .iter()
                .map(|event| event.details)
                .filter(|details| *details != NONE)
        };
        let (least, last) = numbers().fold((NONE, 0), |(least, last), number| (least.min(number), last.max(number)));
        let apart = last.saturating_sub(least) >= u32::from(SHARED);
        let second = || numbers().filter(|number| *number > least).min().unwrap_or(least);
        Self {
            time: events.iter().map(|event| event.time).min().unwrap_or(0),
            details: if apart { second() } else { least },
            shared: least,
        }
    }

    /// Returns an event by its distances; `None` if one does not fit.
    fn small(&self, event: &PackedEvent, position: u32) -> Option<SmallEvent> {
        let time = event.time - self.time;
        Some(SmallEvent {
            time: time as u32,
            time_above: u8::try_from(time >> 32).ok()?,
            words: word(event) as u8,
            process: narrow(event.process)?,
            lock: narrow(event.lock)?,
            mate: distance(position, event.mate)?,
            details: match event.details {
                NONE => u16::MAX,
                number if number < self.details => SHARED,
                number => u16::try_from(number - self.details)
                    .ok()
                    .filter(|near| *near < SHARED)?,
            },
        })
    }

    #[inline]
    fn time_of(&self, small: SmallEvent) -> u64 {
        self.time + (u64::from(small.time_above) << 32 | u64::from(small.time))
    }

    #[inline]
    fn details_of(&self, small: SmallEvent) -> u32 {
        match small.details {
            u16::MAX => NONE,
            SHARED => self.shared,
            near => self.details + u32::from(near),
        }
    }

    #[inline]
    fn event(&self, small: SmallEvent, position: u32) -> PackedEvent {
        let (kind, f, mode) = WORDS[small.words as usize];
        PackedEvent {
            time: self.time_of(small),
            process: wide(small.process),
            mate: mate_of(small, position),
            lock: wide(small.lock),
            details: self.details_of(small),
            kind,
            f,
            mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::dice;

    /// Returns random events; one in `far` is far from its neighbours in one of its numbers.
    fn random(count: u32, far: u64) -> Vec<PackedEvent> {
        let mut dice = dice(0x9e37_79b9_7f4a_7c15);
        let event = |position: u32| {
            let mut roll = |sides: u64| dice(sides) as u32;
            let (kind, f, mode) = WORDS[roll(WORD_COUNT as u64) as usize];
            let mut event = PackedEvent {
                time: 1_000_000_000_000 + u64::from(position) * 1_000 + u64::from(roll(50_000)),
                process: [NONE, NONE - 1, NONE - 2, roll(60_000)][roll(4) as usize],
                mate: [NONE, position + 1 + roll(30_000)][roll(2) as usize],
                lock: [NONE, roll(60_000)][roll(2) as usize],
                details: [NONE, 3, 100_000 + position / 2][roll(3) as usize],
                kind,
                f,
                mode,
            };
            if far > 0 && roll(far) == 0 {
                match roll(5) {
                    0 => event.time += 1 << 41,
                    1 => event.process = 65_530,
                    2 => event.mate = position + 40_000,
                    3 => event.lock = 70_000,
                    _ => event.details = 70_000,
                }
            }
            event
        };
        (0..count).map(event).collect()
    }

    fn same(events: &[PackedEvent], table: &EventTable) {
        assert_eq!(table.len(), events.len());
        for (position, (given, kept)) in events.iter().zip(table.iter()).enumerate() {
            assert_eq!(format!("{given:?}"), format!("{kept:?}"), "position {position}");
        }
        assert!(table.get(events.len()).is_none() && table.get(NONE as usize).is_none());
        assert!(table.answer(events.len() as u32).is_none() && table.answer(NONE).is_none());
        for start in [0, 1, BLOCK - 1, BLOCK, 5_000, events.len() - 1, events.len()] {
            let rest: Vec<u64> = table.iter().skip(start).map(|event| event.time).collect();
            let given: Vec<u64> = events[start..].iter().map(|event| event.time).collect();
            assert!(rest == given, "from {start} on");
        }
        for (position, event) in (0..).zip(events) {
            assert_eq!((table.time(position), table.mate(position)), (event.time, event.mate));
            assert_eq!(table.answer(position), Some((event.kind, event.time)));
            assert_eq!(table.details(position), { event.details });
        }
    }

    #[test]
    fn events_come_back_as_they_were() {
        for (far, larges) in [(0, 0..=0), (3_000, 2..=20), (1, 35..=40)] {
            let mut events = random(40_000, far);
            let mut table = EventTable::default();
            events.iter().for_each(|event| table.push(*event));
            same(&events, &table);
            let large = |table: &EventTable| {
                let blocks = table.blocks.iter();
                blocks.filter(|block| matches!(block, EventBlock::Large(_))).count()
            };
            assert!(larges.contains(&large(&table)), "{} for {far}", large(&table));
            // distant mates make one more block large
            for (position, mate) in [(5, 39_000), (6, 7), (39_990, 2)] {
                events[position].mate = mate;
                table.set_mate(position as u32, mate);
            }
            same(&events, &table);
            table.refill(&events[..10_000]);
            table.push(events[10_000]);
            same(&events[..=10_000], &table);
            let last = table.last().expect("there are events");
            assert_eq!(format!("{last:?}"), format!("{:?}", events[10_000]));
        }
    }

    #[test]
    fn an_event_takes_fourteen_bytes() {
        assert_eq!(size_of::<SmallEvent>(), 14);
    }
}
