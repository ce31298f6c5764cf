//! The best order of the events of a plain mutex at one instant, in which each process keeps its own order.
//!
//! The events of a process are a word of acquires and releases. Processes with equal words are interchangeable, so a state is the number of
//! processes with each remaining word, and the states are few. The best order needs the fewest operations with a later reply, which are
//! more useful later.

use std::collections::HashSet;
use std::iter::successors;

use crate::history::names::FastMap;

/// States after which the search gives up.
const STATES: usize = 50_000;

/// One operation in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Letter {
    /// Whether it acquires the mutex, or releases it.
    pub takes: bool,
    /// Whether its reply is at this instant, so that it must take effect by then.
    pub forced: bool,
}

/// Words by number: a letter, and the number of the remaining word.
#[derive(Debug, Default)]
pub(super) struct Words {
    all: Vec<(Letter, u32)>,
    lengths: Vec<u32>,
    numbers: FastMap<(Letter, u32), u32>,
}

impl Words {
    /// The word of a process without further events.
    pub(super) const EMPTY: u32 = u32::MAX;

    pub(super) fn prepend(&mut self, letter: Letter, word: u32) -> u32 {
        let next = self.all.len() as u32;
        let number = *self.numbers.entry((letter, word)).or_insert(next);
        if number == next {
            self.all.push((letter, word));
            self.lengths
                .push(1 + self.lengths.get(word as usize).copied().unwrap_or(0));
        }
        number
    }

    /// Returns the rest of a word after its first letter.
    pub(super) fn rest(&self, word: u32) -> u32 {
        self.all[word as usize].1
    }

    /// Returns a word without the optional letters before its first forced one, which are passed on.
    pub(super) fn skip(&self, mut word: u32, mut pass: impl FnMut(Letter)) -> u32 {
        while let Some((letter, rest)) = self.all.get(word as usize).filter(|(letter, _)| !letter.forced) {
            pass(*letter);
            word = *rest;
        }
        word
    }
}

/// One step of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// The first letter of a process with this remaining word.
    Of(u32),
    /// A pending operation with a later reply.
    InFlight,
}

/// The result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Interleaved {
    Order(Vec<Move>),
    Impossible,
    GaveUp,
}

/// The number of processes with each remaining word, whether the mutex is taken, and the numbers of pending releases and acquires.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct InstantState {
    pub words: Vec<(u32, u32)>,
    pub taken: bool,
    pub in_flight: [u32; 2],
}

impl InstantState {
    /// Adds a process with a word, without the optional letters at its beginning.
    pub(super) fn add(&mut self, words: &Words, word: u32) {
        let in_flight = &mut self.in_flight;
        let word = words.skip(word, |letter| in_flight[usize::from(letter.takes)] += 1);
        if word == Words::EMPTY {
            return;
        }
        match self.words.binary_search_by_key(&word, |(word, _)| *word) {
            Ok(at) => self.words[at].1 += 1,
            Err(at) => self.words.insert(at, (word, 1)),
        }
    }

    fn of(&self, words: &Words, word: u32) -> Self {
        let mut next = self.clone();
        if let Ok(at) = next.words.binary_search_by_key(&word, |(word, _)| *word) {
            next.words[at].1 -= 1;
            if next.words[at].1 == 0 {
                next.words.remove(at);
            }
        }
        next.taken = !self.taken;
        next.add(words, words.rest(word));
        next
    }
}

/// Orders all forced letters, with the fewest pending operations.
pub(super) fn interleave(words: &Words, start: InstantState) -> Interleaved {
    let mut seen: HashSet<InstantState> = HashSet::new();
    // Each state with the step that led to it, and the step before that.
    let mut steps: Vec<(u32, Move)> = Vec::new();
    let mut now = vec![(start, u32::MAX)];
    let mut later = Vec::new();
    loop {
        let Some((state, step)) = now.pop() else {
            if later.is_empty() {
                return Interleaved::Impossible;
            }
            // First the states that were found first: these have more pending operations with early replies.
            later.reverse();
            std::mem::swap(&mut now, &mut later);
            continue;
        };
        if state.words.is_empty() {
            let back = successors(steps.get(step as usize), |(before, _)| steps.get(*before as usize));
            let mut order: Vec<Move> = back.map(|(_, taken)| *taken).collect();
            order.reverse();
            return Interleaved::Order(order);
        }
        if seen.contains(&state) {
            continue;
        }
        if seen.len() >= STATES {
            return Interleaved::GaveUp;
        }
        let mut fitting: Vec<u32> = state.words.iter().map(|(word, _)| *word).collect();
        fitting.retain(|word| words.all[*word as usize].0.takes != state.taken);
        // The longest word is tried first: it is the hardest to fit in later.
        fitting.sort_unstable_by_key(|word| words.lengths[*word as usize]);
        for word in &fitting {
            steps.push((step, Move::Of(*word)));
            now.push((state.of(words, *word), steps.len() as u32 - 1));
        }
        // If a forced letter fits, another operation in its place gains nothing.
        let sort = usize::from(!state.taken);
        if fitting.is_empty() && state.in_flight[sort] > 0 {
            let mut next = state.clone();
            next.in_flight[sort] -= 1;
            next.taken = !state.taken;
            steps.push((step, Move::InFlight));
            later.push((next, steps.len() as u32 - 1));
        }
        seen.insert(state);
    }
}
