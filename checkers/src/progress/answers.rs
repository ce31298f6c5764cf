//! The answers to those who asked for a lock while it did not move.

use super::stuck::Stuck;
use crate::context::Context;
use crate::history::event::{Kind, Wakes};
use crate::history::names::{FastSet, NONE, Symbol};
use crate::history::{F, History, PackedEvent};
use crate::limits;

/// What was answered to acquires of a lock that were under way while it did not move.
#[derive(Debug, Default)]
pub(super) struct StallAnswers {
    /// The lock was taken, or not free in time; or an error took as long as the wait.
    refused: u64,
    /// Errors, and the words of the last of them.
    errors: u64,
    error: Symbol,
    /// What the last answer said, of whatever kind.
    last: Symbol,
    /// Acquires that waited for the greater part of it, without an answer, or with one that came later.
    open: u64,
    /// Clients that called when the lock did not move already, and were refused.
    anew: FastSet<u32>,
}

impl StallAnswers {
    pub(super) fn of(context: &Context<'_>, stuck: &Stuck) -> Self {
        let (history, lock) = (context.history, context.history.locks[stuck.lock]);
        let half_ns = stuck.from_ns + (stuck.to_ns - stuck.from_ns) / 2;
        let mut answers = Self {
            error: NONE,
            last: NONE,
            ..Self::default()
        };
        history.events.each_call(F::Acquire, |_, call| {
            if call.lock != lock || call.time > stuck.to_ns {
                return;
            }
            match history.reply(call) {
                Some(reply) if reply.time < stuck.from_ns => {}
                Some(reply) if reply.time <= stuck.to_ns => answers.see(context, stuck, call, reply),
                _ => answers.open += u64::from(call.time < half_ns),
            }
        });
        answers
    }

    fn see(&mut self, context: &Context<'_>, stuck: &Stuck, call: PackedEvent, reply: PackedEvent) {
        let history = context.history;
        if reply.kind == Kind::Ok {
            return;
        }
        self.last = history.rare(reply).error;
        if is_error(context, call, reply) {
            self.errors += 1;
            self.error = history.rare(reply).error;
            return;
        }
        self.refused += 1;
        if call.time >= stuck.from_ns {
            self.anew.insert(history.client_of(call.process));
        }
    }

    /// The last error, where nobody who asked was answered otherwise.
    pub(super) fn only_errors<'a>(&self, history: &'a History) -> Option<&'a str> {
        let alone = self.errors > 0 && self.refused == 0 && self.open == 0;
        history.name(self.error).filter(|_| alone)
    }

    /// What the last of them said.
    pub(super) fn last<'a>(&self, history: &'a History) -> Option<&'a str> {
        history.name(self.last)
    }

    /// Whether a client looked at the lock when it did not move already: asked for it then, or polls.
    pub(super) fn asked_anew(&self, context: &Context<'_>) -> bool {
        !self.anew.is_empty() || context.history.header.promises.wakes == Some(Wakes::Polls)
    }

    /// Whether a client called when the lock did not move already, and was refused.
    pub(super) fn was_refused_anew(&self, client: u32) -> bool {
        self.anew.contains(&client)
    }

    /// Whether no acquire was answered at all.
    pub(super) fn are_none(&self) -> bool {
        self.refused == 0 && self.errors == 0
    }
}

/// Whether an acquire failed for a reason of its own, which says neither that the lock is taken nor that the time is over: in words, when half
/// of the wait was not over yet; or with an outcome that is not known, unless it is that of a client which did not answer.
fn is_error(context: &Context<'_>, call: PackedEvent, reply: PackedEvent) -> bool {
    let history = context.history;
    let in_words = history.error(reply).is_some() && !history.says_taken(reply);
    let Some(wait_ns) = history.wait_ns(call).filter(|_| in_words) else {
        return false;
    };
    let after_ns = reply.time.saturating_sub(call.time);
    match reply.kind {
        Kind::Info => after_ns < wait_ns + limits::ns(limits::ANSWER_MS) + context.lease_ns,
        _ => after_ns * 2 < wait_ns,
    }
}
