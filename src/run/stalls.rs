//! Stalls of the harness: times in which it did not run, found by a timer that came late, and written into the history.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::NemesisFact;

use crate::run::context::RunContext;

/// A timer is set this often.
const EVERY: Duration = Duration::from_millis(50);
/// A timer that comes later than this shows a stall. On a machine three times too busy some come 0.1 s late.
const STALL: Duration = Duration::from_millis(500);

/// Looks until it is dropped.
pub async fn watch(run: &RunContext) {
    loop {
        let set = run.clock.now();
        run.clock.sleep(EVERY).await;
        let late = run.clock.now().saturating_sub(set + EVERY);
        run.counters.delay_us.fetch_max(late.as_micros() as u64, Relaxed);
        if late > STALL {
            run.counters.stalls.fetch_add(1, Relaxed);
            let lasted_ms = late.as_millis() as u64;
            run.recorder.nemesis(&NemesisFact::Stall { lasted_ms });
        }
    }
}
