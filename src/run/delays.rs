//! Looks how late harness itself is. What is longer than a lease matters to the verdict, so stalls are written into the history; the rest
//! is known at the end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::NemesisFact;

use crate::own_delays::{OwnDelays, waited};
use crate::run::context::RunContext;

/// A timer is set this often.
const EVERY: Duration = Duration::from_millis(50);
/// A timer that comes later than this shows a stall. On a machine three times too busy some come 0.1 s late.
const STALL: Duration = Duration::from_millis(500);
/// Looks until it is dropped.
pub async fn watch(run: &RunContext) {
    let (began, waited_before) = (run.clock.now(), waited());
    let counters = &run.counters;
    let (mut latest, mut stalls) = (Duration::ZERO, 0);
    loop {
        let set = run.clock.now();
        run.clock.sleep(EVERY).await;
        let now = run.clock.now();
        let late = now.saturating_sub(set + EVERY);
        counters.delay_us.fetch_max(late.as_micros() as u64, Relaxed);
        latest = latest.max(late);
        if late > STALL {
            stalls += 1;
            counters.stalls.fetch_add(1, Relaxed);
            let lasted_ms = late.as_millis() as u64;
            run.recorder.nemesis(&NemesisFact::Stall { lasted_ms });
        }
        let waited = waited()
            .zip(waited_before)
            .map(|(now, before)| now.saturating_sub(before));
        counters.note_own_delays(OwnDelays {
            timer_ms: latest.as_secs_f64() * 1e3,
            stalls,
            waited_percent: waited.map(|waited| waited.as_secs_f64() / (now - began).as_secs_f64() * 100.0),
        });
    }
}
