//! The pulse: a reading of the running system for the live view, a few times a second; and the watch over the servers' roles.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::clients::holders::Holding;
use super::roles::ServerRoles;
use crate::cluster::RoleProbe;
use crate::event::{ProgressEvent, ProgressSnapshot};
use crate::plan::Plan;
use crate::run::context::RunContext;

const EVERY: Duration = Duration::from_millis(250);
/// Holders that fit a line.
const SHOWN: usize = 3;

/// Beats until it is dropped.
pub struct ProgressTicker(JoinHandle<()>);

impl Drop for ProgressTicker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn start(plan: &Plan, run: Arc<RunContext>, probe: RoleProbe) -> ProgressTicker {
    let phases = plan.phases;
    let total = phases.control + phases.warm_up + phases.faults + phases.calm;
    ProgressTicker(tokio::spawn(async move {
        let roles = ServerRoles::default();
        let watching = roles.watch(probe, Arc::clone(&run));
        tokio::join!(beat(total, run, &roles), watching);
    }))
}

async fn beat(total: Duration, run: Arc<RunContext>, roles: &ServerRoles) {
    let started = Instant::now();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = 0;
    loop {
        ticks.tick().await;
        let counters = &run.counters;
        let acquires = counters.acquires.load(Relaxed);
        let (p50, p99) = counters.percentiles();
        let holders = run.holders.all();
        run.progress.send(ProgressEvent::Snapshot(ProgressSnapshot {
            elapsed: started.elapsed(),
            total,
            acquires,
            acquires_per_second: (acquires - last) * 1000 / EVERY.as_millis() as u64,
            unknown: counters.unknown.load(Relaxed),
            refused: counters.refused.load(Relaxed),
            waiting: counters.waiting.load(Relaxed).max(0) as u64,
            holders: holders
                .iter()
                .take(SHOWN)
                .map(|(client, holding)| in_words(*client, holding))
                .collect(),
            overlaps: run.holders.overlaps(),
            nodes: roles.in_words(),
            p50,
            p99,
        }));
        last = acquires;
    }
}

fn in_words(client: u32, holding: &Holding) -> String {
    let held = holding.since.elapsed().as_secs_f32();
    match holding.token {
        Some(token) => format!("{}: c{client} (token {token}, {held:.1}s)", holding.lock),
        None => format!("{}: c{client} ({held:.1}s)", holding.lock),
    }
}
