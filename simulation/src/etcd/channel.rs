//! The channel of a client to one member ([`CallChannel`]), as `Channel` of `tonic` 0.14.9 is when it is made with `connect_lazy`: a queue
//! of calls, a worker that takes one after the other, and a connection that the worker makes when it needs one.
//!
//! - The worker waits for the connection on behalf of the first call that a caller waits for; one whose caller has gone is thrown away,
//!   and nothing goes on until there is another (`tower` 0.5.3, `buffer/worker.rs:74`, `poll_next_msg`).
//! - An attempt to connect goes on meanwhile; its failure is the next call's (`tonic`, `transport/channel/service/reconnect.rs:137`).
//! - A connection that has ended is noticed when the next call is made (`reconnect.rs:161`).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use harness_workloads::etcd::EtcdCall;
use harness_workloads::{RecipeHost, Task};
use tokio::sync::oneshot;

use super::cluster::SimulatedEtcd;
use super::connection::{CallLine, OpenStream, timer_of};
use crate::network::{ConnectionRefused, SimulatedLink};

/// The call was never sent: there is no connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotSent(pub &'static str);

/// The settings of a channel's connection: how it connects, and how long that and a ping may take.
#[derive(Clone)]
pub(super) struct ChannelSettings {
    pub etcd: SimulatedEtcd,
    pub member: usize,
    pub link: SimulatedLink,
    pub host: Rc<dyn RecipeHost>,
    pub connect_limit: Duration,
    pub ping: Duration,
}

pub(super) struct CallChannel {
    queue: Rc<RefCell<CallQueue>>,
    _worker: Task,
}

#[derive(Default)]
struct CallQueue {
    calls: VecDeque<QueuedCall>,
    worker: Option<Waker>,
}

/// A call in the queue; its caller waits for the other half of the channel.
struct QueuedCall {
    call: EtcdCall,
    sent: oneshot::Sender<Result<OpenStream, NotSent>>,
}

impl CallChannel {
    pub fn new(settings: ChannelSettings) -> Self {
        let queue: Rc<RefCell<CallQueue>> = Rc::default();
        let host = settings.host.clone();
        let mut worker = ChannelWorker {
            queue: queue.clone(),
            settings,
            current: None,
            state: ChannelState::Idle,
            failed: None,
        };
        let worker = host.spawn(Box::pin(poll_fn(move |task| worker.poll(task))));
        CallChannel { queue, _worker: worker }
    }

    /// Sends a call, once there is a connection.
    pub async fn send(&self, call: EtcdCall) -> Result<OpenStream, NotSent> {
        let (sent, stream) = oneshot::channel();
        let waker = {
            let mut queue = self.queue.borrow_mut();
            queue.calls.push_back(QueuedCall { call, sent });
            queue.worker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        stream.await.unwrap_or(Err(NotSent("the client has gone")))
    }
}

enum ChannelState {
    Idle,
    Connecting {
        /// Dropped before the attempt, whose end would wake the worker once more.
        made: oneshot::Receiver<Result<Rc<CallLine>, ConnectionRefused>>,
        /// The kernel's part, which goes on whether anybody looks or not.
        _attempt: Task,
        limit: Pin<Box<dyn Future<Output = ()>>>,
    },
    Connected(Rc<CallLine>),
}

struct ChannelWorker {
    queue: Rc<RefCell<CallQueue>>,
    settings: ChannelSettings,
    current: Option<QueuedCall>,
    state: ChannelState,
    /// The error of an attempt to connect, which is the next call's.
    failed: Option<NotSent>,
}

impl ChannelWorker {
    /// Never ready: it ends with the channel.
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(next) = self.next_call(task) else {
                return Poll::Pending;
            };
            if self.poll_ready(task).is_pending() {
                self.current = Some(next);
                return Poll::Pending;
            }
            let QueuedCall { call, sent } = next;
            let stream = match (self.failed.take(), &self.state) {
                (Some(failed), _) => Err(failed),
                (None, ChannelState::Connected(line)) => Ok(line.call(call)),
                (None, _) => Err(NotSent("no connection")),
            };
            // a caller that has just gone drops what it does not take
            let _ = sent.send(stream);
        }
    }

    fn next_call(&mut self, task: &mut Context<'_>) -> Option<QueuedCall> {
        if let Some(current) = self.current.take().filter(|call| !call.sent.is_closed()) {
            return Some(current);
        }
        let mut queue = self.queue.borrow_mut();
        while let Some(call) = queue.calls.pop_front() {
            if !call.sent.is_closed() {
                return Some(call);
            }
        }
        queue.worker = Some(task.waker().clone());
        None
    }

    fn poll_ready(&mut self, task: &mut Context<'_>) -> Poll<()> {
        if self.failed.is_some() {
            return Poll::Ready(());
        }
        loop {
            let next = match &mut self.state {
                ChannelState::Idle => self.settings.connect(),
                ChannelState::Connecting { made, limit, .. } => match Pin::new(made).poll(task) {
                    Poll::Ready(Ok(Ok(line))) => ChannelState::Connected(line),
                    Poll::Ready(Ok(Err(ConnectionRefused)) | Err(_)) => {
                        self.failed = Some(NotSent("connection refused"));
                        ChannelState::Idle
                    }
                    Poll::Pending if limit.as_mut().poll(task).is_ready() => {
                        self.failed = Some(NotSent("connect timed out"));
                        ChannelState::Idle
                    }
                    Poll::Pending => return Poll::Pending,
                },
                ChannelState::Connected(line) if line.is_over() => ChannelState::Idle,
                ChannelState::Connected(_) => return Poll::Ready(()),
            };
            self.state = next;
            if self.failed.is_some() {
                return Poll::Ready(());
            }
        }
    }
}

impl ChannelSettings {
    fn connect(&self) -> ChannelState {
        let (done, made) = oneshot::channel();
        let settings = self.clone();
        let attempt = async move {
            let connected = settings.link.connect(settings.etcd.address_of(settings.member)).await;
            let line = connected.map(|socket| CallLine::begin(socket, settings.host, settings.ping));
            // the worker waits for as long as this runs
            let _ = done.send(line);
        };
        ChannelState::Connecting {
            made,
            _attempt: self.host.spawn(Box::pin(attempt)),
            limit: self.host.sleep(timer_of(&*self.host, self.connect_limit)),
        }
    }
}
