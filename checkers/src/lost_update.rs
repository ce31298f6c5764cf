//! HL008, lost update: the register of an application that relies on the lock.
//!
//! Every holder reads the plain register and writes the value plus one. Only writes inside the writer's certain hold count: a write after
//! the notice of a loss is the application's fault, and goes into a note.

use crate::context::Context;
use crate::finding::Verdict;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, Mode, NAMED_VALUE};
use crate::model::Model;

/// One increment: a read and the write that rests on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Increment {
    pub lock: usize,
    pub process: u32,
    /// The position of the reply of the read; `NONE` when the history has none.
    pub read: u32,
    /// The position of the reply of the write.
    pub write: u32,
    pub value: u64,
    /// The position of the reply that began the writer's hold; `NONE` when it did not hold for certain.
    pub got: u32,
}

impl Increment {
    /// Returns the value that was read, if there was a read.
    fn value_read(&self, history: &History) -> Option<u64> {
        let read = history.events.get(self.read as usize)?;
        history.rare(read).value
    }

    /// Returns whether it wrote the number that it had read, plus one.
    fn counts_up(&self, history: &History) -> bool {
        let next = self.value_read(history).and_then(|read| read.checked_add(1));
        self.value < NAMED_VALUE && next == Some(self.value)
    }
}

/// A process that read the register while another was between its read and its write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerReader {
    pub process: u32,
    /// The position of the reply of the read.
    pub read: u32,
    /// The position of the reply that began its hold.
    pub got: u32,
}

/// A write that undid another, or a read in the midst of another's increment.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Damage {
    /// The culprit overwrote the victim's value after it had read another one.
    Lost { victim: Increment, culprit: Increment },
    /// A holder read between the read and the write of another.
    TwoInside { reader: InnerReader, increment: Increment },
}

/// The decision on HL008.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// Not applicable without a register that a lock guards, and to a semaphore with several permits.
    pub verdict: Verdict,
    pub increments: u64,
    /// The sum of the largest values written, over all locks.
    pub last_value: u64,
    /// Writes outside of a certain hold, which do not count.
    pub outside: u64,
    pub lost: u64,
    pub two_inside: u64,
    pub damage: Vec<Damage>,
}

pub(crate) fn decide(context: &Context<'_>) -> Updates {
    let mut updates = Updates::default();
    // several holders of permits may write at the same time, and undo each other's writes
    let excludes = context.model.is_lock() && context.model.capacity() == 1;
    if context.history.counts.writes > 0 && excludes {
        updates.walk(context);
        updates.verdict = Verdict::of(!updates.damage.is_empty());
    }
    updates
}

impl Updates {
    /// Judges all reads and writes, in the order of time.
    fn walk(&mut self, context: &Context<'_>) {
        let history = context.history;
        let mut last: Vec<Option<Increment>> = vec![None; history.locks.len()];
        let mut last_write_of_lock: Vec<u64> = vec![0; history.locks.len()];
        let mut reads: Vec<u32> = vec![NONE; history.processes.len()];
        // Reads since the last write of each lock, for [`Damage::TwoInside`].
        let mut recent: Vec<Vec<u32>> = vec![Vec::new(); history.locks.len()];
        let is_looked_at = |f, kind| kind == Kind::Ok && matches!(f, F::Acquire | F::Read | F::Write);
        history.each_in_time(is_looked_at, |lock, position, event| {
            if event.is_ok(F::Acquire) {
                reads[event.process as usize] = NONE;
            } else if event.is_ok(F::Read) {
                reads[event.process as usize] = position;
                recent[lock].push(position);
            } else if event.is_ok(F::Write) {
                let call = history.event(event.mate);
                let Some(value) = history.rare(event).value.or(history.rare(call).value) else {
                    return;
                };
                let hold = context.holds.around(lock, event.process, history.instant(event.mate));
                // a shared lock does not exclude the other readers, which may write as well
                let hold = hold.filter(|hold| context.model != Model::ReadWrite || hold.mode == Mode::Write);
                let read = std::mem::replace(&mut reads[event.process as usize], NONE);
                let got = hold.map_or(NONE, |hold| hold.got);
                let increment = Increment {
                    lock,
                    process: event.process,
                    read,
                    write: position,
                    value,
                    got,
                };
                self.step(context, increment, last[lock], &recent[lock]);
                recent[lock].retain(|read| {
                    let reader = history.event(*read).process;
                    reader != event.process && reads[reader as usize] == *read
                });
                last_write_of_lock[lock] = last_write_of_lock[lock].max(value);
                last[lock] = Some(increment);
            }
        });
        self.last_value = last_write_of_lock.iter().sum();
    }

    fn step(&mut self, context: &Context<'_>, increment: Increment, last: Option<Increment>, recent: &[u32]) {
        if increment.got == NONE {
            self.outside += 1;
            return;
        }
        self.increments += 1;
        let history = context.history;
        let counts = |got: u32| !(context.is_excused(got) && context.is_excused(increment.got));
        let is_lost = |last: &Increment| {
            let unread = increment.read != NONE && increment.value_read(history) != Some(last.value);
            let is_no_more = increment.value <= last.value && last.process != increment.process;
            let read_before = || context.is_before(increment.read, history.event(last.write).mate);
            // else the value may be that of a later write: of one whose outcome is not known, where values do not count up; or, with
            // inexact clocks, of one that looks earlier
            let is_exact = context.apart_ns() == 0;
            let count = || last.counts_up(history) && increment.counts_up(history);
            let is_older = || read_before() || is_exact && count();
            unread && is_no_more && context.is_before(last.write, increment.write) && is_older()
        };
        if let Some(victim) = last.filter(is_lost) {
            if victim.got != NONE && counts(victim.got) {
                self.lost += 1;
                let culprit = increment;
                self.damage.push(Damage::Lost { victim, culprit });
            }
            return;
        }
        // No other process may have read between the read and the write of this increment.
        let called = history.event(increment.write).mate;
        let is_inside = |read: &u32| {
            increment.read != NONE && context.is_before(increment.read, *read) && context.is_before(*read, called)
        };
        for read in recent.iter().copied().filter(is_inside) {
            let process = history.event(read).process;
            let hold = context.holds.around(increment.lock, process, history.instant(read));
            if let Some(hold) = hold.filter(|hold| process != increment.process && counts(hold.got)) {
                self.two_inside += 1;
                let got = hold.got;
                let reader = InnerReader { process, read, got };
                self.damage.push(Damage::TwoInside { reader, increment });
            }
        }
    }
}
