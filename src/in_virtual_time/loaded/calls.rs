//! The table of system calls: a call of the program goes to the function that answers it, or to the kernel.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::ENOSYS;
use super::clocks;
use super::gate::{Registers, leave};
use super::trap::{TrapContext, TrappedCall};
use super::turns::{page, progress};
use super::{
    descriptors, disks, files, ready, signals, sockets, surroundings, tasks, timers, trace, transfers, waits, words,
};

/// The length of the instruction `syscall`.
const SYSCALL: u64 = 2;

/// The handler of `SIGSYS`.
pub extern "C" fn on_call(_signal: i32, _about: usize, context: *mut TrapContext) {
    // SAFETY: the kernel made it for this handler alone.
    let context = unsafe { &mut *context };
    let registers = context.registers.0;
    let mut call = TrappedCall {
        number: registers[Registers::AX] as usize,
        arguments: Registers::CALL.map(|place| registers[place] as usize),
        context,
    };
    let seen = page().signals.load(SeqCst);
    progress();
    if signals::is_signalled(seen, call.context.mask) {
        // a signal that came meanwhile is delivered first, and the call is made again
        call.context.registers.0[Registers::IP] -= SYSCALL;
        return;
    }
    // some answers replace the numbers of processes in it
    let (number, arguments) = (call.number, call.arguments);
    if trace::is_last(number) {
        trace::note(number, arguments, 0);
    }
    let answer = answer(&mut call);
    trace::note(number, arguments, answer);
    call.context.registers.0[Registers::AX] = answer as u64;
}

/// Returns the answer or the error in one number, as the kernel does.
fn either(answer: Result<isize, isize>) -> isize {
    answer.unwrap_or_else(|error| error)
}

fn answer(call: &mut TrappedCall<'_>) -> isize {
    let [a, b, ..] = call.arguments;
    match call.number {
        call::FUTEX => either(words::futex(call)),
        number if disks::ANSWERED.contains(&number) => disks::answer(call),
        call::READ | call::READV => files::read(call),
        call::RECVFROM | call::RECVMSG | call::RECVMMSG => transfers::receive(call),
        call::WRITE | call::WRITEV | call::SENDTO | call::SENDMSG | call::SENDMMSG => transfers::send(call),
        call::SENDFILE | call::SPLICE | call::TEE => transfers::move_bytes(call),
        call::POLL => ready::poll(call),
        call::PPOLL => either(ready::ppoll(call)),
        call::SELECT => either(ready::select(call)),
        call::PSELECT6 => either(ready::pselect(call)),
        call::EPOLL_WAIT | call::EPOLL_PWAIT => ready::epoll_wait(call),
        call::EPOLL_PWAIT2 => ENOSYS,
        call::EPOLL_CTL => descriptors::epoll_ctl(call),
        number if descriptors::MAKING.contains(&number) => descriptors::make(call),
        call::CLOCK_GETTIME => clocks::clock_gettime(a, b as *mut _) as isize,
        call::GETTIMEOFDAY => clocks::gettimeofday(a as *mut _, b as *mut _) as isize,
        call::TIME => clocks::time(a as *mut _) as isize,
        call::GETCPU => clocks::getcpu(a as *mut _, b as *mut _) as isize,
        call::NANOSLEEP => either(waits::nanosleep(call)),
        call::CLOCK_NANOSLEEP => either(waits::clock_nanosleep(call)),
        call::SCHED_YIELD => waits::sched_yield(),
        call::FLOCK => waits::lock(call),
        call::FCNTL if waits::LOCKING.contains(&b) => waits::lock(call),
        call::PAUSE => waits::pause(call),
        call::GETRANDOM => files::getrandom(a, b),
        call::OPEN | call::OPENAT => surroundings::open(call),
        call::SYSINFO => surroundings::sysinfo(call),
        call::STATFS | call::FSTATFS => surroundings::disk(call),
        call::SCHED_GETAFFINITY | call::SCHED_SETAFFINITY => surroundings::processors(call),
        call::GETRUSAGE | call::TIMES => surroundings::usage(call),
        call::CLOSE | call::DUP2 | call::DUP3 | call::DUP | call::FCNTL | call::CLOSE_RANGE => {
            descriptors::changed(call)
        }
        call::IOCTL => descriptors::ioctl(call),
        call::SOCKET..=call::CONNECT | call::ACCEPT | call::ACCEPT4 | call::SHUTDOWN..=call::GETPEERNAME => {
            sockets::answer(call)
        }
        call::SETSOCKOPT | call::GETSOCKOPT => sockets::option(call),
        call::CLONE | call::CLONE3 | call::FORK | call::VFORK | call::EXECVE | call::EXECVEAT => tasks::begin(call),
        call::EXIT | call::EXIT_GROUP => tasks::end(call),
        call::WAIT4 | call::WAITID => tasks::await_child(call),
        call::GETPID | call::GETPPID | call::GETTID | call::SET_TID_ADDRESS => tasks::number(call),
        call::KILL | call::TKILL | call::TGKILL | call::PIDFD_OPEN => tasks::signal(call),
        call::RT_SIGQUEUEINFO | call::RT_TGSIGQUEUEINFO => tasks::signal(call),
        call::SETPGID | call::GETPGID | call::GETPGRP | call::SETSID | call::GETSID => tasks::group(call),
        call::SCHED_SETPARAM..=call::SCHED_GETSCHEDULER | call::SCHED_RR_GET_INTERVAL | call::PRLIMIT64 => {
            call.with(0, tasks::real(a))
        }
        call::SCHED_SETATTR | call::SCHED_GETATTR | call::GET_ROBUST_LIST => call.with(0, tasks::real(a)),
        call::PROCESS_VM_READV | call::PROCESS_VM_WRITEV => call.with(0, tasks::real(a)),
        call::CAPGET | call::CAPSET => tasks::capabilities(call),
        call::GETPRIORITY | call::SETPRIORITY | call::IOPRIO_GET | call::IOPRIO_SET => call.with(1, tasks::real(b)),
        call::RT_SIGACTION => signals::action(call),
        call::RT_SIGPROCMASK => signals::mask(call),
        call::RT_SIGSUSPEND => signals::suspend(call),
        call::RT_SIGTIMEDWAIT => either(signals::timed_wait(call)),
        call::SIGALTSTACK => signals::alternate_stack(call),
        call::RT_SIGRETURN => leave(call.context.registers.0[Registers::SP] as usize),
        call::SETITIMER | call::GETITIMER | call::ALARM => timers::answer(call),
        // programs work without them
        call::IO_URING_SETUP | call::TIMERFD_CREATE | call::TIMER_CREATE | call::RSEQ | call::OPENAT2 => ENOSYS,
        // their effects come in real time: completions, clocks, and the end of a process that no thread waits for
        call::IO_SETUP | call::ADJTIMEX | call::CLOCK_ADJTIME | call::PIDFD_SEND_SIGNAL => ENOSYS,
        // they would set the clock of the machine, where the program is root
        call::CLOCK_SETTIME | call::SETTIMEOFDAY => ENOSYS,
        _ => call.ask_kernel(),
    }
}
