//! `harness check`: checks a stored history. A live run ends by calling the same function, so the two cannot disagree.

use std::fs;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Instant;

use harness_checkers::{Certificate, History, Model, Options, OrderDrawing, ReadError, ReadOptions, check as decide};

use super::args::CheckArgs;
use super::stdout::{print, print_json};
use super::{Failure, online};
use crate::exit::Exit;
use crate::report::terminal::{Look, render};
use crate::report::{Diagnosis, diagnose, diagnosis::KnownRun};
use crate::store::{self, RunInfo, RunStatus, Stored, write_json};

pub fn check(args: &CheckArgs, look: Look) -> Result<Exit, Failure> {
    let stored = find(&args.stored.read.results, &args.stored.wanted)?;
    if args.online {
        return online::check(&stored, args);
    }
    let options = Options {
        model: args.model,
        certificate: args.certificate.is_some(),
        clock_error: args.clock_error,
        ..Options::default()
    };
    let examined =
        examine(&stored, &args.stored.read.options(), &options).map_err(|error| unreadable(&stored, error))?;
    show(&examined.diagnosis, args.json, look);
    let exit = exit_of(&examined.diagnosis);
    if let Some(path) = &args.certificate {
        write_json(path, &examined.certificates).map_err(|error| Failure {
            exit: exit.and(Exit::Environment),
            sentence: error.to_string(),
        })?;
    }
    if let Some(path) = &args.draw {
        fs::write(path, page_of(&stored, &examined)).map_err(|error| Failure {
            exit: exit.and(Exit::Environment),
            sentence: format!("could not write {}: {error}", path.display()),
        })?;
    }
    Ok(exit)
}

/// The page that draws the violations that can be drawn by their operations.
fn page_of(stored: &Stored, examined: &Examined) -> String {
    let model = examined.diagnosis.model.parse();
    let model = model.unwrap_or_else(|_| Model::of_header(examined.history.header()));
    let violations = examined
        .diagnosis
        .findings
        .iter()
        .flat_map(|finding| &finding.violations);
    let drawings = violations.filter_map(|violation| OrderDrawing::of_violation(&examined.history, &model, violation));
    let drawings: Vec<OrderDrawing> = drawings.collect();
    OrderDrawing::page(&stored.history.display().to_string(), &drawings)
}

/// The name of stdin in place of a history file.
pub const STDIN: &str = "-";

/// The stored run or history that `wanted` names, or the history on stdin.
pub fn find(results: &Path, wanted: &str) -> Result<Stored, Failure> {
    if wanted != STDIN {
        return store::find(results, wanted).map_err(Failure::usage);
    }
    Ok(Stored {
        folder: None,
        history: STDIN.into(),
        info: None,
    })
}

/// Reads the history of a stored run, or the one on stdin.
pub fn open(stored: &Stored, options: &ReadOptions) -> Result<History, ReadError> {
    if stored.history == Path::new(STDIN) {
        History::read(BufReader::new(io::stdin()), options)
    } else {
        History::open(&stored.history, options)
    }
}

/// The failure to read a history. A run may have ended before it had one.
pub fn unreadable(stored: &Stored, error: ReadError) -> Failure {
    match &stored.info {
        Some(info) if !stored.history.exists() => Failure::usage(before_its_history(info)),
        _ => Failure::usage(format!("{}: {error}", stored.history.display())),
    }
}

fn before_its_history(info: &RunInfo) -> String {
    let run = &info.run;
    match (info.status, &info.error) {
        (RunStatus::Running, _) => format!("{run} goes on, and its history has not begun yet"),
        (RunStatus::Failed, Some(error)) => format!("{run} failed before its history began: {error}"),
        (status, _) => {
            let word = status.word();
            format!(
                "{run} was {word} before its history began, so there is nothing to decide\nhint: make it again: {}",
                info.again.join(" ")
            )
        }
    }
}

/// What was decided, and its proof where one was asked for.
pub struct Examined {
    pub diagnosis: Diagnosis,
    pub history: History,
    pub certificates: Vec<Certificate>,
}

/// Reads a history and decides.
pub fn examine(stored: &Stored, read: &ReadOptions, options: &Options) -> Result<Examined, ReadError> {
    let started = Instant::now();
    let history = open(stored, read)?;
    Ok(examine_this(stored, history, options, started))
}

/// Decides from a history that was read since `started`.
pub fn examine_this(stored: &Stored, history: History, options: &Options, started: Instant) -> Examined {
    let mut findings = decide(&history, options);
    let certificates = std::mem::take(&mut findings.certificates);
    let path = stored.folder.as_ref().unwrap_or(&stored.history).display().to_string();
    let known = KnownRun {
        info: stored.info.clone(),
        page: super::report::page_of(stored),
        path,
        check_ns: started.elapsed().as_nanos() as u64,
        brief: false,
    };
    Examined {
        diagnosis: diagnose(&history, findings, known),
        history,
        certificates,
    }
}

/// Prints a diagnosis on stdout.
pub fn show(diagnosis: &Diagnosis, json: bool, look: Look) {
    if json {
        print_json(diagnosis);
    } else {
        print(&render(diagnosis, look));
    }
}

pub fn exit_of(diagnosis: &Diagnosis) -> Exit {
    Exit::ALL
        .into_iter()
        .find(|exit| exit.code() == diagnosis.exit)
        .expect("a diagnosis ends with one of the codes")
}
