//! One connection of a client ([`CallLine`]): its streams, and the pings that find out whether the other side is there, as `hyper` 1.12
//! does for `tonic` (`proto/h2/ping.rs`; lines are of that file).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use harness_workloads::etcd::{EtcdAnswer, EtcdCall};
use harness_workloads::{RecipeHost, Task};

use super::request::{EtcdFrame, EtcdMessage, EtcdOutcome, EtcdRequest, StoreEvent};
use crate::mutants::is_mutant;
use crate::network::{ClientSide, ConnectionEnding};
use crate::world::nanoseconds;

type Socket = ClientSide<EtcdRequest, EtcdMessage>;

/// A message of a stream.
pub(super) enum StreamMessage {
    Answer(EtcdOutcome),
    Events(Vec<StoreEvent>),
    Ended,
}

#[derive(Default)]
struct CallStream {
    messages: VecDeque<StreamMessage>,
    waker: Option<Waker>,
    /// Whether the stream is over.
    is_over: bool,
}

fn stream_of(streams: &mut [(u64, CallStream)], number: u64) -> Option<&mut CallStream> {
    let mut streams = streams.iter_mut();
    streams.find(|(own, _)| *own == number).map(|(_, stream)| stream)
}

pub(super) struct CallLine {
    host: Rc<dyn RecipeHost>,
    socket: RefCell<Option<Rc<Socket>>>,
    /// By number, in no order: there are few, and a list keeps its room.
    streams: RefCell<Vec<(u64, CallStream)>>,
    count: Cell<u64>,
    ending: Cell<Option<&'static str>>,
    last_read: Cell<Duration>,
    reader: RefCell<Option<Task>>,
}

impl CallLine {
    /// Takes a connection over; `ping` is both the interval without a frame after which a ping is sent, and the time that its answer may take.
    pub fn begin(socket: Socket, host: Rc<dyn RecipeHost>, ping: Duration) -> Rc<Self> {
        let line = Rc::new(CallLine {
            last_read: Cell::new(host.now()),
            host: host.clone(),
            socket: RefCell::new(Some(Rc::new(socket))),
            streams: RefCell::default(),
            count: Cell::new(0),
            ending: Cell::new(None),
            reader: RefCell::new(None),
        });
        let reads = Rc::downgrade(&line);
        let mut pings = PingTimer::new(ping);
        let reader = host.spawn(Box::pin(async move {
            let ending = poll_fn(|task| match reads.upgrade() {
                Some(line) => line.poll_read(&mut pings, task),
                None => Poll::Ready("the client has gone"),
            })
            .await;
            if let Some(line) = reads.upgrade() {
                line.end(ending);
            }
        }));
        *line.reader.borrow_mut() = Some(reader);
        line
    }

    pub fn is_over(&self) -> bool {
        self.ending.get().is_some()
    }

    /// Sends a call on a stream of its own.
    pub fn call(self: &Rc<Self>, call: EtcdCall) -> OpenStream {
        let stream = 2 * self.count.get() + 1;
        self.count.set(self.count.get() + 1);
        let number = stream << 32 | 1;
        if self.ending.get().is_none() {
            self.streams.borrow_mut().push((number, CallStream::default()));
            let frame = EtcdFrame::Call(call);
            self.send(EtcdRequest { number, frame });
        }
        OpenStream {
            line: self.clone(),
            number,
        }
    }

    fn send(&self, request: EtcdRequest) {
        let socket = self.socket.borrow().clone();
        if let Some(socket) = socket {
            socket.send(request);
        }
    }

    /// Reads until the connection is over; returns how it ended.
    fn poll_read(&self, pings: &mut PingTimer, task: &mut Context<'_>) -> Poll<&'static str> {
        let Some(socket) = self.socket.borrow().clone() else {
            return Poll::Ready("the connection is closed");
        };
        loop {
            // before the messages that have arrived are read: line 183 of `client.rs`, `Conn::poll`
            if pings.poll(self, task).is_ready() {
                return Poll::Ready("keep-alive timed out");
            }
            match socket.poll_receive(task) {
                Poll::Ready(Ok(EtcdMessage::Pong)) => pings.answered = true,
                Poll::Ready(Ok(message)) => self.take(message),
                Poll::Ready(Err(ConnectionEnding::Closed)) => return Poll::Ready("the connection was closed"),
                Poll::Ready(Err(ConnectionEnding::Reset)) => return Poll::Ready("the connection was reset"),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn take(&self, message: EtcdMessage) {
        let (number, message) = match message {
            EtcdMessage::Reply { number, outcome, .. } => (number, StreamMessage::Answer(outcome)),
            EtcdMessage::Events { number, events } => (number, StreamMessage::Events(events)),
            EtcdMessage::Ended { number } => (number, StreamMessage::Ended),
            EtcdMessage::Pong => return,
        };
        let waker = {
            let mut streams = self.streams.borrow_mut();
            let Some(stream) = stream_of(&mut streams, number) else {
                return;
            };
            stream.is_over |= match &message {
                StreamMessage::Answer(outcome) => *outcome != Ok(EtcdAnswer::Watching),
                StreamMessage::Events(_) => false,
                StreamMessage::Ended => true,
            };
            stream.messages.push_back(message);
            stream.waker.take()
        };
        self.last_read.set(self.host.now());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the connection, and every stream with it.
    fn end(&self, ending: &'static str) {
        self.ending.set(Some(ending));
        drop(self.socket.take());
        let wakers: Vec<Waker> = {
            let mut streams = self.streams.borrow_mut();
            let wakers = streams.iter_mut().filter_map(|(_, stream)| stream.waker.take());
            wakers.collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A call that was sent. Dropping it ends the call on the server, unless it is over.
pub(super) struct OpenStream {
    line: Rc<CallLine>,
    number: u64,
}

impl OpenStream {
    /// Returns the next message; the error says how the connection ended.
    pub async fn next(&self) -> Result<StreamMessage, &'static str> {
        poll_fn(|task| {
            let mut streams = self.line.streams.borrow_mut();
            let stream = stream_of(&mut streams, self.number);
            let ended = || Poll::Ready(Err(self.line.ending.get().unwrap_or("the stream is over")));
            let Some(stream) = stream else { return ended() };
            if let Some(message) = stream.messages.pop_front() {
                return Poll::Ready(Ok(message));
            }
            if self.line.ending.get().is_some() {
                return ended();
            }
            stream.waker = Some(task.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let stream = {
            let mut streams = self.line.streams.borrow_mut();
            let place = streams.iter().position(|(number, _)| *number == self.number);
            place.map(|place| streams.swap_remove(place).1)
        };
        if stream.is_some_and(|stream| !stream.is_over) && !is_mutant("etcd: callers go in silence") {
            let frame = EtcdFrame::Cancel;
            let number = self.number;
            self.line.send(EtcdRequest { number, frame });
        }
    }
}

#[derive(Clone, Copy)]
enum PingState {
    Init,
    /// The time at which a ping is due if nothing is read before.
    Scheduled(Duration),
    Sent,
}

/// Returns how long a timer of `tokio` runs that is set for `time`: it fires at whole milliseconds, and never early. A call's limit and a
/// connection's end are about as far away as each other, so the difference decides which comes first.
pub(super) fn timer_of(host: &dyn RecipeHost, time: Duration) -> Duration {
    let due = host.now() + time;
    let whole = nanoseconds(due).div_ceil(1_000_000);
    time + Duration::from_millis(whole).saturating_sub(due)
}

/// `KeepAlive`, line 427, while idle too.
struct PingTimer {
    interval: Duration,
    state: PingState,
    timer: Option<Pin<Box<dyn Future<Output = ()>>>>,
    answered: bool,
}

impl PingTimer {
    fn new(interval: Duration) -> Self {
        PingTimer {
            interval,
            state: PingState::Init,
            timer: None,
            answered: false,
        }
    }

    fn is_due(&mut self, task: &mut Context<'_>) -> bool {
        self.timer
            .as_mut()
            .is_none_or(|timer| timer.as_mut().poll(task).is_ready())
    }

    /// Ready: no answer came in time.
    fn poll(&mut self, line: &CallLine, task: &mut Context<'_>) -> Poll<()> {
        let host = &line.host;
        loop {
            match self.state {
                PingState::Init => {
                    let at = line.last_read.get() + self.interval;
                    self.state = PingState::Scheduled(at);
                    let left = at.saturating_sub(host.now());
                    self.timer = Some(host.sleep(timer_of(&**host, left)));
                }
                PingState::Scheduled(at) => {
                    if !self.is_due(task) {
                        return Poll::Pending;
                    }
                    if line.last_read.get() + self.interval > at {
                        self.state = PingState::Init;
                        continue;
                    }
                    if is_mutant("etcd: a client does not ping") {
                        line.last_read.set(host.now());
                        continue;
                    }
                    line.send(EtcdRequest {
                        number: 0,
                        frame: EtcdFrame::Ping,
                    });
                    self.answered = false;
                    self.state = PingState::Sent;
                    self.timer = Some(host.sleep(timer_of(&**host, self.interval)));
                }
                PingState::Sent if self.answered => {
                    line.last_read.set(host.now());
                    self.state = PingState::Init;
                }
                PingState::Sent => {
                    return match self.is_due(task) {
                        true => Poll::Ready(()),
                        false => Poll::Pending,
                    };
                }
            }
        }
    }
}
