//! The answers to those who asked for a lock while it did not move.

use super::stuck::Stuck;
use crate::context::Context;
use crate::history::event::{Kind, Wakes};
use crate::history::names::{FastSet, NONE, Symbol};
use crate::history::{F, History, PackedEvent, Refusal};
use crate::limits;

/// What was answered to acquires of a lock that were under way while it did not move.
#[derive(Debug, Default)]
pub(super) struct StallAnswers {
    /// The lock was taken, or not free in time; or an error took as long as the wait.
    refused: u64,
    /// Errors that came long before the wait was over, and the words of the last of them.
    errors: u64,
    error: Symbol,
    /// Acquires without an answer, or with one that came later.
    open: u64,
    /// Clients that called when the lock did not move already, and were refused.
    anew: FastSet<u32>,
}

impl StallAnswers {
    pub(super) fn of(context: &Context<'_>, stuck: &Stuck) -> Self {
        let (history, lock) = (context.history, context.history.locks[stuck.lock]);
        let mut answers = Self {
            error: NONE,
            ..Self::default()
        };
        history.events.each_call(F::Acquire, |_, call| {
            if call.lock != lock || call.time > stuck.to_ns {
                return;
            }
            match history.events.get(call.mate as usize) {
                Some(reply) if reply.time < stuck.from_ns => {}
                Some(reply) if reply.time <= stuck.to_ns => answers.see(history, stuck, call, reply),
                _ => answers.open += 1,
            }
        });
        answers
    }

    fn see(&mut self, history: &History, stuck: &Stuck, call: PackedEvent, reply: PackedEvent) {
        if reply.kind == Kind::Ok {
            return;
        }
        if is_error(history, call, reply) {
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

    /// Whether a client looked at the lock when it did not move already: asked for it then, or polls.
    pub(super) fn asked_anew(&self, context: &Context<'_>) -> bool {
        !self.anew.is_empty() || context.history.header.promises.wakes == Some(Wakes::Polls)
    }

    /// The same of one client.
    pub(super) fn asks_anew(&self, context: &Context<'_>, client: u32) -> bool {
        self.anew.contains(&client) || context.history.header.promises.wakes == Some(Wakes::Polls)
    }
}

/// Whether an acquire failed for a reason of its own: what says neither that the lock is taken nor that the time is over, and came when
/// half of the wait was not over yet.
fn is_error(history: &History, call: PackedEvent, reply: PackedEvent) -> bool {
    let wait_ms = history.wait_ms(call);
    let taken = history.name(history.rare(reply).error).map(Refusal::parse);
    let in_words = !matches!(taken, None | Some(Refusal::Busy | Refusal::Timeout));
    in_words && wait_ms != NONE && reply.time.saturating_sub(call.time) * 2 < limits::ns(u64::from(wait_ms))
}
