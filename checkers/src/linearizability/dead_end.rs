//! Dead ends of linearizability: the longest prefix of a small set of operations that has an order, the states that are possible after it,
//! and the operation whose answer is impossible in each of them.

use std::collections::BTreeSet;

use super::explanation::Frontier;
use super::minimal::search_register;
use super::operations::{self, Operations};
use super::spec::SequentialSpec;
use super::specs::OneOwner;
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock};

/// The largest proof that is explained: nobody reads a larger one operation by operation.
const MAX_OPERATIONS: usize = 20;

/// The point from which a set of operations has no order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeadEnd {
    /// Positions of the calls of the longest prefix that has an order, in that order.
    pub order: Vec<u32>,
    /// The states that are possible when the reply arrives, in words.
    pub states: Vec<String>,
    /// The position of the call whose answer is impossible in all of them.
    pub call: u32,
}

/// Finds the dead end of the operations of one lock that were called at these positions.
pub(crate) fn dead_end(history: &History, model: &Model, lock: usize, calls: &[u32]) -> Option<DeadEnd> {
    if calls.len() > MAX_OPERATIONS {
        return None;
    }
    if model.is_lock() {
        let all = part_of(operations::locks(history, model), lock, calls)?;
        let mutex = OneOwner::new(*model);
        let word = |state: &<OneOwner as SequentialSpec>::State| {
            if *state == mutex.initial() { "free" } else { "taken" }.to_owned()
        };
        return take_apart(&mutex, history, &all, word);
    }
    let all = part_of(operations::registers(history, model), lock, calls)?;
    let (register, _) = search_register(history, model, &all, (Budget::default(), Clock::still()));
    let word = |value: &Option<u64>| value.map_or_else(|| "empty".to_owned(), |value| history.value_text(value));
    take_apart(&register, history, &all, word)
}

fn part_of<O: Copy>(all: Vec<Operations<O>>, lock: usize, calls: &[u32]) -> Option<Operations<O>> {
    let all = all.into_iter().nth(lock)?;
    let places: Vec<usize> = (0..all.calls.len())
        .filter(|place| calls.contains(&all.calls[*place]))
        .collect();
    Some(all.only(&places))
}

fn take_apart<S: SequentialSpec>(
    spec: &S,
    history: &History,
    all: &Operations<S::Op>,
    word: impl Fn(&S::State) -> String,
) -> Option<DeadEnd> {
    let after = all.predecessors(history);
    let (order, states, blocked) = Frontier::of(spec, &all.operations, &after)?.end()?;
    let states: BTreeSet<String> = states.iter().map(word).collect();
    Some(DeadEnd {
        order: order.into_iter().map(|place| all.calls[place]).collect(),
        states: states.into_iter().collect(),
        call: all.calls[blocked],
    })
}
