//! Acquires that were given up, a part of HL011: refused long before the end of their waits, by a lock that promises to wait.
//!
//! A lock whose contract does not say how its waiters learn that it is free may be a try-lock. A library may have its own limit and wait
//! for no longer. An acquire that is granted when too little of its lease is left releases the lock, and is answered the same. An acquire
//! that would wait for its own process does not wait. None of these is a violation.

use crate::calm;
use crate::context::Context;
use crate::history::event::Kind;
use crate::limits;

/// An acquire that was refused long before the end of its wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenUpCall {
    pub lock: usize,
    /// The positions of the call and of the answer.
    pub call: u32,
    pub reply: u32,
    /// The length of its wait, and the length that it asked for.
    pub waited_ns: u64,
    pub wait_ns: u64,
}

impl GivenUpCall {
    /// Returns whether more than half of the wait was left, and more than a limit in whole seconds can round off.
    fn is_early(&self) -> bool {
        let left_ns = self.wait_ns.saturating_sub(self.waited_ns);
        left_ns > self.waited_ns && left_ns > limits::GIVEN_UP_NS
    }
}

/// Returns the given-up acquires, if they are more than rare doubts and the lock has no limit of its own.
pub(super) fn of(context: &Context<'_>) -> Vec<GivenUpCall> {
    // the contract says that its waiters are notified, or poll
    if context.history.header.promises.wakes.is_none() {
        return Vec::new();
    }
    let refused = refused(context);
    let at_once = |call: &&GivenUpCall| call.is_early() && call.waited_ns < context.lease_ns / 2;
    let early: Vec<GivenUpCall> = refused.iter().filter(at_once).copied().collect();
    // with a limit of its own no acquire waits for longer, and one with a shorter wait is in time
    let longest_ns = early.iter().map(|call| call.waited_ns).max().unwrap_or(0);
    let is_within = |call: &GivenUpCall| call.waited_ns <= longest_ns + longest_ns / 4;
    let own_limit = longest_ns > limits::OWN_LIMIT_NS && refused.iter().all(is_within);
    let is_habit = limits::is_habit(early.len() as u64, refused.len() as u64);
    if is_habit && !own_limit { early } else { Vec::new() }
}

/// Returns the acquires that were answered that the lock is taken although they were to wait, without a fault in the lease before.
fn refused(context: &Context<'_>) -> Vec<GivenUpCall> {
    let history = context.history;
    let aftermath_ns = match context.is_undisturbed() {
        true => 0,
        false => context.lease_ns + limits::AFTERMATH_NS,
    };
    let mut refused = Vec::new();
    history.each_ask(|lock, position, call| {
        let reply = history.reply(call).filter(|reply| reply.kind == Kind::Fail);
        let (Some(reply), Some(wait_ns)) = (reply, history.wait_ns(call)) else {
            return;
        };
        let is_taken = history.says_taken(reply) && !history.was_disturbed(reply);
        // a wait as short as the margin is no evidence
        let waits = wait_ns > limits::GIVEN_UP_NS;
        let span = || calm::span_of(context, call.time.saturating_sub(aftermath_ns), reply.time);
        if is_taken && waits && span().is_some() && !has_it(context, lock, position) {
            refused.push(GivenUpCall {
                lock,
                call: position,
                reply: call.mate,
                waited_ns: reply.time.saturating_sub(call.time),
                wait_ns,
            });
        }
    });
    refused
}

/// The number of holds before a call in which the hold of its own process is looked for.
const BEFORE: usize = 64;

/// Returns whether the process of a call had the lock: one that is not reentrant, or whose readers cannot write, refuses that.
fn has_it(context: &Context<'_>, lock: usize, call: u32) -> bool {
    let (instant, process) = (context.history.instant(call), context.history.event(call).process);
    let holds = &context.holds.by_lock[lock];
    let before = holds.partition_point(|hold| hold.from <= instant);
    let mut near = holds[before.saturating_sub(BEFORE)..before].iter();
    near.any(|hold| hold.process == process && hold.to > instant)
}
