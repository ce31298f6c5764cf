//! The memory that harness shares with the processes of one client or server in virtual time ([`FamilyPage`]): the clock, the threads, and
//! whose turn it is. Harness and the loaded library (`loaded/`) are built from this one file.
//!
//! A **family** is what was started as one program: its process, and those that it forked. Of all threads of a family one has the
//! **turn** and runs; the others wait in a queue or for something. Where no thread has the turn the family is quiet: then harness may
//! look at this page and change it, and at no other time. So nothing in it needs a lock.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// Threads that a family may have at a time.
pub const SLOTS: usize = 256;
/// Processes that a family may have at a time, those that ended and were not waited for among them.
pub const PROCESSES: usize = 128;
/// Connections are numbered modulo this.
pub const CONNECTIONS: usize = 4096;
/// Pipes and the like are numbered modulo this.
pub const LOCALS: usize = 1024;
/// Sets of `epoll` of a family whose contents are known.
pub const EPOLLS: usize = 64;
/// The longest path of a family's sockets.
pub const PATH: usize = 96;
/// What a new connection says first: its ends. It fills the buffer of the socket, so that it cannot be written to before harness has
/// read this.
pub const GREETING: usize = 2048;
/// Where the ports of those that dial begin.
pub const FIRST_PORT: u16 = 32_768;
/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The variable with the path of the page.
pub const VARIABLE: &str = "HARNESS_VIRTUAL_TIME";

/// What one look at a clock takes, in nanoseconds: a thread that looks until a time has come gets there.
pub const LOOK: u64 = 50;

/// States of a slot.
pub mod state {
    pub const FREE: u32 = 0;
    /// It has the turn, or is in the queue.
    pub const RUNS: u32 = 1;
    pub const WAITS: u32 = 2;
}

/// What a thread waits for.
pub mod kind {
    /// A word in memory.
    pub const WORD: u32 = 1;
    /// That something happens to descriptors, or to a child.
    pub const DESCRIPTORS: u32 = 2;
    /// A time.
    pub const TIME: u32 = 3;
}

/// What a thread waits for that waits for descriptors, and what may have changed.
pub mod about {
    use super::{CONNECTIONS, LOCALS};

    /// Several of them, or a child.
    pub const ANY: u64 = 0;
    /// A connection that is dialled.
    pub const LISTENER: u64 = 1;
    /// One of those through which threads of the family wake each other, or an input of its first process: one without a number.
    pub const LOCAL: u64 = 2;
    /// Where those with a number begin, connections first.
    pub const NUMBERED: u64 = 1 << 32;
    /// Where sets of `epoll` begin.
    pub const EPOLL: u64 = 2 << 32;

    /// The connection of this number.
    pub fn connection(number: u16) -> u64 {
        NUMBERED + number as u64
    }

    /// The pipe or the like of this number.
    pub fn local(number: u16) -> u64 {
        NUMBERED + (CONNECTIONS + number as usize % LOCALS) as u64
    }

    pub fn is_local(about: u64) -> bool {
        about == LOCAL || (NUMBERED + CONNECTIONS as u64..EPOLL).contains(&about)
    }

    /// What is in the set of this number.
    pub fn epoll(number: u16) -> u64 {
        EPOLL + number as u64
    }
}

/// What harness has to look at, bits of one word.
pub mod dirty {
    /// Connections whose bits are set.
    pub const CONNECTIONS: u32 = 1;
    /// The outputs of processes.
    pub const PIPES: u32 = 2;
    /// Something may have been closed, or written by another way.
    pub const ALL: u32 = 4;
}

/// Why a wait ended.
pub mod why {
    pub const WOKEN: u32 = 1;
    pub const DEADLINE: u32 = 2;
    /// Something may have happened to descriptors, or a signal came.
    pub const POKED: u32 = 3;
}

/// What became of a connection that a family dialled or took.
pub mod connection {
    pub const DIALLING: u8 = 0;
    pub const OPEN: u8 = 1;
    pub const REFUSED: u8 = 2;
    pub const RESET: u8 = 3;
    pub const CLOSED: u8 = 4;
}

/// One thread.
#[repr(C)]
pub struct Slot {
    pub state: AtomicU32,
    /// Changes when it is given the turn; the thread sleeps on it.
    pub turn: AtomicU32,
    pub kind: AtomicU32,
    pub why: AtomicU32,
    /// As the kernel numbers them; 0 until it has begun.
    pub pid: AtomicU32,
    pub tid: AtomicU32,
    /// As the program sees it.
    pub number: AtomicU32,
    /// The process whose word it waits for; 0 for one that processes share.
    pub space: AtomicU32,
    pub word: AtomicU64,
    pub bits: AtomicU32,
    /// Whether its program has the library: not between an `execve` and the first instruction of the library.
    pub loaded: AtomicU32,
    /// Counts waits, so that the one that waits longest is woken first.
    pub order: AtomicU64,
    /// When its wait ends by itself, or [`NEVER`].
    pub deadline: AtomicU64,
    /// The word that the kernel clears when it ends.
    pub cleared: AtomicU64,
}

/// One process of the family.
#[repr(C)]
pub struct ProcessEntry {
    /// 0: this entry is free.
    pub pid: AtomicU32,
    pub number: AtomicU32,
    pub parent: AtomicU32,
    /// When it gets its next `SIGALRM`; 0: it gets none.
    pub alarm: AtomicU64,
    /// The time between two of them; 0: there is only one.
    pub alarm_every: AtomicU64,
}

/// What the paths of the files of a family begin with.
#[repr(C)]
pub struct SharedPath {
    pub length: AtomicU32,
    pub bytes: [AtomicU8; PATH],
}

impl SharedPath {
    /// Copies it with this ending, as far as there is room; how long that is.
    pub fn copy_to(&self, into: &mut [u8], ending: &[u8]) -> usize {
        let length = (self.length.load(SeqCst) as usize).min(PATH);
        for (byte, kept) in into.iter_mut().zip(&self.bytes[..length]) {
            *byte = kept.load(SeqCst);
        }
        let end = length + ending.len().min(into.len() - length);
        into[length..end].copy_from_slice(&ending[..end - length]);
        end
    }
}

/// Descriptors that a fork server may have, of its input, its output and its errors.
pub const FILES: usize = 16;

/// A descriptor of a fork server, which in what it forks is another file.
#[repr(C)]
pub struct ForkedFile {
    /// Counted from 1; 0: there is none.
    pub descriptor: AtomicU32,
    /// The descriptor that harness has of that file.
    pub file: AtomicU32,
    /// Those of `open`.
    pub flags: AtomicU32,
}

/// What a fork server is asked for: a process that goes on where it is, as the first one of another family.
#[repr(C)]
pub struct ForkOrder {
    /// Whether it is asked; the fork server sleeps on the turn of its thread.
    pub wanted: AtomicU32,
    /// The process, or [`FAILED`]; 0: it has not answered.
    pub answer: AtomicU32,
    /// The processor on which the process runs, counted from 1; 0: on each.
    pub processor: AtomicU32,
    pub files: [ForkedFile; FILES],
    /// The path of the other family; its page has the same with `.page` behind it.
    pub path: SharedPath,
}

/// The answer of a fork server that could not fork.
pub const FAILED: u32 = u32::MAX;

/// What is, or was, in the sets of `epoll` of a family: a bit for each set.
#[repr(C)]
pub struct EpollContents {
    pub made: AtomicU32,
    pub listeners: AtomicU64,
    pub locals: AtomicU64,
    pub numbered: [AtomicU64; CONNECTIONS + LOCALS],
    /// What may change in a way that is not known.
    pub others: AtomicU64,
}

impl EpollContents {
    /// Adds what a thread would wait for that waits for the descriptor alone.
    pub fn add(&self, set: u64, what: u64) {
        let bit = 1 << (set - about::EPOLL);
        match what {
            about::LISTENER => self.listeners.fetch_or(bit, SeqCst),
            about::NUMBERED..about::EPOLL => {
                if about::is_local(what) {
                    self.locals.fetch_or(bit, SeqCst);
                }
                self.numbered[(what - about::NUMBERED) as usize].fetch_or(bit, SeqCst)
            }
            _ => self.others.fetch_or(bit, SeqCst),
        };
    }

    /// Whether a set may have what changed.
    fn may_have(&self, set: u64, changed: u64) -> bool {
        let sets = match changed {
            about::LISTENER => self.listeners.load(SeqCst),
            about::LOCAL => self.locals.load(SeqCst),
            about::NUMBERED..about::EPOLL => self.numbered[(changed - about::NUMBERED) as usize].load(SeqCst),
            _ => 0,
        };
        (sets | self.others.load(SeqCst)) >> (set - about::EPOLL) & 1 != 0
    }
}

#[repr(C)]
pub struct FamilyPage {
    /// The slot that has the turn, counted from 1; 0: the family is quiet.
    pub owner: AtomicU32,
    /// The call that cannot be had in virtual time, if one was made; counted from 1.
    pub refused: AtomicU32,
    /// The clock of the world, in nanoseconds.
    pub now: AtomicU64,
    /// What looks at the clock took since it was set.
    pub looked: AtomicU64,
    /// What the wall clock shows when the other clock shows 0.
    pub epoch: AtomicI64,
    /// How far the wall clock was stepped.
    pub offset: AtomicI64,
    /// Readings of the wall clock while it was stepped.
    pub shifted: AtomicU64,
    pub seed: AtomicU64,
    pub draws: AtomicU64,
    /// What the order of threads is drawn from; 0: they go on in the order in which they were woken.
    pub order: AtomicU64,
    /// Counts system calls, so that harness sees that a thread does something.
    pub calls: AtomicU32,
    /// When the family last had as much time as its calls take, and its calls then; 0 while it starts.
    pub paced_at: AtomicU64,
    pub paced_calls: AtomicU32,
    /// What harness has to look at.
    pub dirty: AtomicU32,
    /// A program took the place of one that had connections: what it writes to them is not told apart from other pipes.
    pub inherits: AtomicU32,
    /// By connection: it was written to.
    pub written: [AtomicU64; CONNECTIONS / 64],
    /// Changes when descriptors of the family may wait, which did not, or the other way round.
    pub modes: AtomicU32,
    /// Changes with each connection that is dialled, and each port at which is listened.
    pub dialled: AtomicU32,
    /// Changes with each signal that a process of the family may have got.
    pub signals: AtomicU32,
    pub head: AtomicU32,
    pub tail: AtomicU32,
    pub waits: AtomicU64,
    /// The slots that were ever in use are before this one.
    pub slots_used: AtomicU32,
    /// Numbers of threads and processes that were given so far.
    pub numbered: AtomicU32,
    /// Where the numbers begin; no number of a kernel is as large.
    pub numbers: AtomicU32,
    pub connections_made: AtomicU32,
    pub locals_made: AtomicU32,
    /// A process that gave up its turn to end.
    pub leaving_process: AtomicU32,
    /// The process whose end the thread with the turn waits for, or 0: the kernel may have to write to a disk before.
    pub awaited_process: AtomicU32,
    /// The process of harness: where it is gone, the family has nothing to wait for.
    pub harness: AtomicU32,
    /// The signals that the next program blocks which takes the place of another one.
    pub blocked: AtomicU64,
    /// The file of the static program that is to take the place of one that begins, counted from 1; 0: there is none.
    pub program: AtomicU32,
    /// Its own address, as a number in the order of the machine.
    pub address: AtomicU32,
    /// Whether its system calls are written down.
    pub traced: AtomicU32,
    /// What the paths of its sockets begin with.
    pub path: SharedPath,
    pub fork: ForkOrder,
    pub connections: [AtomicU8; CONNECTIONS],
    pub epolls: EpollContents,
    pub queue: [AtomicU32; SLOTS],
    pub processes: [ProcessEntry; PROCESSES],
    pub slots: [Slot; SLOTS],
}

impl FamilyPage {
    /// The slots, without those that were never in use.
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..(self.slots_used.load(SeqCst) as usize).min(SLOTS)]
    }

    /// The process that the kernel numbers so; of 0: an entry that is free.
    pub fn process(&self, pid: u32) -> Option<&ProcessEntry> {
        self.processes.iter().find(|process| process.pid.load(SeqCst) == pid)
    }

    /// Puts a thread into the queue; it is told why.
    pub fn enqueue(&self, slot: usize, why: u32) {
        let tail = self.tail.load(SeqCst);
        self.slots[slot].why.store(why, SeqCst);
        self.slots[slot].state.store(state::RUNS, SeqCst);
        self.queue[tail as usize % SLOTS].store(slot as u32, SeqCst);
        self.tail.store(tail.wrapping_add(1), SeqCst);
    }

    pub fn is_queue_empty(&self) -> bool {
        self.head.load(SeqCst) == self.tail.load(SeqCst)
    }

    /// Frees the slots of threads that are over, some of which may be in the queue.
    pub fn free_slots(&self, is_over: impl Fn(&Slot) -> bool) {
        for slot in self.slots().iter().filter(|slot| is_over(slot)) {
            slot.state.store(state::FREE, SeqCst);
        }
        let (head, tail) = (self.head.load(SeqCst), self.tail.load(SeqCst));
        let place = |number: u32| &self.queue[number as usize % SLOTS];
        let mut end = head;
        for number in 0..tail.wrapping_sub(head) {
            let slot = place(head.wrapping_add(number)).load(SeqCst);
            if self.slots[slot as usize].state.load(SeqCst) != state::FREE {
                place(end).store(slot, SeqCst);
                end = end.wrapping_add(1);
            }
        }
        self.tail.store(end, SeqCst);
    }

    /// Gives the turn to the next in the queue, and returns it: it is to be woken. `None`: there is none, and the family is quiet.
    pub fn pass_turn(&self) -> Option<usize> {
        if self.is_queue_empty() {
            self.owner.store(0, SeqCst);
            return None;
        }
        let head = self.head.load(SeqCst);
        let many = self.tail.load(SeqCst).wrapping_sub(head);
        let drawn = head.wrapping_add((self.draw_order() % u64::from(many)) as u32);
        let place = |number: u32| &self.queue[number as usize % SLOTS];
        let next = place(drawn).swap(place(head).load(SeqCst), SeqCst) as usize;
        self.head.store(head.wrapping_add(1), SeqCst);
        self.owner.store(next as u32 + 1, SeqCst);
        self.slots[next].turn.fetch_add(1, SeqCst);
        Some(next)
    }

    /// Ends the waits of threads that wait for this, or for more than this, or where it is [`about::ANY`] for any descriptor: they look
    /// again.
    pub fn poke(&self, about: u64) {
        self.end_waits(why::POKED, |slot| {
            slot.kind.load(SeqCst) == kind::DESCRIPTORS && self.concerns(about, slot.word.load(SeqCst))
        });
    }

    /// Whether a thread looks again that waits for this.
    fn concerns(&self, changed: u64, waits_for: u64) -> bool {
        let (any, local) = (about::ANY, about::LOCAL);
        match waits_for {
            _ if changed == any || changed == waits_for => true,
            about::EPOLL.. => self.epolls.may_have(waits_for, changed),
            _ if waits_for == any => true,
            // which one of them changed, or is waited for, is not known
            _ => (changed == local || waits_for == local) && about::is_local(changed) && about::is_local(waits_for),
        }
    }

    /// Ends every wait of a process, as a signal does.
    pub fn poke_process(&self, pid: u32) {
        self.end_waits(why::POKED, |slot| slot.pid.load(SeqCst) == pid);
    }

    /// Ends the waits that are over at this time.
    pub fn end_due(&self, now: u64) {
        self.end_waits(why::DEADLINE, |slot| slot.deadline.load(SeqCst) <= now);
    }

    fn end_waits(&self, why: u32, concerned: impl Fn(&Slot) -> bool) {
        for (number, slot) in self.slots().iter().enumerate() {
            if slot.state.load(SeqCst) == state::WAITS && concerned(slot) {
                self.enqueue(number, why);
            }
        }
    }

    /// A process whose timer goes off by this time, which is set for the next time.
    pub fn due_alarm(&self, now: u64) -> Option<u32> {
        let due =
            |process: &&ProcessEntry| process.pid.load(SeqCst) != 0 && (1..=now).contains(&process.alarm.load(SeqCst));
        let process = self.processes.iter().find(due)?;
        let next = match process.alarm_every.load(SeqCst) {
            0 => 0,
            every => process.alarm.load(SeqCst).saturating_add(every).max(now + 1),
        };
        process.alarm.store(next, SeqCst);
        Some(process.pid.load(SeqCst))
    }

    /// Has waits and timers end so much later.
    pub fn postpone(&self, by: u64) {
        let waiting = |slot: &&Slot| slot.state.load(SeqCst) == state::WAITS && slot.deadline.load(SeqCst) != NEVER;
        for slot in self.slots().iter().filter(waiting) {
            slot.deadline.fetch_add(by, SeqCst);
        }
        for process in self.processes.iter().filter(|process| process.alarm.load(SeqCst) != 0) {
            process.alarm.fetch_add(by, SeqCst);
        }
    }

    /// When the next wait ends by itself or the next timer goes off, or [`NEVER`].
    pub fn next_deadline(&self) -> u64 {
        let waiting = self
            .slots()
            .iter()
            .filter(|slot| slot.state.load(SeqCst) == state::WAITS);
        let alarms = self.processes.iter().filter(|process| process.pid.load(SeqCst) != 0);
        let alarms = alarms.map(|process| process.alarm.load(SeqCst)).filter(|at| *at != 0);
        let waits = waiting.map(|slot| slot.deadline.load(SeqCst));
        waits.chain(alarms).min().unwrap_or(NEVER)
    }

    /// The number of another thread or process.
    pub fn next_number(&self) -> u32 {
        self.numbers.load(SeqCst) + self.numbered.fetch_add(1, SeqCst)
    }

    /// Random bits for the order of threads; 0 where it is not drawn.
    pub fn draw_order(&self) -> u64 {
        // xorshift64, which stays at 0: <https://doi.org/10.18637/jss.v008.i14>
        let mut bits = self.order.load(SeqCst);
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.order.store(bits, SeqCst);
        bits
    }

    /// Random bits, the same for the same seed.
    pub fn draw(&self) -> u64 {
        // splitmix64, <https://prng.di.unimi.it/splitmix64.c>
        let drawn = self.draws.fetch_add(1, SeqCst).wrapping_add(1);
        let mut bits = self
            .seed
            .load(SeqCst)
            .wrapping_add(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
