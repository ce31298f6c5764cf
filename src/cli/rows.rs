//! Runs the rows of a suite, each as a separate `harness run`: a row that panics, hangs or leaks does not affect the
//! others, and the command of a row is one that a user could type.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures_util::stream::{self, StreamExt};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::interrupt::interrupted;
use super::own_command::{self, last_lines, own_command};
use super::row_seeds::{RowSeeds, SEED, SeedExamined, examine};
use crate::config::setting::{Setting, SettingOrigin};
use crate::exit::Exit;
use crate::report::Diagnosis;
use crate::report::terminal::Look;
use crate::store::RUNS;
use crate::suite::SuiteRow;
use crate::suite::judge::{Judgement, RowOutcome};
use crate::suite::record::{Record, RowAttempt, RowRecord, SeedCounts};
use crate::suite::render::{self, progress};

/// Time for a row of a suite to end beyond its own: servers start and stop, a long history is checked.
const ROW_OVERTIME: Duration = Duration::from_secs(240);

/// A row, and the length of its experiment.
pub struct Job {
    pub row: SuiteRow,
    pub time: Duration,
    /// The seeds that are all tried on models, in place of one run.
    pub seeds: Option<RowSeeds>,
}

impl Job {
    /// Returns the job of one run with this seed.
    fn with_seed(&self, seed: u64) -> Self {
        let mut row = self.row.clone();
        let seed = Setting::of(SEED, format!("{seed:08x}"), SettingOrigin::Flag);
        row.settings.push(seed);
        Self {
            row,
            time: self.time,
            seeds: None,
        }
    }
}

/// The results folder and log of one row. They are separate, because rows run at the same time.
struct RowFolder<'a> {
    suite: &'a Path,
    /// Relative to the suite's folder: `runs/007`.
    runs: String,
    log: PathBuf,
}

impl<'a> RowFolder<'a> {
    fn of(suite: &'a Path, index: usize, attempt: u32) -> Self {
        let number = format!("{:03}", index + 1);
        Self {
            suite,
            log: suite.join("logs").join(format!("{number}-{}.log", attempt + 1)),
            runs: format!("{RUNS}/{number}"),
        }
    }
}

/// A suite whose rows are all valid.
pub struct Ready {
    pub record: Record,
    pub jobs: Vec<Job>,
}

/// Estimated time to start and stop servers and clients, until rows have been measured.
const OVERHEAD: Duration = Duration::from_secs(3);

/// Runs all rows, `at_once` at a time, and calls `keep` after each. If the user interrupts, no other row begins.
pub async fn run<E>(
    ready: Ready,
    folder: &Path,
    at_once: u32,
    look: Look,
    keep: &impl Fn(&Record) -> Result<(), E>,
) -> Result<Record, E> {
    let Ready { mut record, jobs } = ready;
    let started = Instant::now();
    let stop = &interrupted();
    let times: Vec<Duration> = jobs.iter().map(|job| job.time + OVERHEAD).collect();
    let jobs = jobs.into_iter().enumerate().take_while(|_| !*stop.borrow());
    let mut done = stream::iter(jobs)
        .map(|(index, job)| async move { (index, row(&job, index, folder, stop).await) })
        .buffer_unordered(at_once as usize);
    let (mut count, mut planned) = (0, Duration::ZERO);
    while let Some((index, row)) = done.next().await {
        record.rows[index] = row;
        count += 1;
        planned += times[index];
        let all: Duration = times.iter().sum();
        let pace = started.elapsed().as_secs_f64() / planned.as_secs_f64();
        let left_ms = (all - planned).mul_f64(pace).as_millis() as u64;
        let place = render::SuiteProgress {
            done: count,
            of: times.len(),
            left_ms,
        };
        eprint!("{}", progress(&record.rows[index], &place, look));
        record.took_ms = started.elapsed().as_millis() as u64;
        record.exit = record.exit().code();
        keep(&record)?;
    }
    if *stop.borrow() {
        for row in record.rows.iter_mut().filter(|row| row.judged == RowOutcome::NotRun) {
            row.judged = RowOutcome::Interrupted;
        }
        record.exit = record.exit().code();
    }
    Ok(record)
}

/// Runs a row, and reruns it while it is inconclusive and has retries left.
async fn row(job: &Job, index: usize, folder: &Path, stop: &watch::Receiver<bool>) -> RowRecord {
    let mut record = RowRecord::of(&job.row);
    if let Some(seeds) = job.seeds {
        let (counts, attempt) = with_seeds(job, seeds, &RowFolder::of(folder, index, 0), stop).await;
        record.seeds = Some(counts);
        record.add(attempt);
        return record;
    }
    for number in 0..=job.row.retries {
        record.add(attempt(job, &RowFolder::of(folder, index, number), stop.clone()).await);
        if !record.judged.proves_nothing() || *stop.borrow() {
            break;
        }
    }
    record
}

/// Tries each of the seeds on models, in memory. The run that decides is made again with its files, unless it is as expected or the
/// user interrupted.
async fn with_seeds(
    job: &Job,
    seeds: RowSeeds,
    place: &RowFolder<'_>,
    stop: &watch::Receiver<bool>,
) -> (SeedCounts, RowAttempt) {
    let started = Instant::now();
    let took_ms = || started.elapsed().as_millis() as u64;
    let (row, stopped) = (job.row.clone(), stop.clone());
    let examined = match spawn_blocking(move || examine(&row, seeds, &stopped)).await {
        Ok(examined) => examined,
        Err(panic) => {
            let why = format!("a run on models ended without an outcome: {panic}");
            return (SeedCounts::default(), failed(RowOutcome::Bug, why, took_ms()));
        }
    };
    let counts = examined.counts.clone();
    let attempt = match examined.decisive(seeds.count) {
        None => failed(RowOutcome::Interrupted, "not all seeds were tried".into(), took_ms()),
        // a run that begins after an interruption ends at once
        Some(decisive) if *stop.borrow() || decisive.judgement.judged == RowOutcome::AsExpected => RowAttempt {
            judged: decisive.judgement.judged,
            why: decisive.judgement.why,
            ..attempt_of(decisive.diagnosis)
        },
        Some(decisive) => with_files(job, decisive, place, stop).await,
    };
    let took_ms = took_ms();
    (counts, RowAttempt { took_ms, ..attempt })
}

/// Makes a run in memory again, with its files. It is the same again.
async fn with_files(
    job: &Job,
    in_memory: SeedExamined,
    place: &RowFolder<'_>,
    stop: &watch::Receiver<bool>,
) -> RowAttempt {
    let SeedExamined { seed, judgement, .. } = in_memory;
    let again = attempt(&job.with_seed(seed), place, stop.clone()).await;
    if [judgement.judged, RowOutcome::Environment, RowOutcome::Interrupted].contains(&again.judged) {
        return again;
    }
    let (judged, other) = (judgement.judged.word(), again.judged.word());
    let why = judgement.why.join("; ");
    let why = format!("seed {seed:08x} is {judged} in memory and {other} with its files: {why}");
    RowAttempt {
        judged: RowOutcome::Bug,
        why: vec![why],
        ..again
    }
}

/// Makes one run of a row.
async fn attempt(job: &Job, place: &RowFolder<'_>, stop: watch::Receiver<bool>) -> RowAttempt {
    let command = match command(job, place) {
        Ok(command) => command,
        Err(sentence) => return failed(RowOutcome::Environment, sentence, 0),
    };
    let started = Instant::now();
    let ran = own_command::run(command, job.time + ROW_OVERTIME, stop.clone()).await;
    let took_ms = started.elapsed().as_millis() as u64;
    let (code, printed) = match ran {
        Ok(ran) => ran,
        Err(sentence) => return failed(RowOutcome::Bug, sentence, took_ms),
    };
    let diagnosis: Option<Diagnosis> = serde_json::from_slice(&printed).ok();
    let exit = exit_of_run(code, *stop.borrow());
    let Judgement { judged, mut why } = job.row.judge(exit, diagnosis.as_ref());
    if why.is_empty() && judged != RowOutcome::AsExpected {
        why.extend(last_lines(&place.log));
    }
    let run = diagnosis.as_ref().and_then(|diagnosis| diagnosis.run.as_ref());
    RowAttempt {
        judged,
        why,
        exit: code.and_then(|code| u8::try_from(code).ok()),
        took_ms,
        run: run.map(|run| format!("{}/{}", place.runs, run.run)),
        ..attempt_of(diagnosis)
    }
}

/// Returns the exit code of a run. One that is interrupted before it catches the signal has none.
fn exit_of_run(code: Option<i32>, is_interrupted: bool) -> Option<Exit> {
    match code {
        Some(code) => Exit::ALL.into_iter().find(|exit| i32::from(exit.code()) == code),
        None => is_interrupted.then_some(Exit::Interrupted),
    }
}

/// Returns an attempt with the verdict of a diagnosis, if there is one.
fn attempt_of(diagnosis: Option<Diagnosis>) -> RowAttempt {
    let Some(diagnosis) = diagnosis else {
        return RowAttempt::default();
    };
    let findings = diagnosis.findings.iter();
    RowAttempt {
        exit: Some(diagnosis.exit),
        outcome: Some(diagnosis.outcome),
        verdicts: findings.map(|finding| (finding.property, finding.verdict)).collect(),
        effect: diagnosis.effect.evidence,
        again: diagnosis.run.map(|run| run.again).unwrap_or_default(),
        ..RowAttempt::default()
    }
}

/// Returns an attempt without a verdict, with a sentence about the reason.
fn failed(judged: RowOutcome, sentence: String, took_ms: u64) -> RowAttempt {
    RowAttempt {
        judged,
        why: vec![sentence],
        took_ms,
        ..RowAttempt::default()
    }
}

/// Returns the `harness run` of a row. The error says why its log cannot be written.
fn command(job: &Job, place: &RowFolder<'_>) -> Result<Command, String> {
    let mut command = own_command(&place.log)?;
    // a suite must not depend on configuration files of the machine
    command.args(["run", "--json", "--quiet", "--no-config", "--color=never", "--keep=all"]);
    command
        .arg("--results")
        .arg(place.suite.join(&place.runs))
        .args(job.row.words());
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_the_interrupt_ended_at_its_start_is_interrupted_and_no_bug() {
        assert_eq!(exit_of_run(None, true), Some(Exit::Interrupted));
        assert_eq!(exit_of_run(None, false), None);
        assert_eq!(exit_of_run(Some(4), true), Some(Exit::Environment));
    }
}
