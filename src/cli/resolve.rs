//! Resolves the options of a run (`RunArgs::config`): completes them, refuses combinations, and builds the command that
//! repeats the run.

use std::time::Duration;

use harness_workloads::{Contract, RecipeOptions, find_recipe, recipes};

use super::args::{OnOff, RecipeArgs, RunArgs};
use super::seeds::fresh_seed;
use super::settings::run_options;
use crate::adapters;
use crate::backends::{Backend, BackendOptions, Topology};
use crate::cluster::RuntimeRequest;
use crate::config::heading::describes_experiment;
use crate::config::setting::{Setting, SettingOrigin};
use crate::config::suggest::unknown_word;
use crate::config::{ANY_FAULT, Clients, Config, Demand, NO_FAULT, ProxyChoice, RARELY, long_holds_with_any};
use crate::faults::{FAULTS, fault_named};
use crate::limits::MAX_PROCESSES;

impl RecipeArgs {
    /// Returns the recipe with its options; `fallback` is the backend whose default recipe is used if none is named.
    pub fn options(&self, fallback: Option<&Backend>) -> Result<RecipeOptions, String> {
        let names = || recipes().map(|recipe| recipe.name);
        let default = fallback.and_then(|backend| backend.default_recipe);
        let name = self.recipe.as_deref().or(default);
        let name = name.ok_or("--recipe is missing\nhint: `harness list recipes` shows all recipes")?;
        let recipe = find_recipe(name)
            .ok_or_else(|| unknown_word("recipe", name, names(), "`harness list recipes` shows all recipes"))?;
        let mut options = RecipeOptions::of(recipe);
        options.policy = self.holder;
        options.guid = self.guid == OnOff::On;
        options.interval = self.interval.unwrap_or(options.interval);
        options.reentrant = self.reentrant;
        Ok(options)
    }
}

impl RunArgs {
    /// Completes the options of a run and checks that they can be combined. `seed` is the one that was typed or drawn.
    pub fn config(&self, seed: u64) -> Result<Config, String> {
        let mut config = self.config.clone();
        config.runtime = match config.runtime {
            RuntimeRequest::Auto if config.image.is_some() => RuntimeRequest::Docker,
            RuntimeRequest::Auto if config.port_base.is_some() => RuntimeRequest::Local,
            asked => asked,
        };
        if let Some(fault) = config.faults.iter().find(|fault| !is_fault(&fault.name)) {
            let names = FAULTS.iter().map(|fault| fault.name()).chain([NO_FAULT, ANY_FAULT]);
            let hint = "`harness list faults` shows all faults";
            return Err(unknown_word("fault", &fault.name, names, hint));
        }
        config.faults.retain(|fault| fault.name != NO_FAULT);
        config.who = match &self.client {
            Some(command) => Clients::Foreign {
                command: command.clone(),
                promise: self.promised()?,
            },
            None => Clients::Recipe(self.recipe_for_backend()?),
        };
        self.check_adapter()?;
        let servers = match &config.who {
            Clients::Recipe(options) => options.recipe.servers,
            Clients::Foreign { .. } => None,
        };
        config.backend = config.backend.in_topology(config.topology)?;
        if config.topology != Topology::Plain && config.attach.is_attached() {
            let hint = "hint: leave --topology out, and name the master";
            return Err(format!(
                "--topology is for servers that harness starts, and those of --servers run already\n{hint}"
            ));
        }
        config.nodes = self.nodes.or(servers).unwrap_or(config.backend.software.nodes);
        if config.attach.is_attached() {
            config.nodes = config.attach.servers.len() as u32;
            config.attach.mark = Some(format!("harness-{:08x}-", fresh_seed()));
        }
        if let ProxyChoice::Toxiproxy { image } = &mut config.proxy {
            image.clone_from(&self.proxy_image);
        }
        if self.given().all(|setting| setting.option.name != "progress-bound") {
            // an election may begin with the last heal
            config.progress_bound += config.backend.slow_election();
        }
        config.wait = self.wait.unwrap_or(match config.each {
            Some(_) => config.time,
            None => Duration::from_secs(10),
        });
        config.short_waits = self.wait.is_none() && config.each.is_none() && config.has_any_fault();
        config.vary = self.vary.unwrap_or(match config.has_any_fault() {
            true => long_holds_with_any(config.lease, config.clients),
            false => RARELY,
        });
        config.seed = seed;
        self.check_combinations(&config)?;
        self.check_servers_and_proxy(&config)?;
        config.check_attach()?;
        config.check_auth()?;
        config.check_tls()?;
        config.check_upgrade()?;
        config.check_version()?;
        Ok(config)
    }

    /// Returns the settings that a flag, a variable or a file has set.
    fn given(&self) -> impl Iterator<Item = &Setting> + Clone {
        self.settings.iter().filter(|setting| setting.is_set())
    }

    /// Refuses an adapter that is unknown, or one of another backend.
    fn check_adapter(&self) -> Result<(), String> {
        let Some(typed) = &self.client else { return Ok(()) };
        let adapter = adapters::typed(typed)?;
        match adapter.filter(|adapter| !self.config.backend.takes_locks_of(&adapter.backend)) {
            None => Ok(()),
            Some(adapter) => Err(format!(
                "the client `{typed}` is for {0}\nhint: --backend {0}",
                adapter.backend
            )),
        }
    }

    /// Returns the promises that `--promise` adds to the client's contract.
    fn promised(&self) -> Result<Contract, String> {
        Contract::promised(&self.promise)
            .map_err(|error| format!("--promise {error}\nhint: docs/client-protocol.md has the names"))
    }

    fn recipe_for_backend(&self) -> Result<RecipeOptions, String> {
        if self.config.backend.id.is_none() {
            let product = self.config.backend.product();
            return Err(format!("harness has no recipes for {product}\nhint: --client CMD"));
        }
        let options = self.recipe.options(Some(self.config.backend))?;
        let (name, of) = (options.recipe.name, options.recipe.backend);
        if self.config.backend.takes_locks_of(of.name()) {
            Ok(options)
        } else {
            Err(format!(
                "{name} is a lock on {of}, not on {}\nhint: --backend {of}",
                self.config.backend
            ))
        }
    }

    /// Refuses combinations that cannot be run.
    fn check_combinations(&self, config: &Config) -> Result<(), String> {
        let (recipe, known) = match &config.who {
            Clients::Recipe(options) => (Some(options.recipe), options.contract()),
            Clients::Foreign { promise, .. } => (None, promise.clone()),
        };
        let (nodes, lease) = (config.nodes, config.lease);
        if let Some(why) = (config.backend.refuse)(&BackendOptions { nodes, lease, recipe }) {
            return Err(why);
        }
        Demand::of(config, &known)?;
        if config.each.is_some() && !config.faults.is_empty() {
            return Err("--each cannot be combined with faults\nhint: --fault none".into());
        }
        if self.until.is_some() && self.repeat < 2 {
            return Err("--until needs --repeat\nhint: --repeat 10".into());
        }
        let time = config.time.as_secs_f32();
        if config.hold >= config.time {
            return Err(format!(
                "--hold {}s is as long as the whole run of {time}s, so no lock would be released\nhint: a shorter --hold, or a longer --time",
                config.hold.as_secs_f32()
            ));
        }
        if config.load.ramp >= config.time {
            return Err(format!(
                "--ramp {}s is as long as the whole run of {time}s\nhint: a shorter --ramp, or a longer --time",
                config.load.ramp.as_secs_f32()
            ));
        }
        if config.load.skew > 0.0 && config.locks < 2 {
            return Err("--skew needs at least two locks\nhint: --locks 10".into());
        }
        let (clients, processes) = (config.clients, config.processes());
        if processes > MAX_PROCESSES {
            return Err(format!(
                "{clients} clients would be {processes} processes, more than {MAX_PROCESSES}\nhint: --per-process {}",
                clients.div_ceil(MAX_PROCESSES)
            ));
        }
        if config.churn.is_some() && config.locks < 2 {
            return Err("--churn needs at least two locks\nhint: --locks 4".into());
        }
        if config.churn.is_some() && config.each.is_some() {
            let why = "--churn cannot be combined with --each: a client may never find a lock in use";
            return Err(format!("{why}\nhint: leave one of the two out"));
        }
        let mut asked = self.config.faults.iter();
        if asked.any(|fault| fault.name == NO_FAULT && fault.argument.is_some()) {
            return Err("--fault none takes no argument".into());
        }
        Ok(())
    }

    /// Refuses options of servers and of the proxy that cannot be combined, or that this build does not have.
    fn check_servers_and_proxy(&self, config: &Config) -> Result<(), String> {
        let runtime = config.runtime;
        if runtime == RuntimeRequest::Local && config.image.is_some() {
            return Err("--image needs containers\nhint: --runtime docker".into());
        }
        if runtime == RuntimeRequest::Docker && config.port_base.is_some() {
            let why = "--port-base needs local servers: containers have their own addresses\nhint: --runtime local";
            return Err(why.into());
        }
        if config.world > 0 && !matches!(runtime, RuntimeRequest::Simulated | RuntimeRequest::Virtual) {
            return Err("--world needs virtual time\nhint: --runtime simulated or virtual".into());
        }
        if config.threads_by_seed && runtime != RuntimeRequest::Virtual {
            let why = "--threads-by-seed needs virtual time: elsewhere the kernel decides which thread goes next\nhint: --runtime virtual";
            return Err(why.into());
        }
        let ports = config.backend.software.ports.len() * config.nodes as usize;
        let is_too_high = |base: u16| usize::from(base) + ports > usize::from(u16::MAX);
        if config.port_base.is_some_and(is_too_high) {
            return Err(format!(
                "--port-base leaves too few ports: {ports} are needed\nhint: --port-base {}",
                usize::from(u16::MAX) - ports
            ));
        }
        let starts_toxiproxy = matches!(config.proxy, ProxyChoice::Toxiproxy { .. });
        if self.proxy_image.is_some() && !starts_toxiproxy {
            return Err("--proxy-image needs a container of Toxiproxy\nhint: --proxy toxiproxy".into());
        }
        if config.proxy_api.is_some() && config.proxy.is_toxiproxy() {
            let why =
                "--proxy-api serves the API of the built-in proxy; Toxiproxy serves its own\nhint: --proxy builtin";
            return Err(why.into());
        }
        if config.tls && !cfg!(feature = "tls") {
            let why = "this harness was built without TLS (--no-default-features)\nhint: cargo build --features tls";
            return Err(why.into());
        }
        if starts_toxiproxy && !cfg!(feature = "docker") {
            let why = "this harness was built without docker, so it cannot start a Toxiproxy\nhint: --proxy toxiproxy=HOST:PORT";
            return Err(why.into());
        }
        Ok(())
    }

    /// Returns the command that repeats a run with the same plan: the seed, and all settings that describe the
    /// experiment, as they were given.
    pub fn again(&self, config: &Config) -> Vec<String> {
        let describing = run_options(describes_experiment);
        let given = self.given();
        let words = given
            .clone()
            .filter(|setting| describing.contains(&setting.option) && setting.option.name != "seed")
            .filter_map(Setting::word);
        // a value that begins with a dash would be read as a flag
        let split = |word: String| match word.split_once('=') {
            Some((flag, value)) if !value.starts_with('-') => vec![flag.to_owned(), value.to_owned()],
            _ => vec![word],
        };
        let command = ["harness", "run"].map(str::to_owned).into_iter();
        let seed = ["--seed".to_owned(), config.seed_text()];
        // the words are complete: files and variables must not add to them
        let complete = self.no_config || given.clone().any(|setting| setting.origin != SettingOrigin::Flag);
        let no_config = complete.then(|| "--no-config".to_owned());
        command
            .chain(words.flat_map(split))
            .chain(seed)
            .chain(no_config)
            .collect()
    }
}

fn is_fault(name: &str) -> bool {
    [NO_FAULT, ANY_FAULT].contains(&name) || fault_named(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::typed_run;

    /// `harness run --no-config` with these words.
    fn typed(words: &str) -> RunArgs {
        let line = format!("harness run --no-config {words}");
        typed_run(line.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn the_words_for_again_make_the_same_run() {
        let lines = [
            "--backend zk",
            "--backend zk --recipe zk-polling --holder naive --guid off --interval 20ms --reentrant",
            "--backend redis --runtime local --port-base 21000 --window 3s --fault reset=300ms,slow",
            "--backend redis --client=-x --fault kill --fault latency",
            "--backend zk --proxy toxiproxy --proxy-image toxi:1",
            "--backend redis --advertise build-7 --fault latency",
            "--backend zk --proxy toxiproxy=localhost:8474",
            "--backend zk --proxy-api 127.0.0.1:8474",
            "--backend zk --recipe zk-read-write --reads 80",
            "--backend redis --tries 30",
            "--backend valkey --recipe redlock",
            "--backend valkey --client redis-py",
            "--backend redis --server-version 6.2 --runtime local",
            "--backend redis --server-version 6.3 --runtime docker",
            "--backend kube-lease --client kube-lease",
            "--backend zk --locks 6 --churn 1500ms",
            "--backend etcd --clients 20 --locks 4 --hold 2s --each 1 --time 90s --herd-limit 3 --nodes 5",
            "--backend zk --fault drop-reply=create:2:waiter:refuse=2s,delay-request=delete:1s --requests-limit 20",
        ];
        for line in lines {
            let args = typed(line);
            let config = args.config(0x5eed).unwrap();
            let again = typed_run(args.again(&config));
            let repeated = again.config(again.seed.expect("the seed is among the words")).unwrap();
            assert_eq!(format!("{config:?}"), format!("{repeated:?}"), "{line}");
        }
    }

    #[test]
    fn servers_that_elect_slowly_have_more_time_for_progress_unless_it_is_given() {
        let bound = |words: &str| typed(words).config(1).unwrap().progress_bound.as_secs();
        assert_eq!(bound("--backend zk"), 10);
        assert_eq!(bound("--backend nats"), 19);
        assert_eq!(bound("--backend nats --progress-bound 4s"), 4);
    }

    #[test]
    fn an_option_of_one_runtime_asks_for_it() {
        let runtime = |words: &str| typed(words).config(1).unwrap().runtime;
        assert_eq!(runtime("--backend zk --image x"), RuntimeRequest::Docker);
        assert_eq!(runtime("--backend zk --port-base 21000"), RuntimeRequest::Local);
        assert_eq!(runtime("--backend zk"), RuntimeRequest::Auto);
    }

    #[test]
    fn the_words_for_again_describe_the_experiment_and_not_where_or_how_often_it_ran() {
        let args = typed("--backend zk --results runs/002 --repeat 3 --seed 7 --quiet --json --keep 5 --lease 2s");
        let again = args.again(&args.config(0x5eed).unwrap()).join(" ");
        assert_eq!(again, "harness run --backend zk --lease 2s --seed 00005eed --no-config");
    }
}
