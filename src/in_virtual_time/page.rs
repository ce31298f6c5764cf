//! The page of a family ([`FamilyPage`]): memory that harness shares with the processes of one client or server in virtual time, with the
//! clock, the threads and the turn. Harness and the loaded library (`loaded/`) are built from this one file.
//!
//! A **family** is a program with the processes that it forked. One of its threads has the **turn** and runs; the others are in a queue, or
//! wait. While no thread has the turn the family is quiet, and only then does harness change this page. So nothing in it needs a lock.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

use super::page_disk::PageDisk;

/// Threads that a family may have at a time.
pub const SLOTS: usize = 256;
/// Processes that a family may have at a time, those that ended and were not waited for among them.
pub const PROCESSES: usize = 128;
/// Connections are numbered modulo this, without the numbers that are in use.
pub const CONNECTIONS: usize = 4096;
/// Pipes and the like are numbered modulo this.
pub const LOCALS: usize = 1024;
/// Sets of `epoll` of a family whose contents are known.
pub const EPOLLS: usize = 64;
/// The longest path of a family's sockets.
pub const PATH: usize = 96;
/// The length of the first message of a connection, which has its ends. It fills the buffer of the socket, so that the program cannot write
/// to it before harness has read this.
pub const GREETING: usize = 2048;
/// The first port of those that dial.
pub const FIRST_PORT: u16 = 32_768;
/// No deadline.
pub const NEVER: u64 = u64::MAX;

/// The variable with the path of the page.
pub const VARIABLE: &str = "HARNESS_VIRTUAL_TIME";

/// The time that one reading of a clock takes, in nanoseconds, so that a loop ends which reads a clock until a time has come.
pub const LOOK: u64 = 50;

/// States of a slot.
pub mod state {
    pub const FREE: u32 = 0;
    /// It has the turn, or is in the queue.
    pub const RUNS: u32 = 1;
    pub const WAITS: u32 = 2;
}

/// Kinds of waits.
pub mod kind {
    /// A word in memory.
    pub const WORD: u32 = 1;
    /// An event of descriptors, or of a child.
    pub const DESCRIPTORS: u32 = 2;
    /// A time.
    pub const TIME: u32 = 3;
}

/// The events for which threads wait that wait for descriptors; a change of a descriptor is one of them, too.
pub mod about {
    use super::{CONNECTIONS, LOCALS};

    /// Several descriptors, or a child.
    pub const ANY: u64 = 0;
    /// A connection to a port at which the family listens.
    pub const LISTENER: u64 = 1;
    /// A pipe or the like without a number, such as the input of the first process.
    pub const LOCAL: u64 = 2;
    /// The first descriptor with a number: connections, then pipes and the like.
    pub const NUMBERED: u64 = 1 << 32;
    /// The first set of `epoll`.
    pub const EPOLL: u64 = 2 << 32;

    /// Returns the event of the connection with this number.
    pub fn connection(number: u16) -> u64 {
        NUMBERED + number as u64
    }

    /// Returns the event of the pipe or the like with this number.
    pub fn local(number: u16) -> u64 {
        NUMBERED + (CONNECTIONS + number as usize % LOCALS) as u64
    }

    pub fn is_local(about: u64) -> bool {
        about == LOCAL || (NUMBERED + CONNECTIONS as u64..EPOLL).contains(&about)
    }

    /// Returns the event of the descriptors in the set with this number.
    pub fn epoll(number: u16) -> u64 {
        EPOLL + number as u64
    }
}

/// Flags of the ends that harness has to look at.
pub mod dirty {
    /// Connections whose bits in `written` are set.
    pub const CONNECTIONS: u32 = 1;
    /// The outputs of processes.
    pub const PIPES: u32 = 2;
    /// All ends: some may have been closed, or written to in another way.
    pub const ALL: u32 = 4;
    /// A connection had no room for a write.
    pub const FULL: u32 = 8;
}

/// Reasons for the end of a wait.
pub mod why {
    pub const WOKEN: u32 = 1;
    pub const DEADLINE: u32 = 2;
    /// A descriptor may have changed, or a signal came.
    pub const POKED: u32 = 3;
}

/// States of a connection that a family dialled or accepted.
pub mod connection {
    pub const DIALLING: u8 = 0;
    pub const OPEN: u8 = 1;
    pub const REFUSED: u8 = 2;
    pub const RESET: u8 = 3;
    pub const CLOSED: u8 = 4;
}

/// A thread of a family.
#[repr(C)]
pub struct Slot {
    pub state: AtomicU32,
    /// Changes when the thread gets the turn, or its fork server a request; the thread waits on it (`futex`).
    pub turn: AtomicU32,
    pub kind: AtomicU32,
    pub why: AtomicU32,
    /// The kernel's numbers; 0 until it has started.
    pub pid: AtomicU32,
    pub tid: AtomicU32,
    /// The number that the program sees.
    pub number: AtomicU32,
    /// The process whose word it waits for; 0 for one that processes share.
    pub space: AtomicU32,
    pub word: AtomicU64,
    pub bits: AtomicU32,
    /// Whether its program has the library: not between an `execve` and the first instruction of the library.
    pub loaded: AtomicU32,
    /// The number of its wait, so that the thread that waits longest is woken first.
    pub order: AtomicU64,
    /// The deadline of its wait, or [`NEVER`].
    pub deadline: AtomicU64,
    /// The address of the word that the kernel clears when it ends.
    pub cleared: AtomicU64,
}

/// A process of a family.
#[repr(C)]
pub struct ProcessEntry {
    /// The kernel's number; 0: this entry is free.
    pub pid: AtomicU32,
    pub number: AtomicU32,
    pub parent: AtomicU32,
    /// The time of its next `SIGALRM`; 0: there is none.
    pub alarm: AtomicU64,
    /// The interval of its timer; 0: there is only one signal.
    pub alarm_every: AtomicU64,
}

/// The prefix of the paths of a family's files.
#[repr(C)]
pub struct SharedPath {
    pub length: AtomicU32,
    pub bytes: [AtomicU8; PATH],
}

impl SharedPath {
    /// Copies the path with this ending, as far as there is room. Returns the length.
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

/// A descriptor of a fork server that is another file in its forks.
#[repr(C)]
pub struct ForkedFile {
    /// Counted from 1; 0: there is none.
    pub descriptor: AtomicU32,
    /// The descriptor of that file in harness.
    pub file: AtomicU32,
    /// The flags of `open`.
    pub flags: AtomicU32,
}

/// A request to a fork server: a process that continues where it is, as the first one of another family.
#[repr(C)]
pub struct ForkOrder {
    /// Whether it is requested; the fork server waits on the turn of its thread.
    pub wanted: AtomicU32,
    /// The process id, or [`FAILED`]; 0: there is no answer yet.
    pub answer: AtomicU32,
    /// The processor on which the process runs, counted from 1; 0: any.
    pub processor: AtomicU32,
    pub files: [ForkedFile; FILES],
    /// The prefix of the other family's paths.
    pub path: SharedPath,
}

/// The answer of a fork server that could not fork.
pub const FAILED: u32 = u32::MAX;

/// The descriptors that are or were in the sets of `epoll` of a family: a bit for each set.
#[repr(C)]
pub struct EpollContents {
    pub made: AtomicU32,
    pub listeners: AtomicU64,
    pub locals: AtomicU64,
    pub numbered: [AtomicU64; CONNECTIONS + LOCALS],
    /// The sets with descriptors whose changes are not known.
    pub others: AtomicU64,
}

impl EpollContents {
    /// Adds a descriptor to a set; `what` is the event for which a thread waits on it alone.
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

    /// Returns whether a set may have the descriptor that changed.
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
    /// The system call, counted from 1, that virtual time does not support, if the program made one.
    pub refused: AtomicU32,
    /// The clock of the world, in nanoseconds.
    pub now: AtomicU64,
    /// The time that readings of clocks and the like took since it was set.
    pub looked: AtomicU64,
    /// The reading of the wall clock when the clock of the world is 0.
    pub epoch: AtomicI64,
    /// The sum of the steps of the wall clock.
    pub offset: AtomicI64,
    /// Readings of the wall clock while it was stepped.
    pub shifted: AtomicU64,
    pub seed: AtomicU64,
    pub draws: AtomicU64,
    /// The state from which the order of threads is drawn; 0: they run in the order in which they were woken.
    pub order: AtomicU64,
    /// The number of system calls, by which harness sees that a thread is active.
    pub calls: AtomicU32,
    /// The time at which the family last had as much time as its calls take, and its calls until then; 0 during a startup.
    pub paced_at: AtomicU64,
    pub paced_calls: AtomicU32,
    /// Flags of `dirty`.
    pub dirty: AtomicU32,
    /// 1: a program was executed that has connections, or was sent some: the library does not tell them apart from pipes.
    pub inherits: AtomicU32,
    /// By connection, a bit: it was written to.
    pub written: [AtomicU64; CONNECTIONS / 64],
    /// Changes when calls on a descriptor of the family cease or begin to wait.
    pub modes: AtomicU32,
    /// Changes with each dialled connection and each `listen`.
    pub dialled: AtomicU32,
    /// Changes with each signal that a process of the family may have got.
    pub signals: AtomicU32,
    pub head: AtomicU32,
    pub tail: AtomicU32,
    pub waits: AtomicU64,
    /// The slots that were ever in use are before this one.
    pub slots_used: AtomicU32,
    /// The count of numbers that threads and processes have got so far.
    pub numbered: AtomicU32,
    /// The first of these numbers, which is larger than any of a kernel.
    pub numbers: AtomicU32,
    pub connections_made: AtomicU32,
    pub locals_made: AtomicU32,
    /// The process that passed its turn to end, or 0.
    pub leaving_process: AtomicU32,
    /// The process whose end the thread with the turn waits for, or 0: the kernel may have to write to a disk before.
    pub awaited_process: AtomicU32,
    /// The process id of harness, without which the family has to end.
    pub harness: AtomicU32,
    /// The signal mask of the program that is executed.
    pub blocked: AtomicU64,
    /// The descriptor, counted from 1, of the static program that takes the place of the one that starts; 0: there is none.
    pub program: AtomicU32,
    /// The address of the family, in network byte order.
    pub address: AtomicU32,
    /// Whether its system calls are traced.
    pub traced: AtomicU32,
    /// The prefix of the paths of its sockets.
    pub path: SharedPath,
    pub fork: ForkOrder,
    pub disk: PageDisk,
    pub connections: [AtomicU8; CONNECTIONS],
    pub epolls: EpollContents,
    pub queue: [AtomicU32; SLOTS],
    pub processes: [ProcessEntry; PROCESSES],
    pub slots: [Slot; SLOTS],
}

impl FamilyPage {
    /// Returns the slots, without those that were never in use.
    pub fn slots(&self) -> &[Slot] {
        &self.slots[..(self.slots_used.load(SeqCst) as usize).min(SLOTS)]
    }

    /// Returns the slots of threads that have not ended.
    pub fn living(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots().iter();
        slots.filter(|slot| slot.state.load(SeqCst) != state::FREE)
    }

    /// Returns the slots of threads that wait.
    pub fn waiting(&self) -> impl Iterator<Item = &Slot> {
        let slots = self.slots().iter();
        slots.filter(|slot| slot.state.load(SeqCst) == state::WAITS)
    }

    /// Returns whether a process has a thread that has not ended.
    pub fn lives(&self, pid: u32) -> bool {
        self.living().any(|slot| slot.pid.load(SeqCst) == pid)
    }

    /// Returns the process with this number of the kernel; of 0, an entry that is free.
    pub fn process(&self, pid: u32) -> Option<&ProcessEntry> {
        self.processes.iter().find(|process| process.pid.load(SeqCst) == pid)
    }

    /// Adds a thread to the queue, with the reason for the end of its wait.
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

    /// Frees the slots of threads that have ended, and removes them from the queue.
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

    /// Passes the turn to a thread of the queue, and returns it: the caller wakes it. `None`: the queue is empty, and the family is quiet.
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

    /// Ends the waits of threads that wait for `about`, or for more; where it is [`about::ANY`], of all that wait for descriptors.
    pub fn poke(&self, about: u64) {
        self.end_waits(why::POKED, |slot| {
            slot.kind.load(SeqCst) == kind::DESCRIPTORS && self.concerns(about, slot.word.load(SeqCst))
        });
    }

    /// Returns whether a change ends the wait of a thread that waits for this.
    fn concerns(&self, changed: u64, waits_for: u64) -> bool {
        let (any, local) = (about::ANY, about::LOCAL);
        match waits_for {
            _ if changed == any || changed == waits_for => true,
            about::EPOLL.. => self.epolls.may_have(waits_for, changed),
            _ if waits_for == any => true,
            // it may be a connection
            _ if waits_for == local && self.inherits.load(SeqCst) == 1 => true,
            // which one of them changed, or is waited for, is not known
            _ => (changed == local || waits_for == local) && about::is_local(changed) && about::is_local(waits_for),
        }
    }

    /// Ends every wait of a process, as a signal does.
    pub fn poke_process(&self, pid: u32) {
        self.end_waits(why::POKED, |slot| slot.pid.load(SeqCst) == pid);
    }

    /// Ends the waits whose deadlines have come at this time.
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

    /// Returns a process whose timer expires by this time, and sets the timer to its next time.
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

    /// Postpones the deadlines of waits and timers.
    pub fn postpone(&self, by: u64) {
        for slot in self.waiting().filter(|slot| slot.deadline.load(SeqCst) != NEVER) {
            slot.deadline.fetch_add(by, SeqCst);
        }
        for process in self.processes.iter().filter(|process| process.alarm.load(SeqCst) != 0) {
            process.alarm.fetch_add(by, SeqCst);
        }
    }

    /// Returns the first deadline of a wait or timer, or [`NEVER`].
    pub fn next_deadline(&self) -> u64 {
        let waits = self.waiting().map(|slot| slot.deadline.load(SeqCst));
        let alarms = self.processes.iter().filter(|process| process.pid.load(SeqCst) != 0);
        let alarms = alarms.map(|process| process.alarm.load(SeqCst)).filter(|at| *at != 0);
        waits.chain(alarms).min().unwrap_or(NEVER)
    }

    /// Returns random bits for the order of threads; 0 where it is not drawn.
    pub fn draw_order(&self) -> u64 {
        // xorshift64, which stays at 0: <https://doi.org/10.18637/jss.v008.i14>
        let mut bits = self.order.load(SeqCst);
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        self.order.store(bits, SeqCst);
        bits
    }

    /// Returns random bits, the same for the same seed.
    pub fn draw(&self) -> u64 {
        // splitmix64, <https://prng.di.unimi.it/splitmix64.c>
        let drawn = self.draws.fetch_add(1, SeqCst).wrapping_add(1);
        let seed = self.seed.load(SeqCst);
        let mut bits = seed.wrapping_add(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }
}
