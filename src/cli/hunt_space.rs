//! The space of a hunt: the faults, loads and bounds of its experiments by the typed options, and the run of a draw.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use harness_workloads::Contract;

use super::Failure;
use super::args::RunArgs;
use super::experiment::run_args;
use super::hunt_config::set_drawn;
use crate::adapters;
use crate::backends::BackendOptions;
use crate::cluster::RuntimeRequest;
use crate::config::{Clients, Config, Demand, FaultRequest, NO_FAULT};
use crate::faults::{Shape, fault_named};
use crate::hunt::draw::{HuntTurn, length};
use crate::hunt::exhaustive::NUMBER;
use crate::hunt::faults::HuntFaults;
use crate::hunt::record::HuntUntil;
use crate::hunt::typed_fault::{ON_MESSAGES, joined, name};
use crate::hunt::{HuntDraw, HuntRecord, HuntSpace};
use crate::plan::kept_windows::planned;

/// The default progress bound of an experiment, without the time of an election: a short run is long enough to detect a client
/// that never acquires again.
const PROGRESS_BOUND: Duration = Duration::from_secs(5);
/// Default number of grants of an experiment on models, and its maximum length in leases.
const GRANTS: u32 = 100;
const LEASES: u32 = 10;
/// The scenario of a search for every placement: three clients with two turns each, so that a queue has a middle.
const SCENARIO_CLIENTS: u32 = 3;
const SCENARIO_GRANTS: u32 = 6;

/// Faults on the sender or the receiver of a message, at the moment at which it passes.
const AT_MESSAGES: [&str; 4] = ["partition", "kill", "pause", "server-kill"];

/// The space of a hunt: draws its experiments, and turns a draw into a run.
pub struct SpaceOfHunt {
    space: HuntSpace,
    /// The configuration of an experiment without faults and with the default load.
    pub config: Config,
    /// The options that were typed, without the faults.
    typed: Vec<(String, String)>,
    /// Options of every experiment, unless the user or the draw sets them.
    defaults: Vec<(&'static str, String)>,
    /// The configuration of an experiment with the typed options and the defaults.
    base: Config,
}

impl SpaceOfHunt {
    /// The error says which of the options is wrong.
    /// A hunt that ends at its first find ends the experiment that shows it at its first violation.
    /// `exhaustive`: its experiments are every placement of acts in one scenario.
    pub fn of(record: &HuntRecord, exhaustive: bool) -> Result<Self, Failure> {
        let mut typed: Vec<(String, String)> = record.options.clone();
        typed.retain(|(name, _)| name != "fault");
        let args = run_args(&typed, Path::new("")).map_err(Failure::usage)?;
        if record.option("lease").is_none() {
            let lease = shortest_lease(&args);
            typed.push(("lease".to_owned(), format!("{}ms", lease.as_millis())));
        }
        let config = configured(&typed).map_err(Failure::usage)?;
        let mut defaults = if exhaustive {
            scenario(&config)
        } else {
            defaults(&config, &typed)
        };
        // placements are extended by the messages of their runs, so those are run to their ends
        if record.until == HuntUntil::First && !exhaustive {
            defaults.push(("stop-on-violation", "true".to_owned()));
        }
        let base = configured(&with_others(&typed, &defaults)).map_err(Failure::usage)?;
        let shape = Shape::of(&config);
        let mut faults = match record.option("fault") {
            None => HuntFaults::withstood(&shape).retain(|fault| planned(&with_fault(&config, fault)).is_ok()),
            Some(faults) => typed_faults(&config, &record.options, faults)?,
        };
        let acts = match record.option("fault") {
            _ if config.runtime != RuntimeRequest::Simulated => Vec::new(),
            None => acts_withstood(&config),
            Some(_) => {
                let names: BTreeSet<&str> = faults.on_messages.iter().map(|fault| name(fault)).collect();
                names
                    .into_iter()
                    .flat_map(|fault| acts_of(fault, config.lease))
                    .collect()
            }
        };
        if base.grants.is_some() {
            // the experiment ends before a lock could be stuck for long
            faults.minority.clear();
        }
        if let Some(client) = record.option("client") {
            adapters::shell_command(client).map_err(Failure::environment)?;
        }
        Ok(Self {
            space: HuntSpace {
                faults,
                faultless: record.option("fault").is_none(),
                lease: config.lease,
                progress_bound: base.progress_bound,
                tries: false,
                acts,
                churn: config.runtime != RuntimeRequest::Simulated || config.backend.sweep.is_none(),
                long_holds: false,
                threads: false,
            },
            config,
            typed,
            defaults,
            base,
        })
    }

    /// Draws an experiment, with the contract of the clients if it is known by now.
    pub fn draw(&self, record: &HuntRecord, index: u64) -> HuntDraw {
        let seed = u64::from_str_radix(&record.seed, 16).unwrap_or_default();
        if let Some(search) = &record.exhaustive {
            let faults = search.faults(index).unwrap_or_default();
            return HuntDraw {
                turn: HuntTurn::Points,
                seed,
                options: vec![("fault", joined(&faults))],
                windows: 1,
            };
        }
        let contract = match &self.config.who {
            Clients::Recipe(options) => Some(options.contract()),
            Clients::Foreign { .. } => record.contract.clone(),
        };
        // on models, an experiment must not depend on the result of another one: with several jobs that may not have ended yet
        let alone = self.config.runtime == RuntimeRequest::Simulated;
        // typed faults are the only ones
        let cells = if self.space.faultless && !alone {
            record.coverage.cells()
        } else {
            Vec::new()
        };
        // clock steps are refused for clients that compare no times of day, which the contract of the first experiment says
        let compares_times = contract
            .as_ref()
            .is_some_and(|contract| contract.wall_clock != Some(false));
        let of_clients_clock = |fault: &str| name(fault) == "clock" && fault != "clock=server";
        let concerns = |fault: &str| !self.space.faultless || compares_times || !of_clients_clock(fault);
        let tried = |config: &mut Config| config.mix.tries = Some(1);
        let mut with_tries = self.config.clone();
        tried(&mut with_tries);
        let space = HuntSpace {
            tries: contract
                .as_ref()
                .is_some_and(|contract| Demand::of(&with_tries, contract).is_ok()),
            long_holds: contract.as_ref().is_some_and(Contract::outlasts_its_lease),
            threads: match &self.config.who {
                Clients::Recipe(_) => true,
                Clients::Foreign { .. } => contract.is_some_and(|contract| contract.threads == Some(true)),
            },
            faults: HuntFaults {
                cells,
                ..self.space.faults.clone().retain(concerns)
            },
            ..self.space.clone()
        };
        let none = BTreeSet::new();
        space.draw(seed, index, if alone { &none } else { &record.left_out })
    }

    /// Returns the options of `harness run` for a draw. A typed option overrides the draw.
    pub fn args(&self, draw: &HuntDraw, results: &Path) -> Result<RunArgs, String> {
        let mut options = with_others(&self.typed, draw.options.iter().chain(&self.defaults));
        options.push(("seed".to_owned(), format!("{:08x}", draw.seed)));
        if self.has_drawn_time() {
            let config = run_args(&options, results)?.config(draw.seed)?;
            options.push((
                "time".to_owned(),
                format!("{}s", length(&config, draw.windows).as_secs()),
            ));
        }
        run_args(&options, results)
    }

    /// Returns the configuration of a draw, as [`Self::args`] would lead to. It parses no command line, which takes longer than the
    /// experiment.
    pub fn config(&self, draw: &HuntDraw) -> Result<Config, String> {
        let mut config = self.base.clone();
        config.seed = draw.seed;
        for (name, value) in draw.options.iter().filter(|(name, _)| is_free(&self.typed, name)) {
            set_drawn(&mut config, name, value)?;
        }
        if self.has_drawn_time() {
            config.time = length(&config, draw.windows);
        }
        Ok(config)
    }

    /// Whether the windows of an experiment decide its length.
    fn has_drawn_time(&self) -> bool {
        self.base.grants.is_none() && is_free(&self.typed, "time")
    }

    /// Returns the acts of a search for every placement. The error says which of the typed faults cannot be placed.
    pub fn kinds_of_acts(&self, record: &HuntRecord) -> Result<Vec<String>, String> {
        if !matches!(self.config.runtime, RuntimeRequest::Simulated | RuntimeRequest::Virtual) {
            let why = "--exhaustive compares runs that differ in their faults alone, and no two runs in real time are the same";
            return Err(format!("{why}\nhint: --runtime simulated, or --runtime virtual"));
        }
        let placed = [&ON_MESSAGES[..], &AT_MESSAGES].concat();
        let Some(typed) = record.option("fault") else {
            return Ok(acts_withstood(&self.config));
        };
        let mut acts = Vec::new();
        for fault in typed.split(',') {
            if !placed.contains(&fault) {
                let known = placed.join(", ");
                return Err(format!(
                    "--exhaustive cannot place `{fault}` on a message: it places {known}"
                ));
            }
            acts.extend(acts_of(fault, self.config.lease));
        }
        Ok(acts)
    }

    /// Whether some experiment has a partition between servers.
    pub fn parts_servers(&self) -> bool {
        let parts =
            |fault: &String| planned(&with_fault(&self.config, fault)).is_ok_and(|plan| plan.servers_through_proxy);
        self.space.faults.aimed.iter().any(parts)
    }
}

/// Returns every act on a single message that a correct lock withstands.
fn acts_withstood(config: &Config) -> Vec<String> {
    let shape = Shape::of(config);
    let withstood = |fault: &&&str| fault_named(fault).is_some_and(|fault| fault.survivable(&shape).is_ok());
    let faults = ON_MESSAGES.iter().chain(&AT_MESSAGES).filter(withstood);
    faults.flat_map(|fault| acts_of(fault, config.lease)).collect()
}

/// Returns the acts of a fault on a single message, as they are typed, with [`NUMBER`] for the number of the message.
fn acts_of(fault: &str, lease: Duration) -> Vec<String> {
    let of_each = format!("{fault}=any:{NUMBER}");
    let (shorter, longer) = (lease / 5, lease * 5 / 4);
    match fault {
        // the client waits for the shorter delay, and loses its lease during the longer one
        "delay-request" | "delay-reply" => [shorter, longer]
            .map(|time| format!("{of_each}:{}ms", time.as_millis()))
            .to_vec(),
        // the client reconnects at once, or only after the end of its lease
        "drop-request" | "drop-reply" => {
            let refused = format!("{of_each}:refuse={}ms", longer.as_millis());
            vec![of_each, refused]
        }
        // the server is killed before the message, or before its reply
        "server-kill" => vec![format!("{of_each}:before"), of_each],
        _ => vec![of_each],
    }
}

/// Returns the options of an experiment that neither the user nor the draw sets. On models the number of grants ends it.
fn defaults(config: &Config, typed: &[(String, String)]) -> Vec<(&'static str, String)> {
    let mut defaults = vec![progress_bound(config)];
    let is_typed = |name: &str| typed.iter().any(|(typed, _)| typed == name);
    if config.runtime == RuntimeRequest::Simulated && !["each", "windows"].into_iter().any(is_typed) {
        defaults.push(("grants", GRANTS.to_string()));
        defaults.push(("time", format!("{}ms", (config.lease * LEASES).as_millis())));
    }
    defaults
}

/// Returns the options of the scenario of a search for every placement, unless the user sets them.
fn scenario(config: &Config) -> Vec<(&'static str, String)> {
    let ms = |time: Duration| format!("{}ms", time.as_millis());
    vec![
        progress_bound(config),
        ("clients", SCENARIO_CLIENTS.to_string()),
        ("grants", SCENARIO_GRANTS.to_string()),
        ("hold", ms(config.lease / 10)),
        // some acquires time out, and must leave nothing behind
        ("wait", ms(config.lease * 3 / 10)),
        ("time", ms(config.lease * LEASES)),
    ]
}

fn progress_bound(config: &Config) -> (&'static str, String) {
    let bound = PROGRESS_BOUND + config.backend.slow_election();
    ("progress-bound", format!("{}s", bound.as_secs()))
}

/// Returns the typed options with others that are free.
fn with_others<'a>(
    typed: &[(String, String)],
    others: impl IntoIterator<Item = &'a (&'static str, String)>,
) -> Vec<(String, String)> {
    let free = others.into_iter().filter(|(name, _)| is_free(typed, name));
    let free = free.map(|(name, value)| ((*name).to_owned(), value.clone()));
    typed.iter().cloned().chain(free).collect()
}

/// Whether a draw may set this option: it was not typed, and the typed options leave it an effect.
fn is_free(typed: &[(String, String)], name: &str) -> bool {
    let typed = |wanted: &str| typed.iter().find(|(typed, _)| typed == wanted);
    let is_lonely = name == "churn" && typed("locks").is_some_and(|(_, value)| value == "1");
    // acquires at a rate fall due while clients rest
    let is_at_rate = name == "think" && typed("rate").is_some();
    typed(name).is_none() && !is_lonely && !is_at_rate
}

/// Returns the configuration of an experiment with these options. The error says which of them is wrong.
fn configured(options: &[(String, String)]) -> Result<Config, String> {
    run_args(options, Path::new(""))?.config(0)
}

/// Returns the configuration of a run with this typed fault that is long enough for a window.
fn with_fault(config: &Config, fault: &str) -> Config {
    Config {
        time: config.lease * 60,
        faults: vec![FaultRequest::read(fault)],
        ..config.clone()
    }
}

/// Returns the faults that were typed. The error says which of them is wrong.
fn typed_faults(config: &Config, options: &[(String, String)], faults: &str) -> Result<HuntFaults, Failure> {
    // unknown names are refused as in a run
    configured(options).map_err(Failure::usage)?;
    let faults = faults.split(',').filter(|fault| *fault != NO_FAULT);
    let faults: Vec<String> = faults.map(str::to_owned).collect();
    for fault in &faults {
        planned(&with_fault(config, fault)).map_err(Failure::usage)?;
    }
    Ok(HuntFaults::typed(&faults))
}

/// Returns the shortest lease of whole seconds that the backend grants.
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

#[cfg(test)]
mod tests {
    use harness_workloads::Contract;

    use super::*;
    use crate::cli::experiment::typed_options;

    /// Returns a hunt with these options, and its space.
    fn hunt(options: &[(&str, &str)]) -> (HuntRecord, SpaceOfHunt) {
        let record = HuntRecord {
            options: typed_options(options),
            seed: "7".to_owned(),
            ..HuntRecord::default()
        };
        let space = SpaceOfHunt::of(&record, false);
        (record, space.map_err(|failure| failure.sentence).unwrap())
    }

    #[test]
    fn a_draw_has_the_configuration_that_it_would_have_if_it_were_typed() {
        for (backend, recipe, more) in [
            ("zk", "zk-predecessor-watch", vec![]),
            ("zk", "zk-read-write", vec![("locks", "1"), ("lease", "2s")]),
            ("redis", "redis-set-px-lua", vec![("fault", "partition,drop-reply=SET")]),
            ("redis", "redis-watchdog", vec![("hold", "7ms"), ("grants", "60")]),
            (
                "redis",
                "redis-set-px-lua",
                vec![("each", "3"), ("locks", "1"), ("fault", "none")],
            ),
        ] {
            let typed = [("backend", backend), ("recipe", recipe), ("runtime", "simulated")];
            let (record, space) = hunt(&[&typed[..], &more[..]].concat());
            for index in 0..40 {
                let draw = space.draw(&record, index);
                let drawn = space.config(&draw).unwrap();
                let typed = space.args(&draw, Path::new("")).unwrap().config(draw.seed).unwrap();
                assert_eq!(format!("{drawn:?}"), format!("{typed:?}"), "{draw:?}");
            }
        }
    }

    #[test]
    fn a_hunt_can_be_without_faults() {
        for runtime in ["simulated", "local"] {
            let (record, space) = hunt(&[("backend", "redis"), ("runtime", runtime), ("fault", "none")]);
            let mut draws = (0..20).map(|index| space.draw(&record, index));
            assert!(draws.all(|draw| draw.faults().count() == 0 && draw.windows == 0));
        }
    }

    #[test]
    fn the_clock_of_a_client_is_stepped_once_it_is_known_to_compare_times_of_day() {
        let options = [("backend", "redis"), ("client", "./my-lock"), ("runtime", "virtual")];
        let (mut record, space) = hunt(&options);
        let mut clocks = |contract: Option<Contract>| {
            record.contract = contract;
            let draws = (0..80).map(|index| space.draw(&record, index));
            let on_clocks = draws.filter(|draw| draw.faults().any(|fault| name(fault) == "clock"));
            on_clocks.count()
        };
        let with = |wall_clock| {
            Some(Contract {
                wall_clock,
                ..Contract::default()
            })
        };
        assert_eq!(clocks(None), 0);
        assert_eq!(clocks(with(Some(false))), 0);
        assert!(clocks(with(Some(true))) > 0 && clocks(with(None)) > 0);
    }
}
