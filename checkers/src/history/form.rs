//! The rules of a well-formed history that need no other events: the next event of a process, and the author of a line.

use super::entry::{EventFields, F};
use super::error::FormError;
use super::event::{Kind, Process};
use super::names::NONE;

/// The state of one process, by positions of events.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessState {
    /// The position of the pending call.
    pub open: u32,
    /// The position of the process's last line with the recorder's time, and that time.
    pub last: u32,
    pub last_ns: u64,
    /// The position of the unknown outcome.
    pub unknown: u32,
    pub died: u32,
    /// The number of the lock that it lost last and has not acquired since; [`ALL`] if the signal named none.
    lost: u32,
    /// The time of the call of its last acquire; and, of the last one that was answered `ok`, the time before which a loss is not of it, and
    /// the number of its lock.
    asked_ns: u64,
    since: (u64, u32),
    /// The number of that lock until it calls a release of it, or loses it.
    held: u32,
    /// Whether its pending call is an extension of a lock that it had lost.
    pub retakes: bool,
}

pub(super) const NEW: ProcessState = ProcessState {
    open: NONE,
    last: NONE,
    last_ns: 0,
    unknown: NONE,
    died: NONE,
    lost: NONE,
    asked_ns: 0,
    since: (0, NONE),
    held: NONE,
    retakes: false,
};

/// All locks, in place of the number of one.
const ALL: u32 = NONE - 1;

impl ProcessState {
    /// Returns whether it has lost a lock, and has not acquired one since.
    pub(super) fn has_lost(&self, lock: u32) -> bool {
        self.lost == ALL || self.lost == lock && lock != NONE
    }

    fn gives_up(&mut self, lock: u32) {
        if [self.held, NONE].contains(&lock) {
            self.held = NONE;
        }
    }

    /// An extension with an unknown outcome does not end its process: the process knows how long the lease lasts without it.
    pub(super) fn step(&mut self, fields: &EventFields, (position, is_answer): (u32, bool), lock: u32) {
        match (fields.kind, fields.f) {
            (Kind::Signal, F::Died) => self.died = position,
            (Kind::Signal, _) if !is_answer => {}
            (Kind::Invoke, _) => self.open = position,
            (Kind::Info, f) if f != F::Extend => (self.open, self.unknown) = (NONE, position),
            _ => self.open = NONE,
        }
        match (fields.kind, fields.f) {
            // one that is written late is of a hold before
            (Kind::Signal, F::Lost) if fields.time < self.since.0 && [self.since.1, NONE].contains(&lock) => {}
            (Kind::Signal, F::Lost) => {
                self.lost = lock.min(ALL);
                self.gives_up(lock);
            }
            (Kind::Invoke, F::Release) => self.gives_up(lock),
            (Kind::Invoke, F::Acquire) => self.asked_ns = fields.time,
            (Kind::Ok, F::Acquire) => {
                // a loss is also of the next acquire of a process that had not given up its lock, as in `signal_grants`
                let since_ns = if self.held == lock { 0 } else { self.asked_ns };
                (self.since, self.held) = ((since_ns, lock), lock);
                if self.has_lost(lock) {
                    self.lost = NONE;
                }
            }
            _ => {}
        }
        if fields.kind != Kind::Signal || is_answer {
            (self.last, self.last_ns) = (position, fields.time);
        }
    }
}

/// Checks that the author of a line may write it.
pub(super) fn allowed(fields: &EventFields) -> Result<(), FormError> {
    let (who, fits) = match fields.process {
        Process::Client(_) => (
            "a client",
            match fields.kind {
                Kind::Signal => matches!(fields.f, F::Lost | F::Woken | F::Died | F::Notified),
                _ => fields.f.is_operation(),
            },
        ),
        Process::Server => (
            "the server",
            fields.kind == Kind::Signal && matches!(fields.f, F::Granted | F::Revoked),
        ),
        Process::Nemesis => ("the nemesis", fields.f == F::Nemesis),
    };
    if fits {
        Ok(())
    } else {
        Err(FormError::NotTheirs {
            who,
            kind: fields.kind.name(),
            f: fields.f.name(),
        })
    }
}
