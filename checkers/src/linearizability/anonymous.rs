//! Linearizability of a mutex without owners, decided exactly: it is taken or free, and each operation turns one state into the other.
//!
//! An operation takes effect when its reply arrives. If the state forbids that, a pending operation of the other sort must take effect
//! first, and the one with the earliest reply is always a right choice; operations without a reply are used last. No search is needed, for
//! any number of unknown outcomes. No published algorithm was found; the choice by the earliest reply follows from the exchange argument of
//! earliest-deadline-first scheduling (C. Liu and J. Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment",
//! 1973, <https://doi.org/10.1145/321738.321743>).
//!
//! At one instant each process keeps its own order, and between processes every order is possible: `interleave` finds the one that needs
//! the fewest operations with a later reply. If it matters which of them these are, the pass takes those with the earliest replies that are
//! possible; if others would have served as well, and the pass then fails, the general search decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::interleave::{InstantState, Interleaved, Letter, Move, Words, interleave};
use super::operations::Operations;
use super::search::{SearchLimits, Searched};
use super::search_run::search_in_turn;
use super::specs::{LockOp, OneOwner};
use crate::history::History;
use crate::history::names::FastMap;
use crate::model::Model;

/// An order of places, or the reason why there is none.
pub(crate) type Decided = Result<Vec<u32>, Unordered>;

/// The reason why a plain mutex has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unordered {
    /// No operation can precede the reply to the operation of this place, or to one with a reply at that instant.
    Blocked(usize),
    /// An order may exist: the budget of the search ended.
    Undecided(&'static str),
}

/// The reason why a lazy pass ended early.
enum LazyFailure {
    Blocked(usize),
    /// Too many events have the same time.
    GaveUp,
}

/// A call or a reply. Sorts by time, then by process in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flip {
    instant: u64,
    process: u32,
    turn: u32,
    reply: bool,
    place: u32,
}

/// Decides a plain mutex. The limits are for histories in which several events have the same time.
pub(crate) fn decide(history: &History, all: &Operations<LockOp>, limits: SearchLimits) -> Decided {
    let mut lazy = Lazy {
        all,
        taken: false,
        open: Default::default(),
        ready: [0, 0],
        done: vec![false; all.operations.len()],
        order: Vec::new(),
        guessed: false,
    };
    match lazy.pass() {
        Ok(()) => return Ok(lazy.order),
        Err(LazyFailure::Blocked(blocked)) if !lazy.guessed => return Err(Unordered::Blocked(blocked)),
        Err(_) => {}
    }
    let (mutex, after) = (OneOwner::new(Model::Mutex), all.predecessors(history));
    match search_in_turn(&mutex, &all.operations, &after, limits) {
        Searched::Order(order) => Ok(order.into_iter().map(|place| place as u32).collect()),
        Searched::NoOrder { blocked } => Err(Unordered::Blocked(blocked)),
        Searched::Unknown { reason, .. } => Err(Unordered::Undecided(reason)),
    }
}

/// Returns calls and replies in order.
fn flips(all: &Operations<LockOp>) -> Vec<Flip> {
    let operations = &all.operations;
    let mut flips: Vec<Flip> = Vec::with_capacity(operations.len() * 2);
    for (place, operation) in operations.iter().enumerate() {
        let (LockOp::Acquire { process, .. } | LockOp::Release { process, .. }) = operation.op else {
            continue;
        };
        let flip = |instant, reply| Flip {
            instant,
            process,
            turn: all.turns[place],
            reply,
            place: place as u32,
        };
        flips.push(flip(operation.call, false));
        flips.extend(operation.reply.map(|reply| flip(reply.max(operation.call), true)));
    }
    if !flips.is_sorted() {
        flips.sort_unstable();
    }
    flips
}

struct Lazy<'a> {
    all: &'a Operations<LockOp>,
    taken: bool,
    /// Pending operations that have not taken effect, by earliest reply: releases, acquires.
    open: [BinaryHeap<Reverse<(u64, u32)>>; 2],
    /// The number of pending operations of each sort that have not taken effect.
    ready: [u32; 2],
    done: Vec<bool>,
    order: Vec<u32>,
    /// Whether an early effect was a choice for which there may be a better one.
    guessed: bool,
}

impl Lazy<'_> {
    fn pass(&mut self) -> Result<(), LazyFailure> {
        for same in flips(self.all).chunk_by(|a, b| a.instant == b.instant) {
            match same {
                [one] => {
                    if !self.passes(one) {
                        self.force(one.place)?;
                    }
                }
                several => self.at_one_instant(several)?,
            }
            self.forget();
        }
        Ok(())
    }

    /// Returns whether the pass can continue after a call, which becomes pending, or after a reply.
    fn passes(&mut self, flip: &Flip) -> bool {
        let place = flip.place as usize;
        if !flip.reply {
            let sort = self.takes(flip.place);
            self.open[sort].push(Reverse((self.deadline(flip.place), flip.place)));
            self.ready[sort] += 1;
            return true;
        }
        self.done[place]
    }

    /// Makes an operation take effect, after one of the other sort if the state requires that.
    fn force(&mut self, place: u32) -> Result<(), LazyFailure> {
        let sort = self.takes(place);
        if self.taken == (sort == 1) {
            let other = self.earliest(1 - sort).ok_or(LazyFailure::Blocked(place as usize))?;
            self.effect(other);
            self.forget();
            self.compare(1 - sort, other);
        }
        self.effect(place);
        Ok(())
    }

    /// Returns the pending operation of a sort, without effect so far, that has the earliest reply.
    fn earliest(&mut self, sort: usize) -> Option<u32> {
        loop {
            let Reverse((_, place)) = self.open[sort].pop()?;
            if !self.done[place as usize] {
                return Some(place);
            }
        }
    }

    /// Notes that an operation took effect early although another pending one has a reply as early: the events of its process at that
    /// instant may make it the better choice.
    fn compare(&mut self, sort: usize, early: u32) {
        let next = self.open[sort].peek().map(|Reverse((deadline, _))| *deadline);
        self.guessed |= next.is_some_and(|next| next <= self.deadline(early) && next < u64::MAX);
    }

    fn deadline(&self, place: u32) -> u64 {
        self.all.operations[place as usize].reply.unwrap_or(u64::MAX)
    }

    /// Handles calls and replies of one instant, sorted by process.
    fn at_one_instant(&mut self, same: &[Flip]) -> Result<(), LazyFailure> {
        let mut words = Words::default();
        let mut state = InstantState {
            words: Vec::new(),
            taken: self.taken,
            in_flight: self.ready,
        };
        // The remaining events of each process, the first one last, by its word.
        let mut left: FastMap<u32, Vec<Vec<Flip>>> = FastMap::default();
        for own in same.chunk_by(|a, b| a.process == b.process) {
            let (mut word, mut flips) = (Words::EMPTY, Vec::new());
            for flip in own.iter().rev().filter(|flip| self.counts(flip)) {
                let takes = self.takes(flip.place);
                if flip.reply && self.all.operations[flip.place as usize].call < flip.instant {
                    state.in_flight[takes] -= 1;
                }
                let letter = Letter {
                    takes: takes == 1,
                    forced: flip.reply,
                };
                word = words.prepend(letter, word);
                flips.push(*flip);
            }
            state.add(&words, word);
            self.keep(&words, &mut left, word, flips);
        }
        let moves = match interleave(&words, state) {
            Interleaved::Order(moves) => moves,
            Interleaved::GaveUp => return Err(LazyFailure::GaveUp),
            Interleaved::Impossible => {
                let replies = same.iter().find(|flip| flip.reply && !self.done[flip.place as usize]);
                return Err(replies.map_or(LazyFailure::GaveUp, |flip| LazyFailure::Blocked(flip.place as usize)));
            }
        };
        let mut early: [Option<u32>; 2] = [None, None];
        for next in moves {
            match next {
                Move::Of(word) => {
                    let mut flips = left
                        .get_mut(&word)
                        .and_then(Vec::pop)
                        .expect("a process has this word left");
                    let first = flips.pop().expect("a word has letters");
                    // An operation with its call and its reply at this instant never was pending.
                    let sort = self.takes(first.place);
                    let called = self.all.operations[first.place as usize].call;
                    self.ready[sort] += u32::from(called == first.instant);
                    self.effect(first.place);
                    self.keep(&words, &mut left, words.rest(word), flips);
                }
                Move::InFlight => {
                    let sort = usize::from(!self.taken);
                    let other = self.earliest(sort).expect("one is in flight");
                    self.effect(other);
                    let latest = early[sort].is_none_or(|place| self.deadline(place) < self.deadline(other));
                    early[sort] = if latest { Some(other) } else { early[sort] };
                }
            }
        }
        self.forget();
        for (sort, place) in early.into_iter().enumerate() {
            place.into_iter().for_each(|place| self.compare(sort, place));
        }
        Ok(())
    }

    /// Returns whether a call or a reply must be ordered: a reply to an operation that has not taken effect, and a call with a later reply.
    fn counts(&self, flip: &Flip) -> bool {
        let replied = self.all.operations[flip.place as usize].reply;
        let later = replied.is_none_or(|reply| reply.max(flip.instant) > flip.instant);
        if flip.reply {
            !self.done[flip.place as usize]
        } else {
            later
        }
    }

    /// Stores the remaining events of a process by their word, after its optional operations became pending.
    fn keep(&mut self, words: &Words, left: &mut FastMap<u32, Vec<Vec<Flip>>>, word: u32, mut flips: Vec<Flip>) {
        let word = words.skip(word, |_| {
            let flip = flips.pop().expect("each letter has a call or a reply");
            self.passes(&flip);
        });
        if word != Words::EMPTY {
            left.entry(word).or_default().push(flips);
        }
    }

    /// Removes operations that took effect from the front, so that only pending ones are stored.
    fn forget(&mut self) {
        for open in &mut self.open {
            while open
                .peek()
                .is_some_and(|Reverse((_, place))| self.done[*place as usize])
            {
                open.pop();
            }
        }
    }

    fn effect(&mut self, place: u32) {
        let sort = self.takes(place);
        self.taken = sort == 1;
        self.ready[sort] -= 1;
        self.done[place as usize] = true;
        self.order.push(place);
    }

    /// Returns 1 for an acquire, 0 for a release.
    fn takes(&self, place: u32) -> usize {
        usize::from(matches!(self.all.operations[place as usize].op, LockOp::Acquire { .. }))
    }
}
