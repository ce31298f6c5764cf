//! `harness shrink --bisect-image`, `--bisect-server` and `--bisect-client`: finds the version that introduced a stored violation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::ColorChoice;
use harness_checkers::{Property, Verdict};
use tokio::sync::watch;

use super::args::RunArgs;
use super::bisect_screen::{BisectResult, VersionKind, VersionResult, progress_line, sentence, summary};
use super::experiment::{completed, run_args, set_option};
use super::hunt_args::ShrinkArgs;
use super::interrupt::interrupted;
use super::original::{Original, original};
use super::series::{self, ExperimentSeries, SeriesPlace, SeriesStep};
use super::stdout::{print, print_json};
use super::{Failure, look, run_to_end};
use crate::cluster::RuntimeRequest;
use crate::config::Clients;
use crate::exit::Exit;
use crate::hunt::bisect::{BisectAnswer, BisectLimits, Bisecting, VersionRun};
use crate::report::Diagnosis;
use crate::report::screen::Look;
use crate::store::{self, RUNS};

const SCHEMA: &str = "harness-bisect/1";
/// The answer of a search that the user interrupted.
const INTERRUPTED: &str = "interrupted before there was an answer";

/// Compares the `given` versions.
pub fn bisect(args: &ShrinkArgs, kind: VersionKind, given: &[String], color: ColorChoice) -> Result<Exit, Failure> {
    let versions = versions(kind, given)?;
    let original = original(args)?;
    refuse_other_kind(kind, &original)?;
    let name = format!("{}-bisect-{}", store::minute_now(), original.name);
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    let result = run_to_end(async {
        let mut comparing = Comparing::of(args, &original, versions, kind, &folder, color);
        let ended = comparing.compare().await;
        if let Some((_, series)) = comparing.servers.take() {
            series.end().await;
        }
        ended.and_then(|()| comparing.result())
    });
    // the folder of a search that made no run is empty, and no other one can be removed so
    let result = result.inspect_err(|_| drop(fs::remove_dir(&folder)))?;
    // the logs of clients and servers explain a version that did not start, or whose last run proves nothing
    if result.versions.iter().all(|version| version.why.is_none()) {
        series::remove_logs(&folder);
        series::remove_stopped_runs(&folder);
    }
    store::write_json(&folder.join("bisect.json"), &result).map_err(Failure::environment)?;
    if args.json {
        print_json(&result);
    } else {
        print(&summary(&result, &folder, look(color, &io::stdout())));
    }
    Ok(match (result.began.is_empty(), result.interrupted) {
        (false, _) => Exit::Violated,
        (true, true) => Exit::Interrupted,
        (true, false) => Exit::Inconclusive,
    })
}

/// Returns the versions to compare. The error says that they are too few, or that one is named twice.
fn versions(kind: VersionKind, given: &[String]) -> Result<Vec<String>, Failure> {
    let (option, example) = match kind {
        VersionKind::Client => (
            "--bisect-client",
            "--bisect-client ./lock-1.0 --bisect-client ./lock-1.1",
        ),
        VersionKind::Image => ("--bisect-image", "--bisect-image redis:6.2,redis:7.0"),
        VersionKind::Server => ("--bisect-server", "--bisect-server 6.2,7.0"),
    };
    let named: Vec<String> = given.iter().map(|version| version.trim().to_owned()).collect();
    if named.len() < 2 || named.iter().any(String::is_empty) {
        return Err(Failure::usage(format!(
            "{option} needs two versions or more, oldest first: the oldest without the violation, the newest with it\nhint: {example}"
        )));
    }
    let is_second = |(place, version): &(usize, &String)| named[..*place].contains(version);
    match named.iter().enumerate().find(is_second) {
        Some((_, version)) => Err(Failure::usage(format!("{option} names {version} twice"))),
        None => Ok(named),
    }
}

/// Refuses a run that cannot be made with other versions of this kind.
fn refuse_other_kind(kind: VersionKind, original: &Original) -> Result<(), Failure> {
    let config = &original.config;
    series::refuse_running_servers(config)?;
    match (kind, &config.who) {
        (VersionKind::Client, Clients::Foreign { .. }) => Ok(()),
        (VersionKind::Client, Clients::Recipe(_)) => Err(Failure::usage(format!(
            "the lock of {} is a recipe of harness, and --bisect-client compares lock clients\nhint: harness run --client './lock-1.1' …, and then bisect that run",
            original.name
        ))),
        _ if config.runtime == RuntimeRequest::Simulated => Err(Failure::usage(format!(
            "the servers of {} are models without versions\nhint: repeat the run on real servers first: --runtime docker",
            original.name
        ))),
        _ => Ok(()),
    }
}

impl Original {
    /// Returns the options of `harness run` for a version that was run so often `before`. A run in virtual time is the same each
    /// time, so each one is in another world: only then does the number of runs prove anything.
    fn of_version(&self, kind: VersionKind, version: &str, before: u32) -> Vec<(String, String)> {
        let mut options = self.options.clone();
        let mut set = |name: &str, value: Option<String>| set_option(&mut options, name, value);
        let version = Some(version.to_owned());
        if self.config.runtime == RuntimeRequest::Virtual && before > 0 {
            set("world", Some((self.config.world + before).to_string()));
        }
        match kind {
            VersionKind::Client => set("client", version),
            VersionKind::Image => {
                set("server-version", None);
                set("image", version);
                set("runtime", Some("docker".to_owned()));
                // options of virtual time
                set("world", None);
                set("threads-by-seed", None);
            }
            VersionKind::Server => {
                set("image", None);
                set("server-version", version);
            }
        }
        options
    }
}

/// A search for the version that introduced a violation, with the servers of its runs.
struct Comparing<'a> {
    args: &'a ShrinkArgs,
    original: &'a Original,
    folder: &'a Path,
    kind: VersionKind,
    versions: Vec<String>,
    search: Bisecting,
    /// By version, the reason for which its last run proves nothing.
    reasons: Vec<Option<String>>,
    /// The version that servers were started for, and the runs on them.
    servers: Option<(usize, ExperimentSeries)>,
    stop: watch::Receiver<bool>,
    look: Look,
    until: Instant,
    number: u32,
    /// The last failed run of the oldest version that has one, and its options.
    kept: Option<(Vec<(String, String)>, PathBuf)>,
}

impl<'a> Comparing<'a> {
    fn of(
        args: &'a ShrinkArgs,
        original: &'a Original,
        versions: Vec<String>,
        kind: VersionKind,
        folder: &'a Path,
        color: ColorChoice,
    ) -> Self {
        let (confirm, runs) = (args.confirm, args.bisect_runs);
        let limits = BisectLimits { confirm, runs };
        Self {
            args,
            original,
            folder,
            kind,
            search: Bisecting::of(versions.len(), limits),
            reasons: vec![None; versions.len()],
            versions,
            servers: None,
            stop: interrupted(),
            look: look(color, &io::stderr()),
            until: Instant::now() + args.limit,
            number: 0,
            kept: None,
        }
    }

    /// Makes runs until there is an answer, the time is over or the user interrupts.
    async fn compare(&mut self) -> Result<(), Failure> {
        while !*self.stop.borrow() && Instant::now() < self.until {
            let Some(version) = self.search.candidate() else { break };
            let started = Instant::now();
            let Some((run, why)) = self.try_version(version).await? else {
                break;
            };
            self.search.add_run(version, run);
            self.number += 1;
            if !self.args.quiet {
                let took = started.elapsed();
                let version = &self.versions[version];
                let line = progress_line(self.number, version, run, why.as_deref(), took, self.look);
                eprintln!("{line}");
            }
            self.reasons[version] = why;
        }
        let newest = self.versions.len() - 1;
        let tally = &self.search.tallies()[newest];
        if self.search.answer() == BisectAnswer::NewestSkipped && tally.rate.runs + tally.unsure == 0 {
            let why = self.reasons[newest].as_deref().unwrap_or_default();
            return Err(Failure::environment(format!(
                "the newest version could not be run: {}: {why}",
                self.versions[newest]
            )));
        }
        Ok(())
    }

    /// Returns the servers for a version: clients share them; each image or version has its own. The error is a sentence.
    async fn servers_for(&mut self, version: usize, args: &RunArgs) -> Result<&mut ExperimentSeries, String> {
        let is_kept = |(of, _): &(usize, ExperimentSeries)| self.kind == VersionKind::Client || *of == version;
        if !self.servers.as_ref().is_some_and(is_kept) {
            if let Some((_, before)) = self.servers.take() {
                before.end().await;
            }
            let config = args.config(self.original.config.seed)?;
            let place = SeriesPlace::of(&config, self.folder, self.stop.clone()).await;
            let place = place.map_err(|failure| failure.sentence)?;
            // a number for each version, since each has a folder with the logs of its servers
            let through_proxy = self.original.plan.servers_through_proxy;
            let series = ExperimentSeries::new(place, version as u32, through_proxy);
            self.servers = Some((version, series));
        }
        let (_, series) = self.servers.as_mut().expect("it was set");
        Ok(series)
    }

    /// Makes one run of a version. Returns its result, with the reason if it proves nothing; `None` if the user interrupts.
    async fn try_version(&mut self, version: usize) -> Result<Option<(VersionRun, Option<String>)>, Failure> {
        let no_start = |why: String| Ok(Some((VersionRun::NoStart, Some(why))));
        let tally = self.search.tallies()[version];
        let before = tally.rate.runs + tally.unsure;
        let options = self.original.of_version(self.kind, &self.versions[version], before);
        let args = match run_args(&options, &self.folder.join(RUNS)) {
            Ok(args) => args,
            Err(why) => return no_start(why),
        };
        let step = match self.servers_for(version, &args).await {
            Ok(series) => series.step(&args, drop).await,
            Err(why) => return no_start(why),
        };
        let mut decision = match step {
            SeriesStep::Ended(ended) => ended.decision.await.expect("deciding a history does not panic"),
            SeriesStep::Failed(why) => return no_start(why),
            SeriesStep::Stopped => return Ok(None),
        };
        let diagnosis = decision.diagnosis()?;
        let run = VersionRun::of(diagnosis, self.original.property, self.original.class());
        let why = (run == VersionRun::Unsure).then(|| why_unsure(diagnosis, self.original.property));
        if run == VersionRun::Showed {
            decision.keep().map_err(Failure::environment)?;
            if let Some((_, before)) = self.kept.replace((options, decision.folder)) {
                series::remove_run(&before);
            }
        } else {
            decision.remove();
        }
        Ok(Some((run, why)))
    }

    fn result(&self) -> Result<BisectResult, Failure> {
        let Original { name, property, .. } = self.original;
        let (answer, interrupted) = (self.search.answer(), *self.stop.borrow());
        let (began, wrong) = match answer {
            BisectAnswer::Between { holds, fails, wrong } => (holds + 1..fails + 1, Some(wrong)),
            _ => (0..0, None),
        };
        let again = match &self.kept {
            None => Vec::new(),
            Some((options, _)) => {
                let (args, config) = completed(options, &self.args.results)?;
                args.again(&config)
            }
        };
        let tallies = self.search.tallies();
        let newest = tallies[tallies.len() - 1].rate;
        let versions = tallies.iter().zip(&self.versions).zip(&self.reasons);
        Ok(BisectResult {
            schema: SCHEMA,
            run: name.clone(),
            property: *property,
            class: self.original.class().to_owned(),
            kind: self.kind,
            versions: versions
                .map(|((tally, version), why)| VersionResult {
                    version: version.clone(),
                    state: tally.state,
                    hit_rate: tally.rate,
                    unsure: tally.unsure,
                    why: why.clone(),
                })
                .collect(),
            needed: self.search.needed(),
            interval: newest.interval(),
            began: self.versions[began].to_vec(),
            wrong,
            answer: match answer {
                BisectAnswer::Unfinished if interrupted => INTERRUPTED.to_owned(),
                _ => sentence(&answer, &self.versions, newest),
            },
            again,
            kept: self.kept.as_ref().map(|(_, folder)| series::run_name(folder)),
            interrupted,
        })
    }
}

/// Returns the reason for which a run proves nothing about a property.
fn why_unsure(diagnosis: &Diagnosis, property: Property) -> String {
    match (diagnosis.unsure.first(), diagnosis.finding(property)) {
        (Some(why), _) => why.clone(),
        (None, Some(finding)) if finding.verdict == Verdict::Violated => {
            format!("{} is violated, in another way", property.id())
        }
        (None, Some(finding)) => finding.evidence.clone(),
        (None, None) => "no verdict".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::original::original_of;

    #[test]
    fn each_run_of_a_version_in_virtual_time_is_in_another_world() {
        let world = |runtime: &str, kind, before| {
            let original = original_of(&format!(
                "backend=redis client=./a {runtime} fault=reset time=60s seed=7"
            ));
            let options = original.of_version(kind, "b", before);
            let mut options = options.into_iter();
            options.find(|(name, _)| name == "world").map(|(_, value)| value)
        };
        let one_of = "runtime=virtual world=2";
        assert_eq!(world("runtime=virtual", VersionKind::Client, 0), None);
        assert_eq!(world(one_of, VersionKind::Client, 0).as_deref(), Some("2"));
        assert_eq!(world(one_of, VersionKind::Server, 3).as_deref(), Some("5"));
        // runs in real time differ by themselves
        assert_eq!(world("runtime=local", VersionKind::Client, 3), None);
        assert_eq!(world(one_of, VersionKind::Image, 3), None);
    }
}
