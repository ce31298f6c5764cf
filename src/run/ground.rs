//! The ground of a run ([`Ground`]): a clock, servers, links and clients of a runtime. All decisions are the same on every
//! ground.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::clients::pool::ClientPool;
use super::clock::RunClock;
use super::context::RunContext;
use super::observer::ConnectObserver;
use super::online_check::OnlineCheck;
use super::phases::PhaseRunner;
use super::recorder::OnLine;
use super::routes::Routes;
use super::terms::Terms;
use super::{RunError, RunOutcome, RunSpec, recorder, setup, taps};
use crate::backends::ConnectSweeper;
use crate::clock::GroundClock;
use crate::cluster::{NodeControl, NotWritten};
use crate::config::{Clients, Config};
use crate::disks::DiskGate;
use crate::faults::{FaultEnv, Links, MessagePoints};
use crate::wall_clock::WallClockControl;
use harness_proxy::{TapHub, TapNotification};

/// The parts of a run that a runtime supplies.
pub struct Ground {
    pub clock: GroundClock,
    /// The clients, not started yet.
    pub clients: ClientPool,
    /// The links by client and server.
    pub links: Links,
    /// The links by the server that dials and the one that is dialled; empty if they connect directly.
    pub peer_links: Links,
    /// The servers, which serve.
    pub servers: NodeControl,
    /// The version of the servers.
    pub version: String,
    /// The wall clocks of the servers, if the plan steps clocks.
    pub server_clocks: Vec<Arc<dyn WallClockControl>>,
    /// The disks of the nodes; in real time there are none unless the plan has faults on them.
    pub server_disks: Vec<Arc<DiskGate>>,
    /// `None` if the locks cannot be watched.
    pub observe: Option<ConnectObserver>,
    pub sweep: Option<ConnectSweeper>,
    /// The common state of the taps of all links, and the notifications that they send.
    pub exchange: Arc<TapHub>,
    pub notices: mpsc::Receiver<TapNotification>,
    pub on_line: Option<OnLine>,
}

/// Executes a run from its first line to its last; `outcome` has the known facts even after an error. The history is complete
/// then: on disk, or in memory if the run has it there.
pub async fn play(spec: Arc<RunSpec>, ground: Ground, outcome: &mut RunOutcome) -> Result<(), RunError> {
    let lacking = lacks_commands(&spec.config, &ground.version);
    outcome.version = Some(ground.version);
    if let Some(why) = lacking {
        return Err(RunError::Clients(why));
    }
    let (path, aside) = (spec.folder.history(), spec.folder.no_history());
    let Some(mut terms) = settle(&spec, &ground.clients, &mut outcome.interrupted).await? else {
        return Ok(());
    };
    if ground.observe.is_none() {
        terms.watched = Some(false);
    }
    ground.servers.set_key_prefix(terms.keys.pattern.before());
    outcome.contract = Some(terms.contract.clone());
    let clock = RunClock::start(ground.clock);
    let file = Some(path.as_path()).filter(|_| !spec.in_memory);
    let header = setup::header(&spec, &terms);
    let check = spec.config.stop_on_violation.then(|| OnlineCheck::of(&header));
    let check = check
        .transpose()
        .map_err(|error| RunError::Clients(error.to_string()))?;
    let (mut recorder, closer) = recorder::start(file, &header, clock).map_err(NotWritten::at(&path))?;
    (recorder.check, recorder.on_line) = (check, ground.on_line);
    let routes = Routes::new(&ground.links, &ground.servers.endpoints());
    let run = Arc::new(RunContext::new(spec, terms, recorder, ground.exchange, routes));
    let clients = Arc::new(ground.clients);
    outcome.teardown.run = Some(Arc::clone(&run));
    outcome.teardown.clients = Some(Arc::clone(&clients));
    let api = match &outcome.teardown.links {
        Some(links) => links.serve_api(&run)?,
        // the links of a world have no proxy
        None => None,
    };
    let _listening = taps::start(ground.notices, &clients, Arc::clone(&run));
    let env = FaultEnv {
        clock: ground.clock,
        links: ground.links,
        peer_links: ground.peer_links,
        clients: clients.clone(),
        servers: ground.servers,
        observed: run.observed.subscribe(),
        server_clocks: ground.server_clocks,
        server_disks: ground.server_disks,
        points: Arc::new(MessagePoints::new(&run.exchange, run.spec.config.seed)),
    };
    let phases = PhaseRunner {
        env: Arc::new(env),
        observe: ground.observe,
        sweep: ground.sweep,
        run,
        clients,
        api,
    };
    let played = phases.play(&mut outcome.interrupted).await;
    let sent = phases.run.sent_under_faults.get().cloned();
    outcome.sent = sent.unwrap_or_default();
    let closed = closer.close().map_err(NotWritten::at(&path));
    if matches!(played, Err(RunError::NoLock(_))) && path.is_file() {
        // no verdict may come from it
        std::fs::rename(&path, &aside).map_err(NotWritten::at(&aside))?;
    }
    let closed = closed.map(|history| outcome.history = history);
    played.and(closed.map_err(RunError::Write))
}

/// Settles the terms of the run: the contract of a recipe is known, that of a foreign client comes from the client. Returns
/// `None` if the user interrupts.
async fn settle(spec: &RunSpec, clients: &ClientPool, interrupted: &mut bool) -> Result<Option<Terms>, RunError> {
    let mut interrupt = spec.interrupt.clone();
    let answered = match &spec.config.who {
        Clients::Recipe(options) => Some(options.contract()),
        Clients::Foreign { .. } => tokio::select! {
            biased;
            answered = clients.processes[0].contract(spec.config.open_limit) => {
                answered.map_err(|why| RunError::Clients(spec.config.with_login_hint(why)))?
            }
            _ = interrupt.wait_for(|wanted| *wanted) => {
                *interrupted = true;
                return Ok(None);
            }
        },
    };
    let terms = Terms::of(&spec.config, answered).map_err(RunError::Clients)?;
    terms.admit(&spec.plan).map_err(RunError::Clients)?;
    Ok(Some(terms))
}

/// Returns a sentence if servers of this version lack commands of the recipe; nothing for an unreadable version.
fn lacks_commands(config: &Config, version: &str) -> Option<String> {
    let Clients::Recipe(options) = &config.who else {
        return None;
    };
    let recipe = options.recipe;
    let (major, minor) = recipe.since?;
    let mut parts = version.split(|c: char| !c.is_ascii_digit());
    let first = parts.next()?.parse().ok()?;
    let second = parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
    ((first, second) < (major, minor)).then(|| {
        let (name, product) = (recipe.name, config.backend.product());
        format!("{name} needs commands of {product} {major}.{minor}, and the servers are {version}\nhint: newer servers, or another --recipe")
    })
}

#[cfg(test)]
mod tests {
    use harness_workloads::RecipeOptions;

    use super::*;

    #[test]
    fn servers_that_lack_the_commands_of_a_recipe_are_refused_and_others_are_not() {
        let lacking = |recipe: &str, version: &str| {
            let who = Clients::Recipe(RecipeOptions::named(recipe).unwrap());
            let config = Config {
                who,
                ..Config::example()
            };
            lacks_commands(&config, version)
        };
        let refused = lacking("valkey-ifeq", "8.1.4").unwrap();
        assert!(refused.contains("9.0") && refused.contains("8.1.4"), "{refused}");
        for version in ["9.0.0", "9.1.2", "10.0", "9 (a model)", "?"] {
            assert_eq!(lacking("valkey-ifeq", version), None, "{version}");
        }
        assert_eq!(lacking("redis-watchdog", "8.1.4"), None);
    }
}
