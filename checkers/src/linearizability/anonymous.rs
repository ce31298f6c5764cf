//! The exact answer for a mutex that does not know its owners: taken or free, and each operation turns one into the other.
//!
//! An operation takes effect when its reply arrives. When the state forbids that, one operation of the other sort that
//! is in flight must take effect first, and the one with the earliest reply is always a right choice; operations
//! without a reply are used last. No search, any number of unknown outcomes. No published algorithm was found; that a choice
//! by the earliest reply is always right is the exchange argument of earliest-deadline-first scheduling
//! (C. Liu and J. Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time Environment", 1973,
//! <https://doi.org/10.1145/321738.321743>).
//!
//! At one instant each process keeps its own order, and between processes every order is possible: `interleave` finds
//! the one that needs the fewest operations whose reply is still to come. Where it matters which of them that are, the
//! pass takes those with the earliest replies that it can have; if others would have done as well, and the pass then
//! fails, the general search decides.

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

/// What was found: an order of places, or why there is none.
pub(crate) type Decided = Result<Vec<u32>, Unordered>;

/// Why a plain mutex has no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unordered {
    /// At the reply to the operation of this place, or of one with a reply at that instant: nothing can precede it.
    Blocked(usize),
    /// It may have one: the budget of the search ended.
    Undecided(&'static str),
}

/// Why a lazy pass ended early.
enum LazyFailure {
    Blocked(usize),
    /// Too many events have one time.
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

/// Decides a plain mutex. The limits are for histories in which several events have one time.
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

/// Calls and replies in order.
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
    /// In flight and not yet in effect, by earliest reply: those that give, those that take.
    open: [BinaryHeap<Reverse<(u64, u32)>>; 2],
    /// How many of each are not in effect.
    ready: [u32; 2],
    done: Vec<bool>,
    order: Vec<u32>,
    /// Which operation took effect before its reply was a choice that another might have been better than.
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

    /// Whether the pass can go on past a call, which it opens, or a reply.
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

    /// Lets an operation take effect, after one of the other sort where the state asks for it.
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

    /// The operation of a sort that is in flight, not in effect, and will be answered first.
    fn earliest(&mut self, sort: usize) -> Option<u32> {
        loop {
            let Reverse((_, place)) = self.open[sort].pop()?;
            if !self.done[place as usize] {
                return Some(place);
            }
        }
    }

    /// Notes when an operation took effect early of which another in flight is answered as early: what its process does
    /// at that instant may make it the better choice.
    fn compare(&mut self, sort: usize, early: u32) {
        let next = self.open[sort].peek().map(|Reverse((deadline, _))| *deadline);
        self.guessed |= next.is_some_and(|next| next <= self.deadline(early) && next < u64::MAX);
    }

    fn deadline(&self, place: u32) -> u64 {
        self.all.operations[place as usize].reply.unwrap_or(u64::MAX)
    }

    /// Calls and replies of one instant, sorted by process.
    fn at_one_instant(&mut self, same: &[Flip]) -> Result<(), LazyFailure> {
        let mut words = Words::default();
        let mut state = InstantState {
            words: Vec::new(),
            taken: self.taken,
            in_flight: self.ready,
        };
        // What is still to come of each process, the first thing last, by its word.
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
                    // What was called and is answered at this instant never was in flight.
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

    /// Whether a call or a reply is something to be ordered: a reply to what is not in effect yet, and a call whose reply
    /// is still to come.
    fn counts(&self, flip: &Flip) -> bool {
        let replied = self.all.operations[flip.place as usize].reply;
        let later = replied.is_none_or(|reply| reply.max(flip.instant) > flip.instant);
        if flip.reply {
            !self.done[flip.place as usize]
        } else {
            later
        }
    }

    /// Keeps what is left of a process by its word, after what need not happen yet is in flight.
    fn keep(&mut self, words: &Words, left: &mut FastMap<u32, Vec<Vec<Flip>>>, word: u32, mut flips: Vec<Flip>) {
        let word = words.skip(word, |_| {
            let flip = flips.pop().expect("each letter has a call or a reply");
            self.passes(&flip);
        });
        if word != Words::EMPTY {
            left.entry(word).or_default().push(flips);
        }
    }

    /// What is in effect leaves from the front, so that only what is in flight is kept.
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

    /// 1 for an operation that takes the mutex, 0 for one that gives it back.
    fn takes(&self, place: u32) -> usize {
        usize::from(matches!(self.all.operations[place as usize].op, LockOp::Acquire { .. }))
    }
}
