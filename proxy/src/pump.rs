//! A pump: one direction of one connection. It carries all bytes in order, at the times that the flow sets.
//!
//! Without a fault it is a plain copy through a buffer that all connections of the thread share. Bytes that are held back, delayed, slowed
//! or sliced go through a bounded [`SendQueue`], and so do the end of the stream and a reset by the sender: a stalled link hides those too.
//! The bytes that arrive are a prefix of those that were sent: a pump that discarded bytes forwards no more.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::behaviour::Flow;
use crate::blackhole::{Blackhole, Drops};
use crate::bottleneck::Bottleneck;
use crate::busy_poll::ReplyPredictor;
use crate::byte_meter::ByteMeter;
use crate::clock::monotonic_ns;
use crate::counters::{LinkCounters, count};
use crate::direction::Direction;
use crate::limits::CHUNK;
use crate::link_state::{Disconnect, LinkState, SharedBandwidth};
use crate::link_tap::{ConnectionTap, TapStop};
use crate::message_rule::MessageRule;
use crate::queue::{Due, SendQueue, WRITE_CHUNKS};
use crate::scheduling;

thread_local! {
    /// A chunk is read into this and written from it. Only what cannot be written at once is copied.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK].into());
}

/// The state that both pumps of a connection share.
pub(super) struct ConnectionContext<'a> {
    pub counters: &'a LinkCounters,
    /// Predicts from each chunk whether the next one comes soon.
    pub predictor: ReplyPredictor<'a>,
    /// Bytes that may still pass before the link cuts the connection; `u64::MAX` is no limit.
    pub budget: &'a AtomicU64,
    /// Reads the protocol, where the link has a tap.
    pub tap: Option<ConnectionTap>,
    /// The seed of the connection: it decides which toxics apply.
    pub seed: u64,
    /// The epoch of the connection; in a later one it is over, whatever it still carries.
    pub epoch: u64,
    /// Counts for an external proxy.
    pub meter: ByteMeter,
}

pub(super) struct Pump<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    direction: Direction,
    state: watch::Receiver<LinkState>,
    shared: &'a ConnectionContext<'a>,
    rng: ChaCha8Rng,
    queue: SendQueue,
    /// The sender's stream has ended, and the queue has its end.
    ended: bool,
    /// The receiver takes no more bytes: it reset, or its process is gone.
    receiver_is_gone: bool,
    /// The flow that the bytes obey now.
    flow: Flow,
    /// The time at which the connection ends if no bytes arrive before.
    silent_at: Option<Instant>,
    /// Bytes that passed since the flow has a limit.
    passed: u64,
    bottlenecks: Arc<SharedBandwidth>,
    /// Whether the bytes in the queue waited for that bandwidth.
    waited: bool,
    /// Drops the sender's packets, where the flow says so.
    blackhole: Option<Blackhole>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a> Pump<'a> {
    pub fn new(
        (from, to): (ReadHalf<'a>, WriteHalf<'a>),
        direction: Direction,
        state: watch::Receiver<LinkState>,
        shared: &'a ConnectionContext<'a>,
        rng: ChaCha8Rng,
    ) -> Self {
        Self {
            from,
            to,
            direction,
            state,
            shared,
            rng,
            queue: SendQueue::new(Instant::now()),
            ended: false,
            receiver_is_gone: false,
            flow: Flow::PASS,
            silent_at: None,
            passed: 0,
            bottlenecks: Arc::default(),
            waited: false,
            blackhole: None,
            timer: None,
        }
    }

    /// Carries bytes until the stream ends (and the end was passed on) or breaks.
    ///
    /// It registers no waker for changes of the link's state: the connection waits for those once for its two pumps and
    /// polls both, which spares each chunk two registrations.
    pub async fn run(mut self) -> Result<(), Disconnect> {
        self.obey()?;
        poll_fn(|task| {
            if !self.receiver_is_gone {
                let polled = self.poll(task);
                if !self.receiver_is_gone {
                    return polled;
                }
            }
            self.poll_gone(task)
        })
        .await
    }

    /// Waits until the sender may learn that its receiver is gone: the other direction holds that back as it does bytes.
    fn poll_gone(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Disconnect>> {
        loop {
            if self.state.has_changed().map_err(|_| Disconnect::Cut)? {
                self.obey()?;
            }
            let back = self.state.borrow().flow(self.direction.other(), self.shared.seed);
            if !back.stall {
                return Poll::Ready(Err(Disconnect::Peer));
            }
            ready!(self.poll_timer(task, None))?;
        }
    }

    fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Disconnect>> {
        loop {
            if self.state.has_changed().map_err(|_| Disconnect::Cut)? {
                self.obey()?;
            }
            let due_at = match self.poll_send(task)? {
                Poll::Ready(Sent::End) => return Poll::Ready(Ok(())),
                Poll::Ready(Sent::UntilNow(due_at)) => due_at,
                Poll::Pending => None,
            };
            let may_read = !self.ended && self.queue.has_room(&self.flow);
            if may_read && self.poll_receive(task)?.is_ready() {
                continue;
            }
            ready!(self.poll_timer(task, due_at))?;
        }
    }

    /// Obeys the link's state as it is now. An error ends the connection.
    fn obey(&mut self) -> Result<(), Disconnect> {
        let (flow, drops) = {
            let state = self.state.borrow_and_update();
            if state.epoch != self.shared.epoch {
                return Err(state.ending);
            }
            self.bottlenecks = Arc::clone(&state.bottlenecks);
            let flow = state.flow(self.direction, self.shared.seed);
            let drops = if state.behaviour.is_blackhole() {
                Drops::EverythingSoon
            } else {
                Drops::Stream
            };
            (flow, drops)
        };
        self.blackhole(flow.blackhole.then_some(drops));
        if flow == self.flow {
            return Ok(());
        }
        if self.flow.discard && !flow.discard {
            return Err(Disconnect::Closed);
        }
        let now = Instant::now();
        if flow.close_after_silence != self.flow.close_after_silence {
            self.silent_at = flow.close_after_silence.map(|silence| now + silence);
        }
        if flow.limit != self.flow.limit {
            self.passed = 0;
        }
        self.flow = flow;
        self.queue.flow_changed(now);
        Ok(())
    }

    /// Puts a blackhole at the sender's socket, or takes it away.
    fn blackhole(&mut self, drops: Option<Drops>) {
        if self.blackhole.as_ref().map(|blackhole| blackhole.drops) == drops {
            return;
        }
        self.count_dropped();
        self.blackhole = drops.and_then(|drops| Blackhole::attach(self.from.as_ref(), drops));
        if drops.is_none() {
            Blackhole::detach(self.from.as_ref());
        }
    }

    /// Sends the bytes that are due. Pending: the receiver takes no more at present.
    fn poll_send(&mut self, task: &mut Context<'_>) -> Poll<Result<Sent, Disconnect>> {
        while !self.queue.is_empty() {
            let now = Instant::now();
            match self.queue.due(now, &self.flow, &mut self.rng) {
                Due::Nothing => break,
                Due::At(due) => return Poll::Ready(Ok(Sent::UntilNow(Some(due)))),
                Due::Bytes(length) => {
                    let length = match self.bandwidth(now, self.allowed(length)) {
                        Ok(length) => length,
                        Err(due) => {
                            self.waited = true;
                            return Poll::Ready(Ok(Sent::UntilNow(Some(due))));
                        }
                    };
                    let written = {
                        let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
                        let slices_count = self.queue.slices(length, &mut slices);
                        self.count_passed(length);
                        Pin::new(&mut self.to).poll_write_vectored(task, &slices[..slices_count])
                    };
                    let written = ready!(self.written(length, written))?;
                    self.queue.sent(now, &self.flow, written);
                    self.bottlenecks_here()
                        .for_each(|bottleneck| bottleneck.pass(now, written));
                    if self.waited && !self.flow.delays() {
                        count(&self.shared.counters.delayed_bytes, written as u64);
                    }
                    self.spend(written)?;
                }
                Due::Gate(rule) => self.done(&rule),
                Due::End(how) => {
                    how?;
                    ready!(Pin::new(&mut self.to).poll_shutdown(task)).map_err(|_| Disconnect::Peer)?;
                    return Poll::Ready(Ok(Sent::End));
                }
            }
        }
        self.waited &= !self.queue.is_empty();
        Poll::Ready(Ok(Sent::UntilNow(None)))
    }

    fn poll_receive(&mut self, task: &mut Context<'_>) -> Poll<Result<(), Disconnect>> {
        BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            let read = ready!(Pin::new(&mut self.from).poll_read(task, &mut buffer));
            Poll::Ready(self.receive(task, read.map(|()| buffer.filled())))
        })
    }

    fn receive(&mut self, task: &mut Context<'_>, read: io::Result<&[u8]>) -> Result<(), Disconnect> {
        let chunk = match read {
            Ok(chunk) if !chunk.is_empty() => chunk,
            ended => {
                self.shared.meter.gone(self.direction);
                self.end(ended.map(|_| ()).map_err(|_| Disconnect::Peer));
                return Ok(());
            }
        };
        if self
            .flow
            .forget_after
            .is_some_and(|idle| self.shared.predictor.idle_for() > idle)
        {
            return Err(Disconnect::Cut);
        }
        if self.shared.predictor.is_crowded() {
            scheduling::follow_sender(self.from.as_ref());
        }
        let counters = self.shared.counters;
        count(&counters.received[self.direction as usize], chunk.len() as u64);
        self.shared
            .meter
            .read(self.direction, chunk.len(), &self.state, counters);
        if !self.flow.is_pass() {
            counters.obeyed(&self.flow, chunk.len());
            self.silent_at = self.flow.close_after_silence.map(|silence| Instant::now() + silence);
        }
        let mut stops = self.observe(chunk).into_iter().peekable();
        let until = |next: Option<&TapStop>| next.map_or(chunk.len(), |stop| stop.at);
        self.forward(task, &chunk[..until(stops.peek())])?;
        while let Some(TapStop { at, rule }) = stops.next() {
            self.stop(rule, &chunk[at..until(stops.peek())]);
        }
        Ok(())
    }

    /// Lets the tap read a chunk before any of it is passed on.
    fn observe(&self, chunk: &[u8]) -> Vec<TapStop> {
        let tap = self.shared.tap.as_ref();
        tap.map_or_else(Vec::new, |tap| tap.observe(self.direction, chunk, monotonic_ns))
    }

    /// Writes what can be written at once and queues the rest.
    fn forward(&mut self, task: &mut Context<'_>, bytes: &[u8]) -> Result<(), Disconnect> {
        if self.flow.discard {
            return Ok(());
        }
        let mut written = 0;
        let direct = self.flow.is_pass() && self.bottlenecks.is_empty() && self.queue.is_empty();
        if direct && !bytes.is_empty() {
            self.count_passed(bytes.len());
            let result = Pin::new(&mut self.to).poll_write(task, bytes);
            if let Poll::Ready(result) = self.written(bytes.len(), result) {
                written = result?;
                self.spend(written)?;
            }
        }
        let rest = &bytes[written..];
        if self.queue.push(Instant::now(), &self.flow, &mut self.rng, rest) {
            count(&self.shared.counters.delayed_bytes, rest.len() as u64);
        }
        Ok(())
    }

    /// Holds back the message of a rule and what follows it up to the next stop; or ends the stream there.
    fn stop(&mut self, rule: Arc<MessageRule>, rest: &[u8]) {
        if self.flow.discard {
            return;
        }
        if rule.spec.action.ends() {
            self.done(&rule);
            self.end(Err(Disconnect::Cut));
            return;
        }
        count(&self.shared.counters.delayed_bytes, rest.len() as u64);
        let now = Instant::now();
        self.queue.push_gate(now + rule.spec.action.delay(), rule);
        // counted as delayed already
        self.queue.push(now, &self.flow, &mut self.rng, rest);
    }

    fn done(&self, rule: &MessageRule) {
        if let Some(tap) = &self.shared.tap {
            tap.done(rule, monotonic_ns());
        }
    }

    fn end(&mut self, how: Result<(), Disconnect>) {
        self.ended = true;
        self.silent_at = None;
        self.queue.push_end(Instant::now(), how);
    }

    /// Returns how many of `length` bytes the flow's limit leaves.
    fn allowed(&self, length: usize) -> usize {
        let left = self
            .flow
            .limit
            .map_or(u64::MAX, |limit| limit.saturating_sub(self.passed));
        length.min(usize::try_from(left).unwrap_or(usize::MAX))
    }

    /// Returns how many of `length` bytes may pass every bottleneck now. The error is the time at which to ask again.
    fn bandwidth(&self, now: Instant, length: usize) -> Result<usize, Instant> {
        let mut bottlenecks = self.bottlenecks_here();
        bottlenecks.try_fold(length, |length, bottleneck| Ok(length.min(bottleneck.turn(now)?)))
    }

    /// Returns the bottlenecks of its direction.
    fn bottlenecks_here(&self) -> impl Iterator<Item = &Bottleneck> {
        let direction = self.direction as usize;
        self.bottlenecks.values().map(move |each_way| &*each_way[direction])
    }

    /// Counts bytes before they are written: a receiver that has a byte finds it counted.
    fn count_passed(&self, bytes: usize) {
        if self.shared.meter.counts_passed(self.direction) {
            count(&self.shared.counters.bytes, bytes as u64);
        }
    }

    /// Takes back the count of those of `length` bytes that were not written.
    fn written(&mut self, length: usize, written: Poll<io::Result<usize>>) -> Poll<Result<usize, Disconnect>> {
        let unwritten = match &written {
            Poll::Ready(Ok(written)) => length - written,
            Poll::Ready(Err(_)) | Poll::Pending => length,
        };
        if self.shared.meter.counts_passed(self.direction) {
            self.shared.counters.bytes.fetch_sub(unwritten as u64, Relaxed);
        }
        written.map_err(|_| {
            self.receiver_is_gone = true;
            self.shared.meter.gone(self.direction.other());
            Disconnect::Peer
        })
    }

    /// Charges written bytes to the limit and the budget. An error ends the connection: one of them is used up.
    fn spend(&mut self, written: usize) -> Result<(), Disconnect> {
        let written = written as u64;
        count(&self.shared.counters.sent[self.direction as usize], written);
        self.shared.predictor.forwarded(self.direction);
        if let Some(limit) = self.flow.limit {
            self.passed += written;
            if self.passed >= limit {
                return Err(Disconnect::Closed);
            }
        }
        let budget = self.shared.budget.load(Relaxed);
        if budget != u64::MAX {
            self.shared.budget.store(budget.saturating_sub(written), Relaxed);
            if budget <= written {
                return Err(Disconnect::Cut);
            }
        }
        Ok(())
    }

    /// Counts the packets that the kernel dropped for this pump since the last time.
    fn count_dropped(&mut self) {
        if let Some(blackhole) = &mut self.blackhole {
            count(
                &self.shared.counters.dropped_packets,
                blackhole.dropped(self.from.as_ref()),
            );
        }
    }

    /// Waits for the next time at which something happens by itself. Ready: look again.
    fn poll_timer(&mut self, task: &mut Context<'_>, due_at: Option<Instant>) -> Poll<Result<(), Disconnect>> {
        let read_at = self.blackhole.as_ref().map(|blackhole| blackhole.read_at);
        let Some(at) = due_at.into_iter().chain(self.silent_at).chain(read_at).min() else {
            return Poll::Pending;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        ready!(timer.as_mut().poll(task));
        self.count_dropped();
        match self.silent_at {
            Some(silent_at) if silent_at <= Instant::now() => Poll::Ready(Err(Disconnect::Closed)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for Pump<'_> {
    fn drop(&mut self) {
        self.count_dropped();
    }
}

/// The result of [`Pump::poll_send`].
enum Sent {
    /// The end of the stream.
    End,
    /// All that is due now; more is due at that time.
    UntilNow(Option<Instant>),
}
