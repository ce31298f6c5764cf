//! Memory that is shared with a family ([`SharedPage`]), and system calls: futexes, fixed addresses, the processor on which a world
//! stays.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::libc;
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::sys::personality::{self, Persona};
use nix::unistd::Pid;
use tokio::process::Command;

use super::page::{FamilyPage, NEVER, PATH, SharedPath, state, why};
use super::trace;

/// A mapped page; it is unmapped on drop.
#[derive(Debug)]
pub struct SharedPage(NonNull<FamilyPage>);

const LENGTH: usize = size_of::<FamilyPage>().next_multiple_of(4096);

#[expect(unsafe_code, reason = "memory that another process maps, too, all of it atomic")]
// SAFETY: every part of a page is atomic, and it is mapped as long as this lives.
unsafe impl Send for SharedPage {}
#[expect(unsafe_code, reason = "as above")]
// SAFETY: as above.
unsafe impl Sync for SharedPage {}

impl SharedPage {
    /// Makes the file of a page, full of zeros, and maps it.
    #[expect(unsafe_code, reason = "memory that another process maps, too, all of it atomic")]
    pub fn make(path: &Path) -> io::Result<Self> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.set_len(LENGTH as u64)?;
        let length = NonZeroUsize::new(LENGTH).expect("a page has a size");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of a file that is as long; a page of zeros is a page.
        let mapped = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &file, 0) };
        Ok(Self(mapped.map_err(io::Error::from)?.cast()))
    }

    /// Copies another page. Nobody writes to either meanwhile.
    #[expect(unsafe_code, reason = "as above")]
    pub fn copy_from(&self, other: &Self) {
        // SAFETY: both are mapped and as long, and they are two mappings.
        unsafe { std::ptr::copy_nonoverlapping(other.0.as_ptr(), self.0.as_ptr(), 1) };
    }
}

impl Deref for SharedPage {
    type Target = FamilyPage;

    #[expect(unsafe_code, reason = "as above")]
    fn deref(&self) -> &FamilyPage {
        // SAFETY: it is mapped as long as this lives.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedPage {
    #[expect(unsafe_code, reason = "as above")]
    fn drop(&mut self) {
        // SAFETY: nothing refers to it any more.
        let _ = unsafe { munmap(self.0.cast(), LENGTH) };
    }
}

/// Writes the prefix of a family's paths to its page, or to a request to a fork server.
pub fn write_path(path: &Path, into: &SharedPath) -> io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > PATH {
        return Err(io::Error::other(
            "the path of the temporary folder is too long for sockets",
        ));
    }
    for (kept, byte) in into.bytes.iter().zip(bytes) {
        kept.store(*byte, SeqCst);
    }
    into.length.store(bytes.len() as u32, SeqCst);
    Ok(())
}

/// Fills in a page before the first process of a family is started.
pub fn prepare(page: &SharedPage, path: &Path, (seed, address, numbers): (u64, Ipv4Addr, u32)) -> io::Result<()> {
    write_path(path, &page.path)?;
    page.seed.store(seed, SeqCst);
    page.address.store(u32::from_ne_bytes(address.octets()), SeqCst);
    page.numbers.store(numbers, SeqCst);
    page.harness.store(std::process::id(), SeqCst);
    page.traced.store(trace::begin(path)?.into(), SeqCst);
    // the first thread of the first process, which has the turn
    let first = &page.slots[0];
    first.deadline.store(NEVER, SeqCst);
    first.why.store(why::WOKEN, SeqCst);
    first.state.store(state::RUNS, SeqCst);
    page.slots_used.store(1, SeqCst);
    page.owner.store(1, SeqCst);
    Ok(())
}

/// Waits while `word` is `value`, in real time, for this long at most. It may return at any time.
#[expect(unsafe_code, reason = "a futex of memory that is shared with another process")]
pub fn sleep_on(word: &AtomicU32, value: u32, most: Duration) {
    let time = libc::timespec {
        tv_sec: most.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(most.subsec_nanos()),
    };
    // SAFETY: word and time are there while it waits.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time) };
}

#[expect(unsafe_code, reason = "as above")]
pub fn wake(word: &AtomicU32) {
    // SAFETY: the word is there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Waits, in real time, until a process has ended, for this long at most. Returns whether it has.
#[expect(unsafe_code, reason = "there is no safe function for it")]
pub fn await_end(pid: u32, most: Duration) -> bool {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    use std::os::fd::AsFd;

    // SAFETY: the kernel gives a new descriptor, or an error.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if opened < 0 {
        return true;
    }
    // SAFETY: it is this one's alone.
    let process = unsafe { OwnedFd::from_raw_fd(opened as i32) };
    let mut wanted = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
    loop {
        match poll(&mut wanted, timeout) {
            // such as by the end of a child of another world
            Err(nix::errno::Errno::EINTR) => {}
            polled => return matches!(polled, Ok(1..)),
        }
    }
}

/// Pins this thread, and the programs that [`lie_still`] sets up for it, to one processor: only one of them runs at a time, and another
/// processor would have to be woken for each. It is the processor of this thread, which is new: the kernel put it where there is least to
/// do. Returns `None` if the kernel does not permit it.
pub fn stay_on_one_processor() -> Option<usize> {
    let here = sched_getcpu().ok()?;
    go_to(here).is_ok().then_some(here)
}

/// Pins this thread to a processor. The error says that the kernel does not permit it.
fn go_to(processor: usize) -> nix::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor)?;
    sched_setaffinity(Pid::from_raw(0), &only)
}

/// Gives a program the same addresses each time that it is started, if the kernel permits it, with no signal ignored, and pins it to this
/// processor.
#[expect(
    unsafe_code,
    reason = "the standard library offers no safe way to say it before a program starts"
)]
pub fn lie_still(command: &mut Command, processor: Option<usize>) {
    const STANDARD_SIGNALS: std::ops::RangeInclusive<i32> = 1..=31;
    // SAFETY: all calls are async-signal-safe, and the closure touches nothing else.
    unsafe {
        command.pre_exec(move || {
            let _ = personality::set(Persona::ADDR_NO_RANDOMIZE);
            // `nohup`, and a shell that starts a command in the background, ignore some; shells and Go begin with other calls then
            for signal in STANDARD_SIGNALS {
                libc::signal(signal, libc::SIG_DFL);
            }
            let _ = processor.map(go_to);
            Ok(())
        });
    }
}

/// Returns whether the kernel permits programs the same addresses each time: filters of system calls in containers may not.
pub fn may_lie_still() -> bool {
    let Ok(before) = personality::get() else { return false };
    let set = personality::set(before | Persona::ADDR_NO_RANDOMIZE);
    // the flags of this thread are as before
    let _ = personality::set(before);
    set.is_ok()
}
