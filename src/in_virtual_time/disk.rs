//! The disk of a server in virtual time ([`ServerDisk`]), which a fault makes slow or full, or whose unsynced data it takes away.
//!
//! The loaded library (`loaded/disks.rs`) holds syncs back, refuses writes, and lists the files that were synced. Their content is copied
//! before a message leaves the server, so a server has what it acknowledged. After a power cut its folder is as on ext4: each file has the
//! content of its own last sync, or none, and there are the files that were there at the last sync of any.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::UNIX_EPOCH;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};

use super::memory::SharedPage;
use super::page_disk::WrittenBytes;
use crate::disks::DiskGate;

/// The end of the written bytes of a file that may have changed anywhere.
const ANYWHERE: u64 = u64::MAX;

/// The disk of a server, through all its starts.
pub struct ServerDisk {
    /// Its slowness, and counts of the effects of faults.
    pub gate: Arc<DiskGate>,
    full: Cell<bool>,
    /// The files as they were synced; `None`: no fault takes data away.
    synced: Option<RefCell<SyncedFiles>>,
    /// The error of a copy, which the next power cut has.
    failed: RefCell<Option<io::Error>>,
}

impl ServerDisk {
    /// Makes the disk with a server's folder. `kept` is the folder for copies of synced files, if its power may be cut.
    pub fn new(folder: PathBuf, kept: Option<PathBuf>) -> Self {
        let synced = kept.map(|kept| SyncedFiles {
            folder,
            kept,
            entries: BTreeMap::new(),
            written: BTreeMap::new(),
        });
        Self {
            gate: Arc::default(),
            full: Cell::new(false),
            synced: synced.map(RefCell::new),
            failed: RefCell::default(),
        }
    }

    /// Writes the state of the disk to the page of the server.
    pub fn show_to(&self, page: &SharedPage) {
        page.disk.delay.store(self.gate.syncs.delay().as_nanos() as u64, SeqCst);
        page.disk.full.store(self.full.get().into(), SeqCst);
        page.disk.keeps.store(self.synced.is_some().into(), SeqCst);
    }

    /// Adds the syncs that the page has counted, and copies the synced files.
    pub fn hear_of(&self, page: &SharedPage) {
        let (syncs, delayed) = (page.disk.syncs.swap(0, SeqCst), page.disk.delayed.swap(0, SeqCst));
        if syncs > 0 {
            self.gate.note_syncs(syncs, delayed);
        }
        let written = page.disk.written_files.swap(0, SeqCst) as usize;
        let many = page.disk.synced_files.swap(0, SeqCst) as usize;
        let Some(synced) = &self.synced else { return };
        let mut synced = synced.borrow_mut();
        // more than there is room for are all
        match page.disk.written.get(..written) {
            Some(written) => written.iter().for_each(|bytes| synced.note_write(bytes)),
            None => synced.note_all_written(),
        }
        let files = page.disk.synced.get(..many);
        let files: Option<Vec<u64>> = files.map(|files| files.iter().map(|file| file.load(SeqCst)).collect());
        if many > 0
            && let Err(error) = synced.keep(files.as_deref())
        {
            self.failed.borrow_mut().get_or_insert(error);
        }
    }

    /// Syncs all files, as if the server had run for minutes.
    pub fn sync(&self) -> io::Result<()> {
        self.synced
            .as_ref()
            .map_or(Ok(()), |synced| synced.borrow_mut().keep(None))
    }

    /// Removes the unsynced data of a server that does not run. Returns the number of files that changed or disappeared; `None`: the disk
    /// keeps no synced data.
    pub fn cut_power(&self) -> io::Result<Option<u64>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.synced
            .as_ref()
            .map(|synced| synced.borrow_mut().set_back())
            .transpose()
    }

    /// Keeps nothing of the files so far: they are removed.
    pub fn forget(&self) {
        if let Some(synced) = &self.synced {
            let mut synced = synced.borrow_mut();
            synced.entries.clear();
            synced.written.clear();
        }
    }

    pub fn is_full(&self) -> bool {
        self.full.get()
    }

    pub fn fill(&self, full: bool) {
        self.full.set(full);
    }
}

/// The files of a server as they were synced.
struct SyncedFiles {
    folder: PathBuf,
    /// The folder with a copy of each synced file.
    kept: PathBuf,
    /// The entries of `folder` at the last sync of a file, by their paths below it.
    entries: BTreeMap<PathBuf, FolderEntry>,
    /// By number, the bytes of files that were written since their copies.
    written: BTreeMap<u64, Range<u64>>,
}

/// An entry of a server's folder. Others than these stay as they are.
#[derive(Clone, PartialEq, Eq)]
enum FolderEntry {
    Folder,
    /// A file with its number on the file system, and the name of its copy.
    File(u64, String),
}

impl SyncedFiles {
    fn note_write(&mut self, bytes: &WrittenBytes) {
        let (from, to) = (bytes.from.load(SeqCst), bytes.to.load(SeqCst));
        let written = self.written.entry(bytes.file.load(SeqCst)).or_insert(from..to);
        *written = written.start.min(from)..written.end.max(to);
    }

    fn note_all_written(&mut self) {
        for entry in self.entries.values() {
            if let FolderEntry::File(number, _) = entry {
                self.written.insert(*number, 0..ANYWHERE);
            }
        }
    }

    /// Copies the synced files of these numbers, or all, and lists the entries. Of a file that was copied before it copies the bytes that
    /// were written since; without any, such as of a file in memory, all.
    fn keep(&mut self, files: Option<&[u64]>) -> io::Result<()> {
        fs::create_dir_all(&self.kept)?;
        let entries = entries(&self.folder)?;
        for (path, entry) in &entries {
            if let FolderEntry::File(number, copied) = entry
                && files.is_none_or(|files| files.contains(number))
            {
                let (from, to) = (self.folder.join(path), self.kept.join(copied));
                match self.written.remove(number).filter(|_| to.exists()) {
                    Some(written) if written.end != ANYWHERE => copy_bytes(&from, &to, written)?,
                    _ => copy(&from, &to)?,
                }
            }
        }
        self.entries = entries;
        Ok(())
    }

    /// Makes the folder as it was synced. Returns the number of files that changed or disappeared.
    fn set_back(&mut self) -> io::Result<u64> {
        let mut lost = 0;
        // folders come before their entries
        for (path, entry) in entries(&self.folder)?.iter().rev() {
            let (at, known) = (self.folder.join(path), self.entries.get(path));
            match entry {
                FolderEntry::Folder if known != Some(entry) => fs::remove_dir(at)?,
                FolderEntry::File(..) if !matches!(known, Some(FolderEntry::File(..))) => {
                    fs::remove_file(at)?;
                    lost += 1;
                }
                _ => {}
            }
        }
        for (path, entry) in &self.entries {
            let at = self.folder.join(path);
            match entry {
                FolderEntry::Folder => fs::create_dir_all(at)?,
                FolderEntry::File(_, copied) => lost += u64::from(set_file_back(&at, &self.kept.join(copied))?),
            }
        }
        // the files that are there after a power cut are on the disk, also one that has another number now
        self.keep(None)?;
        Ok(lost)
    }
}

/// Lists the folders and files below a folder.
fn entries(root: &Path) -> io::Result<BTreeMap<PathBuf, FolderEntry>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let (path, kind) = (folder.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path.clone());
                found.insert(path, FolderEntry::Folder);
            } else if kind.is_file() {
                let about = entry.metadata()?;
                // a file system gives the number of a removed file to a new one
                let made = about.created().unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH);
                let copied = format!("{}-{}", about.ino(), made.unwrap_or_default().as_nanos());
                found.insert(path, FolderEntry::File(about.ino(), copied));
            }
        }
    }
    Ok(found)
}

/// Makes a file as its copy; a file that was never synced is empty. Returns whether it had another content.
fn set_file_back(at: &Path, copied: &Path) -> io::Result<bool> {
    let is_kept = copied.exists();
    let synced = if is_kept { fs::read(copied)? } else { Vec::new() };
    if fs::read(at).is_ok_and(|now| now == synced) {
        return Ok(false);
    }
    match is_kept {
        true => copy(copied, at)?,
        false => File::create(at).map(drop)?,
    }
    Ok(true)
}

/// Copies a file, with its owner and its permissions, and without its holes.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::create(to)?);
    let about = from.metadata()?;
    to.set_permissions(about.permissions())?;
    fchown(&to, Some(about.uid()), Some(about.gid()))?;
    to.set_len(about.len())?;
    copy_data(&from, &to, 0..about.len())
}

/// Copies bytes of a file over those of its copy, which is as long then.
fn copy_bytes(from: &Path, to: &Path, written: Range<u64>) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::options().write(true).open(to)?);
    let length = from.metadata()?.len();
    to.set_len(length)?;
    copy_data(&from, &to, written.start..written.end.min(length))
}

/// Copies the data in these bytes of a file, without its holes.
fn copy_data(from: &File, to: &File, bytes: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut at = bytes.start;
    while at < bytes.end {
        let begin = match lseek(from, at as i64, Whence::SeekData) {
            Err(Errno::ENXIO) => break,
            begin => begin.map_err(io::Error::from)? as u64,
        };
        let end = lseek(from, begin as i64, Whence::SeekHole).map_err(io::Error::from)? as u64;
        at = begin;
        while at < end.min(bytes.end) {
            let piece = buffer.len().min((end.min(bytes.end) - at) as usize);
            from.read_exact_at(&mut buffer[..piece], at)?;
            to.write_all_at(&buffer[..piece], at)?;
            at += piece as u64;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::in_virtual_time::page_disk::ALL_FILES;

    #[test]
    fn each_file_has_its_last_synced_content_after_a_cut_and_new_ones_are_gone() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir_all(data.join("old")).unwrap();
        fs::write(data.join("old/log"), "first").unwrap();
        let disk = ServerDisk::new(data.clone(), Some(folder.path().join("kept")));
        disk.sync().unwrap();
        assert_eq!(disk.cut_power().unwrap(), Some(0));

        let page = SharedPage::make(&folder.path().join("page")).unwrap();
        let log = data.join("old/log");
        let append = |text: &[u8]| {
            let mut file = File::options().append(true).open(&log).unwrap();
            file.write_all(text).unwrap();
        };
        append(b" second");
        fs::create_dir_all(data.join("new")).unwrap();
        fs::write(data.join("new/file"), "never synced").unwrap();
        page.disk.synced[0].store(fs::metadata(&log).unwrap().ino(), SeqCst);
        page.disk.synced_files.store(1, SeqCst);
        disk.hear_of(&page);
        append(b" third");
        fs::write(data.join("new/other"), "").unwrap();
        assert_eq!(disk.cut_power().unwrap(), Some(3));
        assert_eq!(fs::read(&log).unwrap(), b"first second");
        assert_eq!(fs::read(data.join("new/file")).unwrap(), b"");
        assert!(!data.join("new/other").exists());

        page.disk.synced_files.store(ALL_FILES, SeqCst);
        fs::write(data.join("new/file"), "synced with all").unwrap();
        disk.hear_of(&page);
        assert_eq!(disk.cut_power().unwrap(), Some(0));
        fs::remove_file(data.join("new/file")).unwrap();
        disk.cut_power().unwrap();
        assert_eq!(fs::read(data.join("new/file")).unwrap(), b"synced with all");

        // it has another number now, and a sync of another file changes nothing about it
        page.disk.synced[0].store(fs::metadata(&log).unwrap().ino(), SeqCst);
        page.disk.synced_files.store(1, SeqCst);
        disk.hear_of(&page);
        assert_eq!(disk.cut_power().unwrap(), Some(0));
        assert_eq!(fs::read(data.join("new/file")).unwrap(), b"synced with all");
    }

    #[test]
    fn of_a_file_that_was_copied_before_only_the_written_bytes_are_copied() {
        let folder = tempfile::tempdir().unwrap();
        let (data, kept) = (folder.path().join("data"), folder.path().join("kept"));
        fs::create_dir_all(&data).unwrap();
        let log = data.join("log");
        fs::write(&log, "one two").unwrap();
        let disk = ServerDisk::new(data, Some(kept.clone()));
        disk.sync().unwrap();
        let page = SharedPage::make(&folder.path().join("page")).unwrap();
        let number = fs::metadata(&log).unwrap().ino();
        fs::write(&log, "ONE TWO THREE").unwrap();
        page.disk.written[0].file.store(number, SeqCst);
        page.disk.written[0].from.store(4, SeqCst);
        page.disk.written[0].to.store(13, SeqCst);
        page.disk.written_files.store(1, SeqCst);
        disk.hear_of(&page);
        let copied = || {
            let copy = fs::read_dir(&kept).unwrap().next().unwrap().unwrap();
            fs::read_to_string(copy.path()).unwrap()
        };
        assert_eq!(copied(), "one two", "nothing was synced");
        page.disk.synced[0].store(number, SeqCst);
        page.disk.synced_files.store(1, SeqCst);
        disk.hear_of(&page);
        assert_eq!(copied(), "one TWO THREE");
        page.disk.written_files.store(ALL_FILES, SeqCst);
        page.disk.synced_files.store(1, SeqCst);
        disk.hear_of(&page);
        assert_eq!(copied(), "ONE TWO THREE");
    }

    #[test]
    fn a_copy_of_a_file_with_holes_has_the_same_content_and_nothing_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let file = File::create(&from).unwrap();
        // more than a piece of the copy
        file.write_all_at(&[1; 70_000], 1 << 20).unwrap();
        file.write_all_at(b"two", 3 << 20).unwrap();
        file.set_len(8 << 20).unwrap();
        fs::write(&to, "what was there before").unwrap();
        copy(&from, &to).unwrap();
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
    }

    #[test]
    fn a_disk_whose_power_is_never_cut_keeps_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let disk = ServerDisk::new(folder.path().into(), None);
        disk.sync().unwrap();
        assert_eq!(disk.cut_power().unwrap(), None);
    }
}
