//! The schedule of fault windows: each starts on time, resolves its target, heals in any case, and is recorded with its effect.
//! The schedule does not distinguish faults.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::{EffectCounters, EvidenceCounter, MessageMatch, NemesisFact, WindowHeal, WindowStart};
use serde_json::Map;

use super::context::RunContext;
use super::targeting::{GrantedSince, Resolution, resolve};
use crate::event::ProgressEvent;
use crate::evidence::{DROPPED_PACKETS, HELD_CONNECTS};
use crate::faults::{
    ActiveFault, Affected, FaultEnv, HealOnDrop, Healed, Injected, InjectionContext, NotInjected, Pace, Target,
};
use crate::plan::PlannedWindow;

/// The time for which a window may last after the planned end of the faults phase.
const LATE: Duration = Duration::from_secs(2);

/// Executes every window of the plan, from now. Lanes run in parallel. In a lane, a window waits until the previous one has
/// healed, which may take longer than planned, since killed servers need time to serve again; the lane is later from then on.
/// Windows that wait for messages overlap as planned.
pub async fn run_windows(run: &Arc<RunContext>, env: &Arc<FaultEnv>) {
    let windows = &run.spec.plan.windows;
    let over = run.clock.now() + run.spec.plan.phases.faults;
    let mut lanes = run.clock.by.tasks();
    for lane in 0..windows.iter().map(|window| window.lane + 1).max().unwrap_or(0) {
        let of_lane = windows.iter().filter(|window| window.lane == lane);
        let runs = of_lane.map(|window| WindowRun {
            window: window.clone(),
            run: Arc::clone(run),
            env: Arc::clone(env),
            over: over + LATE,
        });
        lanes.spawn(run_lane(runs.collect(), Arc::clone(run)));
    }
    lanes.all().await;
}

async fn run_lane(windows: Vec<WindowRun>, run: Arc<RunContext>) {
    let began = run.clock.now();
    let over = began + run.spec.plan.phases.faults;
    let mut late = Duration::ZERO;
    let mut running = run.clock.by.tasks();
    for window in windows {
        let due = began + window.window.start + late;
        if window.window.fault.pace == Pace::Message {
            running.spawn(window.run(due));
            continue;
        }
        if run.granted.is_on() {
            break;
        }
        if due + window.window.length > over + LATE {
            window.missed("earlier windows left too little time for it");
            continue;
        }
        let heal = due + window.window.length;
        window.run(due).await;
        late += run.clock.now().saturating_sub(heal);
    }
    running.all().await;
}

struct WindowRun {
    window: PlannedWindow,
    run: Arc<RunContext>,
    env: Arc<FaultEnv>,
    /// The time after which it does not open any more, for example if its message never comes.
    over: Duration,
}

impl WindowRun {
    /// Executes the window. `due` is the time at which it opens, by the clock of the run.
    async fn run(self, due: Duration) {
        if self.until_over(self.run.clock.sleep_until(due)).await.is_none() {
            return;
        }
        let (number, action) = (self.window.number, &self.window.injection.action);
        let preparation = match action.prepare(number, &self.env).await {
            Ok(preparation) => preparation,
            Err(why) => return self.missed(why),
        };
        let since = preparation.as_ref().map(|prepared| GrantedSince {
            prepared: self.run.clock.now(),
            known_keys: prepared.known_keys.clone(),
        });
        let resolved = self
            .until_over(resolve(&self.window, since, &self.run, &self.env))
            .await;
        let over = over_before(&self.window.injection.target);
        let mut resolution = match resolved.unwrap_or(Err(over)) {
            Ok(resolution) => resolution,
            Err(why) => return self.missed(why),
        };
        // until its line is written, the online check does not know that it excuses an answer
        let pending = self.run.recorder.check.as_ref().map(|check| check.injecting());
        let started = self.run.clock.now();
        let before = readings(&self.run);
        let context = InjectionContext {
            number,
            env: &self.env,
            target: &resolution.target,
            holding: self.run.holders.all().into_iter().map(|(client, _)| client).collect(),
            preparation,
        };
        let Injected {
            mut active,
            affected,
            title,
        } = match action.inject(context).await {
            Ok(injected) => injected,
            Err(NotInjected::Missed(why)) => return self.missed(why),
            Err(NotInjected::Failed(why)) => return self.broken("could not be opened", &why),
        };
        if let Some(title) = title {
            resolution.title = title;
        }
        self.write_start(affected, &resolution, self.run.clock.now() - started);
        drop(pending);
        let stopped = self.last(&mut active, started + self.window.length).await;
        let healed = active.heal(self.run.clock.now() - started, !stopped).await;
        let trouble = healed.trouble.clone();
        if healed.evidence.has_any(&[DROPPED_PACKETS, HELD_CONNECTS]) {
            self.run.dropped_for(self.run.clock.now() - started);
        }
        self.write_heal(healed, before, &resolution.title, self.run.clock.now() - started);
        match trouble {
            None => {}
            // no later result of this run needs the network, and the violation for which it may have stopped is one
            Some(why) if stopped => {
                let text = self.sentence("could not be healed", &why);
                self.run.progress().send(ProgressEvent::Note(text));
            }
            Some(why) => self.broken("could not be healed", &why),
        }
    }

    /// Waits until a window is `due` to heal and its fault has done its act, or only for the latter if that ends it, or until the
    /// run has its grants; returns whether the run stops.
    async fn last(&self, active: &mut HealOnDrop<dyn ActiveFault>, due: Duration) -> bool {
        let acted = async {
            active.act(self.run.clock.reading(due)).await;
            if !active.ends_with_act() {
                self.run.clock.sleep_until(due).await;
            }
        };
        tokio::select! {
            biased;
            () = self.run.stopping.until_on() => true,
            () = self.run.granted.until_on() => false,
            () = acted => false,
        }
    }

    /// Waits for `awaited`; returns `None` if the run stops or has its grants before, or the faults phase is over.
    async fn until_over<T>(&self, awaited: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.run.stopping.until_on() => None,
            () = self.run.granted.until_on() => None,
            it = awaited => Some(it),
            () = self.run.clock.sleep_until(self.over) => None,
        }
    }

    /// Fails the run: the network is not as planned, so no later result would mean anything.
    fn broken(&self, how: &str, why: &str) {
        self.run.fail(self.sentence(how, why));
    }

    fn sentence(&self, how: &str, why: &str) -> String {
        let (number, fault) = (self.window.number, self.window.fault.name);
        format!("window {number}, {fault}, {how}: {why}")
    }

    fn missed(&self, why: &str) {
        let (number, title) = (self.window.number, &self.window.injection.title);
        for fact in NemesisFact::missed(self.window.fault.name, number, title, why) {
            self.run.recorder.nemesis(&fact);
        }
        let text = format!("window {number}: {why}, so nothing was injected");
        self.run.progress().send(ProgressEvent::Note(text));
    }

    fn write_start(&self, affected: Affected, resolution: &Resolution, injected_in: Duration) {
        let title = &resolution.title;
        let start = WindowStart {
            number: self.window.number,
            title: title.clone(),
            targets: affected.names(),
            cut: Some(affected.links),
            holder: resolution.holder.map(|(holder, _)| format!("c{holder}")),
            holder_works_ms: resolution.holder.map(|(_, works)| works.as_millis() as u64),
            injected_in_ms: Some(injected_in.as_millis() as u64).filter(|ms| *ms > 0),
            clock_step_ms: self.window.injection.action.clock_step_ms(),
            verb: Some(self.window.fault.verb.to_owned()),
            extra: Map::new(),
        };
        let fault = self.window.fault.name.to_owned();
        self.run.recorder.nemesis(&NemesisFact::Start { fault, start });
        if self.window.fault.pace == Pace::Message {
            return;
        }
        self.run.progress().send(ProgressEvent::WindowOpened {
            number: self.window.number,
            title: self.headline(title),
        });
    }

    fn write_heal(&self, healed: Healed, before: CounterReadings, title: &str, lasted: Duration) {
        let fault = &self.window.fault;
        let changes = readings(&self.run).into_iter().zip(before);
        let changes = changes.map(|((name, now), (_, before))| (name, now - before));
        let (counted, detail) = (
            healed.evidence.in_words(fault.counters),
            healed.detail.unwrap_or_default(),
        );
        let effect = listed([counted.clone(), detail.clone()]);
        let mut words = vec![counted];
        let matched = healed.message.map(|message| MessageMatch {
            message: message.message,
            client: message.client,
            link: message.link,
            role: message.role.to_owned(),
            done: message.done,
            accepted: message.accepted,
            time_ns: self.run.clock.stamp_of(message.at),
        });
        words.extend(matched.as_ref().map(|matched| {
            let at = Duration::from_nanos(matched.time_ns).as_secs_f64();
            let MessageMatch {
                message, client, role, ..
            } = matched;
            format!("`{message}` of {client} ({role}) at {at:.3}s")
        }));
        words.push(detail);
        words.extend(healed.missed.clone());
        let heal = WindowHeal {
            number: Some(self.window.number),
            evidence: healed.evidence.iter().chain(changes).collect(),
            left_trace: Some(healed.evidence.has_any(fault.trace)),
            effect: Some(effect),
            requirement: self.window.injection.requirement.clone(),
            matched,
            missed: healed.missed,
            counters: fault.counters.iter().map(EvidenceCounter::owned).collect(),
            no_effect_hint: fault.no_effect_hint.map(str::to_owned),
            acquires_meanwhile: Some(self.window.injection.acquires),
            extra: Map::new(),
        };
        self.run.recorder.nemesis(&NemesisFact::Heal {
            fault: fault.name.to_owned(),
            heal,
        });
        let evidence = listed(words);
        self.run.progress().send(match fault.pace {
            Pace::Message => ProgressEvent::Struck {
                title: format!("{} {}", fault.name, self.window.number),
                evidence,
            },
            _ => ProgressEvent::WindowHealed {
                number: self.window.number,
                title: self.headline(title),
                lasted,
                evidence,
            },
        });
    }

    fn headline(&self, title: &str) -> String {
        format!("{} {}   {title}", self.window.fault.name, self.window.number)
    }
}

/// Returns the reason for which a window has no target, if it waits for one until the faults are over.
fn over_before(target: &Target) -> &'static str {
    match target {
        Target::AtMessage(_) => "the faults were over before its message came",
        _ => "the faults were over before it had a target",
    }
}

/// Joins the words that are not empty, with commas.
fn listed(words: impl IntoIterator<Item = String>) -> String {
    let said: Vec<String> = words.into_iter().filter(|words| !words.is_empty()).collect();
    said.join(", ")
}

/// The counters of the clients at some moment, by their names in the evidence of a window.
type CounterReadings = [(&'static str, u64); 3];

fn readings(run: &RunContext) -> CounterReadings {
    [
        (EffectCounters::LOCKS_LOST, run.counters.lost.load(Relaxed)),
        (EffectCounters::ACQUIRES, run.counters.acquires.load(Relaxed)),
        (EffectCounters::UNKNOWN, run.counters.unknown.load(Relaxed)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_a_holder_is_not_said_to_wait_for_a_message() {
        assert!(!over_before(&Target::Holder).contains("message"));
    }
}
