//! The pulse: a reading of the running system for the live view, a few times a second; and the watch over the servers' roles.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::holders::Holding;
use super::roles::Roles;
use super::stage::Stage;
use crate::cluster::Census;
use crate::event::{Event, Pulse};
use crate::plan::Plan;

const EVERY: Duration = Duration::from_millis(250);
/// Holders that fit a line.
const SHOWN: usize = 3;

/// Beats until it is dropped.
pub struct Beating(JoinHandle<()>);

impl Drop for Beating {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub fn start(plan: &Plan, stage: Arc<Stage>, census: Census) -> Beating {
    let phases = plan.phases;
    let total = phases.control + phases.warm_up + phases.faults + phases.calm;
    Beating(tokio::spawn(async move {
        let roles = Roles::default();
        let watching = roles.watch(census, Arc::clone(&stage));
        tokio::join!(beat(total, stage, &roles), watching);
    }))
}

async fn beat(total: Duration, stage: Arc<Stage>, roles: &Roles) {
    let started = Instant::now();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = 0;
    loop {
        ticks.tick().await;
        let tally = &stage.tally;
        let acquires = tally.acquires.load(Relaxed);
        let (p50, p99) = tally.percentiles();
        let holders = stage.holders.all();
        stage.progress.send(Event::Pulse(Pulse {
            elapsed: started.elapsed(),
            total,
            acquires,
            acquires_per_second: (acquires - last) * 1000 / EVERY.as_millis() as u64,
            unknown: tally.unknown.load(Relaxed),
            refused: tally.refused.load(Relaxed),
            waiting: tally.waiting.load(Relaxed).max(0) as u64,
            holders: holders
                .iter()
                .take(SHOWN)
                .map(|(client, holding)| in_words(*client, holding))
                .collect(),
            overlaps: stage.holders.overlaps(),
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
