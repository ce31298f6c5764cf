//! Numbered states: for objects whose states own memory, such as texts.
//!
//! A search copies states for choices that it may return to, stores them and compares them. Here each state is stored once, and the search
//! copies, hashes and compares its number.

use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

use super::plan::{OpPlan, PlanEvent, PlannedOperations, SearchPlan};
use super::spec::{Operation, SequentialSpec};
use crate::history::names::FastMap;

/// An object whose operations are places of operations, and whose states are numbers of its states.
pub(super) struct NumberedStates<'a, S: SequentialSpec> {
    spec: &'a S,
    operations: &'a [Operation<S::Op>],
    known: RefCell<KnownStates<S::State>>,
}

/// States in the order in which they were found, each with its number.
struct KnownStates<T> {
    states: Vec<Rc<T>>,
    numbers: FastMap<Rc<T>, u32>,
}

impl<'a, S: SequentialSpec> NumberedStates<'a, S> {
    pub(super) fn new(spec: &'a S, operations: &'a [Operation<S::Op>]) -> Self {
        let mut known = KnownStates {
            states: Vec::new(),
            numbers: FastMap::default(),
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
        // a shared state has two counts
        let each = size_of::<S::State>() + 2 * size_of::<usize>();
        known.states.len() * each
            + known.states.capacity() * size_of::<Rc<S::State>>()
            + known.numbers.capacity() * size_of::<(Rc<S::State>, u32)>()
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
        let before = (*known.states[state as usize]).clone();
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
        if let Some(number) = self.numbers.get(&state) {
            return *number;
        }
        let (number, state) = (self.states.len() as u32, Rc::new(state));
        self.states.push(Rc::clone(&state));
        self.numbers.insert(state, number);
        number
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
