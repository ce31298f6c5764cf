//! Numbered states: for objects whose states own memory, such as texts.
//!
//! A search copies states for choices that it may return to, stores them and compares them. Here each state is stored and hashed once, and
//! the search copies, hashes and compares its number.

use std::cell::RefCell;
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::rc::Rc;

use super::plan::{OpPlan, PlanEvent, PlannedOperations, SearchPlan};
use super::spec::{Operation, SequentialSpec};
use crate::history::names::{FastHasher, NONE};

/// An object whose operations are places of operations, and whose states are numbers of its states.
pub(super) struct NumberedStates<'a, S: SequentialSpec> {
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    known: RefCell<KnownStates<S::State>>,
}

/// States in the order in which they were found.
struct KnownStates<T> {
    states: Vec<T>,
    /// The hash of each.
    hashes: Vec<u64>,
    /// Open addressing, a power of two in size, at most half full; `NONE` is an empty slot.
    slots: Vec<u32>,
}

impl<'a, S: SequentialSpec> NumberedStates<'a, S> {
    pub(super) fn new(spec: &'a S, operations: &'a [Operation<S::Op>]) -> Self {
        let mut known = KnownStates {
            states: Vec::new(),
            hashes: Vec::new(),
            slots: vec![NONE; 64],
        };
        known.number_of(spec.initial());
        Self {
            spec,
            operations,
            known: RefCell::new(known),
        }
    }

    /// Returns the bytes that are stored, without memory that the states own.
    fn bytes(&self) -> usize {
        let known = self.known.borrow();
        known.states.capacity() * size_of::<S::State>()
            + known.hashes.capacity() * size_of::<u64>()
            + known.slots.len() * size_of::<u32>()
    }
}

impl<S: SequentialSpec> SequentialSpec for NumberedStates<'_, S> {
    type Op = u32;
    type State = u32;

    fn initial(&self) -> u32 {
        0
    }

    fn step(&self, state: u32, op: &u32) -> Option<u32> {
        let mut known = self.known.borrow_mut();
        let before = known.states[state as usize].clone();
        let next = self.spec.step(before, &self.operations[*op as usize].op)?;
        Some(known.number_of(next))
    }

    fn allows(&self, state: &u32, observer: &u32) -> bool {
        let known = self.known.borrow();
        self.spec
            .allows(&known.states[*state as usize], &self.operations[*observer as usize].op)
    }
}

impl<T: Eq + Hash> KnownStates<T> {
    /// Returns the number of a state, which is a new one for a new state.
    fn number_of(&mut self, state: T) -> u32 {
        if self.states.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = BuildHasherDefault::<FastHasher>::default().hash_one(&state);
        let mask = self.slots.len() - 1;
        let mut slot = hash as usize & mask;
        while let Some(number) = Some(self.slots[slot]).filter(|number| *number != NONE) {
            if self.hashes[number as usize] == hash && self.states[number as usize] == state {
                return number;
            }
            slot = (slot + 1) & mask;
        }
        let number = self.states.len() as u32;
        self.slots[slot] = number;
        self.states.push(state);
        self.hashes.push(hash);
        number
    }

    #[cold]
    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        self.slots = vec![NONE; size];
        for (number, hash) in (0..).zip(&self.hashes) {
            let mut slot = *hash as usize & (size - 1);
            while self.slots[slot] != NONE {
                slot = (slot + 1) & (size - 1);
            }
            self.slots[slot] = number;
        }
    }
}

/// The plan of a search for an object with numbered states.
pub(super) struct NumberedPlan<'a, S: SequentialSpec> {
    plan: SearchPlan<'a, S::Op>,
    /// The number of each operation.
    numbers: Vec<u32>,
    states: Rc<NumberedStates<'a, S>>,
}

impl<'a, S: SequentialSpec> NumberedPlan<'a, S> {
    pub(super) fn of(plan: SearchPlan<'a, S::Op>, states: Rc<NumberedStates<'a, S>>) -> Self {
        Self {
            plan,
            numbers: (0..states.operations.len() as u32).collect(),
            states,
        }
    }
}

impl<S: SequentialSpec> PlannedOperations<u32> for NumberedPlan<'_, S> {
    #[inline]
    fn event_at(&mut self, at: u32) -> Option<PlanEvent> {
        self.plan.event_at(at)
    }

    #[inline]
    fn plan(&self, op: u32) -> &OpPlan {
        self.plan.plan(op)
    }

    #[inline]
    fn op(&self, op: u32) -> &u32 {
        &self.numbers[op as usize]
    }

    fn bytes_of_states(&self) -> usize {
        self.states.bytes()
    }
}
