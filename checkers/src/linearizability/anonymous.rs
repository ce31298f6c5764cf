//! The exact answer for a lock that does not know its owners: a counter between none and all permits taken.
//!
//! An operation takes effect when its reply arrives. When the state forbids that, one operation of the other sort that
//! is in flight must take effect first, and the one with the earliest reply is always a right choice; operations
//! without a reply are used last. No search, any number of unknown outcomes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::spec::Operation;
use super::specs::LockOp;

/// What a lazy pass found: an order of places, or the place of the operation that nothing can precede.
pub(crate) type Decided = Result<Vec<u32>, usize>;

/// Decides a lock of so many anonymous permits; each operation takes or gives one.
pub(crate) fn decide(operations: &[Operation<LockOp>], permits: u64) -> Decided {
    let mut happenings: Vec<(u64, bool, u32)> = Vec::with_capacity(operations.len() * 2);
    for (place, operation) in operations.iter().enumerate() {
        happenings.push((operation.call, false, place as u32));
        if let Some(reply) = operation.reply {
            happenings.push((reply.max(operation.call), true, place as u32));
        }
    }
    if !happenings.is_sorted() {
        happenings.sort_unstable();
    }
    let mut lazy = Lazy {
        operations,
        permits,
        taken: 0,
        open: Default::default(),
        done: Vec::new(),
        order: Vec::new(),
    };
    lazy.done.resize(operations.len(), false);
    for (_, reply, place) in happenings {
        if !reply {
            let deadline = operations[place as usize].reply.unwrap_or(u64::MAX);
            lazy.open[takes(operations, place)].push(Reverse((deadline, place)));
        } else if !lazy.done[place as usize] && !lazy.force(place) {
            return Err(place as usize);
        } else {
            lazy.forget();
        }
    }
    Ok(lazy.order)
}

struct Lazy<'a> {
    operations: &'a [Operation<LockOp>],
    permits: u64,
    taken: u64,
    /// In flight and not yet in effect, by earliest reply: those that give, those that take.
    open: [BinaryHeap<Reverse<(u64, u32)>>; 2],
    done: Vec<bool>,
    order: Vec<u32>,
}

impl Lazy<'_> {
    fn force(&mut self, place: u32) -> bool {
        let sort = takes(self.operations, place);
        if !self.allows(sort) {
            let other = loop {
                match self.open[1 - sort].pop() {
                    Some(Reverse((_, other))) if !self.done[other as usize] => break other,
                    Some(_) => {}
                    None => return false,
                }
            };
            // The other sort is legal exactly when this one is not, unless there are no permits at all.
            if !self.allows(1 - sort) {
                return false;
            }
            self.effect(other, 1 - sort);
        }
        self.effect(place, sort);
        true
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

    fn allows(&self, sort: usize) -> bool {
        if sort == 1 {
            self.taken < self.permits
        } else {
            self.taken > 0
        }
    }

    fn effect(&mut self, place: u32, sort: usize) {
        self.taken = if sort == 1 { self.taken + 1 } else { self.taken - 1 };
        self.done[place as usize] = true;
        self.order.push(place);
    }
}

/// 1 for an operation that takes a permit, 0 for one that gives it back.
fn takes(operations: &[Operation<LockOp>], place: u32) -> usize {
    usize::from(matches!(operations[place as usize].op, LockOp::Acquire { .. }))
}
