//! The disk of the program's files: calls that sync them (`fsync` and the like), which wait on a slow disk, and writes to a full one.
//!
//! The kernel does not write to a disk here: no machine loses its power, and a fault that takes unsynced data away replaces the files.

use core::sync::atomic::Ordering::SeqCst;

use super::call;
use super::call::error::{EINVAL, ENOSPC};
use super::clocks::now;
use super::gate::system;
use super::page_disk::{ALL_FILES, PageDisk};
use super::shared::flags_of;
use super::trap::TrappedCall;
use super::turns::{ThreadWait, page, wait};

/// The size of a block of a file system, in bytes.
const BLOCK: u64 = 4096;
/// Standard output and standard errors, the log of a server, are on another disk.
const LOG: usize = 2;

/// The kinds of files in the mode of `struct stat`.
pub mod mode {
    pub const KIND: u32 = 0o170_000;
    pub const PIPE: u32 = 0o010_000;
    pub const SOCKET: u32 = 0o140_000;
    pub const FOLDER: u32 = 0o040_000;
    pub const BLOCKS: u32 = 0o060_000;
    pub const REGULAR: u32 = 0o100_000;
}

fn disk() -> &'static PageDisk {
    &page().disk
}

/// The words of `struct stat`.
pub struct FileStatus([u64; 18]);

impl FileStatus {
    /// Returns the status of an open file, or the error of the kernel.
    pub fn of(file: usize) -> Result<Self, isize> {
        let mut words = [0; 18];
        match system(call::FSTAT, [file, words.as_mut_ptr() as usize]) {
            0 => Ok(Self(words)),
            error => Err(error),
        }
    }

    fn number(&self) -> u64 {
        self.0[1]
    }

    /// Returns one of [`mode`]; 0: an anonymous file, such as an eventfd.
    pub fn kind(&self) -> u32 {
        self.0[3] as u32 & mode::KIND
    }

    fn size(&self) -> u64 {
        self.0[6]
    }
}

/// The system calls of [`answer`].
pub const ANSWERED: [usize; 11] = [
    call::PWRITE64,
    call::PWRITEV,
    call::PWRITEV2,
    call::FALLOCATE,
    call::FTRUNCATE,
    call::FSYNC,
    call::FDATASYNC,
    call::SYNC_FILE_RANGE,
    call::SYNCFS,
    call::SYNC,
    call::MSYNC,
];

/// Answers one of [`ANSWERED`].
pub fn answer(call: &TrappedCall<'_>) -> isize {
    match call.number {
        call::PWRITE64 | call::PWRITEV | call::PWRITEV2 => write(call),
        call::FALLOCATE => allocate(call),
        call::FTRUNCATE => changes_anywhere(call),
        _ => sync(call),
    }
}

/// Answers `fsync`, `fdatasync`, `sync_file_range`, `syncfs`, `sync` and `msync`.
fn sync(call: &TrappedCall<'_>) -> isize {
    let [file, _, how, ..] = call.arguments;
    // after a wait another file may have its number
    let status = FileStatus::of(file);
    disk().syncs.fetch_add(1, SeqCst);
    await_disk();
    match call.number {
        call::SYNC => note_all(),
        call::MSYNC => {
            const LATER: usize = 1;
            const AT_ONCE: usize = 4;
            if how & AT_ONCE == 0 {
                return call.ask_kernel();
            }
            // the kernel checks the addresses, and does not wait for its disk
            let answer = call.with(2, (how & !AT_ONCE) | LATER);
            if answer == 0 {
                note_all();
            }
            return answer;
        }
        number => match status {
            Err(error) => return error,
            Ok(_) if number == call::SYNCFS => note_all(),
            Ok(status) if !matches!(status.kind(), mode::REGULAR | mode::FOLDER | mode::BLOCKS) => return EINVAL,
            // it writes data, and not what is needed to find them
            Ok(_) if number == call::SYNC_FILE_RANGE => {}
            Ok(status) => note(status.number()),
        },
    }
    0
}

/// Waits as long as the disk of this family holds a sync back.
fn await_disk() {
    /// The time between two looks whether the disk is as fast as before.
    const LOOK: u64 = 2_000_000;
    let (disk, since) = (disk(), now());
    if disk.delay.load(SeqCst) == 0 {
        return;
    }
    disk.delayed.fetch_add(1, SeqCst);
    loop {
        let due = since.saturating_add(disk.delay.load(SeqCst));
        if now() >= due {
            return;
        }
        wait(ThreadWait::until(due.min(now() + LOOK)));
    }
}

/// Returns whether harness keeps what is synced.
fn is_kept() -> bool {
    disk().keeps.load(SeqCst) != 0
}

/// Notes that a file was synced, if harness keeps what is.
fn note(file: u64) {
    if is_kept() {
        disk().note_sync(file);
    }
}

/// Notes that all files were synced.
fn note_all() {
    disk().synced_files.store(ALL_FILES, SeqCst);
}

/// Answers a write to a file: on a full disk it has no other blocks than those of the file.
pub fn write(call: &TrappedCall<'_>) -> isize {
    let file = call.arguments[0];
    let (is_full, is_kept) = (disk().full.load(SeqCst) != 0, is_kept());
    if file <= LOG || !(is_full || is_kept) {
        return call.ask_kernel();
    }
    let Ok(status) = FileStatus::of(file) else {
        return call.ask_kernel();
    };
    let place = place_of(call, file, &status);
    let written = match is_full && status.kind() == mode::REGULAR {
        true => write_within(call, room(file, place, status.size())),
        false => call.ask_kernel(),
    };
    if is_kept && written > 0 {
        disk().note_write(status.number(), place, place + written as u64);
        if syncs_itself(call, file) {
            note(status.number());
        }
    }
    written
}

/// Writes as many bytes as there is room for; of an `iovec`, all or none.
fn write_within(call: &TrappedCall<'_>, room: u64) -> isize {
    let [_, bytes, length, ..] = call.arguments;
    let is_plain = matches!(call.number, call::WRITE | call::PWRITE64);
    let length = if is_plain { length } else { sum(bytes, length) };
    match room {
        _ if room >= length as u64 => call.ask_kernel(),
        1.. if is_plain => call.with(2, room as usize),
        _ => ENOSPC,
    }
}

/// Returns the length of all parts of an `iovec`.
fn sum(parts: usize, many: usize) -> usize {
    // SAFETY: the program gave so many to be read.
    let lengths = (0..many).map(|number| unsafe { (*(parts as *const [usize; 2]).add(number))[1] });
    lengths.sum()
}

/// Returns whether a write syncs its file: that is open with `O_DSYNC`, which is a part of `O_SYNC`, or the call has a flag for it.
fn syncs_itself(call: &TrappedCall<'_>, file: usize) -> bool {
    const SYNC: isize = 0o10_000;
    /// `RWF_DSYNC` and `RWF_SYNC`
    const THIS_ONE: usize = 2 | 4;
    let asks = call.number == call::PWRITEV2 && call.arguments[5] & THIS_ONE != 0;
    asks || flags_of(file) & SYNC != 0
}

/// Returns the place in a file at which a call writes.
fn place_of(call: &TrappedCall<'_>, file: usize, status: &FileStatus) -> u64 {
    const FROM_HERE: usize = 1;
    const APPENDS: isize = 0o2000;
    /// The place of a `pwritev2` that writes where the file is.
    const HERE: usize = usize::MAX;
    let here = || system(call::LSEEK, [file, 0, FROM_HERE]) as u64;
    match call.number {
        // then a call that has a place appends, too
        _ if flags_of(file) & APPENDS != 0 => status.size(),
        call::WRITE | call::WRITEV => here(),
        call::PWRITEV2 if call.arguments[3] == HERE => here(),
        _ => call.arguments[3] as u64,
    }
}

/// Returns the number of bytes from a place on for which a file has blocks, with data or without.
fn room(file: usize, place: u64, size: u64) -> u64 {
    /// `FS_IOC_FIEMAP`, with the map of one extent: <https://docs.kernel.org/filesystems/fiemap.html>
    const MAP: usize = 0xc020_660b;
    const HEAD: usize = 4;
    let mut end = place;
    loop {
        let mut map = [0u64; HEAD + 7];
        (map[0], map[1], map[3]) = (end, u64::MAX - end, 1);
        if system(call::IOCTL, [file, MAP, map.as_mut_ptr() as usize]) != 0 {
            // a file system without such maps: the file is taken to have no holes
            return size.next_multiple_of(BLOCK).saturating_sub(place);
        }
        let (mapped, begin, length) = (map[2] >> 32, map[HEAD], map[HEAD + 2]);
        if mapped == 0 || begin > end || begin + length <= end {
            return end - place;
        }
        end = begin + length;
    }
}

/// Answers `fallocate`, which needs blocks on the disk unless it frees some.
fn allocate(call: &TrappedCall<'_>) -> isize {
    const KEEP_SIZE: usize = 1;
    let [file, how, place, length, ..] = call.arguments;
    if disk().full.load(SeqCst) != 0 && how & !KEEP_SIZE == 0 {
        let status = FileStatus::of(file);
        if status.is_ok_and(|status| room(file, place as u64, status.size()) < length as u64) {
            return ENOSPC;
        }
    }
    changes_anywhere(call)
}

/// Answers a call that may change any part of a file.
fn changes_anywhere(call: &TrappedCall<'_>) -> isize {
    if is_kept()
        && let Ok(status) = FileStatus::of(call.arguments[0])
    {
        disk().note_write(status.number(), 0, u64::MAX);
    }
    call.ask_kernel()
}
