//! The exact answer for a mutex that does not know its owners: taken or free, and each operation turns one into the other.
//!
//! An operation takes effect when its reply arrives. When the state forbids that, one operation of the other sort that
//! is in flight must take effect first, and the one with the earliest reply is always a right choice; operations
//! without a reply are used last. No search, any number of unknown outcomes.
//!
//! At one instant each process keeps its own order, and between processes every order is possible: of the replies that
//! the state allows, the first is that of the process whose next operations take and give by turns for longest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::operations::Operations;
use super::specs::LockOp;

/// What a lazy pass found: an order of places, or the place of the operation that nothing can precede.
pub(crate) type Decided = Result<Vec<u32>, usize>;

/// A call or a reply. Sorts by time, then by process in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Flip {
    instant: u64,
    process: u32,
    turn: u32,
    reply: bool,
    place: u32,
}

/// Decides a plain mutex.
pub(crate) fn decide(all: &Operations<LockOp>) -> Decided {
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
    let mut lazy = Lazy {
        all,
        taken: false,
        open: Default::default(),
        done: vec![false; operations.len()],
        order: Vec::new(),
    };
    for same in flips.chunk_by(|a, b| a.instant == b.instant) {
        match same {
            [one] => {
                if !lazy.passes(one) {
                    lazy.force(one.place)?;
                }
            }
            several => lazy.at_one_instant(several)?,
        }
        lazy.forget();
    }
    Ok(lazy.order)
}

struct Lazy<'a> {
    all: &'a Operations<LockOp>,
    taken: bool,
    /// In flight and not yet in effect, by earliest reply: those that give, those that take.
    open: [BinaryHeap<Reverse<(u64, u32)>>; 2],
    done: Vec<bool>,
    order: Vec<u32>,
}

impl Lazy<'_> {
    /// Whether the pass can go on past a call, which it opens, or a reply.
    fn passes(&mut self, flip: &Flip) -> bool {
        let place = flip.place as usize;
        if !flip.reply {
            let deadline = self.all.operations[place].reply.unwrap_or(u64::MAX);
            self.open[self.takes(flip.place)].push(Reverse((deadline, flip.place)));
            return true;
        }
        self.done[place]
    }

    /// Lets an operation take effect, after one of the other sort where the state asks for it.
    fn force(&mut self, place: u32) -> Result<(), usize> {
        let sort = self.takes(place);
        if self.taken == (sort == 1) {
            let other = loop {
                match self.open[1 - sort].pop() {
                    Some(Reverse((_, other))) if !self.done[other as usize] => break other,
                    Some(_) => {}
                    None => return Err(place as usize),
                }
            };
            self.effect(other);
        }
        self.effect(place);
        Ok(())
    }

    /// Calls and replies of one instant, sorted by process.
    fn at_one_instant(&mut self, same: &[Flip]) -> Result<(), usize> {
        let lengths = self.lengths(same);
        let mut ends: Vec<usize> = Vec::new();
        let mut next: Vec<usize> = Vec::new();
        for own in same.chunk_by(|a, b| a.process == b.process) {
            let start = ends.last().copied().unwrap_or(0);
            next.push(start);
            ends.push(start + own.len());
        }
        // Replies that come next in their process and are not in effect, longest first.
        let mut waiting: [BinaryHeap<(u32, Reverse<usize>)>; 2] = Default::default();
        let mut ready: Vec<usize> = (0..ends.len()).collect();
        loop {
            while let Some(chain) = ready.pop() {
                while next[chain] < ends[chain] && self.passes(&same[next[chain]]) {
                    next[chain] += 1;
                }
                if next[chain] < ends[chain] {
                    let sort = self.takes(same[next[chain]].place);
                    waiting[sort].push((lengths[next[chain]], Reverse(chain)));
                }
            }
            let allowed = usize::from(!self.taken);
            let Some((_, Reverse(chain))) = waiting[allowed].pop().or_else(|| waiting[1 - allowed].pop()) else {
                return Ok(());
            };
            self.force(same[next[chain]].place)?;
            ready.push(chain);
        }
    }

    /// For each call and reply, how many operations of its process take and give by turns from there on.
    fn lengths(&self, same: &[Flip]) -> Vec<u32> {
        let mut lengths = vec![1; same.len()];
        for at in (0..same.len().saturating_sub(1)).rev() {
            let (own, later) = (same[at], same[at + 1]);
            lengths[at] = if own.process != later.process {
                1
            } else if own.place == later.place {
                lengths[at + 1]
            } else if self.takes(own.place) != self.takes(later.place) {
                lengths[at + 1] + 1
            } else {
                1
            };
        }
        lengths
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
        self.taken = self.takes(place) == 1;
        self.done[place as usize] = true;
        self.order.push(place);
    }

    /// 1 for an operation that takes the mutex, 0 for one that gives it back.
    fn takes(&self, place: u32) -> usize {
        usize::from(matches!(self.all.operations[place as usize].op, LockOp::Acquire { .. }))
    }
}
