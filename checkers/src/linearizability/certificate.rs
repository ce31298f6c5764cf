//! Certificates: the order that proves that a history is linearizable, for a validator that is independent of the decision.

use super::anonymous;
use super::minimal::search_register;
use super::operations::{self, Operations};
use super::search::{SearchLimits, Searched};
use super::search_run::search_in_turn;
use super::spec::{Operation, SequentialSpec, validate};
use super::specs::{LockOp, ManyOwners, OneOwner};
use crate::context::Context;
use crate::finding::Certificate;
use crate::history::History;
use crate::model::Model;

/// Returns a certificate for each lock whose order was found again and is valid.
pub(crate) fn all(context: &Context<'_>) -> Vec<Certificate> {
    let (history, model, options) = (context.history, context.model, context.options);
    let limits = (options.budget, options.clock);
    if model.is_lock() {
        let all = operations::locks(history, &model);
        return collect(history, &all, |operations| lock(history, &model, operations, limits));
    }
    let all = operations::registers(history, &model);
    collect(history, &all, |operations| {
        let (register, found) = search_register(history, &model, operations, limits);
        InTurn::of(history, operations).valid(&register, found)
    })
}

/// Returns a valid order of a lock's operations; `None` if there is none or the budget ended.
pub(crate) fn lock(
    history: &History,
    model: &Model,
    lock: &Operations<LockOp>,
    limits: SearchLimits,
) -> Option<Vec<usize>> {
    let all = InTurn::of(history, lock);
    match model {
        Model::Mutex => {
            let order = anonymous::decide(history, lock, limits).ok()?.into_iter();
            all.proven(&OneOwner::new(*model), order.map(|place| place as usize).collect())
        }
        Model::ReadWrite | Model::Semaphore { .. } => {
            let spec = ManyOwners::new(*model);
            all.by_owners(&spec, &spec.without_hints(), limits)
        }
        _ => {
            let spec = OneOwner::new(*model);
            all.by_owners(&spec, &spec.without_hints(), limits)
        }
    }
}

/// The operations on one object, with the predecessor of each.
struct InTurn<'a, O> {
    operations: &'a [Operation<O>],
    after: Vec<Option<usize>>,
}

impl<'a, O> InTurn<'a, O> {
    fn of(history: &History, all: &'a Operations<O>) -> Self {
        Self {
            operations: &all.operations,
            after: all.predecessors(history),
        }
    }

    /// Returns the order that a search found, if it is valid.
    fn valid(&self, spec: &impl SequentialSpec<Op = O>, found: Searched) -> Option<Vec<usize>> {
        match found {
            Searched::Order(order) => self.proven(spec, order),
            Searched::NoOrder { .. } | Searched::Unknown { .. } => None,
        }
    }

    /// Returns an order if the validator accepts it, and the operations of each process at one instant are in its order.
    fn proven(&self, spec: &impl SequentialSpec<Op = O>, order: Vec<usize>) -> Option<Vec<usize>> {
        let mut rank = vec![usize::MAX; self.operations.len()];
        for (at, place) in order.iter().enumerate() {
            rank[*place] = at;
        }
        let in_turn = |place: &usize| self.after[*place].is_none_or(|first| rank[first] < rank[*place]);
        let proves = order.iter().all(in_turn) && validate(spec, self.operations, &order).is_ok();
        proves.then_some(order)
    }
}

impl InTurn<'_, LockOp> {
    /// Returns an order by a specification with hints, or by the same without hints if these mislead.
    fn by_owners<S>(&self, spec: &S, bare: &S, limits: SearchLimits) -> Option<Vec<usize>>
    where
        S: SequentialSpec<Op = LockOp>,
    {
        let searched = |spec: &S| self.valid(spec, search_in_turn(spec, self.operations, &self.after, limits));
        self.proven(spec, self.latest())
            .or_else(|| searched(spec))
            .or_else(|| searched(bare))
    }

    /// Returns the order of the sweeps: every acquire at its reply, every release at its call. It is an order for all histories without
    /// answers that only observe; for those, and for downgrades, the search finds another.
    fn latest(&self) -> Vec<usize> {
        let point = |operation: &Operation<LockOp>| match operation.op {
            LockOp::Release { .. } | LockOp::Lose { .. } => Some((operation.call, false)),
            _ => operation.reply.map(|reply| (reply, true)),
        };
        let points = self.operations.iter().enumerate();
        let points = points.filter_map(|(place, operation)| Some((point(operation)?, place)));
        let mut points: Vec<((u64, bool), usize)> = points.collect();
        points.sort_unstable();
        points.into_iter().map(|(_, place)| place).collect()
    }
}

fn collect<O>(
    history: &History,
    all: &[Operations<O>],
    order: impl Fn(&Operations<O>) -> Option<Vec<usize>>,
) -> Vec<Certificate> {
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
