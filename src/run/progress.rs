//! The progress ticker: a snapshot of the running system for the live view, a few times a second.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::delays;
use super::holders::Holding;
use super::roles::ServerRoles;
use crate::clock::RunningTask;
use crate::cluster::NodeControl;
use crate::event::{ProgressEvent, ProgressSnapshot};
use crate::run::context::RunContext;

const EVERY: Duration = Duration::from_millis(250);
/// The number of holders that a line shows.
const SHOWN: usize = 3;

/// Starts the ticker, the watch over the servers' roles for it, and the watch for harness's own delays. A run in virtual time is
/// over before a screen is drawn, and does not stall.
pub fn start(run: &Arc<RunContext>, servers: NodeControl) -> RunningTask {
    let run = Arc::clone(run);
    run.clock.by.spawn(async move {
        let roles = ServerRoles::default();
        let watching = roles.watch(servers, Arc::clone(&run));
        if run.clock.by.is_virtual() {
            return watching.await;
        }
        tokio::join!(biased; tick(&run, &roles), watching, delays::watch(&run));
    })
}

async fn tick(run: &RunContext, roles: &ServerRoles) {
    let phases = run.spec.plan.phases;
    let total = phases.control + phases.warm_up + phases.faults + phases.recovery;
    let (started, mut last) = (run.clock.now(), 0);
    loop {
        let counters = &run.counters;
        let acquires = counters.acquires.load(Relaxed);
        let (p50, p99) = counters.percentiles();
        let holders = run.holders.all();
        let shown = holders.iter().take(SHOWN);
        let shown = shown.map(|(client, holding)| in_words(*client, holding, run.clock.now()));
        run.progress().send(ProgressEvent::Snapshot(ProgressSnapshot {
            elapsed: run.clock.now() - started,
            total,
            acquires,
            acquires_per_second: (acquires - last) * 1000 / EVERY.as_millis() as u64,
            unknown: counters.unknown.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            waiting: counters.waiting.load(Relaxed).max(0) as u64,
            holding: holders.len() as u64,
            holders: shown.collect(),
            overlaps: run.holders.overlaps(),
            nodes: roles.in_words(),
            p50,
            p99,
            delay: Duration::from_micros(counters.delay_us.swap(0, Relaxed)),
            stalls: counters.stalls.load(Relaxed),
        }));
        last = acquires;
        run.clock.sleep(EVERY).await;
    }
}

fn in_words(client: u32, holding: &Holding, now: Duration) -> String {
    let held = now.saturating_sub(holding.since).as_secs_f32();
    match holding.token {
        Some(token) => format!("{}: c{client} (token {token}, {held:.1}s)", holding.lock),
        None => format!("{}: c{client} ({held:.1}s)", holding.lock),
    }
}
