//! Words in memory for which threads wait (`futex`), as locks, condition variables, semaphores and joins of all libraries do.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, EINTR, EINVAL, ENOSYS, ETIMEDOUT};
use super::clocks::{deadline_after, now, time_at, time_of};
use super::page::{NEVER, kind, state, why};
use super::shared::{WAIT, WAKE};
use super::signals::is_signalled;
use super::trap::TrappedCall;
use super::turns::{ThreadWait, page, pid, refuse, wait};

const REQUEUE: usize = 3;
const CMP_REQUEUE: usize = 4;
const WAKE_OP: usize = 5;
const WAIT_BITSET: usize = 9;
const WAKE_BITSET: usize = 10;
const PRIVATE: usize = 128;
const OF_WALL_CLOCK: usize = 256;
const ANY_BIT: u32 = u32::MAX;

pub fn futex(call: &TrappedCall<'_>) -> Result<isize, isize> {
    let [word, operation, value, time, other, bits] = call.arguments;
    // a private word has its process; a shared one is taken to have one address in all processes, as after a fork
    let space = if operation & PRIVATE != 0 { pid() } else { 0 };
    let value = value as u32;
    Ok(match operation & !(PRIVATE | OF_WALL_CLOCK) {
        WAIT => await_word(call, (space, word), value, (deadline_after(time)?, ANY_BIT)),
        WAIT_BITSET if bits as u32 == 0 => EINVAL,
        WAIT_BITSET => {
            let clock = if operation & OF_WALL_CLOCK != 0 { 0 } else { 1 };
            let deadline = match time {
                0 => NEVER,
                at => time_of(clock, time_at(at)?),
            };
            await_word(call, (space, word), value, (deadline, bits as u32))
        }
        WAKE => wake(space, word, value, ANY_BIT),
        WAKE_BITSET => wake(space, word, value, bits as u32),
        CMP_REQUEUE if load(word) != bits as u32 => EAGAIN,
        REQUEUE | CMP_REQUEUE => requeue(space, word, value, (other, time as u32)),
        WAKE_OP => {
            let most_of_other = if operate(other, bits as u32) { time as u32 } else { 0 };
            wake(space, word, value, ANY_BIT) + wake(space, other, most_of_other, ANY_BIT)
        }
        _ => {
            // locks with priority inheritance
            refuse(call::FUTEX);
            ENOSYS
        }
    })
}

fn word_at(address: usize) -> &'static AtomicU32 {
    // SAFETY: the program gave its address to have it compared; if it is not mapped, the program ends, where the kernel answers EFAULT.
    unsafe { &*(address as *const AtomicU32) }
}

fn load(address: usize) -> u32 {
    word_at(address).load(SeqCst)
}

fn await_word(call: &TrappedCall<'_>, (space, word): (u32, usize), value: u32, (deadline, bits): (u64, u32)) -> isize {
    let seen = page().signals.load(SeqCst);
    loop {
        if load(word) != value {
            return EAGAIN;
        }
        if now() >= deadline {
            return ETIMEDOUT;
        }
        let ended = wait(ThreadWait {
            kind: kind::WORD,
            space,
            word: word as u64,
            bits,
            deadline,
        });
        if ended == why::WOKEN {
            return 0;
        }
        if is_signalled(seen, call.context.mask) {
            return EINTR;
        }
    }
}

/// Wakes the threads that wait longest, `most` at most. Returns their number.
pub fn wake(space: u32, word: usize, most: u32, bits: u32) -> isize {
    let mut woken = 0;
    while woken < most as usize {
        let Some(next) = longest(space, word, bits) else { break };
        page().enqueue(next, why::WOKEN);
        woken += 1;
    }
    woken as isize
}

fn longest(space: u32, word: usize, bits: u32) -> Option<usize> {
    let waits = |number: &usize| {
        let slot = &page().slots[*number];
        slot.state.load(SeqCst) == state::WAITS
            && slot.kind.load(SeqCst) == kind::WORD
            && slot.word.load(SeqCst) == word as u64
            && slot.space.load(SeqCst) == space
            && slot.bits.load(SeqCst) & bits != 0
    };
    let waiting = (0..page().slots().len()).filter(waits);
    waiting.min_by_key(|number| page().slots[*number].order.load(SeqCst))
}

/// Wakes `most` threads at most, and has `moved` others at most wait for another word. Returns the number of both.
fn requeue(space: u32, word: usize, most: u32, (other, moved): (usize, u32)) -> isize {
    let mut count = wake(space, word, most, ANY_BIT);
    for _ in 0..moved {
        let Some(next) = longest(space, word, ANY_BIT) else {
            break;
        };
        page().slots[next].word.store(other as u64, SeqCst);
        count += 1;
    }
    count
}

/// Changes a word as `FUTEX_WAKE_OP` encodes it. Returns the comparison of its value before.
fn operate(address: usize, encoded: u32) -> bool {
    let (operation, comparison) = (encoded >> 28 & 7, encoded >> 24 & 15);
    let signed = |bits: u32| ((bits << 20) as i32 >> 20) as u32;
    let (mut operand, compared) = (signed(encoded >> 12 & 0xfff), signed(encoded & 0xfff));
    if encoded >> 31 != 0 {
        operand = 1 << (operand & 31);
    }
    let word = word_at(address);
    let before = match operation {
        0 => word.swap(operand, SeqCst),
        1 => word.fetch_add(operand, SeqCst),
        2 => word.fetch_or(operand, SeqCst),
        3 => word.fetch_and(!operand, SeqCst),
        _ => word.fetch_xor(operand, SeqCst),
    };
    let (before, compared) = (before as i32, compared as i32);
    match comparison {
        0 => before == compared,
        1 => before != compared,
        2 => before < compared,
        3 => before <= compared,
        4 => before > compared,
        _ => before >= compared,
    }
}
