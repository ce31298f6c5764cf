//! One direction of one connection: bytes in, bytes out, in order and complete, whatever the flow says of *when*.
//!
//! With no fault it is a plain copy. As soon as something is to be held back, delayed, slowed or sliced, chunks go
//! through a bounded queue, and so do the end of the stream and a reset by the sender: a stalled link hides those too.
//! What arrives is a prefix of what was sent: a lane that threw bytes away never forwards another one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::behaviour::{Behaviour, Flow};
use super::link::State;
use super::meter::{End, Meter};
use super::rule::Rule;
use super::stats::{Stats, count};
use super::tap::Side;
use super::toxic::{Stream, poisoned};
use super::vigil::Habit;
use super::wire::{Ear, Halt, Then};
use crate::limits::{CHUNK, LINK_BUFFER};

/// A slowed flow sends this often; each piece is what the rate allows in that time.
const PIECES_PER_SECOND: u32 = 20;

/// Which of the two directions of a link a lane carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    pub fn of(self, behaviour: &Behaviour) -> Flow {
        match self {
            Self::ToServer => behaviour.to_server,
            Self::ToClient => behaviour.to_client,
        }
    }

    /// Who sends what the lane carries.
    fn sender(self) -> Side {
        match self {
            Self::ToServer => Side::Client,
            Self::ToClient => Side::Server,
        }
    }
    /// Where its bytes come from, and where they go.
    fn ends(self) -> [End; 2] {
        match self {
            Self::ToServer => [End::Client, End::Upstream],
            Self::ToClient => [End::Upstream, End::Client],
        }
    }

    /// What bytes of this direction obey on the connection with this seed.
    pub fn flow(self, state: &State, connection: u64) -> Flow {
        let stream = match self {
            Self::ToServer => Stream::Upstream,
            Self::ToClient => Stream::Downstream,
        };
        poisoned(self.of(&state.behaviour), &state.toxics, stream, connection)
    }
}

/// How a lane ended when it did not end with the end of its stream.
#[derive(Debug)]
pub(super) enum Broken {
    /// One of the two peers reset or is gone: the other one must hear of it as a reset.
    Peer,
    /// The link resets it: its byte budget is used up, its time is over, or a rule ends it.
    Cut,
    /// The link ends it as a peer would.
    Closed,
}

enum Piece {
    Bytes {
        due: Instant,
        bytes: Bytes,
    },
    /// What stands behind it waits until then, or until the rule is lifted.
    Gate {
        due: Instant,
        rule: Arc<Rule>,
    },
    End {
        due: Instant,
        how: Result<(), Broken>,
    },
}

/// What both lanes of a connection share.
pub(super) struct Shared<'a> {
    pub stats: &'a Stats,
    /// Told of each chunk that went through.
    pub habit: Habit<'a>,
    /// Bytes that may still pass before the link cuts the connection; `u64::MAX` is no limit.
    pub budget: &'a AtomicU64,
    /// Reads along, where the link has a tap.
    pub ear: Option<Ear>,
    /// The seed of the connection: with it, toxics decide whether they are for it.
    pub seed: u64,
    /// What to count for somebody else, who does the work.
    pub meter: Meter,
}

pub(super) struct Lane<'a> {
    from: ReadHalf<'a>,
    to: WriteHalf<'a>,
    direction: Direction,
    state: watch::Receiver<State>,
    /// The epoch of this connection; in a later one it is over, whatever it still carries.
    epoch: u64,
    shared: &'a Shared<'a>,
    rng: ChaCha8Rng,
    queue: VecDeque<Piece>,
    queued_bytes: usize,
    last_due: Instant,
    ended: bool,
    /// What the bytes obey now.
    flow: Flow,
    /// When it ends if nothing comes until then.
    silent_at: Option<Instant>,
    /// Bytes that passed since the flow has a limit.
    passed: u64,
}

impl<'a> Lane<'a> {
    pub fn new(
        (from, to): (ReadHalf<'a>, WriteHalf<'a>),
        direction: Direction,
        (state, epoch): (watch::Receiver<State>, u64),
        shared: &'a Shared<'a>,
        rng: ChaCha8Rng,
    ) -> Self {
        Self {
            from,
            to,
            direction,
            state,
            epoch,
            shared,
            rng,
            queue: VecDeque::new(),
            queued_bytes: 0,
            last_due: Instant::now(),
            ended: false,
            flow: Flow::PASS,
            silent_at: None,
            passed: 0,
        }
    }

    /// Carries bytes until the stream ends (and the end was passed on) or breaks.
    pub async fn run(mut self) -> Result<(), Broken> {
        let mut buffer = vec![0; CHUNK];
        self.look()?;
        loop {
            let flow = self.flow;
            let ended = if flow.is_pass() && self.queue.is_empty() {
                self.copy_one(&mut buffer).await?
            } else {
                self.queue_one(flow, &mut buffer).await?
            };
            if ended {
                return Ok(());
            }
        }
    }

    /// Obeys the link's state as it is now. An error ends the connection.
    fn look(&mut self) -> Result<(), Broken> {
        let flow = {
            let state = self.state.borrow_and_update();
            if state.epoch != self.epoch {
                return Err(state.ending.broken());
            }
            self.direction.flow(&state, self.shared.seed)
        };
        if self.flow.discard && !flow.discard {
            return Err(Broken::Closed);
        }
        if flow.close_after_silence != self.flow.close_after_silence {
            self.silent_at = flow.close_after_silence.map(|silence| Instant::now() + silence);
        }
        if flow.limit != self.flow.limit {
            self.passed = 0;
        }
        self.flow = flow;
        Ok(())
    }

    /// A change of the link's state, or the end of the link.
    fn changed(&mut self, changed: Result<(), watch::error::RecvError>) -> Result<bool, Broken> {
        changed.map_err(|_| Broken::Cut)?;
        self.look().map(|()| false)
    }

    /// The way without a fault: read, write. Returns whether the stream ended.
    async fn copy_one(&mut self, buffer: &mut [u8]) -> Result<bool, Broken> {
        let read = tokio::select! {
            biased;
            changed = change(&self.state) => return self.changed(changed),
            read = self.from.read(buffer) => read,
        };
        let [from, _] = self.direction.ends();
        if !matches!(read, Ok(1..)) {
            self.shared.meter.gone(from);
        }
        match read {
            Ok(0) => self.end().await.map(|()| true),
            Ok(length) => {
                self.shared
                    .meter
                    .read(self.direction, length, &self.state, self.shared.stats);
                let Some(Halt { at, then }) = self.hear(&buffer[..length]) else {
                    return self.write(&buffer[..length]).await.map(|()| false);
                };
                self.write(&buffer[..at]).await?;
                self.halt(Flow::default(), then, &buffer[at..length]);
                Ok(false)
            }
            Err(_) => Err(Broken::Peer),
        }
    }

    /// Lets the tap read a chunk before any of it is passed on.
    fn hear(&self, chunk: &[u8]) -> Option<Halt> {
        self.shared.ear.as_ref()?.hear(self.direction.sender(), chunk)
    }

    /// Holds back what stands at a rule's message and behind it; or ends the stream there.
    fn halt(&mut self, flow: Flow, then: Then, rest: &[u8]) {
        match then {
            Then::End(rule) => {
                self.done(&rule);
                self.push_end(flow, Err(Broken::Cut));
            }
            Then::Wait(rule, time) => {
                count(&self.shared.stats.delayed_bytes, rest.len() as u64);
                let due = Instant::now() + time;
                self.queue.push_back(Piece::Gate { due, rule });
                self.push(flow, Bytes::copy_from_slice(rest));
            }
        }
    }

    fn done(&self, rule: &Rule) {
        if let Some(ear) = &self.shared.ear {
            ear.done(rule);
        }
    }

    /// The way of a fault: take one chunk in or let one piece out. Returns whether the stream ended.
    async fn queue_one(&mut self, flow: Flow, buffer: &mut [u8]) -> Result<bool, Broken> {
        let head = self.queue.front();
        let due = match head {
            Some(Piece::Bytes { due, .. }) if !flow.is_pass() => *due,
            Some(Piece::Gate { due, rule }) if !rule.is_lifted() => *due,
            Some(Piece::End { due, .. }) if !flow.end_delay.is_zero() => *due,
            _ => Instant::now(),
        };
        let held = flow.stall || flow.reset_after.is_some() || flow.freeze && matches!(head, Some(Piece::Bytes { .. }));
        let may_send = head.is_some() && !held;
        let may_read = !self.ended && self.queued_bytes < LINK_BUFFER;
        let silent_at = self.silent_at.unwrap_or(due);
        tokio::select! {
            biased;
            changed = change(&self.state) => self.changed(changed),
            () = sleep_until(due), if may_send => self.send_head().await,
            read = self.from.read(buffer), if may_read => {
                self.take_in(flow, read.map(|length| &buffer[..length]));
                Ok(false)
            }
            () = sleep_until(silent_at), if self.silent_at.is_some() => Err(Broken::Closed),
        }
    }

    fn take_in(&mut self, flow: Flow, read: io::Result<&[u8]>) {
        match read {
            Ok([]) => self.push_end(flow, Ok(())),
            Err(_) => self.push_end(flow, Err(Broken::Peer)),
            Ok(chunk) => {
                self.shared.stats.obeyed(flow, chunk.len());
                self.silent_at = flow.close_after_silence.map(|silence| Instant::now() + silence);
                let halt = self.hear(chunk);
                if !flow.discard {
                    let before = halt.as_ref().map_or(chunk.len(), |halt| halt.at);
                    self.push(flow, Bytes::copy_from_slice(&chunk[..before]));
                    if let Some(Halt { at, then }) = halt {
                        self.halt(flow, then, &chunk[at..]);
                    }
                }
            }
        }
    }

    fn push_end(&mut self, flow: Flow, how: Result<(), Broken>) {
        self.ended = true;
        self.silent_at = None;
        let due = Instant::now() + flow.end_delay;
        self.queue.push_back(Piece::End { due, how });
    }

    /// Cuts a chunk into pieces and gives each its time; times never go back, so order is kept.
    fn push(&mut self, flow: Flow, mut bytes: Bytes) {
        let mut earliest = Instant::now() + draw_delay(flow, &mut self.rng);
        self.queued_bytes += bytes.len();
        while !bytes.is_empty() {
            let length = piece_length(flow, &mut self.rng);
            let piece = bytes.split_to(bytes.len().min(length));
            earliest = earliest.max(self.last_due) + piece_time(flow, piece.len());
            self.last_due = earliest;
            self.queue.push_back(Piece::Bytes {
                due: earliest,
                bytes: piece,
            });
        }
    }

    async fn send_head(&mut self) -> Result<bool, Broken> {
        match self.queue.pop_front() {
            Some(Piece::Bytes { bytes, .. }) => {
                self.queued_bytes -= bytes.len();
                self.write(&bytes).await.map(|()| false)
            }
            Some(Piece::Gate { rule, .. }) => {
                self.done(&rule);
                Ok(false)
            }
            Some(Piece::End { how: Ok(()), .. }) => self.end().await.map(|()| true),
            Some(Piece::End { how: Err(broken), .. }) => Err(broken),
            None => Ok(false),
        }
    }

    /// Writes what the flow's limit leaves of `bytes`, and ends the connection when the limit is reached.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let Some(limit) = self.flow.limit else {
            return self.write_all(bytes).await;
        };
        let left = usize::try_from(limit.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        let passing = &bytes[..bytes.len().min(left)];
        self.passed += passing.len() as u64;
        self.write_all(passing).await?;
        if self.passed >= limit {
            Err(Broken::Closed)
        } else {
            Ok(())
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        if self.shared.meter.counts_passed(self.direction) {
            // counted first: who has received a byte finds it counted
            count(&self.shared.stats.bytes, bytes.len() as u64);
        }
        let [_, to] = self.direction.ends();
        let written = self.to.write_all(bytes).await;
        written
            .inspect_err(|_| self.shared.meter.gone(to))
            .map_err(|_| Broken::Peer)?;
        self.shared.habit.carried(self.direction);
        let budget = self.shared.budget.load(Relaxed);
        if budget == u64::MAX {
            return Ok(());
        }
        self.shared
            .budget
            .store(budget.saturating_sub(bytes.len() as u64), Relaxed);
        if budget <= bytes.len() as u64 {
            Err(Broken::Cut)
        } else {
            Ok(())
        }
    }

    /// Passes the end of the stream on; the other direction lives on.
    async fn end(&mut self) -> Result<(), Broken> {
        self.to.shutdown().await.map_err(|_| Broken::Peer)
    }
}

/// Until there is a state to look at. This asks and is not woken: the connection waits for the same, once for its two
/// lanes, and each chunk is spared two queues of waiters.
async fn change(state: &watch::Receiver<State>) -> Result<(), watch::error::RecvError> {
    poll_fn(|_| match state.has_changed() {
        Ok(false) => Poll::Pending,
        changed => Poll::Ready(changed.map(|_| ())),
    })
    .await
}

/// How long a chunk is held back: the same draws from the same seed.
fn draw_delay(flow: Flow, rng: &mut ChaCha8Rng) -> Duration {
    if flow.jitter.is_zero() {
        return flow.delay;
    }
    let spread = flow.jitter.as_nanos() as u64;
    (flow.delay + Duration::from_nanos(rng.random_range(0..=2 * spread))).saturating_sub(flow.jitter)
}

fn piece_length(flow: Flow, rng: &mut ChaCha8Rng) -> usize {
    let by_rate = flow
        .bytes_per_second
        .map_or(CHUNK, |rate| (rate / PIECES_PER_SECOND).max(1) as usize);
    let by_slice = flow.slice.map_or(CHUNK, |slice| {
        let drawn = match slice.variation {
            0 => u64::from(slice.size),
            variation => {
                u64::from(slice.size - variation.min(slice.size)) + rng.random_range(0..=2 * u64::from(variation))
            }
        };
        drawn.clamp(1, CHUNK as u64) as usize
    });
    by_rate.min(by_slice)
}

fn piece_time(flow: Flow, length: usize) -> Duration {
    let by_rate = flow.bytes_per_second.map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(length as f64 / f64::from(rate.max(1)))
    });
    by_rate.max(flow.slice.map_or(Duration::ZERO, |slice| slice.gap))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::super::behaviour::Slice;
    use super::*;

    proptest! {
        #[test]
        fn the_same_seed_draws_the_same_jitter_and_slices_within_their_bounds(
            seed: u64, delay_ms in 0u64..500, jitter_ms in 1u64..100, size in 1u32..1000, variation in 0u32..1000,
        ) {
            let flow = Flow {
                delay: Duration::from_millis(delay_ms),
                jitter: Duration::from_millis(jitter_ms),
                slice: Some(Slice { size, variation: variation.min(size), gap: Duration::ZERO }),
                ..Flow::PASS
            };
            let draw = || {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                (0..20).map(|_| (draw_delay(flow, &mut rng), piece_length(flow, &mut rng))).collect::<Vec<_>>()
            };
            prop_assert_eq!(draw(), draw());
            for (delay, length) in draw() {
                prop_assert!(delay <= flow.delay + flow.jitter);
                prop_assert!(delay + flow.jitter >= flow.delay);
                prop_assert!(length >= 1 && length as u32 <= size + variation.min(size));
            }
        }
    }
}
