//! The server's side of the network: a [`Port`] that clients connect to, and the [`PortListener`] that takes their events.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::connection::{PortEvent, PortQueue};
use super::keep_waker;
use super::message::WireMessage;
use crate::world::{Kept, World, WorldSleep};

/// The address of a server, which outlives its incarnations. `Q` is a message of a client, `R` one of the server.
pub struct Port<Q: WireMessage, R: WireMessage>(Kept<PortState<Q, R>>);

impl<Q: WireMessage, R: WireMessage> Clone for Port<Q, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q: WireMessage, R: WireMessage> Copy for Port<Q, R> {}

struct PortState<Q: WireMessage, R: WireMessage> {
    queue: RefCell<Option<Rc<PortQueue<Q, R>>>>,
    connections: Rc<Cell<u64>>,
}

impl<Q: WireMessage, R: WireMessage> Port<Q, R> {
    pub fn new(world: World) -> Self {
        Self::counting(world, Rc::default())
    }

    /// Another port of the same server: a link may carry connections to both, whose numbers differ.
    pub fn beside(self) -> Self {
        Self::counting(self.0.world(), Rc::clone(&self.0.get().connections))
    }

    fn counting(world: World, connections: Rc<Cell<u64>>) -> Self {
        Port(world.keep(PortState {
            queue: RefCell::new(None),
            connections,
        }))
    }

    /// Takes connections from now on, in place of an earlier listener. When the listener is dropped, its connections are closed,
    /// and new ones refused.
    pub fn listen(self) -> PortListener<Q, R> {
        let queue = Rc::new(PortQueue {
            events: RefCell::default(),
            waker: RefCell::default(),
        });
        drop(self.0.get().queue.replace(Some(queue.clone())));
        PortListener { port: self, queue }
    }

    /// Listens from now on, or when its server has started, which takes this time and ends with `begins`.
    pub(crate) fn listen_after(
        self,
        start: Duration,
        begins: impl FnOnce(),
    ) -> impl Future<Output = PortListener<Q, R>> {
        let world = self.0.world();
        // the first start is over before a client runs
        let listener = start.is_zero().then(|| self.listen());
        async move {
            match listener {
                Some(listener) => listener,
                None => {
                    world.sleep(start).await;
                    begins();
                    self.listen()
                }
            }
        }
    }

    /// Returns the queue of the server that listens, and the number of the next connection.
    pub(super) fn dial(self) -> Option<(Rc<PortQueue<Q, R>>, u64)> {
        let state = self.0.get();
        let queue = state.queue.borrow().clone()?;
        state.connections.set(state.connections.get() + 1);
        Some((queue, state.connections.get()))
    }
}

/// Takes the events of a port. A stopped process takes nothing, and nothing is lost.
pub struct PortListener<Q: WireMessage, R: WireMessage> {
    port: Port<Q, R>,
    queue: Rc<PortQueue<Q, R>>,
}

impl<Q: WireMessage, R: WireMessage> PortListener<Q, R> {
    /// Waits for the next event.
    pub async fn next(&self) -> PortEvent<Q, R> {
        poll_fn(|task| self.poll_next(task)).await
    }

    /// As [`Self::next`], or `None` where something else woke the task: work that it was to `hear` of, or the end of `timer`.
    pub(crate) async fn next_or_woken(
        &self,
        mut timer: Option<&mut WorldSleep>,
        hear: impl Fn(&Context<'_>),
    ) -> Option<PortEvent<Q, R>> {
        let mut is_polled = false;
        poll_fn(|task| {
            if let Poll::Ready(event) = self.poll_next(task) {
                return Poll::Ready(Some(event));
            }
            if std::mem::replace(&mut is_polled, true) {
                return Poll::Ready(None);
            }
            hear(task);
            match &mut timer {
                Some(sleep) => Pin::new(sleep).poll(task).map(|()| None),
                None => Poll::Pending,
            }
        })
        .await
    }

    /// As [`Self::next`], for a future that waits for more than this.
    pub fn poll_next(&self, task: &mut Context<'_>) -> Poll<PortEvent<Q, R>> {
        if let Some(event) = self.queue.events.borrow_mut().pop_front() {
            return Poll::Ready(event);
        }
        keep_waker(&mut self.queue.waker.borrow_mut(), task);
        Poll::Pending
    }
}

impl<Q: WireMessage, R: WireMessage> Drop for PortListener<Q, R> {
    fn drop(&mut self) {
        if let Some(state) = self.port.0.try_get() {
            let mut listening = state.queue.borrow_mut();
            if listening.as_ref().is_some_and(|queue| Rc::ptr_eq(queue, &self.queue)) {
                *listening = None;
            }
        }
        // connections that were never taken close with it
        drop(self.queue.events.take());
    }
}
