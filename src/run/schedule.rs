//! The schedule of fault windows: each starts on time, its target is resolved when it starts, it heals whatever happens, and
//! both are recorded with what it did.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::task::JoinSet;

use super::context::RunContext;
use super::targeting::{FreshHolders, ResolvedTarget, resolve};
use crate::event::ProgressEvent;
use crate::evidence::Evidence;
use crate::faults::{Field, Means, Open};
use crate::limits::AIM;
use crate::network::Struck;
use crate::plan::Window;

/// Runs every window of the plan, from now. Windows that start together run at the same time; the next ones wait until these
/// have healed, which may take longer than planned, since servers that were killed need time to serve again.
pub async fn run_windows(run: &Arc<RunContext>, env: &Arc<Field>) {
    let start = run.clock.now();
    for slot in run.spec.plan.windows.chunk_by(|one, other| one.start == other.start) {
        let mut running = JoinSet::new();
        for window in slot {
            let window = WindowRun {
                window: window.clone(),
                run: Arc::clone(run),
                env: Arc::clone(env),
            };
            running.spawn(window.run(start));
        }
        all(running).await;
    }
}

/// Waits for every task, and goes on with the panic of one, which is a bug of ours.
pub async fn all(mut tasks: JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        if let Err(error) = ended
            && error.is_panic()
        {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

struct WindowRun {
    window: Window,
    run: Arc<RunContext>,
    env: Arc<Field>,
}

impl WindowRun {
    async fn run(self, start: Duration) {
        if self.stopped_before(start + self.window.start).await {
            return;
        }
        let prelude = match self.window.strike.prelude(self.window.number, &self.env).await {
            Ok(prelude) => prelude,
            Err(why) => return self.missed(why),
        };
        let fresh = prelude.as_ref().map(|prelude| FreshHolders {
            since: self.run.clock.now(),
            other_than: prelude.keys.clone(),
        });
        let leader = self.env.servers.leader(AIM);
        let resolved = match resolve(&self.window.strike, fresh, &self.run, leader).await {
            Ok(resolved) => resolved,
            Err(why) => return self.missed(why),
        };
        let opened = self.run.clock.now();
        let before = CounterReadings::now(&self.run);
        let holding: Vec<u32> = self.run.holders.all().into_iter().map(|(client, _)| client).collect();
        let mut open = self
            .window
            .strike
            .open(self.window.number, &self.env, &resolved.target, prelude)
            .await;
        if let Some(why) = open.trouble.take() {
            return self.broken("could not be opened", &why);
        }
        if open.is_empty() {
            return self.missed(match self.window.strike.means {
                Means::Failover { .. } => "the replica was not promoted",
                _ => "its process was not running",
            });
        }
        self.write_start(&open, &resolved);
        let struck = open.clients.clone();
        let stopped = self.last(&mut open, opened + self.window.length).await;
        let (message, no_message) = (open.message(), open.why_no_message());
        let (mut evidence, trouble) = open.heal(self.run.clock.now() - opened, !stopped).await;
        if matches!(self.window.strike.means, Means::Clients(_)) {
            evidence.holders = struck.iter().filter(|client| holding.contains(client)).count() as u64;
        }
        let effect = WindowEffect {
            evidence,
            before,
            message,
            no_message,
        };
        self.write_heal(effect, &resolved.title, self.run.clock.now() - opened);
        if let Some(why) = trouble {
            self.broken("could not be healed", &why);
        }
    }

    /// Lets a window last until it is `due` and has done what it does; returns whether the run stops.
    async fn last(&self, open: &mut Open, due: Duration) -> bool {
        let mut stop = self.run.stopping();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => true,
            _ = async { tokio::join!(open.act(), self.run.clock.sleep_until(due)) } => false,
        }
    }

    /// Waits; returns at once, and says so, when the run stops.
    async fn stopped_before(&self, due: Duration) -> bool {
        let mut stop = self.run.stopping();
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => true,
            () = self.run.clock.sleep_until(due) => false,
        }
    }

    /// The network is not as the plan has it, so nothing that follows would mean anything.
    fn broken(&self, how: &str, why: &str) {
        let window = format!("window {}, {},", self.window.number, self.window.fault);
        self.run.fail(format!("{window} {how}: {why}"));
    }

    fn missed(&self, why: &str) {
        let start = object(json!({
            "window": self.window.number, "phase": "start", "title": self.window.strike.title, "targets": [],
        }));
        self.run.recorder.nemesis_line(self.window.fault, start);
        let mut heal = object(json!({ "window": self.window.number, "phase": "heal", "missed": why }));
        heal.insert("evidence".into(), json!(Evidence::default()));
        self.run.recorder.nemesis_line(self.window.fault, heal);
        let text = format!("window {}: {why}, so there was nobody to strike", self.window.number);
        self.run.progress().send(ProgressEvent::Note(text));
    }

    fn write_start(&self, open: &Open, resolved: &ResolvedTarget) {
        let title = &resolved.title;
        let mut start = object(json!({
            "window": self.window.number, "phase": "start", "title": title, "targets": open.targets(), "cut": open.links(),
        }));
        if let Some(holder) = resolved.holder {
            start.insert("holder".into(), json!(format!("c{holder}")));
            start.insert(
                "holder_works_ms".into(),
                json!(self.run.spec.plan.struck_holder_works.as_millis() as u64),
            );
        }
        self.run.recorder.nemesis_line(self.window.fault, start);
        self.run.progress().send(ProgressEvent::WindowOpened {
            number: self.window.number,
            title: self.headline(title),
        });
    }

    fn write_heal(&self, effect: WindowEffect, title: &str, lasted: Duration) {
        let WindowEffect {
            evidence,
            before,
            message,
            no_message,
        } = effect;
        let after = CounterReadings::now(&self.run);
        let mut facts = object(json!(evidence));
        facts.insert("locks_lost".into(), json!(after.lost - before.lost));
        facts.insert("acquires".into(), json!(after.acquires - before.acquires));
        facts.insert("unknown".into(), json!(after.unknown - before.unknown));
        let mut heal = object(json!({ "window": self.window.number, "phase": "heal", "evidence": facts }));
        if let Some(demand) = self.window.strike.demand {
            heal.insert("demand".into(), json!(demand));
        }
        let mut words = vec![evidence.in_words()];
        if let Some(message) = message {
            let time = self.run.recorder.time_of(message.at);
            words.push(format!(
                "`{}` of {} ({}) at {:.3}s",
                message.message,
                message.client,
                message.role,
                Duration::from_nanos(time).as_secs_f64()
            ));
            let mut struck = object(json!(message));
            struck.insert("time".into(), json!(time));
            heal.insert("struck".into(), Value::Object(struck));
        }
        if let Some(why) = no_message {
            words.push(why.clone());
            heal.insert("missed".into(), json!(why));
        }
        words.retain(|word| !word.is_empty());
        self.run.recorder.nemesis_line(self.window.fault, heal);
        self.run.progress().send(ProgressEvent::WindowHealed {
            number: self.window.number,
            title: self.headline(title),
            lasted,
            evidence: words.join(", "),
        });
    }

    fn headline(&self, title: &str) -> String {
        format!("{} {}   {title}", self.window.fault, self.window.number)
    }
}

/// What a window did, as far as it is known when it heals.
struct WindowEffect {
    evidence: Evidence,
    before: CounterReadings,
    /// The message that it struck.
    message: Option<Struck>,
    /// Why it struck none, when it meant one.
    no_message: Option<String>,
}

/// What the clients had seen at some moment.
#[derive(Clone, Copy)]
struct CounterReadings {
    lost: u64,
    acquires: u64,
    unknown: u64,
}

impl CounterReadings {
    fn now(run: &RunContext) -> Self {
        Self {
            lost: run.counters.lost.load(Relaxed),
            acquires: run.counters.acquires.load(Relaxed),
            unknown: run.counters.unknown.load(Relaxed),
        }
    }
}

/// The fields of a line of the nemesis.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => unreachable!("only objects are made here"),
    }
}
