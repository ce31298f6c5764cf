//! The order in which events are looked at: by time where the history goes by time, else as they stand in the file.
//!
//! A lost signal may be older than the lines above it; it moves to its own time, though never before the reply that
//! began the hold it ends.

use crate::history::{F, History, OrderBasis};

/// Positions of a history's client events in order. `None` stands for the order of the file.
pub(crate) struct EventOrder(Option<Vec<(u64, u32)>>);

impl EventOrder {
    pub(crate) fn of(history: &History) -> Self {
        if history.order == OrderBasis::Position || history.in_order {
            return Self(None);
        }
        let mut order: Vec<(u64, u32)> = keys(history).collect();
        order.sort_unstable();
        Self(Some(order))
    }

    /// Calls `see` with each instant and position, in order, until it says that it has seen enough.
    pub(crate) fn walk(&self, history: &History, mut see: impl FnMut(u64, u32) -> bool) {
        match &self.0 {
            Some(order) => {
                let _ = order.iter().all(|(instant, position)| see(*instant, *position));
            }
            None => {
                let _ = (0..history.events.len() as u32).all(|position| see(history.instant(position), position));
            }
        }
    }
}

fn keys(history: &History) -> impl Iterator<Item = (u64, u32)> {
    let mut got = vec![0u64; history.processes.len()];
    history.events.iter().enumerate().filter_map(move |(position, event)| {
        let last = got.get_mut(event.process as usize)?;
        if event.is_ok(F::Acquire) {
            *last = event.time;
        }
        let key = if matches!(event.f, F::Lost | F::Died) {
            event.time.max(*last)
        } else {
            event.time
        };
        Some((key, position as u32))
    })
}
