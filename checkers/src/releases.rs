//! The intervals in which releases of each lock were pending.

use crate::history::event::Kind;
use crate::history::{F, History};

#[derive(Debug, Clone, Copy)]
struct ReleaseSpan {
    called_ns: u64,
    /// Without an answer, the death of its process; `u64::MAX` without either.
    answered_ns: u64,
    /// The latest answer to it and to those that were called before it.
    latest_ns: u64,
    process: u32,
    /// The position of the call.
    call: u32,
}

/// The releases by lock, in the order of their calls.
#[derive(Debug)]
pub(crate) struct Releases {
    of_lock: Vec<Vec<ReleaseSpan>>,
}

impl Releases {
    pub(crate) fn of(history: &History, died_ns: impl Fn(u32) -> u64) -> Self {
        let mut of_lock: Vec<Vec<ReleaseSpan>> = vec![Vec::new(); history.locks.len()];
        let is_call = |f, kind| f == F::Release && kind == Kind::Invoke;
        history.each_in_time(is_call, |lock, call, event| {
            let reply = history.reply(event);
            // some recorders write no answer for the calls of a process that died
            let answered_ns = reply.map_or_else(|| died_ns(event.process), |reply| reply.time);
            let latest_ns = of_lock[lock].last().map_or(0, |last| last.latest_ns).max(answered_ns);
            of_lock[lock].push(ReleaseSpan {
                called_ns: event.time,
                answered_ns,
                latest_ns,
                process: event.process,
                call,
            });
        });
        Self { of_lock }
    }

    /// Returns the calls of the releases of a lock by other processes that were pending at `ns` or were answered at most `lag_ns` before, the
    /// last first.
    pub(crate) fn of_others(&self, lock: usize, process: u32, ns: u64, lag_ns: u64) -> impl Iterator<Item = u32> {
        let spans = &self.of_lock[lock];
        let before = &spans[..spans.partition_point(|span| span.called_ns <= ns)];
        let near = before.iter().rev();
        let near = near.take_while(move |span| span.latest_ns.saturating_add(lag_ns) >= ns);
        let others = near.filter(move |span| span.process != process && span.answered_ns.saturating_add(lag_ns) >= ns);
        others.map(|span| span.call)
    }
}
