//! The wall clock of this process where a test steps it and the process is linked statically.
//!
//! harness gives a process a page with an offset, and a library that adds it to each reading of the C library
//! (`src/wall_clock` of harness). No library is loaded into a static binary, such as those of a release, so that its
//! [`TokioHost`](crate::TokioHost) adds the offset itself.

use std::env;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

const VARIABLE: &str = "HARNESS_WALL_CLOCK";
/// The place of the offset in the page, in nanoseconds, and that of the count of shifted readings.
const OFFSET: u64 = 0;
const READINGS: u64 = 8;

#[derive(Debug)]
pub struct SteppedClock {
    page: Mutex<File>,
}

impl SteppedClock {
    /// Opens the clock that the environment names, for a process that no library is loaded into.
    pub fn of_static_process() -> Option<Self> {
        let path = env::var_os(VARIABLE).filter(|_| cfg!(target_feature = "crt-static"))?;
        Self::open(Path::new(&path)).ok()
    }

    fn open(page: &Path) -> io::Result<Self> {
        let page = File::options().read(true).write(true).open(page)?;
        Ok(Self { page: Mutex::new(page) })
    }

    /// Returns the time that the clock shows at this true time. A page that cannot be read shifts nothing.
    pub fn shown(&self, time: Duration) -> Duration {
        self.shifted(time).unwrap_or(time)
    }

    fn shifted(&self, time: Duration) -> io::Result<Duration> {
        let page = self.page.lock().expect("no one panics while reading a clock");
        let number = |at| {
            let mut bytes = [0; 8];
            page.read_exact_at(&mut bytes, at).map(|()| bytes)
        };
        let offset = i64::from_ne_bytes(number(OFFSET)?);
        if offset != 0 {
            let readings = u64::from_ne_bytes(number(READINGS)?).wrapping_add(1);
            page.write_all_at(&readings.to_ne_bytes(), READINGS)?;
        }
        let by = Duration::from_nanos(offset.unsigned_abs());
        Ok(match offset < 0 {
            true => time.saturating_sub(by),
            false => time.saturating_add(by),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Duration = Duration::from_secs(12 * 3600);

    #[test]
    fn an_offset_moves_the_clock_both_ways_and_is_counted() {
        let page = tempfile::NamedTempFile::new().unwrap();
        page.as_file().set_len(4096).unwrap();
        let clock = SteppedClock::open(page.path()).unwrap();
        let step = |seconds: i64| {
            let offset = seconds * 1_000_000_000;
            page.as_file().write_all_at(&offset.to_ne_bytes(), OFFSET).unwrap();
        };
        let readings = || {
            let mut bytes = [0; 8];
            page.as_file().read_exact_at(&mut bytes, READINGS).unwrap();
            u64::from_ne_bytes(bytes)
        };
        assert_eq!(
            (clock.shown(NOON), readings()),
            (NOON, 0),
            "the true time is nobody's shift"
        );
        step(90);
        assert_eq!((clock.shown(NOON), readings()), (NOON + Duration::from_secs(90), 1));
        step(-90);
        assert_eq!((clock.shown(NOON), readings()), (NOON - Duration::from_secs(90), 2));
        step(-24 * 3600);
        assert_eq!(clock.shown(NOON), Duration::ZERO, "there is no time before 1970");
    }

    #[test]
    fn a_page_that_is_too_short_shifts_nothing() {
        let page = tempfile::NamedTempFile::new().unwrap();
        let clock = SteppedClock::open(page.path()).unwrap();
        assert_eq!(clock.shown(NOON), NOON);
    }
}
