//! What an experiment begins with, made from its configuration: what clients are told, how they are started, and
//! the header of the history.

pub mod links;
pub mod routes;

use std::sync::Arc;

use harness_checkers::history::event::{Bounds, FORMAT, Header, Promises, VERSION, Wakes};
use harness_workloads::protocol::OpenRequest;
use serde_json::Map;
use tokio::sync::mpsc;

use crate::client_role::LABELS;
use crate::config::{Clients, Config};
use crate::faults::Links;
use crate::limits::NOTICES;
use crate::network::{Exchange, Notice};
use crate::run::clients::child::ChildCommand;
use crate::run::{RunError, RunSpec};
use crate::wall_clock::{Clocks, WallClock};

/// The wall clocks of a run whose plan steps some.
#[derive(Default)]
pub struct WallClocks {
    /// Their folder, which goes with this.
    pub folder: Option<Clocks>,
    /// By client; those of one process share the first one's.
    pub clients: Vec<Arc<WallClock>>,
    pub servers: Vec<Arc<WallClock>>,
}

pub fn wall_clocks(spec: &RunSpec<'_>) -> Result<WallClocks, RunError> {
    if !spec.plan.steps_clocks {
        return Ok(WallClocks::default());
    }
    let path = spec.folder.clocks();
    let failed = |error: std::io::Error| RunError::Write {
        path: path.clone(),
        why: error.to_string(),
    };
    let folder = Clocks::lay_out(path.clone()).map_err(failed)?;
    let make = |letter: char, number: u32| folder.clock(&format!("{letter}{number}"));
    let clients: Result<Vec<_>, _> = (0..spec.config.clients).map(|number| make('c', number)).collect();
    let clients = clients.map_err(failed)?;
    let nodes = spec.config.nodes + spec.plan.replicas;
    let reachable = if spec.config.backend.wall_clock { nodes } else { 0 };
    let servers: Result<Vec<_>, _> = (1..=reachable).map(|number| make('n', number)).collect();
    let servers = servers.map_err(failed)?;
    Ok(WallClocks {
        folder: Some(folder),
        clients,
        servers,
    })
}

/// What the taps of all links share, and where they tell of notifications.
pub fn exchange(config: &Config) -> (Arc<Exchange>, mpsc::Receiver<Notice>) {
    let (sender, notices) = mpsc::channel(NOTICES);
    let exchange = Exchange::new(config.backend.protocol, LABELS, config.clients, sender);
    (exchange, notices)
}

/// What each client is told: its own links, beginning with another server each, so that the load spreads.
pub fn opens(config: &Config, links: &Links) -> Vec<OpenRequest> {
    let endpoints = |client: u32| {
        let server = |offset| (client + offset) % config.nodes;
        (0..config.nodes)
            .map(|offset| links[&(client, server(offset))].listen().to_string())
            .collect()
    };
    let lease_ms = config.lease.as_millis() as u64;
    let open = |client| OpenRequest {
        backend: config.backend.name().to_owned(),
        endpoints: endpoints(client),
        lease_ms,
    };
    (0..config.clients).map(open).collect()
}

/// The command line of a child process.
pub fn start(config: &Config) -> ChildCommand {
    match &config.who {
        Clients::Foreign(command) => ChildCommand {
            program: "sh".into(),
            args: vec!["-c".into(), command.clone()],
            env: Vec::new(),
        },
        Clients::Recipe(options) => {
            let own = std::env::current_exe().map_or_else(|_| "harness".into(), |path| path.display().to_string());
            let mut args = vec!["client".to_owned()];
            args.extend(["--recipe".to_owned(), options.recipe.name.to_owned()]);
            args.extend(["--holder".to_owned(), options.policy.to_string()]);
            args.extend(["--guid".to_owned(), if options.guid { "on" } else { "off" }.to_owned()]);
            args.extend(["--interval".to_owned(), format!("{}us", options.interval.as_micros())]);
            if options.reentrant {
                args.push("--reentrant".to_owned());
            }
            ChildCommand {
                program: own,
                args,
                env: Vec::new(),
            }
        }
    }
}

pub fn header(spec: &RunSpec<'_>) -> Header {
    let config = spec.config;
    let promises = match &config.who {
        Clients::Foreign(_) => Promises::default(),
        Clients::Recipe(options) => Promises {
            wakes: match options.recipe.wakeup {
                harness_workloads::Wakeup::Notified => Some(Wakes::Notified),
                harness_workloads::Wakeup::Polling => Some(Wakes::Polls),
                harness_workloads::Wakeup::Unreported => None,
            },
            fifo: options.recipe.fifo,
            tokens: options.recipe.tokens,
            lease: Some(options.recipe.lease),
        },
    };
    let bounds = Bounds {
        herd: Some(config.herd_limit),
        requests: config.requests_limit,
        progress_ms: Some(config.progress_bound.as_millis() as u64),
        silent_ms: Some(config.lease.as_millis() as u64),
        passed_over: None,
    };
    Header {
        format: FORMAT.to_owned(),
        version: VERSION,
        run: spec.run.to_owned(),
        model: config.model().to_owned(),
        locks: config.lock_names(),
        lease_ms: Some(config.lease.as_millis() as u64),
        recipe: Some(config.recipe_name().to_owned()),
        per_process: Some(config.per_process).filter(|clients| *clients > 1),
        promises,
        bounds,
        extra: Map::new(),
    }
}
