//! Replies that a rule dropped although their requests were accepted ([`LostReply`]), and the requests that followed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use super::tap::{MessageName, RequestWords};

/// The most lost replies whose following requests are noted.
const MOST: usize = 1024;
/// Times of refusals that are kept for each of them; a power of two.
const REFUSALS: u64 = 64;

/// A dropped reply to an accepted request, and the refused requests of the same name that the client sent next, before any other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostReply {
    pub client: u32,
    pub name: MessageName,
    /// The time at which the accepted request passed, by the clock of its link, in nanoseconds.
    pub at: u64,
    pub refused: u64,
    /// The times of the refusals: of each, or of each second, fourth, … of them.
    pub times: Vec<u64>,
    /// The words of the accepted request, its name first, where its protocol has them.
    pub words: RequestWords,
    /// The number of changes of the client's label at that time.
    changes: u64,
}

impl LostReply {
    pub(super) fn new(client: u32, name: MessageName, at: u64, changes: u64, words: RequestWords) -> Self {
        Self {
            client,
            name,
            at,
            refused: 0,
            times: Vec::new(),
            words,
            changes,
        }
    }

    /// Notes a refusal. Of many it keeps times that are spread evenly.
    fn note(&mut self, now: u64) {
        let mut step = 1;
        while self.refused / step >= REFUSALS {
            step *= 2;
        }
        if self.refused.is_multiple_of(step) {
            if self.refused / step == REFUSALS / 2 && step > 1 {
                self.times = self.times.iter().copied().step_by(2).collect();
            }
            self.times.push(now);
        }
        self.refused += 1;
    }
}

/// The replies that were dropped though their requests were accepted.
#[derive(Debug, Default)]
pub(super) struct LostReplies {
    all: Mutex<Vec<LostReply>>,
    /// Whether there is one, so that the refusals of a run without any take no mutex.
    any: AtomicBool,
}

impl LostReplies {
    pub fn all(&self) -> Vec<LostReply> {
        self.locked().clone()
    }

    pub fn note_loss(&self, reply: LostReply) {
        let mut all = self.locked();
        if all.len() < MOST {
            all.push(reply);
            self.any.store(true, Ordering::Release);
        }
    }

    /// Notes a refused request of a client whose label had changed so often.
    pub fn note_refusal(&self, client: u32, name: MessageName, changes: u64, now: u64) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut all = self.locked();
        let latest = all.iter_mut().rev().find(|lost| lost.client == client);
        if let Some(lost) = latest.filter(|lost| lost.name == name && lost.changes == changes) {
            lost.note(now);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Vec<LostReply>> {
        self.all.lock().expect("no one panics while holding counts")
    }
}
