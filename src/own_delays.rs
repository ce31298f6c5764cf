//! The lateness of harness itself in a run: a timer shows when it did not run, and the system says how long processes waited for
//! a processor.

use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// The lateness of a timer from which a run has a note.
const NOTED: Duration = Duration::from_millis(250);
/// The percentage of the time with a process that waited for a processor from which a run has a note.
const NOTED_PERCENT: f64 = 50.0;
/// Pressure stall information of Linux: <https://docs.kernel.org/accounting/psi.html>.
const PRESSURE: &str = "/proc/pressure/cpu";
/// <https://man7.org/linux/man-pages/man5/proc_loadavg.5.html>
const LOAD: &str = "/proc/loadavg";

/// The delays of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnDelays {
    /// The largest lateness of a timer.
    pub timer_ms: f64,
    /// The longest wait of a line of the history for its time from the recorder.
    #[serde(default)]
    pub recorder_ms: f64,
    /// The number of times at which harness did not run for more than half a second.
    pub stalls: u64,
    /// The average number of processes of the machine that ran or waited for each processor; `None` if the system does not say.
    pub per_processor: Option<f64>,
    /// The percentage of the run in which a process of the machine waited for a processor; `None` if the system does not say.
    pub waited_percent: Option<f64>,
}

impl OwnDelays {
    /// Returns a note if the machine was too busy.
    pub fn in_words(&self) -> Option<String> {
        let noted_ms = NOTED.as_secs_f64() * 1e3;
        let late = self.timer_ms > noted_ms;
        let waited = self.waited_percent.filter(|percent| *percent > NOTED_PERCENT);
        let recorded = Some(self.recorder_ms).filter(|wait_ms| *wait_ms > noted_ms);
        if !late && waited.is_none() && recorded.is_none() {
            return None;
        }
        let waited =
            waited.map(|percent| format!(", and processes waited for a processor in {percent:.0}% of the time"));
        let recorded = recorded.map(|wait_ms| format!(", a line of the history waited up to {:.2}s", wait_ms / 1e3));
        Some(format!(
            "the machine was busy: a timer of harness came up to {:.2}s late{}{}",
            self.timer_ms / 1e3,
            recorded.unwrap_or_default(),
            waited.unwrap_or_default()
        ))
    }
}

/// Returns the number of processors of the machine, including those that this process may not use.
pub fn processors() -> Option<i64> {
    sysconf(SysconfVar::_NPROCESSORS_ONLN).ok()?
}

/// Returns the number of processes of the machine that run or wait now, without this one.
pub fn runnable() -> Option<u64> {
    let runnable = runnable_in(&std::fs::read_to_string(LOAD).ok()?)?;
    Some(runnable.saturating_sub(1))
}

/// Reads the 3 of `0.20 0.18 0.12 3/80 11206`: three of 80 processes and threads.
fn runnable_in(load: &str) -> Option<u64> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// Returns the time for which processes have waited for a processor since the system was started.
pub fn waited() -> Option<Duration> {
    waited_in(&std::fs::read_to_string(PRESSURE).ok()?)
}

/// Reads the total, in microseconds, of `some avg10=0.00 avg60=0.00 avg300=0.00 total=51863107`.
fn waited_in(pressure: &str) -> Option<Duration> {
    let some = pressure.lines().find(|line| line.starts_with("some "))?;
    let total = some.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_that_processes_waited_is_read() {
        let pressure =
            "some avg10=1.50 avg60=0.38 avg300=0.08 total=51863107\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waited_in(pressure), Some(Duration::from_micros(51_863_107)));
        assert_eq!(runnable_in("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(waited_in(""), None);
        assert_eq!(waited_in("some avg10=0.00"), None);
    }

    #[test]
    fn a_machine_with_little_to_do_is_worth_no_note() {
        let delays = |timer_ms, waited_percent| OwnDelays {
            timer_ms,
            recorder_ms: 0.0,
            stalls: 0,
            per_processor: None,
            waited_percent,
        };
        assert_eq!(delays(40.0, Some(12.0)).in_words(), None);
        assert_eq!(delays(40.0, None).in_words(), None);
        let late = delays(310.0, None).in_words().unwrap();
        assert!(late.ends_with("0.31s late"), "{late}");
        let slow_disk = OwnDelays {
            recorder_ms: 400.0,
            ..delays(40.0, None)
        };
        let slow_disk = slow_disk.in_words().unwrap();
        assert!(
            slow_disk.ends_with("a line of the history waited up to 0.40s"),
            "{slow_disk}"
        );
        let busy = delays(40.0, Some(62.4)).in_words().unwrap();
        assert!(busy.ends_with("waited for a processor in 62% of the time"), "{busy}");
    }
}
