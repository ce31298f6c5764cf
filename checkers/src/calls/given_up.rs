//! Acquires that were refused long before their waits were over, by a lock that promises to wait: they gave up at once.
//!
//! A lock whose contract says nothing of how its waiters learn that it is free may be one that only tries, and a library may have a limit of
//! its own: it waits for that long and no longer. One that was told that it has the lock when too little of the lease was left gives it back,
//! and says the same. Nor does one wait that would wait for itself. These are no faults.

use crate::calm;
use crate::context::Context;
use crate::history::event::Kind;
use crate::limits;

/// An acquire that was refused long before its wait was over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GivenUpCall {
    pub lock: usize,
    /// The positions of the call and of its answer.
    pub call: u32,
    pub reply: u32,
    /// How long it waited, and how long it was to wait.
    pub waited_ns: u64,
    pub wait_ns: u64,
}

impl GivenUpCall {
    /// Whether more of the wait was left than was over, and that not for the rounding of a limit to whole seconds.
    fn is_early(&self) -> bool {
        let left_ns = self.wait_ns.saturating_sub(self.waited_ns);
        left_ns > self.waited_ns && left_ns > limits::GIVEN_UP_NS
    }
}

/// All of them, where they are more than a doubt now and then, and the lock has no limit of its own.
pub(super) fn of(context: &Context<'_>) -> Vec<GivenUpCall> {
    // it says that its waiters are notified, or ask again and again
    if context.history.header.promises.wakes.is_none() {
        return Vec::new();
    }
    let refused = refused(context);
    let at_once = |call: &&GivenUpCall| call.is_early() && call.waited_ns < context.lease_ns / 2;
    let early: Vec<GivenUpCall> = refused.iter().filter(at_once).copied().collect();
    let (count, all) = (early.len() as u64, refused.len() as u64);
    let habit = count >= limits::GIVEN_UP && count * limits::GIVEN_UP_SHARE >= all;
    // with a limit of its own no acquire waits for longer, and one that was to wait for less is in time
    let longest_ns = early.iter().map(|call| call.waited_ns).max().unwrap_or(0);
    let is_within = |call: &GivenUpCall| call.waited_ns <= longest_ns + longest_ns / 4;
    let own_limit = longest_ns > limits::OWN_LIMIT_NS && refused.iter().all(is_within);
    if habit && !own_limit { early } else { Vec::new() }
}

/// The acquires that were told that the lock was taken although they were to wait, where nothing had been done to anything for a lease.
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
        let is_taken = history.says_taken(reply) && !history.rare(reply).disturbed;
        // a wait as short as the margin says nothing
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

/// Holds before a call among which is that of its own process, if there is one.
const BEFORE: usize = 64;

/// Whether the process of a call had the lock: one that cannot be taken twice refuses that at once, and so does one that lets no reader write.
fn has_it(context: &Context<'_>, lock: usize, call: u32) -> bool {
    let (instant, process) = (context.history.instant(call), context.history.event(call).process);
    let holds = &context.holds.by_lock[lock];
    let before = holds.partition_point(|hold| hold.from <= instant);
    let mut near = holds[before.saturating_sub(BEFORE)..before].iter();
    near.any(|hold| hold.process == process && hold.to > instant)
}
