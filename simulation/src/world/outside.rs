//! Calls and time for a world whose processes are outside of it: calls at a time that can be taken back, and time that was spent outside.

use std::time::Duration;

use super::events::EventKey;
use super::{World, nanoseconds};

/// A call that is due at a time; dropping it takes it back.
#[derive(Debug)]
#[must_use = "a call is taken back when this is dropped"]
pub struct ScheduledCall {
    world: World,
    event: EventKey,
}

impl Drop for ScheduledCall {
    fn drop(&mut self) {
        self.world.remove_event(self.event);
    }
}

impl World {
    /// Calls `event` at this time since the beginning, or at once after what is due already.
    pub fn call_at(self, time: Duration, event: impl FnOnce() + 'static) -> ScheduledCall {
        let event = self.at(nanoseconds(time), event);
        ScheduledCall { world: self, event }
    }

    /// Lets time pass that was spent outside: events that were due meanwhile are late.
    pub fn spend(self, time: Duration) {
        self.with(|core| core.pass(nanoseconds(time)));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_call_comes_at_its_time_unless_it_is_taken_back_and_late_after_time_was_spent() {
        let called = World::run(1, async |world: World| {
            let called: Rc<Cell<Option<u64>>> = Rc::default();
            let note = |called: &Rc<Cell<Option<u64>>>| {
                let called = Rc::clone(called);
                move || called.set(Some(world.clock_ns()))
            };
            drop(world.call_at(Duration::from_millis(1), note(&called)));
            world.sleep(Duration::from_millis(2)).await;
            assert_eq!(called.get(), None, "it was taken back");
            let _due = world.call_at(Duration::from_millis(3), note(&called));
            world.spend(Duration::from_millis(5));
            world.sleep(Duration::from_millis(1)).await;
            called.get().unwrap()
        });
        assert!((7_000_000..7_100_000).contains(&called), "{called}");
    }
}
