//! The work of a server, by time ([`WorkQueue`]): work for the same time is done in the order in which it came.

use std::cell::RefCell;
use std::collections::VecDeque;

/// Nearly all work that comes is due after the rest, which is little: a sorted queue.
pub(crate) struct WorkQueue<W>(RefCell<VecDeque<(u64, W)>>);

impl<W> Default for WorkQueue<W> {
    fn default() -> Self {
        WorkQueue(RefCell::default())
    }
}

impl<W> WorkQueue<W> {
    /// Adds work for this time.
    pub fn add(&self, at: u64, work: W) {
        let mut queue = self.0.borrow_mut();
        let mut place = queue.len();
        while place > 0 && queue[place - 1].0 > at {
            place -= 1;
        }
        queue.insert(place, (at, work));
    }

    /// Takes out the first work that is due by `now`.
    pub fn take_due(&self, now: u64) -> Option<W> {
        self.next_at().filter(|at| *at <= now)?;
        self.0.borrow_mut().pop_front().map(|(_, work)| work)
    }

    /// Returns the time at which the first is due.
    pub fn next_at(&self) -> Option<u64> {
        self.0.borrow().front().map(|(at, _)| *at)
    }

    /// Returns the time at which each is due.
    pub fn times(&self) -> Vec<u64> {
        self.0.borrow().iter().map(|(at, _)| *at).collect()
    }

    /// Drops work that is not to be done any more.
    pub fn retain(&self, is_done: impl Fn(&W) -> bool) {
        self.0.borrow_mut().retain(|(_, work)| is_done(work));
    }

    pub fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_by_its_time_and_then_in_the_order_in_which_it_came() {
        let work = WorkQueue::default();
        for (at, name) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd'), (9, 'e')] {
            work.add(at, name);
        }
        assert_eq!((work.take_due(2), work.next_at()), (None, Some(3)));
        let mut done = String::new();
        while let Some(name) = work.take_due(5) {
            done.push(name);
        }
        assert_eq!((done.as_str(), work.times()), ("bdac", vec![9]));
    }
}
