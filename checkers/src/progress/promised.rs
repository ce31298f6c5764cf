//! Stuck locks of clients that died, as their contract allows: the server ends no grant without a lease.

use super::stuck::{Stuck, StuckOwner};
use crate::context::Context;
use crate::history::F;
use crate::history::event::Kind;
use crate::wait::Wait;

/// Returns whether a lock is stuck because of a client that died, and its contract allows that.
pub(super) fn is_promised(context: &Context<'_>, stuck: &Stuck) -> bool {
    let promises = &context.history.header.promises;
    if promises.lease != Some(false) || promises.replaces == Some(true) {
        return false;
    }
    let died = |process: u32| context.died_ns(process) <= stuck.to_ns;
    match stuck.owner {
        StuckOwner::Dead { .. } => stuck.owner.has_died(context.history),
        StuckOwner::Unsure { process, .. }
        | StuckOwner::Ghost {
            process: Some(process), ..
        } => died(process),
        StuckOwner::Ghost { process: None, .. } => died_in_a_call(context, stuck),
        StuckOwner::Nobody => !stuck.is_shown && died_in_a_call(context, stuck),
        StuckOwner::Waiting { .. } | StuckOwner::WaitsInTurn { .. } => false,
    }
}

/// Returns whether a client died during a call about the lock, and no client acquired it since: its node or key may have stayed.
fn died_in_a_call(context: &Context<'_>, stuck: &Stuck) -> bool {
    let mut left = false;
    let is_asked = |f, _| matches!(f, F::Acquire | F::Release);
    context.history.each_in_time(is_asked, |lock, position, event| {
        if lock != stuck.lock || event.time > stuck.to_ns {
            return;
        }
        if event.is_ok(F::Acquire) {
            left = false;
        } else if event.kind == Kind::Invoke && Wait::of(context, position, event).kind == Kind::Info {
            left |= context.died_ns(event.process) <= stuck.to_ns;
        }
    });
    left
}
