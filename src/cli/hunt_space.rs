//! What the experiments of a hunt are drawn from, by the options that were typed, and how a draw becomes a run.

use std::path::Path;
use std::time::Duration;

use super::Failure;
use super::args::RunArgs;
use super::experiment::run_args;
use crate::adapters;
use crate::backends::BackendOptions;
use crate::config::{Clients, Config, Demand, FaultRequest};
use crate::faults::Shape;
use crate::hunt::draw::{TURNS, length};
use crate::hunt::faults::HuntFaults;
use crate::hunt::{HuntDraw, HuntRecord, HuntSpace};
use crate::plan::kept_windows::planned;

/// What an experiment has where neither the user nor the draw says more: a client that never acquires again is seen in the
/// time of a short run.
const DEFAULTS: [(&str, &str); 1] = [("progress-bound", "5s")];

/// What the experiments of a hunt are drawn from, and how a draw becomes a run.
pub struct SpaceOfHunt {
    space: HuntSpace,
    /// Of an experiment without faults and with the default load.
    pub config: Config,
    /// The options that were typed, without the faults.
    typed: Vec<(String, String)>,
}

impl SpaceOfHunt {
    /// The error says which of the options is wrong.
    pub fn of(record: &HuntRecord) -> Result<Self, Failure> {
        let mut typed: Vec<(String, String)> = record.options.clone();
        typed.retain(|(name, _)| name != "fault");
        let args = run_args(&typed, Path::new("")).map_err(Failure::usage)?;
        if record.option("lease").is_none() {
            let lease = shortest_lease(&args);
            typed.push(("lease".to_owned(), format!("{}ms", lease.as_millis())));
        }
        let config = configured(&typed).map_err(Failure::usage)?;
        let shape = Shape::of(&config);
        let faults = match record.option("fault") {
            None => HuntFaults::withstood(&shape).retain(|fault| planned(&with_fault(&config, fault)).is_ok()),
            Some(faults) => typed_faults(&config, &record.options, faults)?,
        };
        if let Some(client) = record.option("client") {
            adapters::shell_command(client).map_err(Failure::environment)?;
        }
        Ok(Self {
            space: HuntSpace {
                faults,
                faultless: record.option("fault").is_none(),
                lease: config.lease,
                tries: false,
                long_holds: false,
            },
            config,
            typed,
        })
    }

    /// Draws an experiment with what is known of the clients by now.
    pub fn draw(&self, record: &HuntRecord, index: u64) -> HuntDraw {
        let contract = match &self.config.who {
            Clients::Recipe(options) => Some(options.contract()),
            Clients::Foreign { .. } => record.contract.clone(),
        };
        let tried = |config: &mut Config| config.mix.tries = 1;
        let mut with_tries = self.config.clone();
        tried(&mut with_tries);
        let space = HuntSpace {
            tries: contract
                .as_ref()
                .is_some_and(|contract| Demand::of(&with_tries, contract).is_ok()),
            long_holds: contract.is_some_and(|contract| contract.renews == Some(true)),
            faults: self.faults(record, index),
            ..self.space.clone()
        };
        let seed = u64::from_str_radix(&record.seed, 16).unwrap_or_default();
        space.draw(seed, index, &record.left_out)
    }

    /// The faults of an experiment: where none were typed, those on the messages that the clients were seen to send, and every other
    /// time on those alone that were struck the least.
    fn faults(&self, record: &HuntRecord, index: u64) -> HuntFaults {
        let faults = self.space.faults.clone();
        match (self.space.faultless, index / TURNS % 2) {
            (false, _) => faults,
            (true, 0) => faults.on_these(record.coverage.least_struck()),
            (true, _) => faults.on_these(record.coverage.faults()),
        }
    }

    /// The options of `harness run` for a draw: what was typed stands.
    pub fn args(&self, draw: &HuntDraw, results: &Path) -> Result<RunArgs, String> {
        let mut options = self.typed.clone();
        let drawn = draw.options.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in drawn.chain(DEFAULTS) {
            let is_typed = self.typed.iter().any(|(typed, _)| typed == name);
            // turns need a second lock
            let is_lonely = name == "churn" && self.typed.iter().any(|(typed, value)| typed == "locks" && value == "1");
            if !is_typed && !is_lonely {
                options.push((name.to_owned(), value.to_owned()));
            }
        }
        options.push(("seed".to_owned(), format!("{:08x}", draw.seed)));
        if !self.typed.iter().any(|(typed, _)| typed == "time") {
            let config = run_args(&options, results)?.config(draw.seed)?;
            options.push((
                "time".to_owned(),
                format!("{}s", length(&config, draw.windows).as_secs()),
            ));
        }
        run_args(&options, results)
    }

    /// Whether some experiment has a partition between servers.
    pub fn parts_servers(&self) -> bool {
        let parts =
            |fault: &String| planned(&with_fault(&self.config, fault)).is_ok_and(|plan| plan.servers_through_proxy);
        self.space.faults.aimed.iter().any(parts)
    }
}

fn configured(options: &[(String, String)]) -> Result<Config, String> {
    run_args(options, Path::new(""))?.config(0)
}

/// A run with this fault, as it is typed, that is long enough for a window.
fn with_fault(config: &Config, fault: &str) -> Config {
    let (name, argument) = fault
        .split_once('=')
        .map_or((fault, None), |(name, argument)| (name, Some(argument)));
    Config {
        time: config.lease * 60,
        faults: vec![FaultRequest {
            name: name.to_owned(),
            argument: argument.map(str::to_owned),
        }],
        ..config.clone()
    }
}

/// The faults that were typed; the error says which of them is wrong.
fn typed_faults(config: &Config, options: &[(String, String)], faults: &str) -> Result<HuntFaults, Failure> {
    // names are refused as those of a run are
    configured(options).map_err(Failure::usage)?;
    let faults: Vec<String> = faults.split(',').map(str::to_owned).collect();
    for fault in &faults {
        planned(&with_fault(config, fault)).map_err(Failure::usage)?;
    }
    Ok(HuntFaults::typed(&faults))
}

/// The shortest lease of whole seconds that the backend has.
fn shortest_lease(args: &RunArgs) -> Duration {
    let backend = args.config.backend;
    let refused = |lease: &Duration| {
        (backend.refuse)(&BackendOptions {
            nodes: args.nodes.unwrap_or(backend.software.nodes),
            lease: *lease,
            recipe: None,
        })
    };
    let leases = (1..=10).map(Duration::from_secs);
    leases
        .clone()
        .find(|lease| refused(lease).is_none())
        .unwrap_or(args.config.lease)
}
