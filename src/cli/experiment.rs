//! One experiment from its folder to its verdict, for `run`, `hunt` and `shrink`.

use std::path::{Path, PathBuf};

use harness_checkers::{Options, ReadOptions, check};
use tokio::sync::watch;

use super::Failure;
use super::args::RunArgs;
use super::examined::{Examined, examine, examine_nothing};
use super::settings::{self, run_of, run_options};
use crate::cluster::{RuntimeChoice, RuntimeRequest};
use crate::config::Config;
use crate::config::setting::{OptionName, Setting, SettingOrigin};
use crate::evidence::SentUnderFaults;
use crate::exit::Exit;
use crate::in_virtual_time;
use crate::plan::Plan;
use crate::plan::kept_windows::planned;
use crate::report::diagnosis::KnownRun;
use crate::report::{Diagnosis, diagnose};
use crate::run::{RunError, RunFolder, RunOutcome, RunSpec};
use crate::simulated;
use crate::store::{self, RUN_SCHEMA, RunInfo, RunStatus, StoreError, Stored};

/// Returns the plan of a run, or the reason for which the run cannot be made.
pub fn possible(config: &Config) -> Result<Plan, String> {
    match refusal(config) {
        Some(why) => Err(why),
        None => planned(config).map_err(|error| error.to_string()),
    }
}

/// Returns the reason for which a run cannot be made: models and virtual time support less, and a build may lack a part.
pub fn refusal(config: &Config) -> Option<String> {
    let cannot = match config.runtime {
        RuntimeRequest::Simulated => simulated::refusal(config),
        RuntimeRequest::Virtual => in_virtual_time::refusal(config),
        RuntimeRequest::Auto | RuntimeRequest::Docker | RuntimeRequest::Local => None,
    };
    let lacks_toxiproxy = config.proxy.is_toxiproxy() && !cfg!(feature = "toxiproxy");
    cannot.or_else(|| {
        lacks_toxiproxy.then(|| {
            "this harness was built without toxiproxy\nhint: --proxy builtin, or build with --features toxiproxy"
                .to_owned()
        })
    })
}

/// Creates the run's folder with `run.json` and `plan.json` before anything is started.
pub fn begin(
    args: &RunArgs,
    config: &Config,
    plan: &Plan,
    choice: &RuntimeChoice,
    image_digest: Option<String>,
) -> Result<(String, PathBuf, RunInfo), StoreError> {
    let (minute, faults, seed) = (store::minute_now(), config.fault_slug(), config.seed_text());
    // small seeds differ in their last digits
    let name = format!("{minute}-{}-{faults}-{}", config.backend, &seed[seed.len() - 4..]);
    let (run, folder) = store::create(&args.results, &name)?;
    let info = RunInfo {
        schema: RUN_SCHEMA.to_owned(),
        run: run.clone(),
        status: RunStatus::Running,
        harness: env!("CARGO_PKG_VERSION").to_owned(),
        started: minute,
        backend: config.backend.to_string(),
        product: config.backend.product().to_owned(),
        version: None,
        nodes: config.nodes,
        runtime: choice.runtime.name().to_owned(),
        runtime_why: choice.why.clone(),
        servers: config.attach.servers.clone(),
        mark: config.attach.mark.clone(),
        image: choice.runtime.image().map(str::to_owned),
        image_digest,
        machine: machine(),
        own_delays: None,
        recipe: config.recipe_name().to_owned(),
        attitude: config.attitude().map(str::to_owned),
        fault: config.fault_text(),
        seed,
        clients: config.clients,
        locks: config.locks,
        lease_ms: config.lease.as_millis() as u64,
        time_ms: config.time.as_millis() as u64,
        windows: plan.windows.len() as u32,
        each: config.each,
        again: args.again(config),
        argv: std::env::args().collect(),
        error: None,
    };
    store::write_info(&folder, &info)?;
    store::write_json(&folder.join("plan.json"), plan)?;
    if let Some(text) = config.backend.file.and_then(|file| std::fs::read_to_string(file).ok()) {
        store::write_text(&folder.join(store::STORE_FILE), &text)?;
    }
    Ok((run, folder, info))
}

/// Returns the facts about the machine that affect timing.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (system, kind) = (std::env::consts::OS, std::env::consts::ARCH);
    format!("{system} {kind}, {cores} core{}", if cores == 1 { "" } else { "s" })
}

/// `run.json` of a run that has ended.
pub fn outcome_of(ended: &RunOutcome, info: RunInfo) -> RunInfo {
    RunInfo {
        version: ended.version.clone(),
        own_delays: ended.own_delays.clone(),
        status: match (&ended.error, ended.interrupted) {
            (Some(_), _) => RunStatus::Failed,
            (None, true) => RunStatus::Interrupted,
            (None, false) => RunStatus::Complete,
        },
        error: ended.error.as_ref().map(ToString::to_string),
        ..info
    }
}

pub fn exit_of_error(error: &RunError) -> Exit {
    match error {
        RunError::Stopped => Exit::Interrupted,
        RunError::Cluster(_)
        | RunError::Clients(_)
        | RunError::NoLock(_)
        | RunError::ServerEnded(_)
        | RunError::Write(_)
        | RunError::Proxy(_) => Exit::Environment,
    }
}

/// Writes `run.json` of a run that has ended, and decides its history. The error says why the history cannot be read, which is a
/// bug in harness.
pub fn decided(folder: &RunFolder, info: RunInfo) -> (Stored, Result<Examined, String>, Result<(), StoreError>) {
    let told = store::write_info(&folder.0, &info);
    let stored = Stored {
        folder: Some(folder.0.clone()),
        history: folder.history(),
        info: Some(info),
    };
    let examined = if stored.history.is_file() {
        let examined = examine(&stored, &ReadOptions::default(), &Options::default());
        examined.map_err(|failure| failure.sentence)
    } else {
        Ok(examine_nothing(&stored))
    };
    (stored, examined, told)
}

/// Makes a run on models in memory, on this thread, and decides it. Returns also the number of requests that clients sent while
/// faults could act on them; `None` if the user interrupted the run.
pub fn examined_in_memory(
    config: Config,
    choice: &RuntimeChoice,
    stop: &watch::Receiver<bool>,
) -> Result<Option<(Diagnosis, SentUnderFaults)>, String> {
    let plan = planned(&config).map_err(|error| error.to_string())?;
    let windows = plan.windows.len() as u32;
    let outcome = simulated::execute_here(RunSpec {
        in_memory: true,
        interrupt: stop.clone(),
        ..RunSpec::of(config, plan, String::new(), RunFolder(PathBuf::new()), choice.clone())
    });
    if outcome.interrupted {
        return Ok(None);
    }
    if let Some(error) = outcome.error {
        return Err(error.to_string());
    }
    let history = outcome.history.ok_or("nothing was recorded")?;
    let findings = check(&history, &Options::default());
    let diagnosis = diagnose(&history, findings, KnownRun::in_memory(windows));
    Ok(Some((diagnosis, outcome.sent)))
}

/// Parses options of `harness run` as if they had been typed, without any other layer. The error says which of them is wrong.
pub fn run_args(options: &[(String, String)], results: &Path) -> Result<RunArgs, String> {
    let known = run_options(|_| true);
    let setting = |(name, value): &(String, String)| {
        let option = known.iter().find(|option| option.name == *name);
        let option = option.ok_or_else(|| format!("there is no option `--{name}`"))?;
        Ok(option.set(value.clone(), SettingOrigin::Flag))
    };
    let settings = options.iter().map(setting).collect::<Result<Vec<Setting>, String>>()?;
    let args = run_of(&settings).map_err(|error| settings::refusal(&error))?;
    Ok(RunArgs {
        results: results.to_owned(),
        no_config: true,
        ..args
    })
}

/// Returns the arguments and the configuration of a run with these options, one of which is its seed.
pub fn completed(options: &[(String, String)], results: &Path) -> Result<(RunArgs, Config), Failure> {
    let args = run_args(options, results).map_err(Failure::usage)?;
    let config = args.config(args.seed.unwrap_or_default()).map_err(Failure::usage)?;
    Ok((args, config))
}

/// Options of a run with another value for one of them, or without it.
pub fn set_option(options: &mut Vec<(String, String)>, name: &str, value: Option<String>) {
    options.retain(|(known, _)| known != name);
    options.extend(value.map(|value| (name.to_owned(), value)));
}

/// Returns the options in the command that repeats a run: `harness run --backend zk --client=-x --reentrant --no-config`.
pub fn options_of(again: &[String]) -> Vec<(String, String)> {
    let known = run_options(|_| true);
    let is_switch = |name: &str| {
        known
            .iter()
            .any(|OptionName { name: known, switch }| known == name && *switch)
    };
    let mut words = again.iter().skip_while(|word| !word.starts_with("--"));
    let mut options = Vec::new();
    while let Some(word) = words.next() {
        let word = word.trim_start_matches("--");
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None if is_switch(word) => (word, "true".to_owned()),
            None => (word, words.next().cloned().unwrap_or_default()),
        };
        if name != "no-config" {
            options.push((name.to_owned(), value));
        }
    }
    options
}

/// Options as they are typed.
#[cfg(test)]
pub fn typed_options(options: &[(&str, &str)]) -> Vec<(String, String)> {
    let typed = options.iter();
    typed
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_that_make_a_run_again_are_its_options() {
        let line = "harness run --backend redis --client=-x --reentrant --fault drop-reply=SET:1,reset --windows 3,7 --seed 7 --no-config";
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let options = options_of(&words);
        let expected = [
            ("backend", "redis"),
            ("client", "-x"),
            ("reentrant", "true"),
            ("fault", "drop-reply=SET:1,reset"),
            ("windows", "3,7"),
            ("seed", "7"),
        ];
        assert_eq!(options, typed_options(&expected));
    }

    #[test]
    fn options_that_were_drawn_make_the_run_that_would_have_been_typed() {
        let options = typed_options(&[
            ("backend", "redis"),
            ("lease", "1s"),
            ("windows", "2"),
            ("fault", "reset"),
            ("seed", "7"),
        ]);
        let args = run_args(&options, Path::new("here")).unwrap();
        let config = args.config(7).unwrap();
        assert_eq!(config.windows, [2]);
        assert_eq!(args.results, Path::new("here"));
        let again = options_of(&args.again(&config));
        let same = again.iter().filter(|option| options.contains(option));
        assert_eq!(same.count(), 4, "{again:?}");
        let wrong = typed_options(&[("backend", "redis"), ("lease", "1ms")]);
        assert!(run_args(&wrong, Path::new("")).unwrap_err().contains("500ms"));
    }
}
