//! The evidence in replies: a hold of another process, no hold of the caller, the token of the acquire.

use crate::history::event::Kind;
use crate::history::{History, PackedEvent, Refusal};
use crate::model::Model;

/// Returns whether the answer to an acquire shows that another process had the lock at some instant of the call. Under a fault it does not:
/// many a library answers that the lock was taken if it could not execute a try, also while the fault is injected.
pub(crate) fn found_taken(history: &History, answer: PackedEvent) -> bool {
    let is_busy = |error: &str| Refusal::parse(error) == Refusal::Busy;
    history.error(answer).is_some_and(is_busy) && !history.was_disturbed(answer)
}

/// Returns whether an error means that the caller did not hold the lock.
pub(crate) fn is_not_held(error: &str) -> bool {
    Refusal::parse(error) == Refusal::NotHeld
}

/// Returns the permits that an event acquires or releases; only semaphores have several.
pub(super) fn permits_of(history: &History, model: &Model, event: PackedEvent) -> u64 {
    match model {
        Model::Semaphore { .. } => u64::from(history.permits(event)),
        _ => 1,
    }
}

/// Returns whether the reply to a release means that its process did not hold the lock.
pub(super) fn denies(history: &History, reply: PackedEvent) -> bool {
    reply.kind == Kind::Fail && history.error(reply).is_some_and(is_not_held)
}

/// Returns the token of an acquire, if the model uses it.
pub(super) fn fencing_token(history: &History, model: &Model, acquire: PackedEvent) -> Option<u64> {
    let fenced = matches!(model, Model::Fenced | Model::ReentrantFenced { .. });
    if fenced { history.token(acquire) } else { None }
}
