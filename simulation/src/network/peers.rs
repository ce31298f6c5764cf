//! Messages between servers: their time under way, and their order.

use std::cell::{Cell, RefCell};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

/// Most messages: least, and what is drawn besides, in nanoseconds. No proxy stands between servers, and a message on loopback waits
/// for a thread to wake.
const PROMPT: (u64, u64) = (10_000, 50_000);
/// One of [`SELDOM`]: its thread waits for a processor.
const LATE: (u64, u64) = (50_000, 350_000);
const SELDOM: u64 = 8;

/// Draws how long the next message between two servers takes, in nanoseconds.
///
/// Were it as long as between a client and its server, clients of the leader would win every race of a lock without a queue, which
/// they do not on real ensembles.
pub(crate) fn peer_latency(dice: &mut ChaCha8Rng) -> u64 {
    let drawn = dice.next_u64();
    let (least, spread) = if drawn.is_multiple_of(SELDOM) { LATE } else { PROMPT };
    least + drawn / SELDOM % spread
}

/// Returns when a message arrives that takes until `earliest`, not before the last one on its connection; and notes that time.
pub(crate) fn arrives_behind(last: &Cell<u64>, earliest: u64) -> u64 {
    let at = earliest.max(last.get());
    last.set(at);
    at
}

/// Draws how long a majority of so many servers takes to agree with their leader.
pub(crate) fn agreement(servers: usize, dice: &RefCell<ChaCha8Rng>) -> u64 {
    let mut dice = dice.borrow_mut();
    match servers {
        1 => 0,
        _ => peer_latency(&mut dice) + peer_latency(&mut dice),
    }
}

/// Draws when servers apply a decision of their leader, each behind what it applies before: a majority has to have it first.
pub(crate) fn applied_at<'a>(
    (now, leader): (u64, usize),
    last: impl ExactSizeIterator<Item = &'a Cell<u64>>,
    dice: &RefCell<ChaCha8Rng>,
) -> impl Iterator<Item = u64> {
    let agreed = now + agreement(last.len(), dice);
    last.enumerate().map(move |(server, last)| match server == leader {
        true => arrives_behind(last, agreed),
        false => arrives_behind(last, agreed + peer_latency(&mut dice.borrow_mut())),
    })
}
