//! The part of a family's page about the disk of its files ([`PageDisk`]). As `page.rs`, the loaded library has it, too.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Files that each list has room for.
pub const FILES: usize = 64;

/// The bytes of a file that were written, by its number on the file system.
#[repr(C)]
pub struct WrittenBytes {
    pub file: AtomicU64,
    pub from: AtomicU64,
    pub to: AtomicU64,
}

/// The disk of the files of a family.
#[repr(C)]
pub struct PageDisk {
    /// The time for which each sync is held back, in nanoseconds.
    pub delay: AtomicU64,
    /// Syncs, and those that were held back, since harness last looked.
    pub syncs: AtomicU64,
    pub delayed: AtomicU64,
    /// Whether it has no free block.
    pub full: AtomicU32,
    /// Whether harness keeps what is synced.
    pub keeps: AtomicU32,
    /// The number of files that were synced, and of those that were written, since harness last looked; more than [`FILES`]: all files.
    pub synced_files: AtomicU32,
    pub written_files: AtomicU32,
    /// The numbers of the synced files on the file system.
    pub synced: [AtomicU64; FILES],
    pub written: [WrittenBytes; FILES],
}

/// More files than there is room for.
pub const ALL_FILES: u32 = FILES as u32 + 1;

impl PageDisk {
    /// Notes that a file was synced.
    pub fn note_sync(&self, file: u64) {
        let known = self.synced_files.load(SeqCst);
        if let Some(place) = self.synced.get(known as usize) {
            place.store(file, SeqCst);
        }
        self.synced_files.store((known + 1).min(ALL_FILES), SeqCst);
    }

    /// Notes that bytes of a file were written.
    pub fn note_write(&self, file: u64, from: u64, to: u64) {
        let known = self.written_files.load(SeqCst) as usize;
        let others = &self.written[..known.min(FILES)];
        if let Some(bytes) = others.iter().find(|bytes| bytes.file.load(SeqCst) == file) {
            bytes.from.fetch_min(from, SeqCst);
            bytes.to.fetch_max(to, SeqCst);
            return;
        }
        if let Some(bytes) = self.written.get(known) {
            bytes.file.store(file, SeqCst);
            bytes.from.store(from, SeqCst);
            bytes.to.store(to, SeqCst);
        }
        self.written_files.store((known as u32 + 1).min(ALL_FILES), SeqCst);
    }
}
