//! The order that proves that a history is linearizable, for a validator that knows nothing of how it was found.

use super::anonymous;
use super::minimal::search_register;
use super::operations::{self, Operations};
use super::search::Searched;
use super::search_run::search_in_turn;
use super::spec::{Operation, SequentialSpec, validate};
use super::specs::{LockOp, ManyOwners, OneOwner};
use crate::context::Context;
use crate::finding::Certificate;
use crate::history::History;
use crate::model::Model;
use crate::options::{Budget, Clock};

/// A certificate for each lock whose order was found again and stood the validator's test.
pub(crate) fn all(context: &Context<'_>) -> Vec<Certificate> {
    let (model, options) = (context.model, context.options);
    let (budget, clock) = (options.budget, options.clock);
    if !model.is_lock() {
        let all = operations::registers(context.history, &model);
        return collect(context, &all, |operations| {
            let (register, found) = search_register(context.history, &model, operations, (budget, clock));
            let after = operations.predecessors(context.history);
            valid(&register, &operations.operations, &after, found)
        });
    }
    let all = operations::locks(context.history, &model);
    collect(context, &all, |all| lock(context.history, &model, all, (budget, clock)))
}

/// An order of a lock's operations, validated; `None` when there is none or the budget ended.
pub(crate) fn lock(
    history: &History,
    model: &Model,
    lock: &Operations<LockOp>,
    (budget, clock): (Budget, Clock),
) -> Option<Vec<usize>> {
    let all = &lock.operations;
    let after = lock.predecessors(history);
    match model {
        Model::Mutex => {
            let order: Vec<usize> = anonymous::decide(history, lock, (budget, clock))
                .ok()?
                .into_iter()
                .map(|place| place as usize)
                .collect();
            Some(order).filter(|order| proves(&OneOwner::new(*model), all, &after, order))
        }
        Model::ReadWrite | Model::Semaphore { .. } => {
            let spec = ManyOwners::new(*model);
            latest(&spec, all, &after)
                .or_else(|| ordered(&spec, all, &after, (budget, clock)))
                .or_else(|| ordered(&spec.without_hints(), all, &after, (budget, clock)))
        }
        _ => {
            let spec = OneOwner::new(*model);
            latest(&spec, all, &after)
                .or_else(|| ordered(&spec, all, &after, (budget, clock)))
                .or_else(|| ordered(&spec.without_hints(), all, &after, (budget, clock)))
        }
    }
}

/// The order that the sweeps have in mind: every acquire at its reply, every release at its call. It is one for all
/// histories without answers that only observe; for those, and for downgrades, the search finds another.
fn latest<S: SequentialSpec<Op = LockOp>>(
    spec: &S,
    operations: &[Operation<LockOp>],
    after: &[Option<usize>],
) -> Option<Vec<usize>> {
    let point = |operation: &Operation<LockOp>| match operation.op {
        LockOp::Release { .. } | LockOp::Lose { .. } => Some((operation.call, false)),
        _ => operation.reply.map(|reply| (reply, true)),
    };
    let points = operations
        .iter()
        .enumerate()
        .filter_map(|(place, operation)| Some((point(operation)?, place)));
    let mut points: Vec<((u64, bool), usize)> = points.collect();
    points.sort_unstable();
    let order: Vec<usize> = points.into_iter().map(|(_, place)| place).collect();
    Some(order).filter(|order| proves(spec, operations, after, order))
}

fn ordered<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    after: &[Option<usize>],
    (budget, clock): (Budget, Clock),
) -> Option<Vec<usize>> {
    let found = search_in_turn(spec, operations, after, budget, clock);
    valid(spec, operations, after, found)
}

/// The order that was found, if it is one.
fn valid<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    after: &[Option<usize>],
    found: Searched,
) -> Option<Vec<usize>> {
    let Searched::Order(order) = found else {
        return None;
    };
    Some(order).filter(|order| proves(spec, operations, after, order))
}

/// Whether an order stands the validator's test, and each process's operations of one instant are in turn.
fn proves<S: SequentialSpec>(
    spec: &S,
    operations: &[Operation<S::Op>],
    after: &[Option<usize>],
    order: &[usize],
) -> bool {
    let mut rank = vec![usize::MAX; operations.len()];
    for (at, place) in order.iter().enumerate() {
        rank[*place] = at;
    }
    let in_turn = |place: &usize| after[*place].is_none_or(|first| rank[first] < rank[*place]);
    order.iter().all(in_turn) && validate(spec, operations, order).is_ok()
}

fn collect<O>(
    context: &Context<'_>,
    all: &[Operations<O>],
    order: impl Fn(&Operations<O>) -> Option<Vec<usize>>,
) -> Vec<Certificate> {
    let history = context.history;
    let index = |operations: &Operations<O>, place: &usize| history.index(operations.calls[*place]);
    let certified = all.iter().enumerate().filter_map(|(lock, operations)| {
        let order = order(operations)?;
        let order = order.iter().map(|place| index(operations, place)).collect();
        Some(Certificate {
            lock: history.lock_name(lock).to_owned(),
            order,
        })
    });
    certified.collect()
}
