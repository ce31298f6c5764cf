//! A wall clock that can be stepped for one process alone; its monotonic clocks are untouched.
//!
//! A small library (`preload.rs`, made by `build.rs` and part of the binary) is loaded into the process before its C library and
//! adds an offset to every reading of the wall clock. A file that the process shares with harness has two numbers: the offset,
//! and the count of readings with an offset, which shows whether the clock was read at all. A process that does not read its
//! clock through a C library (a static binary, a Go program) is not reached, and its count stays 0.

use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/wall_clock.so"));

const LIBRARY_NAME: &str = "wall_clock.so";
/// The size of a clock's file: the offset and the count, in a page of memory.
const PAGE: u64 = 4096;

/// Returns the reason for which this harness cannot shift the time of day of a process, with a hint.
pub fn missing() -> Option<&'static str> {
    let hint = "this harness was built without the library that steps clocks\n\
                hint: build it on Linux, on x86_64 or aarch64";
    LIBRARY.is_empty().then_some(hint)
}

/// The folder with the library and the clocks of a run. Dropping it removes the folder.
///
/// A server may be another user and must write to its clock, and no other program of this machine may step it. So clocks are in a
/// folder with a random name, in one that other users can enter and cannot list.
#[derive(Debug)]
pub struct Clocks {
    outer: PathBuf,
    folder: PathBuf,
}

impl Clocks {
    /// Makes the folder and writes the library into it.
    pub fn lay_out(folder: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let outer = folder.canonicalize()?;
        std::fs::set_permissions(&outer, Permissions::from_mode(0o711))?;
        let folder = outer.join(format!("{:016x}", rand::random::<u64>()));
        std::fs::create_dir(&folder)?;
        let clocks = Self { outer, folder };
        std::fs::set_permissions(&clocks.folder, Permissions::from_mode(0o711))?;
        let library = clocks.folder.join(LIBRARY_NAME);
        std::fs::write(&library, LIBRARY)?;
        std::fs::set_permissions(&library, Permissions::from_mode(0o644))?;
        Ok(clocks)
    }

    /// Makes a clock that shows the true time until it is stepped.
    pub fn clock(&self, name: &str) -> io::Result<Arc<WallClock>> {
        let path = self.folder.join(name);
        let page = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        page.set_len(PAGE)?;
        // a server in a container is another user
        page.set_permissions(Permissions::from_mode(0o666))?;
        Ok(Arc::new(WallClock {
            folder: self.folder.clone(),
            name: name.to_owned(),
            page,
            stepping: Mutex::default(),
        }))
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.outer);
    }
}

/// A wall clock that can be stepped.
pub trait WallClockControl: Send + Sync {
    /// Moves the clock by `nanoseconds`, forward or back, permanently. Steps add up.
    fn step(&self, nanoseconds: i64) -> io::Result<()>;

    /// Returns the number of readings by its process with a shifted time.
    fn shifted_readings(&self) -> u64;
}

/// The wall clock of one process, and of all that it starts.
#[derive(Debug)]
pub struct WallClock {
    folder: PathBuf,
    name: String,
    page: File,
    stepping: Mutex<()>,
}

impl WallClock {
    /// Returns the folder that the process must be able to reach.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the environment of a process with this clock that finds [`WallClock::folder`] at `folder`.
    pub fn environment(&self, folder: &Path) -> [(String, String); 2] {
        let path = |name: &str| folder.join(name).display().to_string();
        [
            ("LD_PRELOAD".to_owned(), path(LIBRARY_NAME)),
            ("HARNESS_WALL_CLOCK".to_owned(), path(&self.name)),
        ]
    }

    /// Returns the difference between the clock and the true time.
    pub fn offset_nanoseconds(&self) -> i64 {
        self.number(0).map_or(0, i64::from_ne_bytes)
    }

    fn number(&self, at: u64) -> io::Result<[u8; 8]> {
        let mut bytes = [0; 8];
        self.page.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

impl WallClockControl for WallClock {
    fn step(&self, nanoseconds: i64) -> io::Result<()> {
        let _alone = self.stepping.lock().expect("no one panics while stepping a clock");
        let offset = i64::from_ne_bytes(self.number(0)?).saturating_add(nanoseconds);
        self.page.write_all_at(&offset.to_ne_bytes(), 0)
    }

    fn shifted_readings(&self) -> u64 {
        self.number(8).map_or(0, u64::from_ne_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    /// Returns the wall clock's reading in a process of its own, in this format of `date`.
    fn read_by_a_process(clock: &WallClock, format: &str) -> u64 {
        let date = Command::new("date")
            .arg(format)
            .envs(clock.environment(clock.folder()))
            .output()
            .unwrap();
        assert!(date.stderr.is_empty(), "{}", String::from_utf8_lossy(&date.stderr));
        String::from_utf8(date.stdout).unwrap().trim().parse().unwrap()
    }

    fn now() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
    }

    #[test]
    fn a_stepped_clock_tells_another_time_and_counts_who_looked() {
        let folder = tempfile::tempdir().unwrap();
        let clocks = Clocks::lay_out(folder.path().join("clocks")).unwrap();
        let clock = clocks.clock("c0").unwrap();
        let hours = 3600 * 1_000_000_000;
        assert!(read_by_a_process(&clock, "+%s").abs_diff(now()) < 1000);
        assert_eq!(clock.shifted_readings(), 0);
        clock.step(5 * hours).unwrap();
        assert!(read_by_a_process(&clock, "+%s").abs_diff(now() + 5 * 3600) < 1000);
        let looked = clock.shifted_readings();
        assert!(looked > 0);
        clock.step(-7 * hours).unwrap();
        assert!(read_by_a_process(&clock, "+%s").abs_diff(now() - 2 * 3600) < 1000);
        clock.step(2 * hours).unwrap();
        let before = clock.shifted_readings();
        assert!(read_by_a_process(&clock, "+%s").abs_diff(now()) < 1000);
        assert_eq!(clock.shifted_readings(), before, "the true time is nobody's shift");
    }

    #[test]
    fn a_fraction_of_a_second_is_carried_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let clocks = Clocks::lay_out(folder.path().join("clocks")).unwrap();
        let clock = clocks.clock("c0").unwrap();
        for step in [999_999_999, -1_999_999_998] {
            clock.step(step).unwrap();
            assert!(read_by_a_process(&clock, "+%N") < 1_000_000_000);
        }
    }

    #[test]
    fn other_users_neither_see_nor_guess_the_clocks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clocks");
        let [one, other] = ["a", "b"].map(|name| Clocks::lay_out(path.join(name)).unwrap());
        assert_ne!(one.folder.file_name(), other.folder.file_name());
        for folder in [&one.outer, &one.folder] {
            let mode = std::fs::metadata(folder).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o711, "others pass through and list nothing");
        }
    }

    #[test]
    fn the_clocks_go_with_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("clocks");
        let clocks = Clocks::lay_out(path.clone()).unwrap();
        assert!(path.exists());
        drop(clocks);
        assert!(!path.exists());
    }
}
