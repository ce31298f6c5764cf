//! One direction of one connection: bytes in, bytes out, in order and complete, whatever the flow says of *when*.
//!
//! With no fault it is a plain copy. As soon as something is to be held back, delayed, slowed or sliced, chunks go
//! through a bounded queue, and so do the end of the stream and a reset by the sender: a stalled link hides those too.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::behaviour::Flow;
use super::link::State;
use super::stats::{Stats, count};
use crate::limits::{CHUNK, LINK_BUFFER};

/// Slices are this far apart, so that the receiver reads them one by one.
const SLICE_GAP: Duration = Duration::from_micros(500);
/// A slowed flow sends this often; each piece is what the rate allows in that time.
const PIECES_PER_SECOND: u32 = 20;

/// Which of the two directions of a link a lane carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

impl Direction {
    fn flow(self, state: &State) -> Flow {
        match self {
            Self::ToServer => state.behaviour.to_server,
            Self::ToClient => state.behaviour.to_client,
        }
    }
}

/// How a lane ended when it did not end with the end of its stream.
#[derive(Debug)]
pub(super) enum Broken {
    /// One of the two peers reset or is gone: the other one must hear of it as a reset.
    Peer,
    /// The link's byte budget is used up.
    Cut,
}

enum Piece {
    Bytes { due: Instant, bytes: Bytes },
    End(Result<(), Broken>),
}

/// What both lanes of a connection share.
pub(super) struct Shared<'a> {
    pub stats: &'a Stats,
    /// Bytes that may still pass before the link cuts the connection; `u64::MAX` is no limit.
    pub budget: &'a AtomicU64,
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
        }
    }

    /// Carries bytes until the stream ends (and the end was passed on) or breaks.
    pub async fn run(mut self) -> Result<(), Broken> {
        let mut buffer = vec![0; CHUNK];
        loop {
            let state = *self.state.borrow_and_update();
            if state.epoch != self.epoch {
                return Err(Broken::Cut);
            }
            let flow = self.direction.flow(&state);
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

    /// The way without a fault: read, write. Returns whether the stream ended.
    async fn copy_one(&mut self, buffer: &mut [u8]) -> Result<bool, Broken> {
        let read = tokio::select! {
            biased;
            changed = self.state.changed() => return changed.map(|()| false).map_err(|_| Broken::Cut),
            read = self.from.read(buffer) => read,
        };
        match read {
            Ok(0) => self.end().await.map(|()| true),
            Ok(length) => self.write(&buffer[..length]).await.map(|()| false),
            Err(_) => Err(Broken::Peer),
        }
    }

    /// The way of a fault: take one chunk in or let one piece out. Returns whether the stream ended.
    async fn queue_one(&mut self, flow: Flow, buffer: &mut [u8]) -> Result<bool, Broken> {
        let now = Instant::now();
        let head_due = match self.queue.front() {
            Some(Piece::Bytes { due, .. }) if !flow.is_pass() => *due,
            _ => now,
        };
        let may_send = !flow.stall && !self.queue.is_empty();
        let may_read = !self.ended && self.queued_bytes < LINK_BUFFER;
        tokio::select! {
            biased;
            changed = self.state.changed() => changed.map(|()| false).map_err(|_| Broken::Cut),
            () = sleep_until(head_due), if may_send => self.send_head().await,
            read = self.from.read(buffer), if may_read => {
                self.take_in(flow, read.map(|length| &buffer[..length]));
                Ok(false)
            }
        }
    }

    fn take_in(&mut self, flow: Flow, read: io::Result<&[u8]>) {
        match read {
            Ok([]) => self.push_end(Ok(())),
            Err(_) => self.push_end(Err(Broken::Peer)),
            Ok(chunk) => {
                let counter = if flow.stall {
                    &self.shared.stats.held_bytes
                } else {
                    &self.shared.stats.delayed_bytes
                };
                count(counter, chunk.len() as u64);
                self.push(flow, Bytes::copy_from_slice(chunk));
            }
        }
    }

    fn push_end(&mut self, end: Result<(), Broken>) {
        self.ended = true;
        self.queue.push_back(Piece::End(end));
    }

    /// Cuts a chunk into pieces and gives each its time; times never go back, so order is kept.
    fn push(&mut self, flow: Flow, mut bytes: Bytes) {
        let mut earliest = Instant::now() + self.draw_delay(flow);
        self.queued_bytes += bytes.len();
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(piece_length(flow)));
            earliest = earliest.max(self.last_due) + piece_time(flow, piece.len());
            self.last_due = earliest;
            self.queue.push_back(Piece::Bytes {
                due: earliest,
                bytes: piece,
            });
        }
    }

    fn draw_delay(&mut self, flow: Flow) -> Duration {
        if flow.jitter.is_zero() {
            return flow.delay;
        }
        let spread = flow.jitter.as_nanos() as u64;
        (flow.delay + Duration::from_nanos(self.rng.random_range(0..=2 * spread))).saturating_sub(flow.jitter)
    }

    async fn send_head(&mut self) -> Result<bool, Broken> {
        match self.queue.pop_front() {
            Some(Piece::Bytes { bytes, .. }) => {
                self.queued_bytes -= bytes.len();
                self.write(&bytes).await.map(|()| false)
            }
            Some(Piece::End(Ok(()))) => self.end().await.map(|()| true),
            Some(Piece::End(Err(broken))) => Err(broken),
            None => Ok(false),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        // counted first: who has received a byte finds it counted
        count(&self.shared.stats.bytes, bytes.len() as u64);
        self.to.write_all(bytes).await.map_err(|_| Broken::Peer)?;
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

fn piece_length(flow: Flow) -> usize {
    let by_rate = flow
        .bytes_per_second
        .map_or(CHUNK, |rate| (rate / PIECES_PER_SECOND).max(1) as usize);
    let by_slice = flow.slice.map_or(CHUNK, |slice| slice.max(1) as usize);
    by_rate.min(by_slice)
}

fn piece_time(flow: Flow, length: usize) -> Duration {
    let by_rate = flow.bytes_per_second.map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(length as f64 / f64::from(rate.max(1)))
    });
    let by_slice = if flow.slice.is_some() {
        SLICE_GAP
    } else {
        Duration::ZERO
    };
    by_rate.max(by_slice)
}
