//! `harness suite`: validates all rows of a suite, runs them, and reports them in one table with one exit code; `--merge`
//! merges the records of shards.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ColorChoice;

use super::experiment::possible;
use super::github::Github;
use super::merging;
use super::records::{PAGE, SUITE_RECORD, before, in_folder_name, suites};
use super::row_seeds::{RowSeeds, SEED};
use super::rows::{self, Job, Ready};
use super::seeds::{fresh_seed, parse_seed};
use super::settings::{refusal, run_of, run_options, set, warn_of_variables};
use super::stdout::{print, print_json, print_table};
use super::suite_args::SuiteArgs;
use super::{Failure, look, run_to_end};
use crate::config::heading::describes_experiment;
use crate::config::setting::{Setting, over};
use crate::exit::Exit;
use crate::report::words::{many, quoted_words};
use crate::store::{self, RunInfo};
use crate::suite::record::{self, Record, RowRecord};
use crate::suite::{RowLeftOut, Suite, SuiteRow, file, junit, page, render};

const RUNTIME: &str = "runtime";
/// The rows of `--versions`.
const VERSIONS: &str = include_str!("../../tests/suites/versions.toml");

pub fn suite(args: &SuiteArgs, color: ColorChoice) -> Result<Exit, Failure> {
    if args.merge.is_empty() {
        warn_of_variables("suite");
        run(args, ready(args)?, color)
    } else {
        merge(args, color)
    }
}

/// Reads the suite and validates its rows.
fn ready(args: &SuiteArgs) -> Result<Ready, Failure> {
    let unread = |path: &Path, error: io::Error| Failure::usage(format!("could not read {}: {error}", path.display()));
    let (path, text) = match &args.file {
        Some(path) => (
            path.as_path(),
            fs::read_to_string(path).map_err(|error| unread(path, error))?,
        ),
        None => (Path::new("versions.toml"), VERSIONS.to_owned()),
    };
    let name = path
        .file_stem()
        .map_or_else(|| "suite".into(), |stem| stem.to_string_lossy());
    let options = run_options(describes_experiment);
    let in_file = |error| Failure::usage(format!("{}: {error}", path.display()));
    let mut suite = file::read(&text, &name, &options).map_err(in_file)?;
    let mut set = set(&args.set, &options)?;
    let seeds = args.seeds.map(|count| taken_as_seeds(&mut set, count)).transpose()?;
    let names_none = |text: &&String| !suite.rows.iter().any(|row| row.name.contains(*text));
    if let Some(text) = args.filter.iter().find(names_none) {
        let sentence = format!("{} has no row with `{text}` in its name", path.display());
        return Err(Failure::usage(sentence));
    }
    let is_wanted = |row: &SuiteRow| args.filter.is_empty() || args.filter.iter().any(|text| row.name.contains(text));
    suite.rows.retain(is_wanted);
    let (mut jobs, mut left_out) = (Vec::new(), Vec::new());
    for mut row in std::mem::take(&mut suite.rows) {
        row.retries = args.retries.unwrap_or(row.retries);
        let refused = |sentence: String| {
            let (file, line, name) = (path.display(), row.line, &row.name);
            Failure::usage(format!("{file}: line {line}: row `{name}`: {sentence}"))
        };
        match check(&row, &set).map_err(refused)? {
            RowCheck::Runs { settings, time } => {
                row.settings = settings;
                let seeds = seeds.filter(|_| row.value(SEED).is_none());
                if seeds.is_some() && row.value(RUNTIME) != Some(RunInfo::SIMULATED) {
                    let sentence = "--seeds needs models of servers\nhint: --set runtime=simulated";
                    return Err(refused(sentence.to_owned()));
                }
                jobs.push(Job { row, time, seeds });
            }
            RowCheck::LeftOut(why) => left_out.push(RowLeftOut { name: row.name, why }),
        }
    }
    if args.rerun_unsure {
        let rows = unsure(args, &suite.name, &jobs)?;
        jobs.retain(|job| rows.contains(&job.row.name));
    }
    let wanted: Vec<String> = jobs.iter().map(|job| job.row.name.clone()).collect();
    if wanted.is_empty() {
        let named = if args.filter.is_empty() {
            ""
        } else {
            " with such a name"
        };
        let that = match left_out.first() {
            None => String::new(),
            Some(row) => format!(" that the runtime of --set can run: {}", row.why),
        };
        return Err(Failure::usage(format!("{} has no row{named}{that}", path.display())));
    }
    jobs.retain(|job| args.shard.is_none_or(|shard| shard.takes(&job.row.name)));
    let record = record(args, &suite, wanted, left_out, &jobs);
    Ok(Ready { record, jobs })
}

/// Returns those of the rows that were errors or unsure, or were not run, in the last record of this suite that has them.
fn unsure(args: &SuiteArgs, suite: &str, jobs: &[Job]) -> Result<Vec<String>, Failure> {
    let mut records = suites(&args.results);
    records.retain(|(_, record)| record.suite == suite && record.shard == args.shard);
    if records.is_empty() {
        let results = args.results.display();
        return Err(Failure::usage(format!(
            "no record of {suite} is in {results}\nhint: run it once without --rerun-unsure"
        )));
    }
    // an old record may have rows that were renamed since
    let is_left = |row: &&RowRecord| jobs.iter().any(|job| job.row.name == row.name);
    let rows = records.iter().flat_map(|(_, record)| &record.rows).filter(is_left);
    let last: BTreeMap<&str, &RowRecord> = rows.map(|row| (row.name.as_str(), row)).collect();
    let open = |row: &&RowRecord| row.judged.proves_nothing() || !row.judged.was_run();
    let rows: Vec<String> = last.into_values().filter(open).map(|row| row.name.clone()).collect();
    if rows.is_empty() {
        return Err(Failure::usage(format!(
            "no row of {suite} that would run was an error or unsure in its last run, so there is nothing to run again"
        )));
    }
    Ok(rows)
}

/// Returns the seeds of each row, of which `--set seed=` is the first.
fn taken_as_seeds(set: &mut Vec<Setting>, count: u32) -> Result<RowSeeds, Failure> {
    let place = set.iter().position(|setting| setting.option.name == SEED);
    let typed = place.and_then(|place| set.remove(place).value);
    let first = typed.map_or_else(|| Ok(fresh_seed()), |typed| parse_seed(&typed));
    let first = first.map_err(|why| Failure::usage(format!("--set seed: {why}")))?;
    Ok(RowSeeds { first, count })
}

/// A row that `harness run` takes.
enum RowCheck {
    Runs {
        settings: Vec<Setting>,
        time: Duration,
    },
    /// The models or the virtual time of `--set runtime=` cannot run it, for this reason. With the runtime of the file it runs.
    LeftOut(String),
}

/// Checks a row with the settings of `--set`. The error says why `harness run` would refuse it.
fn check(row: &SuiteRow, set: &[Setting]) -> Result<RowCheck, String> {
    let settings = over(set, &row.settings);
    let refused = match length(&settings) {
        Ok(time) => return Ok(RowCheck::Runs { settings, time }),
        Err(refused) => refused,
    };
    let (runtime, others): (Vec<Setting>, Vec<Setting>) =
        set.iter().cloned().partition(|setting| setting.option.name == RUNTIME);
    let asked = runtime.first().and_then(|setting| setting.value.as_deref());
    let in_a_world = asked.filter(|asked| [RunInfo::SIMULATED, RunInfo::VIRTUAL].contains(asked));
    let Some(asked) = in_a_world.filter(|_| length(&over(&others, &row.settings)).is_ok()) else {
        return Err(refused);
    };
    let why = refused.lines().next().unwrap_or_default();
    let why = why.trim_start_matches(&format!("--runtime {asked}: "));
    Ok(RowCheck::LeftOut(why.to_owned()))
}

/// Returns the length of an experiment with these settings, or the refusal of `harness run`.
fn length(settings: &[Setting]) -> Result<Duration, String> {
    let run = run_of(settings).map_err(|error| refusal(&error))?;
    let config = run.config(0)?;
    possible(&config)?;
    Ok(config.time)
}

fn record(args: &SuiteArgs, suite: &Suite, wanted: Vec<String>, left_out: Vec<RowLeftOut>, jobs: &[Job]) -> Record {
    let mut record = Record {
        schema: record::SCHEMA.to_owned(),
        suite: suite.name.clone(),
        digest: suite.digest.clone(),
        harness: env!("CARGO_PKG_VERSION").to_owned(),
        started: store::minute_now(),
        shard: args.shard,
        wanted,
        left_out,
        took_ms: 0,
        rows: jobs.iter().map(|job| RowRecord::of(&job.row)).collect(),
        exit: 0,
    };
    record.exit = record.exit().code();
    record
}

fn run(args: &SuiteArgs, ready: Ready, color: ColorChoice) -> Result<Exit, Failure> {
    if args.dry_run {
        return Ok(dry_run(args, &ready));
    }
    let folder = folder(args, &ready.record)?;
    let seeing = look(color, &io::stderr());
    let keep = |record: &Record| store::write_json(&folder.join(SUITE_RECORD), record).map_err(Failure::environment);
    keep(&ready.record)?;
    let record = run_to_end(rows::run(ready, &folder, args.jobs, seeing, &keep))?;
    finish(args, &record, &folder, color)
}

fn dry_run(args: &SuiteArgs, ready: &Ready) -> Exit {
    if args.json {
        print_json(&ready.record);
        return Exit::Holds;
    }
    let width = ready.jobs.iter().map(|job| job.row.name.len()).max().unwrap_or(0);
    let line = |job: &Job| {
        let words = quoted_words(&job.row.words()).join(" ");
        format!("{:<width$}  {words}\n", job.row.name)
    };
    let time: Duration = ready.jobs.iter().map(|job| job.time).sum();
    let rows: String = ready.jobs.iter().map(line).collect();
    let left_out = ready.record.left_out.iter();
    let left_out: String = left_out
        .map(|row| format!("{:<width$}  left out: {}\n", row.name, row.why))
        .collect();
    let (count, seconds) = (many(ready.jobs.len() as u64, "row"), time.as_secs());
    print_table(&format!("{rows}{left_out}{count}, {seconds}s of experiments"));
    Exit::Holds
}

/// `results/20261121-0645-suite-nightly-2of3`
fn folder(args: &SuiteArgs, record: &Record) -> Result<PathBuf, Failure> {
    let shard = record
        .shard
        .map(|shard| format!("-{}of{}", shard.number, shard.of))
        .unwrap_or_default();
    let suite = in_folder_name(&record.suite);
    let name = format!("{}-suite-{suite}{shard}", store::minute_now());
    let (_, folder) = store::create(&args.results, &name).map_err(Failure::environment)?;
    Ok(folder)
}

/// Writes the record and the reports, and prints the table.
fn finish(args: &SuiteArgs, record: &Record, folder: &Path, color: ColorChoice) -> Result<Exit, Failure> {
    store::write_json(&folder.join(SUITE_RECORD), record).map_err(Failure::environment)?;
    let summary = render::markdown(record);
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let page = page::page(record, &before(&args.results, &name, record));
    for (name, text) in [
        ("junit.xml", &junit::junit(record)),
        ("summary.md", &summary),
        (PAGE, &page),
    ] {
        store::write_text(&folder.join(name), text).map_err(Failure::environment)?;
    }
    super::report::write_index(&args.results).map_err(Failure::environment)?;
    if let Some(github) = Github::detected() {
        github.summarise(&summary);
    }
    if args.json {
        print_json(record);
    } else {
        let shown = folder.display().to_string();
        print(&render::table(record, &shown, look(color, &io::stdout())));
    }
    Ok(record.exit())
}

fn merge(args: &SuiteArgs, color: ColorChoice) -> Result<Exit, Failure> {
    let named = (SUITE_RECORD, "a suite's record");
    let mut records = merging::read_all(&args.merge, named, |record: &mut Record| record.runs_mut().collect())?;
    if records.iter().any(|record| record.shard.is_some()) {
        // the record of an earlier merge may be in the same folder
        records.retain(|record| record.shard.is_some());
    }
    let mut joined = record::merge(records).map_err(Failure::usage)?;
    let folder = folder(args, &joined)?;
    for run in joined.runs_mut() {
        *run = merging::seen_from(&folder, run)?;
    }
    finish(args, &joined, &folder, color)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::backends;
    use crate::cli::args::{Cli, CliCommand};
    use crate::cluster::versions::fetched_versions;
    use crate::suite::RowOutcome;

    /// Returns the suite that `harness suite` reads with these words.
    fn ready_with(words: &[&str]) -> Result<Ready, String> {
        let words = [&["harness", "suite"][..], words].concat();
        let CliCommand::Suite(args) = Cli::try_parse_from(words).unwrap().command else {
            panic!("it is a suite")
        };
        ready(&args).map_err(|failure| failure.sentence)
    }

    fn ready_from(text: &str, words: &[&str]) -> Result<Ready, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nightly.toml");
        fs::write(&path, text).unwrap();
        ready_with(&[&[path.to_str().unwrap()][..], words].concat())
    }

    /// Returns the reason for which a file is refused.
    fn refused(text: &str, words: &[&str]) -> String {
        ready_from(text, words).err().unwrap_or_default()
    }

    #[test]
    fn the_matrix_of_versions_can_be_run_and_has_each_version_that_can_be_fetched() {
        let ready = ready_with(&["--versions"]).unwrap();
        for backend in backends::all() {
            for version in fetched_versions(backend.name()) {
                let is_of = |job: &&Job| {
                    let asked = job.row.value("server-version").unwrap_or_default();
                    job.row.value("backend") == Some(backend.name())
                        && (version.is.clone() + ".").starts_with(&format!("{asked}."))
                };
                let rows = ready.jobs.iter().filter(is_of).count();
                assert!(rows >= 2, "{backend} {}", version.is);
            }
        }
    }

    const TWO: &str = "[[group]]\nbackend = \"zk\"\nrows = [{ recipe = \"zk-polling\" }, { recipe = \"zk-election\", time = \"30s\" }]";

    #[test]
    fn a_row_that_run_would_refuse_is_refused_before_anything_starts() {
        let row = "[[row]]\nbackend = \"zk\"\nrecipe = \"zk-polling\"\n";
        let of_row = |more: &str| format!("{row}{more}");
        let wrong = [
            ("[[row]]\nname = \"a\"".to_owned(), "--backend"),
            (row.replace("polling", "poling"), "zk-polling"),
            (of_row("time = \"3\""), "not a duration"),
            (of_row("fault = \"partition\"\ntime = \"5s\""), "too short"),
            (of_row("results = \"x\""), "no key `results`"),
            ("name = \"nothing\"".to_owned(), "no row"),
        ];
        for (text, words) in wrong {
            let sentence = refused(&text, &[]);
            assert!(sentence.contains(words), "{text}: {sentence}");
        }
    }

    #[test]
    fn rows_are_chosen_by_name_and_by_shard_and_all_are_remembered() {
        let names = |ready: &Ready| ready.jobs.iter().map(|job| job.row.name.clone()).collect::<Vec<_>>();
        let all = ready_from(TWO, &[]).unwrap();
        assert_eq!(names(&all).len(), 2);
        assert_eq!(all.jobs[1].time, Duration::from_secs(30));
        let one = ready_from(TWO, &["--filter", "election"]).unwrap();
        assert_eq!(names(&one), ["zk-election / none"]);
        // a misspelt name is not ignored beside another one
        let none = refused(TWO, &["--filter", "election", "--filter", "nobody"]);
        assert!(none.ends_with("has no row with `nobody` in its name"), "{none}");
        let shards = ["1/2", "2/2"].map(|shard| ready_from(TWO, &["--shard", shard]).unwrap());
        assert_eq!(shards.iter().map(|shard| shard.jobs.len()).sum::<usize>(), 2);
        assert!(shards.iter().all(|shard| shard.record.wanted == names(&all)));
    }

    #[test]
    fn only_rows_that_proved_nothing_are_run_again() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().to_str().unwrap();
        let words = ["--results", results, "--rerun-unsure"];
        assert!(refused(TWO, &words).contains("no record"));
        let mut record = ready_from(TWO, &[]).unwrap().record;
        let keep = |record: &Record, minute: &str| {
            let suite = folder.path().join(format!("20261122-{minute}-nightly"));
            fs::create_dir_all(&suite).unwrap();
            store::write_json(&suite.join(SUITE_RECORD), record).unwrap();
        };
        record.rows[0].judged = RowOutcome::Unexpected;
        record.rows[1].judged = RowOutcome::Unsure;
        keep(&record, "0700");
        // one with a filter lacks that row
        let mut filtered = ready_from(TWO, &["--filter", "polling"]).unwrap().record;
        filtered.rows[0].judged = RowOutcome::Unexpected;
        keep(&filtered, "0800");
        let again = ready_from(TWO, &words).unwrap();
        assert_eq!(again.record.wanted, ["zk-election / none"]);
        assert_eq!(again.jobs.len(), 1);
        record.rows[1].judged = RowOutcome::AsExpected;
        keep(&record, "0900");
        // the file has no such row
        filtered.rows[0].name = "zk-polling / pause".to_owned();
        filtered.rows[0].judged = RowOutcome::Unsure;
        keep(&filtered, "1000");
        assert!(refused(TWO, &words).contains("nothing to run again"));
    }

    #[test]
    fn rows_that_a_runtime_cannot_run_are_left_out_where_all_are_sent_there() {
        const MIXED: &str = "[[group]]\nbackend = \"zk\"\nruntime = \"local\"\nrows = [\n{ recipe = \"zk-polling\" },\n{ recipe = \"zk-curator\" },\n\
                             { recipe = \"zk-polling\", fault = \"server-replace\", time = \"60s\" },\n]";
        let models = ["--set", "runtime=simulated"];
        let ready = ready_from(MIXED, &models).unwrap();
        assert_eq!(ready.record.wanted, ["zk-polling / none"]);
        let left: Vec<_> = ready.record.left_out.iter().collect();
        assert_eq!(left.len(), 2, "{left:?}");
        assert_eq!(left[0].name, "zk-curator / none");
        assert!(left[0].why.starts_with("zk-curator is a client library"), "{left:?}");
        assert_eq!(left[1].name, "zk-polling / server-replace");

        // a row that no runtime accepts is an error, and so is one that names models itself
        let wrong = MIXED.replace("zk-curator", "zk-courator");
        assert!(refused(&wrong, &models).contains("zk-courator"));
        let own = MIXED.replace("\"local\"", "\"simulated\"");
        assert!(refused(&own, &[]).contains("zk-curator"));
        let real = MIXED.replace("server-replace", "bottleneck");
        let virtual_time = ready_from(&real, &["--set", "runtime=virtual"]).unwrap().record;
        assert_eq!(virtual_time.wanted, ["zk-polling / none", "zk-curator / none"]);
        let left = &virtual_time.left_out;
        assert!(left[0].why.starts_with("bottleneck"), "{left:?}");
        let none = refused(MIXED, &["--set", "runtime=simulated", "--filter", "curator"]);
        assert!(none.contains("no row with such a name that the runtime of --set can run: zk-curator is"));
    }

    #[test]
    fn set_wins_over_every_row_and_its_key_is_checked() {
        let set = ready_from(TWO, &["--set", "time=9s", "--set", "reentrant=true"]).unwrap();
        assert!(set.jobs.iter().all(|job| job.time == Duration::from_secs(9)));
        assert!(set.jobs[0].row.words().contains(&"--reentrant".into()));
        assert!(refused(TWO, &["--set", "tyme=9s"]).contains("`time`"));
        assert!(refused(TWO, &["--set", "results=x"]).ends_with("--results is not an option of the experiment"));
    }
}
