//! The wait of an acquire, or of another call, for its answer.

use crate::context::Context;
use crate::history::PackedEvent;
use crate::history::event::Kind;
use crate::history::names::NONE;

/// The interval from a call to its answer, or to the end of its process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub process: u32,
    /// The positions of the call and of the answer; `NONE` without one.
    pub call: u32,
    pub reply: u32,
    /// The outcome; unknown without an answer.
    pub kind: Kind,
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Wait {
    /// Returns the wait of the call at a position.
    #[inline]
    pub(crate) fn of(context: &Context<'_>, position: u32, call: PackedEvent) -> Self {
        let answer = context.history.events.answer(call.mate);
        let over_ns = || context.died_ns(call.process).min(context.history.end_ns);
        Self {
            process: call.process,
            call: position,
            reply: call.mate,
            kind: answer.map_or(Kind::Info, |(kind, _)| kind),
            from_ns: call.time,
            to_ns: answer.map_or_else(over_ns, |(_, ns)| ns),
        }
    }

    /// Returns the wait of a call by its position alone.
    pub(crate) fn at(context: &Context<'_>, call: u32) -> Self {
        Self::of(context, call, context.history.event(call))
    }

    /// Returns the position of its answer, if it has one.
    pub(crate) fn answer(&self) -> Option<u32> {
        (self.reply != NONE).then_some(self.reply)
    }

    /// Returns whether it was pending when the observer showed a grant at a time, by a line with a delay of up to `lag_ns`.
    pub(crate) fn was_in_flight(&self, granted_ns: u64, lag_ns: u64) -> bool {
        self.from_ns <= granted_ns && granted_ns <= self.to_ns.saturating_add(lag_ns)
    }

    pub(crate) fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

impl Context<'_> {
    /// Returns the waits for a lock, in the order of their calls.
    pub(crate) fn waits_for(&self, lock: usize) -> impl Iterator<Item = Wait> {
        self.asks_of(lock).iter().map(move |call| Wait::at(self, *call))
    }
}

/// Returns, for each wait, the time at which it and all before it were over.
pub(crate) fn over_ns(waits: impl Iterator<Item = Wait>) -> Vec<u64> {
    let latest = |over_ns: &mut u64, wait: Wait| {
        *over_ns = wait.to_ns.max(*over_ns);
        Some(*over_ns)
    };
    waits.scan(0, latest).collect()
}
