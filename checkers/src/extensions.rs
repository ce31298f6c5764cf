//! Extensions of leases (`extend`): those of a hold, and the one that began a hold again.

use crate::history::event::Kind;
use crate::history::{F, History};
use crate::holds::LockHold;

/// Returns whether a hold began with an extension, after its process had lost the lock.
pub(crate) fn began_again(history: &History, hold: &LockHold) -> bool {
    history.rare(history.event(hold.got)).extends
}

/// The positions of the `ok` answers to extensions, by process, ascending.
#[derive(Debug)]
pub(crate) struct Extensions(Vec<Vec<u32>>);

impl Extensions {
    pub(crate) fn of(history: &History) -> Self {
        let mut answers = vec![Vec::new(); history.processes.len()];
        let is_ok = |f, kind| f == F::Extend && kind == Kind::Ok;
        history
            .events
            .each_of(is_ok, |position, event| answers[event.process as usize].push(position));
        Self(answers)
    }

    /// Returns the answers that belong to a hold.
    pub(crate) fn of_hold(&self, history: &History, hold: &LockHold) -> impl DoubleEndedIterator<Item = u32> {
        let (own, lock, got, end) = (&self.0[hold.process as usize], hold.lock(history), hold.got, hold.end);
        let from = own.partition_point(|answer| *answer < got);
        let to = own.partition_point(|answer| *answer < end).max(from);
        let of_it = move |answer: &u32| history.lock_number(history.event(*answer)) == Some(lock);
        own[from..to].iter().copied().filter(of_it)
    }
}
