//! The traffic of each lock by time: releases, calls of acquires and their answers, and wakes.

use crate::context::Context;
use crate::history::{F, Mode};
use crate::holds::{Ended, LockHold};

/// The traffic of one lock, by time.
#[derive(Debug, Default)]
pub(super) struct LockTraffic {
    /// Release calls of certain holds.
    pub releases: Vec<Release>,
    /// The times of acquire calls and of their answers.
    pub asked: Vec<u64>,
    pub answered: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Release {
    pub ns: u64,
    pub position: u32,
}

/// One `woken` signal, or one notification in the taps' lines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wake {
    pub ns: u64,
    pub position: u32,
    pub client: u32,
    /// Whether the process's next event on the lock was a successful acquire.
    pub useful: bool,
    pub reader: bool,
    /// Whether it may belong to a watch that an earlier acquire of its client left when it gave up.
    pub leftover: bool,
}

/// Returns the traffic of each lock, and its wakes by the clients' signals.
pub(super) fn traffic(context: &Context<'_>) -> (Vec<LockTraffic>, Vec<Vec<Wake>>) {
    let history = context.history;
    let mut all: Vec<LockTraffic> = (0..history.locks.len()).map(|_| LockTraffic::default()).collect();
    let mut wakes: Vec<Vec<Wake>> = vec![Vec::new(); history.locks.len()];
    // The last wake of each process, if no event has followed it: lock and place.
    let mut fresh: Vec<Option<(usize, usize)>> = vec![None; history.processes.len()];
    let about_waiting = |f, _| matches!(f, F::Woken | F::Acquire);
    history.each_of_locks(about_waiting, |lock, position, event| {
        let process = event.process as usize;
        if event.f == F::Woken {
            fresh[process] = Some((lock, wakes[lock].len()));
            let client = history.client_of(event.process);
            wakes[lock].push(Wake {
                ns: event.time,
                position,
                client,
                useful: false,
                reader: false,
                leftover: false,
            });
        } else if event.is_call(F::Acquire) {
            all[lock].asked.push(event.time);
        } else {
            all[lock].answered.push(event.time);
            if let Some((_, place)) = fresh[process]
                .take()
                .filter(|(woken, _)| *woken == lock && event.is_ok(F::Acquire))
            {
                wakes[lock][place].useful = true;
                wakes[lock][place].reader = event.mode == Mode::Read;
            }
        }
    });
    let released = |(_, hold): &(usize, &LockHold)| hold.ended == Ended::Released;
    for (lock, hold) in context.holds.with_locks().filter(released) {
        all[lock].releases.push(Release {
            ns: history.event(hold.end).time,
            position: hold.end,
        });
    }
    for traffic in &mut all {
        traffic.releases.sort_unstable();
        traffic.asked.sort_unstable();
        traffic.answered.sort_unstable();
    }
    (all, in_order(wakes))
}

/// Sorts the wakes of each lock by time.
pub(super) fn in_order(mut wakes: Vec<Vec<Wake>>) -> Vec<Vec<Wake>> {
    wakes.iter_mut().for_each(|wakes| wakes.sort_by_key(|wake| wake.ns));
    wakes
}
