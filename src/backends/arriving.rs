//! Events of a server in the order of their arrival ([`ArrivingEvents`]): each is received at once, also during queries.

use std::collections::VecDeque;

use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::mpsc;

use crate::clock::GroundClock;

/// An event, with the time of its arrival.
pub struct ArrivedEvent<E> {
    pub at: u64,
    /// `None` is the end of the connection.
    pub event: Option<E>,
}

/// The events of a connection.
pub struct ArrivingEvents<E> {
    stream: BoxStream<'static, E>,
    /// Events that came during another wait.
    pub ahead: VecDeque<ArrivedEvent<E>>,
}

impl<E> ArrivingEvents<E> {
    pub fn new(stream: BoxStream<'static, E>) -> Self {
        let ahead = VecDeque::new();
        Self { stream, ahead }
    }

    /// Returns the next event.
    pub async fn next(&mut self, clock: GroundClock) -> ArrivedEvent<E> {
        match self.ahead.pop_front() {
            Some(arrived) => arrived,
            None => arrived(self.stream.next().await, clock),
        }
    }

    /// Waits for `awaited`, and receives events in the meantime.
    pub async fn during<T>(&mut self, awaited: impl Future<Output = T>, clock: GroundClock) -> T {
        let (stream, ahead) = (&mut self.stream, &mut self.ahead);
        let mut awaited = std::pin::pin!(awaited);
        loop {
            let there = ahead.back().is_none_or(|last| last.event.is_some());
            tokio::select! {
                biased;
                event = stream.next(), if there => ahead.push_back(arrived(event, clock)),
                done = &mut awaited => return done,
            }
        }
    }
}

impl<E: Send + 'static> From<mpsc::UnboundedReceiver<E>> for ArrivingEvents<E> {
    fn from(mut events: mpsc::UnboundedReceiver<E>) -> Self {
        Self::new(stream::poll_fn(move |context| events.poll_recv(context)).boxed())
    }
}

fn arrived<E>(event: Option<E>, clock: GroundClock) -> ArrivedEvent<E> {
    let at = clock.now_ns();
    ArrivedEvent { at, event }
}
