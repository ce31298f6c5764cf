//! An acquire as a wait.

use crate::context::Context;
use crate::history::PackedEvent;
use crate::history::event::Kind;

/// One acquire, from its call to its answer, or to the end of its process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub process: u32,
    /// The position of its call.
    pub call: u32,
    pub acquired: bool,
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Wait {
    /// The wait of a call, which is at a position.
    #[inline]
    pub(crate) fn of(context: &Context<'_>, position: u32, call: PackedEvent) -> Self {
        let answer = context.history.events.answer(call.mate);
        let over_ns = || context.died_ns(call.process).min(context.history.end_ns);
        Self {
            process: call.process,
            call: position,
            acquired: answer.is_some_and(|(kind, _)| kind == Kind::Ok),
            from_ns: call.time,
            to_ns: answer.map_or_else(over_ns, |(_, ns)| ns),
        }
    }

    pub(crate) fn length_ns(&self) -> u64 {
        self.to_ns.saturating_sub(self.from_ns)
    }
}

/// When all up to each one were over.
pub(crate) fn over_ns(waits: impl Iterator<Item = Wait>) -> Vec<u64> {
    let latest = |over_ns: &mut u64, wait: Wait| {
        *over_ns = wait.to_ns.max(*over_ns);
        Some(*over_ns)
    };
    waits.scan(0, latest).collect()
}
