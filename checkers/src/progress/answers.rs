//! The answers to acquires of a stuck lock.

use super::stuck::Stuck;
use crate::context::Context;
use crate::history::event::{Kind, Wakes};
use crate::history::names::{FastSet, NONE, Symbol};
use crate::history::{History, PackedEvent};
use crate::limits;

/// The answers to acquires of a lock that were pending while it was stuck.
#[derive(Debug, Default)]
pub(super) struct StallAnswers {
    /// Answers that the lock was taken, or not free in time; and errors that took as long as the wait.
    pub(super) refused: u64,
    /// The words of the last other error.
    error: Symbol,
    /// The words of the last answer of any kind.
    last: Symbol,
    /// Acquires that waited for the greater part of the stall, and were answered after it or never.
    open: u64,
    /// Clients that called when the lock was stuck already, and were refused.
    anew: FastSet<u32>,
}

impl StallAnswers {
    pub(super) fn of(context: &Context<'_>, stuck: &Stuck) -> Self {
        let history = context.history;
        let half_ns = stuck.from_ns + (stuck.to_ns - stuck.from_ns) / 2;
        let mut answers = Self {
            error: NONE,
            last: NONE,
            ..Self::default()
        };
        history.each_ask(|lock, _, call| {
            if lock != stuck.lock || call.time > stuck.to_ns {
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
            self.error = history.rare(reply).error;
            return;
        }
        self.refused += 1;
        if call.time >= stuck.from_ns {
            self.anew.insert(history.client_of(call.process));
        }
    }

    /// Returns the last error, if all acquires were answered with errors.
    pub(super) fn only_errors<'a>(&self, history: &'a History) -> Option<&'a str> {
        self.last_error(history).filter(|_| self.refused == 0 && self.open == 0)
    }

    /// Returns the words of the last error that was no refusal.
    pub(super) fn last_error<'a>(&self, history: &'a History) -> Option<&'a str> {
        history.name(self.error)
    }

    /// Returns the words of the last answer.
    pub(super) fn last<'a>(&self, history: &'a History) -> Option<&'a str> {
        history.name(self.last)
    }

    /// Returns whether a client read the lock's state when it was stuck already: it called then, or polls.
    pub(super) fn asked_anew(&self, context: &Context<'_>) -> bool {
        !self.anew.is_empty() || context.history.header.promises.wakes == Some(Wakes::Polls)
    }

    /// Returns whether a client called when the lock was stuck already, and was refused.
    pub(super) fn was_refused_anew(&self, client: u32) -> bool {
        self.anew.contains(&client)
    }
}

/// Returns whether an acquire failed for another reason than a taken lock or the end of its wait: with an error in words, before half of
/// the wait was over; or with an unknown outcome, unless its client did not answer at all.
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
