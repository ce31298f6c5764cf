//! Timers of a world ([`WorldSleep`]).

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use super::World;
use super::events::EventKey;

/// A timer of a world; see [`World::sleep`].
#[derive(Debug)]
#[must_use = "a timer does nothing unless it is awaited"]
pub struct WorldSleep {
    world: World,
    pub(crate) until: u64,
    event: Option<EventKey>,
}

impl WorldSleep {
    /// Ready at this time since the beginning, in nanoseconds.
    pub(crate) fn new(world: World, until: u64) -> Self {
        Self {
            world,
            until,
            event: None,
        }
    }

    /// Sets a timer that ends when something is due, which may be its time already.
    pub(crate) fn set(timer: &mut Option<Self>, world: World, due: Option<u64>) {
        if timer.as_ref().map(|timer| timer.until) != due {
            *timer = due.map(|at| Self::new(world, at));
        }
    }
}

impl Future for WorldSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let (world, until, before) = (self.world, self.until, self.event);
        let event = world.with(|core| {
            if core.clock.get() >= until {
                return None;
            }
            let mut events = core.events.borrow_mut();
            let waking = core.waking(task.waker());
            let Some(kept) = before.and_then(|before| events.get_mut(before)) else {
                return Some(events.add(until, waking));
            };
            // most often by the same task as before
            if !waking.wakes_the_same(kept) {
                let replaced = std::mem::replace(kept, waking);
                drop(events);
                drop(replaced);
            }
            before
        });
        self.event = event.or(self.event);
        match event {
            Some(_) => Poll::Pending,
            None => Poll::Ready(()),
        }
    }
}

impl Drop for WorldSleep {
    fn drop(&mut self) {
        if let Some(event) = self.event {
            self.world.remove_event(event);
        }
    }
}

/// Returns the answer of `work`, or `None` if `other` is done before it, such as the timer of a limit.
pub(crate) async fn first_of<T>(work: impl Future<Output = T>, other: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut other) = (pin!(work), pin!(other));
    poll_fn(|task| {
        if let Poll::Ready(answer) = work.as_mut().poll(task) {
            return Poll::Ready(Some(answer));
        }
        other.as_mut().poll(task).map(|()| None)
    })
    .await
}
