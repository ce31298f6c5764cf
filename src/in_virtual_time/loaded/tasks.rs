//! Threads and processes of the family: their start, their end, waits for them, and their numbers. A new thread waits for its turn before
//! it executes anything.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EAGAIN, EINTR, ESRCH};
use super::cycles;
use super::descriptors;
use super::fork_server;
use super::gate::{Registers, ThreadStart, begin_thread, close, system};
use super::page::{NEVER, ProcessEntry, SLOTS, Slot, about, why};
use super::program;
use super::shared::{TurnCell, write_number};
use super::signals::{self, is_signalled};
use super::surroundings::no_usage;
use super::timers;
use super::trap::TrappedCall;
use super::turns::{
    LEAVING, PID, ThreadWait, await_end, await_turn, free_slot, page, pass_turn, pid, slot, take_slot, touch, wait,
};
use super::words;

const NO_START: ThreadStart = ThreadStart {
    number: 0,
    arguments: [0; 5],
    slot: 0,
    mask: 0,
    registers: Registers([0; 23]),
    finds: 0,
    begins: thread_begins,
};

/// By slot; it is written before its thread starts, and then belongs to that thread.
static STARTS: TurnCell<[ThreadStart; SLOTS]> = TurnCell::new([NO_START; SLOTS]);

/// By slot: the word that the kernel clears at the end of a thread for which the program named none.
static ENDS: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

mod flag {
    pub const VM: usize = 0x100;
    pub const VFORK: usize = 0x4000;
    pub const PARENT_SETTID: usize = 0x10_0000;
    pub const CHILD_CLEARTID: usize = 0x20_0000;
    pub const CHILD_SETTID: usize = 0x100_0000;
}

/// The arguments of a call that starts a thread or a process.
#[derive(Clone, Copy, Default)]
struct Wanted {
    flags: usize,
    /// The end of its stack, or 0.
    stack: usize,
    /// The address at which its creator finds a descriptor of it.
    descriptor: usize,
    parent_finds: usize,
    child_finds: usize,
    /// The thread-local storage.
    local: usize,
}

impl Wanted {
    fn of(call: &TrappedCall<'_>) -> Self {
        const SIGCHLD: usize = 17;
        let [flags, stack, parent_finds, child_finds, local, ..] = call.arguments;
        match call.number {
            call::CLONE => Self {
                flags,
                stack,
                descriptor: parent_finds,
                parent_finds,
                child_finds,
                local,
            },
            call::CLONE3 => {
                // SAFETY: `struct clone_args`, whose first eight words are those of its first version.
                let [flags, descriptor, child_finds, parent_finds, signal, stack, size, local] =
                    unsafe { *(flags as *const [usize; 8]) };
                Self {
                    flags: flags | signal,
                    stack: if stack == 0 { 0 } else { stack + size },
                    descriptor,
                    parent_finds,
                    child_finds,
                    local,
                }
            }
            _ => Self {
                flags: SIGCHLD,
                ..Self::default()
            },
        }
    }

    fn has(&self, flag: usize) -> bool {
        self.flags & flag != 0
    }

    /// Returns the address at which it finds its own number, or 0.
    fn finds(&self) -> usize {
        if self.has(flag::CHILD_SETTID) { self.child_finds } else { 0 }
    }
}

/// Answers `clone`, `fork`, `execve` and the like.
pub fn begin(call: &mut TrappedCall<'_>) -> isize {
    if matches!(call.number, call::EXECVE | call::EXECVEAT) {
        let slot = slot();
        // descriptors with `FD_CLOEXEC` are closed
        touch();
        if descriptors::is_connected() {
            page().inherits.store(1, SeqCst);
        }
        fork_server::name_page(call.arguments[if call.number == call::EXECVE { 2 } else { 3 }]);
        slot.loaded.store(0, SeqCst);
        page().blocked.store(call.context.mask, SeqCst);
        cycles::let_go();
        let failed = program::execute(call);
        cycles::trap();
        slot.loaded.store(1, SeqCst);
        return failed;
    }
    let wanted = Wanted::of(call);
    let Some(slot) = take_slot() else { return EAGAIN };
    let number = page().next_number();
    page().slots[slot].number.store(number, SeqCst);
    if wanted.has(flag::CHILD_CLEARTID) {
        page().slots[slot].cleared.store(wanted.child_finds as u64, SeqCst);
    }
    let begun = match wanted.has(flag::VM) && !wanted.has(flag::VFORK) {
        true => thread(call, wanted, slot),
        false => process(call, wanted, slot),
    };
    match begun {
        0 => return 0,
        1.. => {}
        failed => {
            free_slot(slot);
            return failed;
        }
    }
    if wanted.has(flag::PARENT_SETTID) {
        write_number(wanted.parent_finds, number);
    }
    page().slots[slot].tid.store(begun as u32, SeqCst);
    page().enqueue(slot, why::WOKEN);
    number as isize
}

fn thread(call: &TrappedCall<'_>, wanted: Wanted, slot: usize) -> isize {
    page().slots[slot].pid.store(pid(), SeqCst);
    let [a, b, c, d, e, _] = call.arguments;
    // SAFETY: the thread whose slot this was has ended.
    let start = unsafe { &mut (*STARTS.get())[slot] };
    *start = ThreadStart {
        number: call.number,
        arguments: [a, b, c, d, e],
        slot,
        mask: call.context.mask,
        registers: call.context.registers,
        finds: wanted.finds(),
        begins: thread_begins,
    };
    begin_thread(start)
}

/// Runs first in a new thread, on its own stack. Then the thread continues at the call.
extern "C" fn thread_begins(start: *const ThreadStart) {
    // SAFETY: it is the thread's own.
    let start = unsafe { &*start };
    await_turn(start.slot);
    write_number(start.finds, slot().number.load(SeqCst));
    // before a handler of the program may run
    close();
    signals::block(start.mask);
}

/// Forks a process. It has a copy of the memory also after `vfork`: processes that share their memory would not know which of them has the
/// turn.
fn process(call: &mut TrappedCall<'_>, wanted: Wanted, slot: usize) -> isize {
    if free_entry().is_none() {
        return EAGAIN;
    }
    let mut flags = wanted.flags & !(flag::VM | flag::VFORK);
    if wanted.descriptor != wanted.parent_finds {
        // `clone` has one address for both; the number is written later
        flags &= !flag::PARENT_SETTID;
    }
    let parent = pid();
    let arguments = [flags, 0, wanted.descriptor, wanted.child_finds, wanted.local];
    let begun = system(call::CLONE, arguments);
    let kept = &page().slots[slot];
    if begun != 0 {
        if begun > 0 {
            kept.pid.store(begun as u32, SeqCst);
            add_process(begun as u32, kept.number.load(SeqCst), parent);
        }
        return begun;
    }
    PID.store(system(call::GETPID, []) as u32, SeqCst);
    await_turn(slot);
    write_number(wanted.finds(), kept.number.load(SeqCst));
    if wanted.stack != 0 {
        call.context.registers.0[Registers::SP] = wanted.stack as u64;
    }
    close();
    0
}

/// Returns an entry for a new process: also that of one for whose end nobody can wait any more, or nobody has to.
fn free_entry() -> Option<&'static ProcessEntry> {
    const NO_SIGNAL: usize = 0;
    let page = page();
    let is_forgotten = |entry: &&ProcessEntry| {
        let (pid, parent) = (entry.pid.load(SeqCst), entry.parent.load(SeqCst));
        // harness waits for the first one, which has no parent
        let is_over = parent != 0 && !page.lives(pid);
        is_over && (!page.lives(parent) || system(call::KILL, [pid as usize, NO_SIGNAL]) == ESRCH)
    };
    page.process(0).or_else(|| page.processes.iter().find(is_forgotten))
}

fn add_process(pid: u32, number: u32, parent: u32) {
    // the kernel may give a number again
    forget(pid);
    if let Some(free) = free_entry() {
        free.pid.store(pid, SeqCst);
        free.alarm.store(0, SeqCst);
        free.number.store(number, SeqCst);
        free.parent.store(parent, SeqCst);
    }
}

/// Fills in the slot of a program that starts: the first of the family, or one that another executed.
pub fn has_begun(number: usize, pid: u32) {
    const GET_TID_ADDRESS: usize = 40;
    let slot = &page().slots[number];
    if slot.pid.load(SeqCst) == 0 {
        add_process(pid, page().next_number(), 0);
    }
    // also of a thread that was not the first one before it executed the program
    slot.number.store(shown(pid), SeqCst);
    slot.pid.store(pid, SeqCst);
    slot.tid.store(pid, SeqCst);
    slot.loaded.store(1, SeqCst);
    let mut cleared = 0u64;
    system(call::PRCTL, [GET_TID_ADDRESS, &raw mut cleared as usize]);
    slot.cleared.store(cleared, SeqCst);
    // where the C library finds its number
    write_number(cleared as usize, slot.number.load(SeqCst));
}

/// Answers `exit` and `exit_group`. The next thread with the turn waits for the end.
pub fn end(call: &TrappedCall<'_>) -> isize {
    let (page, pid) = (page(), pid());
    let me = super::turns::me();
    let is_own = |slot: &Slot| slot.pid.load(SeqCst) == pid;
    let threads = page.living().filter(|slot| is_own(slot)).count();
    if call.number == call::EXIT && threads > 1 {
        let word = match slot().cleared.load(SeqCst) {
            0 => word_of_end(me),
            word => word,
        };
        for space in [0, pid] {
            words::wake(space, word as usize, u32::MAX, u32::MAX);
        }
        LEAVING.store(word, SeqCst);
        free_slot(me);
    } else {
        page.free_slots(is_own);
        timers::set(0, 0);
        page.leaving_process.store(pid, SeqCst);
        page.signals.fetch_add(1, SeqCst);
        touch();
        page.poke(about::ANY);
    }
    pass_turn();
    call.ask_kernel()
}

/// Names a word for a thread that has none, as those of static programs in Go: they give away the stack on which they end.
fn word_of_end(slot: usize) -> u64 {
    let word = &ENDS[slot];
    word.store(1, SeqCst);
    let address = word.as_ptr() as usize;
    system(call::SET_TID_ADDRESS, [address]);
    address as u64
}

/// Returns the kernel's number of a thread or process, or below -1 of a group, from the number that the program sees.
pub fn real(number: usize) -> usize {
    let page = page();
    // a group has the number of its first process
    if let Some(leader) = (number as i32).checked_neg().filter(|leader| *leader > 1) {
        return (real(leader as usize) as isize).wrapping_neg() as usize;
    }
    let wanted = number as u32;
    if wanted < page.numbers.load(SeqCst) || (number as i32) < 0 {
        return number;
    }
    let is_wanted = |number: &AtomicU32| number.load(SeqCst) == wanted;
    if let Some(process) = page.processes.iter().find(|process| is_wanted(&process.number)) {
        return process.pid.load(SeqCst) as usize;
    }
    let thread = page.living().find(|slot| is_wanted(&slot.number));
    thread.map_or(number, |slot| slot.tid.load(SeqCst) as usize)
}

/// Returns the number of a process that the program sees.
fn shown(pid: u32) -> u32 {
    let process = page().process(pid);
    process.map_or(pid, |process| process.number.load(SeqCst))
}

/// Answers `getpid` and the like.
pub fn number(call: &TrappedCall<'_>) -> isize {
    const INIT: isize = 1;
    match call.number {
        call::GETPID => shown(pid()) as isize,
        call::GETPPID => {
            let parent = page().process(pid()).map_or(0, |process| process.parent.load(SeqCst));
            match parent != 0 && page().lives(parent) {
                true => shown(parent) as isize,
                false => INIT,
            }
        }
        call::SET_TID_ADDRESS => {
            call.ask_kernel();
            slot().cleared.store(call.arguments[0] as u64, SeqCst);
            slot().number.load(SeqCst) as isize
        }
        _ => slot().number.load(SeqCst) as isize,
    }
}

/// Answers `getpgid`, `setsid` and the like: a group or a session has the number of its first process.
pub fn group(call: &mut TrappedCall<'_>) -> isize {
    let [first, second, ..] = call.arguments;
    (call.arguments[0], call.arguments[1]) = (real(first), real(second));
    match call.ask_kernel() {
        leader @ 1.. => shown(leader as u32) as isize,
        answer => answer,
    }
}

/// Answers `kill` and the like, and ends the waits of threads that the signal may concern.
pub fn signal(call: &mut TrappedCall<'_>) -> isize {
    const SIGKILL: usize = 9;
    let [first, second, third, ..] = call.arguments;
    let (target, names_thread) = (real(first), matches!(call.number, call::TGKILL | call::RT_TGSIGQUEUEINFO));
    call.arguments[0] = target;
    if names_thread {
        call.arguments[1] = real(second);
    }
    let answer = call.ask_kernel();
    if call.number != call::PIDFD_OPEN && answer == 0 {
        page().signals.fetch_add(1, SeqCst);
        for process in &page().processes {
            let process = process.pid.load(SeqCst);
            let is_other = process != 0 && process != pid();
            if is_other && (target as i32 <= 0 || process as usize == target) {
                page().poke_process(process);
            }
        }
        let signal = if names_thread { third } else { second };
        if signal == SIGKILL {
            await_killed(target as i32);
        }
        // a thread of this process may take it
        if target as i32 <= 0 || target == pid() as usize || call.number == call::TKILL {
            page().poke_process(pid());
        }
    }
    answer
}

/// Waits for the end of the other processes that were killed: the kernel ends each when it has a processor.
fn await_killed(target: i32) {
    let page = page();
    let group = |process: u32| system(call::GETPGID, [process as usize]);
    let is_killed = |process: u32| match target {
        1.. => process == target as u32,
        0 => group(process) == group(0),
        _ => group(process) == -(target as isize),
    };
    for entry in &page.processes {
        let process = entry.pid.load(SeqCst);
        if process != 0 && process != pid() && is_killed(process) {
            await_end(process);
            entry.alarm.store(0, SeqCst);
            page.free_slots(|slot| slot.pid.load(SeqCst) == process);
            page.poke(about::ANY);
            touch();
        }
    }
}

/// Answers `capget` and `capset`, whose header names a process.
pub fn capabilities(call: &TrappedCall<'_>) -> isize {
    let header = call.arguments[0] as *mut [u32; 2];
    if header.is_null() {
        return call.ask_kernel();
    }
    // SAFETY: the program gave its address to have it read, and the version written.
    unsafe {
        let mut named = [(*header)[0], real((*header)[1] as usize) as u32];
        let answer = call.with(0, named.as_mut_ptr() as usize);
        (*header)[0] = named[0];
        answer
    }
}

/// Answers `wait4` and `waitid`.
pub fn await_child(call: &mut TrappedCall<'_>) -> isize {
    const NO_HANG: usize = 1;
    /// `P_PID` and `P_PGID`.
    const NUMBERED: [usize; 2] = [1, 2];
    /// `WNOWAIT`: the child can be waited for again.
    const STAYS: usize = 0x100_0000;
    /// `CLD_EXITED`, `CLD_KILLED` and `CLD_DUMPED`.
    const ENDED: [u32; 3] = [1, 2, 3];
    let is_waitid = call.number == call::WAITID;
    let options = call.arguments[if is_waitid { 3 } else { 2 }];
    let mut about = [0u32; 32];
    let given = call.arguments[2] as *mut [u32; 32];
    if is_waitid {
        if NUMBERED.contains(&call.arguments[0]) {
            call.arguments[1] = real(call.arguments[1]);
        }
        call.arguments[2] = about.as_mut_ptr() as usize;
        call.arguments[3] = options | NO_HANG;
    } else {
        call.arguments[0] = real(call.arguments[0]);
        call.arguments[2] = options | NO_HANG;
    }
    let seen = page().signals.load(SeqCst);
    let mut is_interrupted = false;
    loop {
        let answer = call.ask_kernel();
        // the fifth word is the process
        let ended = if is_waitid && answer == 0 {
            about[4] as isize
        } else {
            answer
        };
        if ended < 0 {
            return ended;
        }
        if ended > 0 || options & NO_HANG != 0 {
            if ended > 0 {
                no_usage(call.arguments[if is_waitid { 4 } else { 3 }]);
            }
            let number = shown(ended as u32);
            if is_waitid {
                if ENDED.contains(&about[2]) && options & STAYS == 0 {
                    forget(ended as u32);
                }
                about[4] = if ended > 0 { number } else { 0 };
                if !given.is_null() {
                    // SAFETY: the program gave its address to have it written: a `siginfo`.
                    unsafe { *given = about };
                }
                return 0;
            }
            forget(ended as u32);
            return if ended > 0 { number as isize } else { 0 };
        }
        if is_interrupted {
            return EINTR;
        }
        wait(ThreadWait::for_descriptors(NEVER));
        // a child that ended may have raised it
        is_interrupted = is_signalled(seen, call.context.mask);
    }
}

fn forget(pid: u32) {
    while let Some(process) = page().process(pid).filter(|_| pid != 0) {
        process.pid.store(0, SeqCst);
        process.number.store(0, SeqCst);
    }
}
