//! What a process may do next, and who may say what: the rules of a well-formed history that need no history.

use super::entry::{EventFields, F};
use super::error::FormError;
use super::event::{Kind, Process};
use super::names::NONE;

/// The state of one process; positions of events.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessState {
    /// The position of the call without a reply.
    pub open: u32,
    /// The position of the process's last line that was stamped by the recorder, and its time.
    pub last: u32,
    pub last_ns: u64,
    /// The position of the outcome that is not known.
    pub unknown: u32,
    pub died: u32,
}

pub(super) const NEW: ProcessState = ProcessState {
    open: NONE,
    last: NONE,
    last_ns: 0,
    unknown: NONE,
    died: NONE,
};

impl ProcessState {
    pub(super) fn step(&mut self, fields: &EventFields, position: u32) {
        match (fields.kind, fields.f) {
            (Kind::Signal, F::Died) => self.died = position,
            (Kind::Signal, _) => return,
            (Kind::Invoke, _) => self.open = position,
            (Kind::Info, _) => (self.open, self.unknown) = (NONE, position),
            (Kind::Ok | Kind::Fail, _) => self.open = NONE,
        }
        if fields.kind != Kind::Signal {
            (self.last, self.last_ns) = (position, fields.time);
        }
    }
}

/// Who may say what.
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
    let kind = match fields.kind {
        Kind::Invoke => "invoke",
        Kind::Ok => "ok",
        Kind::Fail => "fail",
        Kind::Info => "info",
        Kind::Signal => "signal",
    };
    if fits {
        Ok(())
    } else {
        Err(FormError::NotTheirs {
            who,
            kind,
            f: fields.f.name(),
        })
    }
}
