//! Extensions of leases (`extend`) as they bear on holds: one that began a hold again, one that removed the lock that it was to keep.

use crate::grants::ServerGrant;
use crate::history::{F, History};
use crate::holds::LockHold;
use crate::limits;

/// Whether a hold began with an extension, after its process had lost the lock.
pub(crate) fn began_again(history: &History, hold: &LockHold) -> bool {
    history.rare(history.event(hold.got)).extends
}

/// The positions of the answers `ok` to extensions of a hold.
pub(crate) fn answered_ok<'a>(history: &'a History, hold: &LockHold) -> impl Iterator<Item = u32> + 'a {
    let (process, lock, got) = (hold.process, hold.lock(history), hold.got);
    (got..hold.end.min(history.len() as u32)).filter(move |position| {
        let event = history.event(*position);
        event.is_ok(F::Extend) && event.process == process && history.lock_number(event) == Some(lock)
    })
}

/// The answer `ok` to an extension of a hold while which the server's grant was removed by a request. One that compares its owner would
/// not have been answered so if another's request had come before.
pub(crate) fn that_removed(history: &History, hold: &LockHold, grant: &ServerGrant) -> Option<u32> {
    let removed_ns = grant.revoked_ns(history).filter(|_| grant.was_deleted(history))?;
    answered_ok(history, hold).find(|answer| {
        let answer = history.event(*answer);
        let called_ns = history.event(answer.mate).time;
        (called_ns..=answer.time.saturating_add(limits::AT_ONCE_NS)).contains(&removed_ns)
    })
}
