//! From what was typed to what is needed: defaults, refusals, and the words that make the same run again.

use std::time::Duration;

use clap::ValueEnum;
use harness_workloads::{Holder, RecipeOptions, find_recipe};

use super::args::{OnOff, RecipeArgs, RunArgs};
use crate::backends::{Backend, BackendOptions};
use crate::cluster::RuntimeRequest;
use crate::config::{Clients, Config, Mix, NO_FAULT, ProxyChoice};
use crate::limits::{MAX_CLIENTS, MAX_LEASE, MAX_LOCKS, MAX_TIME, MIN_LEASE, MIN_TURN};

impl RecipeArgs {
    /// The recipe with its options; `fallback` is taken when none was named.
    pub fn options(&self, fallback: Option<&Backend>) -> Result<RecipeOptions, String> {
        let default = fallback.and_then(|backend| backend.default_recipe);
        let recipe = match (&self.recipe, default) {
            (Some(name), _) => find_recipe(name).map_err(|error| error.to_string())?,
            (None, Some(name)) => find_recipe(name).map_err(|error| error.to_string())?,
            (None, None) => return Err("which recipe? --recipe NAME; `harness list recipes` shows them all".into()),
        };
        let mut options = RecipeOptions::of(recipe);
        options.holder = self.holder;
        options.guid = self.guid == OnOff::On;
        options.interval = self.interval.unwrap_or(options.interval);
        options.reentrant = self.reentrant;
        Ok(options)
    }
}

impl RunArgs {
    /// What is needed, complete and checked; `seed` is the one that was typed or drawn.
    pub fn config(&self, seed: u64) -> Result<Config, String> {
        let who = match &self.client {
            Some(command) => Clients::Foreign(command.clone()),
            None => Clients::Recipe(self.recipe_for_backend()?),
        };
        let servers = match &who {
            Clients::Recipe(options) => options.recipe.servers,
            Clients::Foreign(_) => None,
        };
        let config = Config {
            backend: self.backend,
            who,
            runtime: self.runtime,
            image: self.image.clone(),
            nodes: self.nodes.or(servers).unwrap_or(self.backend.software.nodes),
            port_base: self.port_base,
            proxy: match &self.proxy {
                ProxyChoice::Toxiproxy { .. } => ProxyChoice::Toxiproxy {
                    image: self.proxy_image.clone(),
                },
                other => other.clone(),
            },
            proxy_api: self.proxy_api,
            faults: self
                .fault
                .iter()
                .filter(|fault| fault.name != NO_FAULT)
                .cloned()
                .collect(),
            clients: self.clients,
            per_process: self.per_process,
            locks: self.locks,
            lease: self.lease,
            hold: self.hold,
            time: self.time,
            wait: self.wait.unwrap_or(if self.each.is_some() {
                self.time
            } else {
                Duration::from_secs(10)
            }),
            each: self.each,
            mix: Mix {
                reads: self.reads,
                tries: self.tries,
            },
            churn: self.churn,
            window: self.window,
            seed,
            results: self.results.clone(),
            herd_limit: self.herd_limit,
            requests_limit: self.requests_limit,
            progress_bound: self.progress_bound,
        };
        self.reject(&config)?;
        Ok(config)
    }

    fn recipe_for_backend(&self) -> Result<RecipeOptions, String> {
        let options = self.recipe.options(Some(self.backend))?;
        let of = options.recipe.backend;
        if of != self.backend.id {
            let name = options.recipe.name;
            return Err(format!(
                "{name} is a lock on {of}, not on {}\nhint: --backend {of}",
                self.backend
            ));
        }
        Ok(options)
    }

    /// What cannot be, said before anything is started.
    fn reject(&self, config: &Config) -> Result<(), String> {
        let mut rules = sizes(config)
            .into_iter()
            .chain(self.combinations(config))
            .chain(self.proxies(config));
        match rules.find(|(broken, _)| *broken) {
            Some((_, sentence)) => Err(sentence),
            None => Ok(()),
        }
    }

    /// Options that do not go together.
    fn combinations(&self, config: &Config) -> Vec<(bool, String)> {
        let ports = config.backend.software.ports.len() * config.nodes as usize;
        let (local, docker) = (
            self.runtime == RuntimeRequest::Local,
            self.runtime == RuntimeRequest::Docker,
        );
        let argument_of_none = self
            .fault
            .iter()
            .any(|fault| fault.name == NO_FAULT && fault.argument.is_some());
        let room = config
            .port_base
            .is_none_or(|base| usize::from(base) + ports <= usize::from(u16::MAX));
        let refused = (config.backend.refuse)(&BackendOptions {
            nodes: config.nodes,
            lease: config.lease,
            recipe: match &config.who {
                Clients::Recipe(options) => Some(options.recipe),
                Clients::Foreign(_) => None,
            },
            clients: config.recipe_name(),
        });
        vec![
            (refused.is_some(), refused.unwrap_or_default()),
            (
                config.each.is_some() && !config.faults.is_empty(),
                "--each counts turns in fair weather: it goes with --fault none".into(),
            ),
            (
                self.until.is_some() && self.repeat < 2,
                "--until goes with --repeat N".into(),
            ),
            (
                config.mix.reads > 0 && matches!(&config.who, Clients::Recipe(options) if !options.recipe.modes),
                "--reads is for locks that readers share: --recipe zk-read-write, or a --client of your own".into(),
            ),
            (
                config.mix.tries > 0 && (config.model() == "read-write" || config.is_reentrant()),
                "--tries needs a plain lock: no model decides `busy` answers of locks that are shared or reentrant"
                    .into(),
            ),
            (
                config.is_reentrant() && config.mix.reads > 0,
                "--reentrant and --reads do not go together: no model decides both".into(),
            ),
            (
                config.churn.is_some() && config.locks < 2,
                "--churn needs locks to turn to: --locks 4".into(),
            ),
            (
                config.churn.is_some() && config.each.is_some(),
                "--churn and --each do not go together: a turn of a client may never find a lock in use".into(),
            ),
            (argument_of_none, "--fault none takes no argument".into()),
            (
                local && config.image.is_some(),
                "--image is for containers: it goes with --runtime docker".into(),
            ),
            (
                docker && config.port_base.is_some(),
                "--port-base is for local servers: containers have addresses of their own".into(),
            ),
            (!room, format!("--port-base leaves no room for {ports} ports")),
        ]
    }

    /// Options of the proxy that do not go together, or that this build cannot keep.
    fn proxies(&self, config: &Config) -> Vec<(bool, String)> {
        vec![
            (
                self.proxy_image.is_some() && !matches!(config.proxy, ProxyChoice::Toxiproxy { .. }),
                "--proxy-image is for a container: it goes with --proxy toxiproxy".into(),
            ),
            (
                self.proxy_api.is_some() && config.proxy.is_toxiproxy(),
                "--proxy-api serves the API of the built-in proxy; a Toxiproxy serves its own".into(),
            ),
            (
                config.proxy.is_toxiproxy() && !cfg!(feature = "toxiproxy"),
                "this harness was built without toxiproxy\nhint: --proxy builtin, or build with --features toxiproxy".into(),
            ),
            (
                matches!(config.proxy, ProxyChoice::Toxiproxy { .. }) && !cfg!(feature = "docker"),
                "this harness was built without docker, so it cannot start a Toxiproxy\nhint: --proxy toxiproxy=HOST:PORT".into(),
            ),
        ]
    }

    /// The words that make the same plan again. Where its results were put is no part of it.
    pub fn again(&self, config: &Config) -> Vec<String> {
        let mut words: Vec<String> = vec!["harness".into(), "run".into()];
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("backend", config.backend.to_string());
        match &config.who {
            Clients::Foreign(command) => option("client", command.clone()),
            Clients::Recipe(_) => self.again_recipe(&mut option),
        }
        option("fault", config.fault_text());
        let given = [
            ("clients", config.clients, 5),
            ("per-process", config.per_process, 1),
            ("locks", config.locks, 1),
            ("herd-limit", config.herd_limit, 1),
            ("requests-limit", config.requests_limit.unwrap_or(u32::MAX), u32::MAX),
            ("reads", config.mix.reads, 0),
            ("tries", config.mix.tries, 0),
            ("each", config.each.unwrap_or(0), 0),
        ];
        for (name, value, default) in given {
            if value != default {
                option(name, value.to_string());
            }
        }
        let durations = [
            ("lease", Some(config.lease), Duration::from_secs(2)),
            ("hold", Some(config.hold), Duration::from_millis(10)),
            ("wait", self.wait, Duration::ZERO),
            ("time", Some(config.time), Duration::from_secs(60)),
            ("window", config.window, Duration::ZERO),
            ("churn", config.churn, Duration::ZERO),
            ("progress-bound", Some(config.progress_bound), Duration::from_secs(10)),
        ];
        for (name, value, default) in durations {
            if let Some(value) = value.filter(|value| *value != default) {
                option(name, in_words(value));
            }
        }
        if let Some(nodes) = self.nodes {
            option("nodes", nodes.to_string());
        }
        if self.runtime != RuntimeRequest::Auto {
            option(
                "runtime",
                self.runtime
                    .to_possible_value()
                    .expect("no runtime is hidden")
                    .get_name()
                    .to_owned(),
            );
        }
        if let Some(image) = &config.image {
            option("image", image.clone());
        }
        if let Some(base) = config.port_base {
            option("port-base", base.to_string());
        }
        self.again_proxy(config, &mut option);
        option("seed", config.seed_text());
        if self.recipe.reentrant {
            words.push("--reentrant".into());
        }
        if self.layered || self.no_config {
            // the words are all of it, whatever stands in files by then
            words.push("--no-config".into());
        }
        words
    }

    fn again_proxy(&self, config: &Config, option: &mut impl FnMut(&str, String)) {
        if config.proxy.is_toxiproxy() {
            option("proxy", config.proxy.text());
        }
        if let Some(image) = &self.proxy_image {
            option("proxy-image", image.clone());
        }
        if let Some(address) = config.proxy_api {
            option("proxy-api", address.to_string());
        }
    }

    fn again_recipe(&self, option: &mut impl FnMut(&str, String)) {
        if let Some(recipe) = &self.recipe.recipe {
            option("recipe", recipe.clone());
        }
        if self.recipe.holder != Holder::default() {
            option("holder", self.recipe.holder.to_string());
        }
        if self.recipe.guid == OnOff::Off {
            option("guid", "off".into());
        }
        if let Some(interval) = self.recipe.interval {
            option("interval", in_words(interval));
        }
    }
}

/// Whether the lock is on one server, and would not look at others. Of a foreign one nobody knows.
/// A duration as [`parse_duration`] reads it.
fn in_words(duration: Duration) -> String {
    let nanoseconds = duration.as_nanos();
    if nanoseconds.is_multiple_of(1_000_000_000) {
        format!("{}s", duration.as_secs())
    } else if nanoseconds.is_multiple_of(1_000_000) {
        format!("{}ms", duration.as_millis())
    } else {
        format!("{}us", duration.as_micros())
    }
}

/// Numbers and times that are out of their bounds.
fn sizes(config: &Config) -> Vec<(bool, String)> {
    let hours = MAX_TIME.as_secs() / 3600;
    vec![
        (
            config.clients == 0 || config.clients > MAX_CLIENTS,
            format!("--clients is 1 to {MAX_CLIENTS}"),
        ),
        (
            config.locks == 0 || config.locks > MAX_LOCKS,
            format!("--locks is 1 to {MAX_LOCKS}"),
        ),
        (config.per_process == 0, "--per-process is at least 1".into()),
        (config.nodes == 0 || config.nodes > 9, "--nodes is 1 to 9".into()),
        (config.each == Some(0), "--each is at least 1".into()),
        (
            config.lease < MIN_LEASE,
            "--lease is at least 500ms: shorter ones run out by themselves".into(),
        ),
        (
            config.lease > MAX_LEASE,
            format!("--lease is at most {}s", MAX_LEASE.as_secs()),
        ),
        (config.time.is_zero(), "--time is more than nothing".into()),
        (config.time > MAX_TIME, format!("--time is at most {hours}h")),
        (
            config.hold > MAX_TIME || config.wait > MAX_TIME,
            format!("--hold and --wait are at most {hours}h"),
        ),
        (
            config.window.is_some_and(|window| window.is_zero()),
            "--window is more than nothing".into(),
        ),
        (
            config.churn.is_some_and(|turn| turn < MIN_TURN),
            "--churn is at least 10ms: shorter turns leave nobody the time to wait".into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::args::{Cli, Command};

    fn typed(line: &str) -> Box<RunArgs> {
        parsed(line.split(' ').map(str::to_owned).collect())
    }

    fn parsed(words: Vec<String>) -> Box<RunArgs> {
        match Cli::try_parse_from(words).expect("it parses").command {
            Command::Run(args) => args,
            _ => panic!("it is a run"),
        }
    }

    #[test]
    fn the_words_for_again_make_the_same_run() {
        let lines = [
            "harness run --backend zk",
            "harness run --backend zk --recipe zk-polling --holder naive --guid off --interval 20ms --reentrant",
            "harness run --backend redis --runtime local --port-base 21000 --window 3s --fault reset=300ms,slow",
            "harness run --backend zk --proxy toxiproxy --proxy-image toxi:1",
            "harness run --backend zk --proxy toxiproxy=localhost:8474",
            "harness run --backend zk --proxy-api 127.0.0.1:8474",
            "harness run --backend zk --recipe zk-read-write --reads 80",
            "harness run --backend redis --tries 30",
            "harness run --backend zk --locks 6 --churn 1500ms",
            "harness run --backend etcd --clients 20 --locks 4 --hold 2s --each 1 --time 90s --herd-limit 3 --nodes 5",
            "harness run --backend zk --fault drop-reply=create:2:waiter:refuse=2s,delay-request=delete:1s --requests-limit 20",
        ];
        for line in lines {
            let args = typed(line);
            let config = args.config(0x5eed).unwrap();
            let again = parsed(args.again(&config));
            let repeated = again.config(again.seed.expect("the seed is among the words")).unwrap();
            assert_eq!(format!("{config:?}"), format!("{repeated:?}"), "{line}");
        }
    }

    #[test]
    fn where_results_were_put_is_no_part_of_the_words_for_again() {
        let args = typed("harness run --backend zk --results results/20261121-0645-suite-nightly/runs/002");
        let again = args.again(&args.config(0x5eed).unwrap()).join(" ");
        assert_eq!(again, "harness run --backend zk --fault none --seed 00005eed");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_sentence() {
        let refused = [
            ("--backend zk --lease 1ms", "--lease"),
            ("--backend etcd --lease 1s", "--lease 2s"),
            ("--backend redis --nodes 3", "--nodes 1"),
            ("--backend zk --recipe redis-setnx", "--backend redis"),
            ("--backend zk --time 99999m", "--time"),
            ("--backend zk --window 0s --fault partition", "--window"),
            ("--backend zk --fault none=5", "--fault none"),
            ("--backend zk --runtime local --image x", "--runtime docker"),
            ("--backend zk --port-base 65530", "--port-base"),
            ("--backend zk --each 1 --fault partition", "--each"),
            ("--backend zk --until fail", "--repeat"),
            ("--backend zk --reads 50", "zk-read-write"),
            ("--backend zk --tries 50 --reentrant", "--tries"),
            (
                "--backend zk --recipe zk-read-write --reads 50 --reentrant",
                "--reentrant",
            ),
            ("--backend zk --churn 1s", "--locks 4"),
            ("--backend zk --churn 1ms --locks 4", "10ms"),
            ("--backend zk --churn 1s --locks 4 --each 2", "--each"),
            ("--backend zk --proxy-image x", "--proxy toxiproxy"),
            (
                "--backend zk --proxy toxiproxy=h:1 --proxy-api 127.0.0.1:8474",
                "--proxy-api",
            ),
        ];
        for (words, named) in refused {
            let sentence = typed(&format!("harness run {words}")).config(1).unwrap_err();
            assert!(sentence.contains(named), "{words}: {sentence}");
        }
    }
}
