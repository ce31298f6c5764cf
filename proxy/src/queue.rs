//! The send queue of one direction: the bytes that are held back, and those of them that are due. Pure: the caller gives the time.
//!
//! A chunk keeps the time of its arrival and one random draw. The time at which it is due follows from these and from the current flow, so
//! a fault that ends or gets weaker releases its bytes at once.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rand::{Rng, RngExt};
use tokio::time::Instant;

use crate::behaviour::Flow;
use crate::limits::{CHUNK, LINK_BUFFER, LINK_CHUNKS};
use crate::link_state::Disconnect;
use crate::message_rule::MessageRule;

/// A slowed flow sends this often; each piece is what the rate allows in that time.
const PIECES_PER_SECOND: u32 = 20;
/// A slowed flow that could not send for a while makes up for at most this much of it.
const CATCH_UP: Duration = Duration::from_millis(100);
/// Chunks in one write.
pub const WRITE_CHUNKS: usize = 64;

enum Item {
    Chunk {
        arrived: Instant,
        draw: u64,
        bytes: Bytes,
    },
    /// Later items wait until `until`, or until the rule is lifted.
    Gate {
        until: Instant,
        rule: Arc<MessageRule>,
    },
    End {
        arrived: Instant,
        how: Result<(), Disconnect>,
    },
}

/// The next step at the head of the queue.
pub enum Due {
    /// Nothing, until something arrives or the flow changes.
    Nothing,
    /// Nothing before this time.
    At(Instant),
    /// Write this many bytes.
    Bytes(usize),
    /// The time of a gate is over, and it is removed.
    Gate(Arc<MessageRule>),
    /// The end of the stream, which is removed, and how it ended.
    End(Result<(), Disconnect>),
}

pub struct SendQueue {
    items: VecDeque<Item>,
    bytes: usize,
    gates: usize,
    /// The time at which the connection began.
    began: Instant,
    /// A slowed flow has used up its time until here.
    paced_until: Instant,
    /// The length of the piece that is sent next, once it is drawn.
    piece: Option<usize>,
}

impl SendQueue {
    pub fn new(now: Instant) -> Self {
        Self {
            items: VecDeque::new(),
            bytes: 0,
            gates: 0,
            began: now,
            paced_until: now,
            piece: None,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether another chunk may be taken in. A flow that passes everything takes one chunk at a time, so that the sender
    /// feels a slow receiver.
    pub fn has_room(&self, flow: &Flow) -> bool {
        if flow.is_pass() && self.gates == 0 {
            return self.items.is_empty();
        }
        self.bytes < LINK_BUFFER && self.items.len() < LINK_CHUNKS
    }

    /// Adds a chunk; returns whether `flow` delays it where it does not delay all.
    pub fn push(&mut self, now: Instant, flow: &Flow, rng: &mut impl Rng, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return false;
        }
        let draw = rng.random();
        self.bytes += bytes.len();
        self.items.push_back(Item::Chunk {
            arrived: now,
            draw,
            bytes: Bytes::copy_from_slice(bytes),
        });
        flow.delays_this(now - self.began, draw)
    }

    pub fn push_gate(&mut self, until: Instant, rule: Arc<MessageRule>) {
        self.gates += 1;
        self.items.push_back(Item::Gate { until, rule });
    }

    pub fn push_end(&mut self, now: Instant, how: Result<(), Disconnect>) {
        self.items.push_back(Item::End { arrived: now, how });
    }

    /// Notes that the flow has changed.
    pub fn flow_changed(&mut self, now: Instant) {
        self.paced_until = now;
        self.piece = None;
    }

    /// Returns the next step. Bytes stay until they were written ([`SendQueue::sent`]).
    pub fn due(&mut self, now: Instant, flow: &Flow, rng: &mut impl Rng) -> Due {
        let held = flow.stall || flow.reset_after.is_some();
        let (at, then) = match self.items.front() {
            None => return Due::Nothing,
            Some(_) if held => return Due::Nothing,
            Some(Item::Chunk { .. }) if flow.freeze => return Due::Nothing,
            Some(Item::Chunk { arrived, draw, bytes }) if is_paced(flow) => {
                let drawn = self.piece.unwrap_or_else(|| piece_length(flow, rng));
                self.piece = Some(drawn);
                let length = drawn.min(bytes.len());
                let from = (*arrived + self.delay(flow, *arrived, *draw)).max(self.paced_until);
                (from + piece_time(flow, length), Due::Bytes(length))
            }
            Some(Item::Chunk { arrived, draw, .. }) => (
                *arrived + self.delay(flow, *arrived, *draw),
                Due::Bytes(self.unpaced(now, flow)),
            ),
            Some(Item::Gate { until, rule }) => {
                let at = if rule.is_lifted() { now } else { *until };
                (at, Due::Gate(Arc::clone(rule)))
            }
            Some(Item::End { arrived, how }) => (*arrived + flow.end_delay, Due::End(*how)),
        };
        if at > now {
            return Due::At(at);
        }
        self.gates -= usize::from(matches!(then, Due::Gate(_)));
        if !matches!(then, Due::Bytes(_)) {
            self.items.pop_front();
        }
        then
    }

    fn delay(&self, flow: &Flow, arrived: Instant, draw: u64) -> Duration {
        flow.delay_of(arrived - self.began, draw)
    }

    /// Returns the bytes of the chunks at the head that are due, as many chunks as one write takes.
    fn unpaced(&self, now: Instant, flow: &Flow) -> usize {
        let chunks = self.items.iter().take(WRITE_CHUNKS).map_while(|item| match item {
            Item::Chunk { arrived, draw, bytes } if *arrived + self.delay(flow, *arrived, *draw) <= now => {
                Some(bytes.len())
            }
            _ => None,
        });
        chunks.sum()
    }

    /// Fills `slices` with the first `length` bytes, for one write; returns the number of slices.
    pub fn slices<'a>(&'a self, mut length: usize, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, item) in slices.iter_mut().zip(&self.items) {
            let Item::Chunk { bytes, .. } = item else { break };
            let part = bytes.len().min(length);
            if part == 0 {
                break;
            }
            *slice = IoSlice::new(&bytes[..part]);
            length -= part;
            count += 1;
        }
        count
    }

    /// Removes `sent` bytes that were written.
    pub fn sent(&mut self, now: Instant, flow: &Flow, mut sent: usize) {
        self.bytes -= sent;
        if is_paced(flow)
            && let Some(Item::Chunk { arrived, draw, .. }) = self.items.front()
        {
            let due = (*arrived + self.delay(flow, *arrived, *draw)).max(self.paced_until) + piece_time(flow, sent);
            // slices are sent apart from each other, a rate is kept on average
            let least = if flow.slice.is_some() { now } else { now - CATCH_UP };
            self.paced_until = due.max(least);
            self.piece = None;
        }
        while sent > 0 {
            let Some(Item::Chunk { bytes, .. }) = self.items.front_mut() else {
                return;
            };
            let part = bytes.len().min(sent);
            bytes.advance(part);
            sent -= part;
            if bytes.is_empty() {
                self.items.pop_front();
            }
        }
    }
}

fn is_paced(flow: &Flow) -> bool {
    flow.bytes_per_second.is_some() || flow.slice.is_some()
}

fn piece_length(flow: &Flow, rng: &mut impl Rng) -> usize {
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

fn piece_time(flow: &Flow, length: usize) -> Duration {
    let by_rate = flow.bytes_per_second.map_or(Duration::ZERO, |rate| {
        Duration::from_secs_f64(length as f64 / f64::from(rate.max(1)))
    });
    by_rate.max(flow.slice.map_or(Duration::ZERO, |slice| slice.gap))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::behaviour::Slice;

    /// Returns everything that is due at once, in the order in which it leaves; and whether the end is among it.
    fn drain(queue: &mut SendQueue, now: Instant, flow: &Flow) -> (Vec<u8>, bool) {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut out = Vec::new();
        loop {
            match queue.due(now, flow, &mut rng) {
                Due::Bytes(length) => {
                    let mut slices = [IoSlice::new(&[]); WRITE_CHUNKS];
                    let count = queue.slices(length, &mut slices);
                    let before = out.len();
                    slices[..count].iter().for_each(|slice| out.extend_from_slice(slice));
                    assert_eq!(out.len() - before, length);
                    queue.sent(now, flow, length);
                }
                Due::Gate(_) => {}
                Due::End(how) => return (out, how.is_ok()),
                Due::Nothing | Due::At(_) => return (out, false),
            }
        }
    }

    fn any_flow() -> impl Strategy<Value = Flow> {
        let slow = (1u32..5000).prop_map(Flow::slowed);
        let late = (0u64..30_000, 0u64..1000).prop_map(|(delay, jitter)| Flow {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            ..Flow::PASS
        });
        let sliced = (1u32..100, 0u32..100).prop_map(|(size, variation)| {
            Flow::sliced(Slice {
                variation: variation.min(size),
                ..Slice::of(size)
            })
        });
        prop_oneof![Just(Flow::STALL), Just(Flow::FREEZE), slow, late, sliced]
    }

    proptest! {
        /// Whatever faults there were before, a queue without a fault releases everything at once, whole and in order.
        #[test]
        fn a_queue_without_a_fault_holds_nothing_back(
            seed: u64,
            steps in proptest::collection::vec((any_flow(), 0u64..200, 0usize..300), 1..12),
        ) {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut now = Instant::now();
            let mut queue = SendQueue::new(now);
            let (mut sent, mut out) = (Vec::new(), Vec::new());
            for (number, (flow, wait_ms, length)) in steps.iter().enumerate() {
                queue.flow_changed(now);
                let chunk = vec![number as u8; *length];
                queue.push(now, flow, &mut rng, &chunk);
                sent.extend(chunk);
                now += Duration::from_millis(*wait_ms);
                out.extend(drain(&mut queue, now, flow).0);
                prop_assert!(sent.starts_with(&out));
            }
            queue.push_end(now, Ok(()));
            queue.flow_changed(now);
            let (rest, ended) = drain(&mut queue, now, &Flow::PASS);
            out.extend(rest);
            prop_assert_eq!(out, sent);
            prop_assert!(ended && queue.is_empty());
            prop_assert_eq!(queue.bytes, 0);
        }

        /// A fault that gets weaker releases what is due under what is left of it.
        #[test]
        fn what_is_queued_obeys_the_flow_as_it_is_now(delay_ms in 1000u64..30_000, late_ms in 0u64..900) {
            let mut rng = ChaCha8Rng::seed_from_u64(7);
            let now = Instant::now();
            let flow = |ms| Flow::delayed(Duration::from_millis(ms));
            let mut queue = SendQueue::new(now);
            for _ in 0..1000 {
                queue.push(now, &Flow::PASS, &mut rng, b"chunk");
            }
            prop_assert!(matches!(queue.due(now, &flow(delay_ms), &mut rng), Due::At(_)));
            let later = now + Duration::from_millis(late_ms);
            let (out, _) = drain(&mut queue, later, &flow(late_ms));
            prop_assert_eq!(out.len(), 5000);
        }

        #[test]
        fn slices_are_within_their_bounds_and_the_same_seed_draws_the_same(
            seed: u64, size in 1u32..1000, variation in 0u32..1000,
        ) {
            let slice = Slice { size, variation: variation.min(size), gap: Duration::ZERO };
            let flow = Flow::sliced(slice);
            let draw = || {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                (0..20).map(|_| piece_length(&flow, &mut rng)).collect::<Vec<_>>()
            };
            prop_assert_eq!(draw(), draw());
            prop_assert!(draw().iter().all(|length| *length >= 1 && *length as u32 <= size + slice.variation));
        }
    }

    #[test]
    fn a_rate_is_kept_on_average_and_never_exceeded_by_more_than_a_moment() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let start = Instant::now();
        let flow = Flow::slowed(1000);
        let mut queue = SendQueue::new(start);
        queue.push(start, &flow, &mut rng, &[0; 2000]);
        let mut out = 0;
        for ms in (0..=2000).step_by(7) {
            let now = start + Duration::from_millis(ms);
            out += drain(&mut queue, now, &flow).0.len();
            assert!(out as u64 <= ms, "{out} bytes after {ms} ms");
        }
        assert!(out >= 1900, "{out}");
    }
}
