//! `harness run`: runs one experiment, or repeats it with derived seeds, and reports each verdict.

use std::fs::File;
use std::io::Write;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use clap::ColorChoice;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::args::{RunArgs, Until};
use super::check::show;
use super::examined::exit_of;
use super::experiment::{begin, decided, exit_of_error, outcome_of, possible};
use super::github::Github;
use super::interrupt::interrupted;
use super::metrics::Metrics;
use super::seeds::{fresh_seed, seeds};
use super::stdout::{print_json, print_table};
use super::{Failure, complain, consent, is_dumb, is_watched, look, report, run_to_end};
use crate::adapters;
use crate::cluster::{self, ClusterError, RuntimeChoice, RuntimeRequest};
use crate::config::Config;
use crate::event::{ProgressEvent, ProgressSender};
use crate::exit::Exit;
use crate::in_virtual_time;
use crate::plan::Plan;
use crate::report::terminal::{Look, render};
use crate::report::words::many;
use crate::run::{self, RunFolder, RunSpec};
use crate::simulated;
use crate::store::{self, RunInfo, RunStatus};
use crate::ui::{self, Show};

/// Limit for the end of the progress display after the run.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Time after which a choice of a runtime that is still going on is announced.
const SILENCE: Duration = Duration::from_secs(1);

/// One call of `harness run`, with the state that its runs share.
struct RunCommand {
    args: RunArgs,
    color: ColorChoice,
    metrics: Metrics,
    github: Option<Github>,
    interrupt: watch::Receiver<bool>,
}

pub fn run(args: &RunArgs, color: ColorChoice) -> Result<Exit, Failure> {
    let first = args.seed.unwrap_or_else(fresh_seed);
    run_to_end(async {
        let interrupt = interrupted();
        let args = consent::confirmed(args, first).await?;
        let metrics = Metrics::serve(args.metrics.filter(|_| !args.dry_run), args.quiet)?;
        let command = RunCommand {
            args,
            color,
            metrics,
            github: Github::detected(),
            interrupt,
        };
        Ok::<_, Failure>(command.repeat(first).await)
    })
}

impl RunCommand {
    async fn repeat(&self, first: u64) -> Exit {
        let args = &self.args;
        let mut worst = Exit::Holds;
        let (mut fails, mut decided, mut errors_in_a_row) = (0, 0_u64, 0);
        for (number, seed) in seeds(first, args.repeat).enumerate() {
            let exit = self.one(seed).await;
            let exit = exit.unwrap_or_else(|failure| complain(failure.exit, failure.sentence));
            worst = worst.and(exit);
            fails += u32::from(exit == Exit::Violated);
            let failed = matches!(exit, Exit::Interrupted | Exit::Environment | Exit::Usage | Exit::Bug);
            decided += u64::from(!failed);
            errors_in_a_row = if failed { errors_in_a_row + 1 } else { 0 };
            if args.repeat > 1 && !args.dry_run && !args.quiet {
                let (run, all, code) = (number + 1, args.repeat, exit.code());
                eprintln!("run {run} of {all}: exit {code} ({fails} violated so far)");
            }
            let enough = match args.until {
                _ if args.dry_run => false,
                Some(Until::Fail) => exit == Exit::Violated,
                Some(Until::Pass) => exit == Exit::Holds,
                None => false,
            };
            // one client that failed to open on a busy machine must not end a series of many runs
            let hopeless = failed && (exit != Exit::Environment || decided == 0 || errors_in_a_row > 1);
            if enough || hopeless || *self.interrupt.borrow() {
                break;
            }
        }
        if args.repeat > 1 && !args.dry_run && decided > 0 {
            eprintln!("hit rate: {fails} of {} violated a property", many(decided, "run"));
        }
        worst
    }

    async fn one(&self, seed: u64) -> Result<Exit, Failure> {
        let args = &self.args;
        let config = args.config(seed).map_err(Failure::usage)?;
        let plan = possible(&config).map_err(Failure::usage)?;
        if args.dry_run {
            dry_run(args, &config, &plan);
            return Ok(Exit::Holds);
        }
        if let Some(client) = &args.client {
            adapters::shell_command(client).map_err(Failure::environment)?;
        }
        let exit = self.experiment(config, plan).await?;
        // the interrupt may arrive while the verdict is computed
        Ok(match *self.interrupt.borrow() {
            true => exit.and(Exit::Interrupted),
            false => exit,
        })
    }

    /// Returns the [`choice`], or `None` if the user interrupts it. Announces once that it takes long.
    async fn chosen(&self, config: Config, plan: Plan) -> Result<Option<(RuntimeChoice, Config, Plan)>, Failure> {
        let product = config.backend.product();
        let mut is_said = self.args.quiet;
        let mut interrupt = self.interrupt.clone();
        let mut choosing = pin!(choice(config, plan));
        loop {
            tokio::select! {
                biased;
                _ = interrupt.wait_for(|wanted| *wanted) => return Ok(None),
                chosen = &mut choosing => return chosen.map(Some).map_err(Failure::environment),
                () = sleep(SILENCE), if !is_said => {
                    eprintln!("looking for servers of {product}; what is missing is fetched");
                    is_said = true;
                }
            }
        }
    }

    /// Runs one experiment, from the choice of a runtime to the verdict.
    async fn experiment(&self, config: Config, plan: Plan) -> Result<Exit, Failure> {
        let Some((choice, config, plan)) = self.chosen(config, plan).await? else {
            return Ok(Exit::Interrupted);
        };
        let args = &self.args;
        let digest = choice.runtime.digest().await;
        store::check_latest(&args.results).map_err(Failure::environment)?;
        let (run, folder, info) = begin(args, &config, &plan, &choice, digest).map_err(Failure::environment)?;
        store::point_latest(&args.results, &run).map_err(Failure::environment)?;
        // without file locks, other processes take a live run for a killed one
        let _held = store::hold(&folder).ok();
        let (folder, title) = (RunFolder(folder), title(&config, Some(&choice)));
        // a run does not fail if its log cannot be written
        let log = File::create(folder.0.join("harness.log")).map(Arc::new).ok();
        let (progress, showing) = self.show_progress(&title, log.clone());
        progress.send(ProgressEvent::Begin {
            title,
            plan: plan_in_words(&config, &plan),
        });
        progress.send(ProgressEvent::Chosen {
            name: choice.runtime.name(),
            why: choice.why.clone(),
        });
        let spec = RunSpec {
            progress: progress.clone(),
            interrupt: self.interrupt.clone(),
            ..RunSpec::of(config, plan, run, folder.clone(), choice)
        };
        let ended = match spec.choice.runtime {
            cluster::Runtime::Simulated => simulated::execute(spec).await,
            cluster::Runtime::Virtual => in_virtual_time::execute(None, spec, Arc::default()).await,
            _ => run::execute(spec).await,
        };
        progress.send(ProgressEvent::End);
        // a blocked terminal must not delay the verdict
        let _ = timeout(END_LIMIT, showing).await;
        if let Some(github) = self.github.as_ref().filter(|_| !args.quiet) {
            github.end();
        }
        let exit = self.judge(&folder, outcome_of(&ended, info), log);
        let exit = match ended.teardown.run().await {
            Ok(()) => exit,
            Err(left) => complain(exit.and(Exit::Environment), left),
        };
        match ended.error {
            Some(error) => Err(Failure::of(exit.and(exit_of_error(&error)), error)),
            None => Ok(exit),
        }
    }

    /// Starts the progress display, in a group on GitHub, and writes it to the log.
    fn show_progress(&self, title: &str, log: Option<Arc<File>>) -> (ProgressSender, JoinHandle<()>) {
        let (progress, events) = ProgressSender::channel();
        let source = self.metrics.board().map(|board| board.begin());
        let how = match (self.args.quiet, is_watched(&std::io::stderr()) && !is_dumb()) {
            (true, _) => Show::Nothing,
            (false, true) => Show::Live,
            (false, false) => Show::Plain,
        };
        if let Some(github) = self.github.as_ref().filter(|_| !self.args.quiet) {
            github.begin(title);
        }
        let look = look(self.color, &std::io::stderr());
        let showing = tokio::task::spawn_blocking(move || ui::show(events, (how, look), log, source));
        (progress, showing)
    }

    /// Checks the recorded history as `harness check` does, and writes the reports; the log gets the verdict.
    fn judge(&self, folder: &RunFolder, info: RunInfo, log: Option<Arc<File>>) -> Exit {
        let interrupted = info.status == RunStatus::Interrupted;
        let (stored, examined, told) = decided(folder, info);
        let told = told.map_or_else(|error| complain(Exit::Environment, error), |()| Exit::Holds);
        let mut examined = match examined {
            Ok(examined) => examined,
            Err(error) => return complain(Exit::Bug, error),
        };
        let began = stored.history.is_file();
        let written = report::write(&stored, &mut examined);
        if let Err(error) = report::tidy_up(&self.args.results, self.args.keep) {
            eprintln!("warning: {error}");
        }
        let diagnosis = examined.diagnosis;
        if let Some(mut log) = log {
            let _ = write!(log, "\n{}", render(&diagnosis, Look::PLAIN));
        }
        if let Some(github) = &self.github {
            github.annotate(&diagnosis);
        }
        let exit = match (began, interrupted) {
            (true, _) => exit_of(&diagnosis),
            (false, true) => Exit::Interrupted,
            (false, false) => Exit::Environment,
        };
        // a run that recorded nothing has only its error to show, which the caller prints
        if began {
            show(&diagnosis, self.args.json, look(self.color, &std::io::stdout()));
        }
        match written {
            Ok(_) => exit.and(told),
            Err(error) => complain(exit.and(Exit::Environment), error),
        }
    }
}

fn dry_run(args: &RunArgs, config: &Config, plan: &Plan) {
    if args.json {
        return print_json(plan);
    }
    let mut lines = vec![title(config, None), plan_in_words(config, plan)];
    if plan.servers_through_proxy {
        let text = "      the servers reach each other through the proxy: the plan has faults between them";
        lines.push(text.to_owned());
    }
    if plan.replicas > 0 {
        lines.push("      n2 is the replica of n1; clients connect to the current master".to_owned());
    }
    for window in &plan.windows {
        let (start, end) = (window.start.as_secs_f64(), (window.start + window.length).as_secs_f64());
        let heal = match window.injection.heal {
            "reset" => ", reset on heal",
            _ => "",
        };
        lines.push(format!(
            "  window {}   faults +{start:.1}s to +{end:.1}s   {}: {}{heal}",
            window.number, window.fault.name, window.injection.title
        ));
    }
    print_table(&lines.join("\n"));
}

fn title(config: &Config, choice: Option<&RuntimeChoice>) -> String {
    let attitude = config.attitude().map(|attitude| format!(" {attitude}"));
    let attitude = attitude.unwrap_or_default();
    let runtime = choice.map(|choice| format!(" {}", choice.runtime.in_words()));
    let runtime = runtime.unwrap_or_default();
    let (version, backend, nodes) = (env!("CARGO_PKG_VERSION"), config.backend, config.nodes);
    let (recipe, fault, seed) = (config.recipe_name(), config.fault_text(), config.seed_text());
    format!("harness {version}   {backend} ×{nodes}{runtime}   recipe {recipe}{attitude}   fault {fault}   seed {seed}")
}

fn plan_in_words(config: &Config, plan: &Plan) -> String {
    let seconds = |time: Duration| format!("{:.0}s", time.as_secs_f64());
    let time = seconds(config.time);
    if let Some(each) = config.each {
        let (clients, acquires) = (many(config.clients.into(), "client"), many(each.into(), "acquire"));
        return format!("plan  {clients}, {acquires} each, at most {time}");
    }
    let windows = many(plan.windows.len() as u64, "window");
    if let Some(grants) = config.grants {
        let acquires = many(grants.into(), "acquire");
        return format!("plan  faults ({windows}) until {acquires} in all, then one more each, at most {time}");
    }
    let phases = &plan.phases;
    let [control, warm_up] = [phases.control, phases.warm_up].map(seconds);
    let [faults, recovery] = [phases.faults, phases.recovery].map(seconds);
    format!("plan  {time} = control {control}, warm-up {warm_up}, faults {faults} ({windows}), recovery {recovery}")
}

/// Chooses the runtime. Without servers, a user at a terminal gets models instead, and a script gets an error: its output is often
/// read by a machine, to which a pass is a pass.
async fn choice(config: Config, plan: Plan) -> Result<(RuntimeChoice, Config, Plan), ClusterError> {
    let chosen = config.choose_runtime().await;
    let why = match chosen {
        Err(ClusterError::Nothing(why)) if config.runtime == RuntimeRequest::Auto && at_a_terminal() => why,
        chosen => return chosen.map(|choice| (choice, config, plan)),
    };
    let simulated = Config {
        runtime: RuntimeRequest::Simulated,
        ..config
    };
    match possible(&simulated) {
        Ok(plan) => {
            let first = why.lines().next().unwrap_or_default();
            let choice = RuntimeChoice::simulated(format!("no real servers here: {first}"));
            Ok((choice, simulated, plan))
        }
        Err(_) => Err(ClusterError::Nothing(why)),
    }
}

/// Whether a user reads the output during the run.
fn at_a_terminal() -> bool {
    is_watched(&std::io::stdout()) && is_watched(&std::io::stderr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::typed_run;

    #[test]
    fn a_plan_says_how_the_run_ends() {
        let told = |words: &str| {
            let line = format!("harness run --no-config --backend redis {words}");
            let config = typed_run(line.split(' ').map(str::to_owned).collect())
                .config(1)
                .unwrap();
            plan_in_words(&config, &possible(&config).unwrap())
        };
        let each = "plan  1 client, 1 acquire each, at most 60s";
        assert_eq!(told("--each 1 --clients 1"), each);
        let grants = "plan  faults (0 windows) until 100 acquires in all, then one more each, at most 60s";
        assert_eq!(told("--grants 100"), grants);
    }
}
