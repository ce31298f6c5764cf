//! The turn of a family: a thread that waits passes it to the next in the queue, and continues when it has the turn again.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, AtomicU64};

use super::call;
use super::call::error::{ESRCH, ETIMEDOUT};
use super::fork_server;
use super::gate::system;
use super::page::{NEVER, SLOTS, Slot, dirty, kind, state, why};
use super::shared::{sleep_on, wake};
pub use super::shared::{PID, page};

/// The address of the word that the kernel clears at the end of a thread of this process that passed its turn to end, or 0. Each process
/// has its own: another one that has the turn in between cannot read the word.
pub static LEAVING: AtomicU64 = AtomicU64::new(0);

/// System calls since a thread of this process last got the turn, up to a limit.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// Readings of clocks since the last system call, up to a limit.
pub static LOOKS: AtomicU32 = AtomicU32::new(0);

/// Returns the slot of this thread, which has the turn.
pub fn me() -> usize {
    page().owner.load(SeqCst).wrapping_sub(1) as usize % SLOTS
}

pub fn slot() -> &'static Slot {
    &page().slots[me()]
}

pub fn pid() -> u32 {
    PID.load(SeqCst)
}

/// A wait of a thread.
#[derive(Clone, Copy)]
pub struct ThreadWait {
    pub kind: u32,
    /// Of a wait for a word: its process, or 0 if it is shared, and the bits that wake. `word` is its address, or one of `page::about`.
    pub space: u32,
    pub word: u64,
    pub bits: u32,
    pub deadline: u64,
}

impl ThreadWait {
    pub fn for_descriptors(deadline: u64) -> Self {
        Self {
            kind: kind::DESCRIPTORS,
            space: 0,
            word: 0,
            bits: 0,
            deadline,
        }
    }

    /// Limits a wait for descriptors to an event, one of `page::about`.
    pub fn about(self, what: u64) -> Self {
        Self { word: what, ..self }
    }

    pub fn until(deadline: u64) -> Self {
        Self {
            kind: kind::TIME,
            ..Self::for_descriptors(deadline)
        }
    }
}

/// Waits, and returns the reason for the end of the wait, one of `page::why`.
pub fn wait(what: ThreadWait) -> u32 {
    let (page, me) = (page(), me());
    let slot = &page.slots[me];
    slot.kind.store(what.kind, SeqCst);
    slot.space.store(what.space, SeqCst);
    slot.word.store(what.word, SeqCst);
    slot.bits.store(what.bits, SeqCst);
    slot.deadline.store(what.deadline, SeqCst);
    slot.order.store(page.waits.fetch_add(1, SeqCst), SeqCst);
    slot.state.store(state::WAITS, SeqCst);
    pass_turn();
    await_turn(me);
    slot.deadline.store(NEVER, SeqCst);
    slot.why.load(SeqCst)
}

/// Passes the turn, behind the threads that are in the queue. Returns `false` if there are none.
pub fn let_others_go() -> bool {
    let (page, me) = (page(), me());
    if page.is_queue_empty() {
        return false;
    }
    page.enqueue(me, why::WOKEN);
    pass_turn();
    await_turn(me);
    true
}

/// Passes the turn to the next thread, or to harness. From then on the caller runs in parallel with it.
pub fn pass_turn() {
    let page = page();
    let woken = match page.pass_turn() {
        Some(next) => &page.slots[next].turn,
        None => &page.owner,
    };
    wake(woken);
}

pub fn await_turn(me: usize) {
    let page = page();
    loop {
        let turn = page.slots[me].turn.load(SeqCst);
        if page.owner.load(SeqCst) == me as u32 + 1 {
            break;
        }
        if page.fork.wanted.swap(0, SeqCst) != 0 {
            // the forked process continues here, too, with another page at the address of this one
            fork_server::answer(me);
            continue;
        }
        if sleep_on(&page.slots[me].turn, turn) == ETIMEDOUT {
            end_without_harness();
        }
    }
    CALLS.store(0, Relaxed);
    see_off();
}

/// Ends this process if harness was killed: nobody would give it a turn.
fn end_without_harness() {
    const KILLED: usize = 137;
    let harness = page().harness.load(SeqCst) as usize;
    if harness != 0 && system(call::KILL, [harness, 0]) == ESRCH {
        system(call::EXIT_GROUP, [KILLED]);
    }
}

/// Waits, in real time, for the end of a thread of this process, and of a process, that passed its turn to end.
fn see_off() {
    let page = page();
    let word = LEAVING.swap(0, SeqCst);
    if word != 0 {
        // SAFETY: it is a static, or in the stack of a thread of this process, which is kept until the kernel has cleared it.
        let word = unsafe { &*(word as *const AtomicU32) };
        loop {
            let thread = word.load(SeqCst);
            if thread == 0 {
                break;
            }
            sleep_on(word, thread);
        }
    }
    let process = page.leaving_process.swap(0, SeqCst);
    if process != 0 {
        await_end(process);
    }
}

/// Waits, in real time, for the end of a process of the family that is about to end.
pub fn await_end(process: u32) {
    page().awaited_process.store(process, SeqCst);
    let end = system(call::PIDFD_OPEN, [process as usize, 0]);
    if end >= 0 {
        // descriptor, and the event POLLIN
        let mut wanted = [end as u32, 1];
        let forever = usize::MAX;
        while system(call::POLL, [wanted.as_mut_ptr() as usize, 1, forever]) == super::call::error::EINTR {}
        system(call::CLOSE, [end as usize]);
    }
    page().awaited_process.store(0, SeqCst);
}

/// Counts a system call. A thread that makes many without a wait may poll for another thread or for a time: the others of the queue run
/// first, and some time passes.
pub fn progress() {
    const MANY: u32 = 256;
    const THEIR_TIME: u64 = 1000;
    let page = page();
    let made = page.calls.load(Relaxed).wrapping_add(1);
    page.calls.store(made, Relaxed);
    let calls = CALLS.load(Relaxed) + 1;
    CALLS.store(calls % MANY, Relaxed);
    LOOKS.store(0, Relaxed);
    if calls == MANY {
        let looked = page.looked.fetch_add(THEIR_TIME, SeqCst) + THEIR_TIME;
        page.end_due(page.now.load(SeqCst) + looked);
        let_others_go();
    }
    if made % MANY == 0 {
        keep_pace(made);
    }
    // not during a startup: a client that is a fork would not have drawn in it
    if page.order.load(Relaxed) != 0 && page.paced_at.load(Relaxed) != 0 {
        lose_processor(page.draw_order());
    }
}

/// Preempts the thread with the turn at some of its calls, for a time or until others of the queue have run, if the order of threads is
/// drawn.
fn lose_processor(drawn: u64) {
    const LONGEST: u64 = 1_000_000;
    match drawn % 16 {
        0 => {
            let now = page().now.load(SeqCst) + page().looked.load(SeqCst);
            wait(ThreadWait::until(now + drawn / 16 % LONGEST));
        }
        1 | 2 => {
            let_others_go();
        }
        _ => {}
    }
}

/// Waits as long as the calls of the family take, if less time has passed: threads that wake one another, or poll the kernel, without a
/// wait for a time would stop the world.
fn keep_pace(made: u32) {
    /// The number of calls since `paced_at` that take no time: a program may have much to do.
    const FREE: u32 = 20_000;
    const CALL: u64 = 4000;
    const ENOUGH: u64 = 1_000_000_000;
    let page = page();
    let since = page.paced_at.load(SeqCst);
    let now = page.now.load(SeqCst) + page.looked.load(SeqCst);
    let calls = made.wrapping_sub(page.paced_calls.load(SeqCst));
    let owed = u64::from(calls.saturating_sub(FREE)) * CALL;
    match now.saturating_sub(since) {
        _ if since == 0 => {}
        passed if passed > ENOUGH => {
            page.paced_at.store(now, SeqCst);
            page.paced_calls.store(made, SeqCst);
        }
        passed if passed < owed => {
            wait(ThreadWait::until(since + owed));
        }
        _ => {}
    }
}

/// Tells harness that anything may have changed.
pub fn touch() {
    page().dirty.fetch_or(dirty::ALL, SeqCst);
}

/// Tells harness that this connection was written to.
pub fn wrote(connection: u16) {
    let (word, bit) = (usize::from(connection) / 64, connection % 64);
    if let Some(word) = page().written.get(word) {
        word.fetch_or(1 << bit, SeqCst);
    }
    page().dirty.fetch_or(dirty::CONNECTIONS, SeqCst);
}

/// Tells harness that an output of a process may have been written to.
pub fn wrote_to_pipe() {
    page().dirty.fetch_or(dirty::PIPES, SeqCst);
}

/// Tells harness that a connection had no room for a write: many short messages fill its buffer.
pub fn had_no_room() {
    page().dirty.fetch_or(dirty::FULL, SeqCst);
}

/// Reports a system call that virtual time does not support: harness ends the run.
pub fn refuse(number: usize) {
    let _ = page().refused.compare_exchange(0, number as u32 + 1, SeqCst, SeqCst);
    touch();
}

/// Reserves a slot for a new thread; `None`: all are in use.
pub fn take_slot() -> Option<usize> {
    let page = page();
    let free = |slot: &Slot| slot.state.load(SeqCst) == state::FREE;
    let number = page.slots.iter().position(free)?;
    page.slots_used.fetch_max(number as u32 + 1, SeqCst);
    let slot = &page.slots[number];
    for word in [&slot.kind, &slot.pid, &slot.tid, &slot.space, &slot.bits] {
        word.store(0, SeqCst);
    }
    slot.cleared.store(0, SeqCst);
    slot.deadline.store(NEVER, SeqCst);
    slot.loaded.store(1, SeqCst);
    slot.state.store(state::RUNS, SeqCst);
    Some(number)
}

pub fn free_slot(number: usize) {
    page().slots[number].state.store(state::FREE, SeqCst);
}
