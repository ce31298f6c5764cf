//! How late harness itself was in a run: a timer shows when it did not run, and the system says how long processes waited for a
//! processor.

use std::time::Duration;

use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// A timer that comes later than this is worth a note.
const NOTED: Duration = Duration::from_millis(250);
/// A larger share of time in which some process waited for a processor is worth a note.
const NOTED_PERCENT: f64 = 50.0;
/// Pressure stall information of Linux: <https://docs.kernel.org/accounting/psi.html>.
const PRESSURE: &str = "/proc/pressure/cpu";
/// <https://man7.org/linux/man-pages/man5/proc_loadavg.5.html>
const LOAD: &str = "/proc/loadavg";

/// The delays of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OwnDelays {
    /// How late a timer came at most.
    pub timer_ms: f64,
    /// How long a line of the history waited at most until the recorder gave it its time.
    #[serde(default)]
    pub recorder_ms: f64,
    /// How often harness did not run for more than half a second.
    pub stalls: u64,
    /// How many processes of the machine ran or waited for each processor, on average; `None` where the system does not say.
    pub per_processor: Option<f64>,
    /// In how much of the run some process of the machine waited for a processor; `None` where the system does not say.
    pub waited_percent: Option<f64>,
}

impl OwnDelays {
    /// A note about a machine that had too much to do.
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

/// How many processors the machine has, whatever this process may use of them.
pub fn processors() -> Option<i64> {
    sysconf(SysconfVar::_NPROCESSORS_ONLN).ok()?
}

/// How many processes of the machine run or wait now, without the one that asks.
pub fn runnable() -> Option<u64> {
    let runnable = runnable_in(&std::fs::read_to_string(LOAD).ok()?)?;
    Some(runnable.saturating_sub(1))
}

/// `0.20 0.18 0.12 3/80 11206`: three of 80 processes and threads.
fn runnable_in(load: &str) -> Option<u64> {
    load.split(' ').nth(3)?.split_once('/')?.0.parse().ok()
}

/// How long some process has waited for a processor since the system was started.
pub fn waited() -> Option<Duration> {
    waited_in(&std::fs::read_to_string(PRESSURE).ok()?)
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=51863107`, the total in microseconds.
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
