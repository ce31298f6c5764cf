//! Linearizability with several clocks: the stamps of different processes have a bounded error.
//!
//! An acquire may have been answered later than its stamp by the error, and a release called earlier. A hold that could be empty then is
//! left out with all its operations: a legal order without a whole hold is legal. So an error makes no order illegal, and a history that is
//! illegal with the largest error is illegal with every smaller one. Two holds that both last longer than twice the error, as all remaining
//! ones do, and do not overlap, have the order of their stamps whatever the clocks were.

use super::counterexample::Decision;
use super::decide::{decisions, sweep_in};
use super::order::{EventOrder, Widening};
use super::replies::permits_of;
use crate::context::Context;
use crate::history::names::FastMap;
use crate::history::{F, History, Mode};
use crate::model::Model;

/// Decides each lock. Locks without owners, and registers, are decided only if they are legal without an error.
pub(super) fn decisions_within(context: &Context<'_>) -> Vec<Decision> {
    let (history, error_ns) = (context.history, context.clock_error_ns);
    let model = match context.model {
        Model::Mutex | Model::Register { .. } | Model::CasRegister { .. } | Model::ExactCasRegister { .. } => {
            let exact = decisions(history, &context.model, context.options.budget, context.options.clock);
            let within = |decision| match decision {
                Decision::Illegal(_) => {
                    Decision::Unknown("violated without the clock error, and this model is not decided with one")
                }
                other => other,
            };
            return exact.into_iter().map(within).collect();
        }
        // It is not known when the lock was free, so a busy answer proves nothing.
        Model::TryLock | Model::ExactTryLock => Model::OwnerMutex,
        owners => owners,
    };
    let widening = widening(history, &model, error_ns);
    sweep_in(&EventOrder::widened(history, &widening), history, &model)
}

/// The events of one process on one lock, from its first acquire until it has no hold.
#[derive(Debug, Default)]
struct WholeHold {
    events: Vec<u32>,
    held: u64,
    /// The time at which the last acquire counts as answered.
    got: u64,
    /// Whether the hold, or a part of it, could be empty.
    doubtful: bool,
    /// Whether the previous one was left out and ended by a loss: the server may still accept a release of it.
    lapsed: bool,
}

impl WholeHold {
    fn end(&mut self, left_out: &mut Widening, lost: bool) {
        if self.doubtful {
            left_out.left_out.extend(self.events.drain(..));
        }
        *self = Self {
            lapsed: lost && self.doubtful,
            ..Self::default()
        };
    }
}

/// Finds the holds that may be empty within the error.
fn widening(history: &History, model: &Model, error_ns: u64) -> Widening {
    let mut widening = Widening {
        error_ns,
        ..Widening::default()
    };
    let mut all: FastMap<(u32, u32), WholeHold> = FastMap::default();
    let many = matches!(model, Model::Semaphore { .. });
    EventOrder::of(history).each(history, |ordered, event| {
        let position = ordered.position;
        let hold = all.entry((ordered.lock, event.process)).or_default();
        let counts = widening.instant(history, event, ordered.instant);
        let permits = permits_of(history, model, event);
        let shares = *model == Model::ReadWrite && event.is_call(F::Acquire) && event.mode == Mode::Read;
        if event.is_ok(F::Acquire) {
            let again = hold.held > 0 && !many && !model.is_reentrant();
            hold.held += if again { 0 } else { permits };
            (hold.got, hold.lapsed) = (counts, false);
            hold.events.push(position);
        } else if shares && hold.held > 0 {
            hold.doubtful |= counts <= hold.got;
            hold.events.push(position);
        } else if event.is_call(F::Release) && hold.held == 0 {
            if hold.lapsed {
                widening.left_out.insert(position);
            }
        } else if event.is_call(F::Release) {
            hold.doubtful |= counts <= hold.got;
            hold.events.push(position);
            // A release of more permits than the process has is without effect.
            hold.held -= if permits > hold.held { 0 } else { permits };
            if hold.held == 0 {
                hold.end(&mut widening, false);
            }
        } else if matches!(event.f, F::Lost | F::Died) && hold.held > 0 {
            hold.doubtful |= counts <= hold.got;
            hold.end(&mut widening, true);
        }
    });
    let open: Vec<WholeHold> = all.into_values().filter(|hold| hold.held > 0).collect();
    for mut hold in open {
        hold.end(&mut widening, false);
    }
    widening
}
