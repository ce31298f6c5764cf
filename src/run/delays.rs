//! Delays of harness itself, and the load of the machine. Stalls and seconds with far too much load matter to the verdict, so the
//! history has them; the rest is known at the end.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::NemesisFact;
use harness_checkers::limits::PROCESSES_BORNE;

use crate::own_delays::{OwnDelays, processors, runnable, waited};
use crate::run::context::RunContext;

/// The time between two timers.
const EVERY: Duration = Duration::from_millis(50);
/// The lateness of a timer that is a stall. On a machine three times too busy some come 0.1 s late.
const STALL: Duration = Duration::from_millis(500);
/// The time over which processes are counted.
const SECOND: Duration = Duration::from_secs(1);

/// The number of processes that ran or waited for each processor, since a time.
struct ProcessCount {
    since: Duration,
    sum: f64,
    looks: u32,
}

impl ProcessCount {
    fn new(since: Duration) -> Self {
        Self {
            since,
            sum: 0.0,
            looks: 0,
        }
    }

    fn add(&mut self, per_processor: f64) {
        self.sum += per_processor;
        self.looks += 1;
    }

    fn mean(&self) -> Option<f64> {
        (self.looks > 0).then(|| self.sum / f64::from(self.looks))
    }

    fn fact(&self, now: Duration) -> NemesisFact {
        NemesisFact::Busy {
            lasted_ms: (now - self.since).as_millis() as u64,
            per_processor: (self.mean().unwrap_or(0.0) * 10.0).round() / 10.0,
        }
    }
}

/// Watches the delays until it is dropped.
pub async fn watch(run: &RunContext) {
    let (began, waited_before, processors) = (run.clock.now(), waited(), processors());
    let counters = &run.counters;
    let (mut latest, mut waited_percent) = (Duration::ZERO, None);
    let (mut second, mut all) = (ProcessCount::new(began), ProcessCount::new(began));
    loop {
        let late = run.clock.by.lateness_of(EVERY).await;
        let now = run.clock.now();
        counters.delay_us.fetch_max(late.as_micros() as u64, Relaxed);
        latest = latest.max(late);
        if late > STALL {
            counters.stalls.fetch_add(1, Relaxed);
            let lasted_ms = late.as_millis() as u64;
            run.recorder.nemesis(&NemesisFact::Stall { lasted_ms });
        }
        if let Some((runnable, processors)) = runnable().zip(processors) {
            let per_processor = runnable as f64 / processors as f64;
            second.add(per_processor);
            all.add(per_processor);
        }
        if now - second.since >= SECOND {
            if second.mean().is_some_and(|mean| mean > PROCESSES_BORNE) {
                run.recorder.nemesis(&second.fact(now));
            }
            second = ProcessCount::new(now);
            let waited = waited().zip(waited_before);
            waited_percent = waited.map(|(now_waited, before)| {
                let waited = now_waited.saturating_sub(before);
                waited.as_secs_f64() / (now - began).as_secs_f64() * 100.0
            });
        }
        counters.own_delays.send_replace(Some(OwnDelays {
            timer_ms: latest.as_secs_f64() * 1e3,
            recorder_ms: run.recorder.longest_wait().as_secs_f64() * 1e3,
            stalls: counters.stalls.load(Relaxed),
            per_processor: all.mean(),
            waited_percent,
        }));
    }
}
