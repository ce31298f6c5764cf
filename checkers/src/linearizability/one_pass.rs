//! Every lock of a history that one pass decides: by the shortest of the passes that its model and its events allow.

use super::counterexample::{Counterexample, Decision};
use super::lock::Lock;
use super::order::{self, EventOrder};
use super::sweep::{Sweep, changes_something};
use super::{permits, possible, turns};
use crate::history::History;
use crate::model::Model;

/// Why a try-lock is not decided.
const TOO_MANY_ORDERS: &str = "too many events have the same time to try all their orders";

/// Decides every lock of a history by one of the owner-aware models, by dense lock number: the first fault of each.
pub(crate) fn sweep(history: &History, model: &Model) -> Vec<Decision> {
    let short = turns::sweep_in_turns(history, model).or_else(|| permits::sweep_permits(history, model));
    match short {
        Some(sweep) if sweep.locks.is_empty() => vec![Decision::Legal; history.locks.len()],
        Some(sweep) => sweep.finish(),
        None => sweep_in(&EventOrder::of(history), history, model),
    }
}

/// The same with the events in an order that is given.
pub(super) fn sweep_in(order: &EventOrder, history: &History, model: &Model) -> Vec<Decision> {
    let mut sweep = Sweep::of(history, model, vec![Lock::new(); history.locks.len()]);
    if order.is_strict(history) {
        let matters = |f, kind| changes_something(model, f, kind, false);
        order::each_in_file(history, matters, |ordered, event| sweep.see_event(ordered, event));
    } else {
        order.instants(history, |same| sweep.see_instant(same));
    }
    sweep.finish()
}

impl Sweep<'_> {
    /// What was decided of each lock, after the last event.
    fn finish(self) -> Vec<Decision> {
        let Self {
            history, model, tied, ..
        } = self;
        let faults = self.locks.into_iter().map(Lock::finish).enumerate();
        let decide = |(lock, fault): (usize, Option<Counterexample>)| match fault {
            None => Decision::Legal,
            Some(fault) if !model.judges_busy() || !tied => Decision::Illegal(fault),
            Some(fault) => match possible::is_legal(history, model, lock) {
                Some(true) => Decision::Legal,
                Some(false) => Decision::Illegal(fault),
                None => Decision::Unknown(TOO_MANY_ORDERS),
            },
        };
        faults.map(decide).collect()
    }
}
