//! The answer to each system call: which are answered here, and what the kernel is asked in place of them.

use super::call;
use super::call::error::ENOSYS;
use super::clocks;
use super::gate::{leave, system};
use super::turns::{page, refuse};
use super::{descriptors, files, signals, sockets, tasks, transfers, waits, words};

/// Registers of the program at its call, as in the kernel's `sigcontext`: r8 … r15, di, si, bp, bx, dx, ax, cx, sp, ip, …
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Registers(pub [u64; 23]);

impl Registers {
    pub const AX: usize = 13;
    pub const SP: usize = 15;
    /// Number, and the arguments in their order.
    const CALL: [usize; 6] = [8, 9, 12, 2, 0, 1];
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AlternateStack {
    pub pointer: u64,
    pub flags: i32,
    pub size: u64,
}

/// What the kernel gives a signal handler, and takes back when it returns: `ucontext`.
#[repr(C)]
pub struct TrapContext {
    _flags: u64,
    _link: u64,
    pub stack: AlternateStack,
    pub registers: Registers,
    _floating_point: u64,
    _reserved: [u64; 8],
    /// The signals that the program blocks.
    pub mask: u64,
}

/// One system call of the program.
pub struct TrappedCall<'a> {
    pub number: usize,
    pub arguments: [usize; 6],
    pub context: &'a mut TrapContext,
}

impl TrappedCall<'_> {
    /// As the program asked the kernel.
    pub fn ask_kernel(&self) -> isize {
        system(self.number, self.arguments)
    }

    /// The same with another argument.
    pub fn with(&self, place: usize, argument: usize) -> isize {
        let mut arguments = self.arguments;
        arguments[place] = argument;
        system(self.number, arguments)
    }
}

/// The handler of `SIGSYS`.
pub extern "C" fn on_call(_signal: i32, _about: usize, context: *mut TrapContext) {
    // SAFETY: the kernel's, for this handler alone.
    let context = unsafe { &mut *context };
    let registers = context.registers.0;
    let mut call = TrappedCall {
        number: registers[Registers::AX] as usize,
        arguments: Registers::CALL.map(|place| registers[place] as usize),
        context,
    };
    let answer = answer(&mut call);
    call.context.registers.0[Registers::AX] = answer as u64;
}

fn answer(call: &mut TrappedCall<'_>) -> isize {
    let [a, b, ..] = call.arguments;
    match call.number {
        call::FUTEX => words::futex(call),
        call::READ | call::READV => files::read(call),
        call::WRITE | call::WRITEV => files::write(call),
        call::RECVFROM | call::RECVMSG | call::RECVMMSG => transfers::receive(call),
        call::SENDTO | call::SENDMSG | call::SENDMMSG => transfers::send(call),
        call::POLL => files::poll(call),
        call::PPOLL => files::ppoll(call),
        call::SELECT => files::select(call),
        call::PSELECT6 => files::pselect(call),
        call::EPOLL_WAIT | call::EPOLL_PWAIT => files::epoll_wait(call),
        call::EPOLL_PWAIT2 => ENOSYS,
        call::CLOCK_GETTIME => clocks::clock_gettime(a, b as *mut _) as isize,
        call::GETTIMEOFDAY => clocks::gettimeofday(a as *mut _, b as *mut _) as isize,
        call::TIME => clocks::time(a as *mut _) as isize,
        call::GETCPU => clocks::getcpu(a as *mut _, b as *mut _) as isize,
        call::NANOSLEEP => waits::nanosleep(call),
        call::CLOCK_NANOSLEEP => waits::clock_nanosleep(call),
        call::SCHED_YIELD => waits::sched_yield(),
        call::PAUSE => waits::pause(call),
        call::GETRANDOM => files::getrandom(a, b),
        call::OPENAT => files::openat(call),
        call::CLOSE | call::DUP2 | call::DUP3 | call::DUP | call::FCNTL | call::CLOSE_RANGE => {
            descriptors::changed(call)
        }
        call::SOCKET..=call::CONNECT | call::ACCEPT | call::ACCEPT4 | call::SHUTDOWN..=call::GETPEERNAME => {
            sockets::answer(call)
        }
        call::SETSOCKOPT | call::GETSOCKOPT => sockets::option(call),
        call::CLONE | call::CLONE3 | call::FORK | call::VFORK | call::EXECVE | call::EXECVEAT => tasks::begin(call),
        call::EXIT | call::EXIT_GROUP => tasks::end(call),
        call::WAIT4 | call::WAITID => tasks::await_child(call),
        call::GETPID | call::GETPPID | call::GETTID | call::SET_TID_ADDRESS => tasks::number(call),
        call::KILL | call::TKILL | call::TGKILL | call::PIDFD_OPEN => tasks::signal(call),
        call::SETPGID
        | call::GETPGID
        | call::GETSID
        | call::SCHED_SETPARAM..=call::SCHED_GETSCHEDULER
        | call::SCHED_RR_GET_INTERVAL
        | call::SCHED_SETAFFINITY
        | call::SCHED_GETAFFINITY
        | call::PRLIMIT64 => call.with(0, tasks::real(a)),
        call::GETPRIORITY | call::SETPRIORITY => call.with(1, tasks::real(b)),
        call::RT_SIGACTION => signals::action(call),
        call::RT_SIGPROCMASK => signals::mask(call),
        call::RT_SIGSUSPEND => signals::suspend(call),
        call::RT_SIGTIMEDWAIT => signals::timed_wait(call),
        call::SIGALTSTACK => signals::alternate_stack(call),
        call::RT_SIGRETURN => leave(call.context.registers.0[Registers::SP] as usize),
        call::SETITIMER | call::ALARM | call::TIMER_CREATE | call::TIMERFD_CREATE => real_timer(call),
        // programs do without
        call::IO_URING_SETUP => ENOSYS,
        _ => call.ask_kernel(),
    }
}

/// A timer of the kernel runs in real time. One that is taken back may be.
fn real_timer(call: &TrappedCall<'_>) -> isize {
    let [a, b, ..] = call.arguments;
    let sets = match call.number {
        call::ALARM => a != 0,
        // SAFETY: an `itimerval`, which the program gave to be read; its second half is the time.
        call::SETITIMER => b != 0 && unsafe { *(b as *const [u64; 4]) }[2..] != [0, 0],
        _ => true,
    };
    if !sets {
        return 0;
    }
    refuse(call.number);
    ENOSYS
}

/// Whether the program has got a signal, since `seen` was read, that it does not block.
pub fn is_signalled(seen: u32, mask: u64) -> bool {
    use core::sync::atomic::Ordering::SeqCst;

    if page().signals.load(SeqCst) == seen {
        return false;
    }
    let mut pending = 0u64;
    system(call::RT_SIGPENDING, [&raw mut pending as usize, size_of::<u64>()]);
    let waits = pending & !mask;
    (1..=64).any(|signal| waits >> (signal - 1) & 1 != 0 && !signals::is_ignored(signal))
}
