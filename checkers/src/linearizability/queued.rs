//! Events that wait for their turn in a monitor.

use std::collections::VecDeque;

use super::order::OrderedEvent;

/// An event in its place: by instant, then by rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuedEvent {
    pub instant: u64,
    pub rank: u64,
    pub position: u32,
    pub lock: u32,
    pub void: bool,
}

impl QueuedEvent {
    pub(super) fn ordered(&self) -> OrderedEvent {
        OrderedEvent {
            instant: self.instant,
            position: self.position,
            lock: self.lock,
            void: self.void,
        }
    }
}

/// Notes that a grant was lost before its process was told of it, unless it has had its turn.
pub(super) fn make_void(queue: &mut VecDeque<QueuedEvent>, instant: u64, rank: u64) {
    let place = queue.partition_point(|other| (other.instant, other.rank) < (instant, rank));
    if let Some(grant) = queue.get_mut(place).filter(|found| found.rank == rank) {
        grant.void = true;
    }
}
