//! Reading and deciding a stored run or history, for `check`, `report`, `compare`, `shrink` and live runs.

use std::fmt::Display;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Instant;

use harness_checkers::{Certificate, Header, History, Model, Options, ReadOptions, check};

use super::Failure;
use crate::exit::Exit;
use crate::report::diagnosis::KnownRun;
use crate::report::words::quoted_words;
use crate::report::{Diagnosis, diagnose};
use crate::store::{self, RunInfo, RunStatus, Stored};

/// The name of stdin in place of a history file.
pub const STDIN: &str = "-";
/// The page of a run, to which other pages link.
pub const PAGE: &str = "report.html";

/// Returns the stored run or history that `wanted` names, or the history on stdin.
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
pub fn open(stored: &Stored, options: &ReadOptions) -> Result<History, Failure> {
    let history = if stored.history == Path::new(STDIN) {
        History::read(BufReader::new(io::stdin()), options)
    } else {
        History::open(&stored.history, options)
    };
    history.map_err(|error| unreadable(stored, error))
}

/// Returns the failure to read a history. A run may have ended before it had one.
pub fn unreadable(stored: &Stored, error: impl Display) -> Failure {
    match &stored.info {
        Some(info) if !stored.history.exists() => Failure::usage(before_its_history(info)),
        _ => Failure::usage(format!("{}: {error}", stored.history.display())),
    }
}

fn before_its_history(info: &RunInfo) -> String {
    let run = &info.run;
    match (info.status, &info.error) {
        (RunStatus::Running, _) => format!("{run} is running, and has no history yet"),
        (RunStatus::Failed, Some(error)) => format!("{run} failed before its history began: {error}"),
        (status, _) => {
            let word = status.word();
            format!(
                "{run} was {word} before its history began, so there is nothing to decide\nhint: run it again: {}",
                quoted_words(&info.again).join(" ")
            )
        }
    }
}

/// The diagnosis of a history, and the certificates of HL002 if they were requested.
pub struct Examined {
    pub diagnosis: Diagnosis,
    pub history: History,
    pub certificates: Vec<Certificate>,
}

/// Reads a history and decides.
pub fn examine(stored: &Stored, read: &ReadOptions, options: &Options) -> Result<Examined, Failure> {
    let started = Instant::now();
    let history = open(stored, read)?;
    if options.model.is_none() {
        has_known_model(stored, history.header())?;
    }
    Ok(examine_this(stored, history, options, started))
}

/// Refuses a history of an unknown model: that of a plain mutex would judge promises that the lock never made.
pub fn has_known_model(stored: &Stored, header: &Header) -> Result<(), Failure> {
    Model::named_by(header)
        .map(drop)
        .map_err(|error| unreadable(stored, error))
}

/// Decides from a history that was read since `started`.
pub fn examine_this(stored: &Stored, history: History, options: &Options, started: Instant) -> Examined {
    let mut findings = check(&history, options);
    let certificates = std::mem::take(&mut findings.certificates);
    let path = stored.folder.as_ref().unwrap_or(&stored.history).display().to_string();
    let known = KnownRun {
        info: stored.info.clone(),
        page: page_of(stored),
        path,
        check_ns: started.elapsed().as_nanos() as u64,
        planned_windows: stored.info.as_ref().map_or(0, |info| info.windows),
        brief: false,
    };
    Examined {
        diagnosis: diagnose(&history, findings, known),
        history,
        certificates,
    }
}

/// Returns the diagnosis of a run that recorded nothing.
pub fn examine_nothing(stored: &Stored) -> Examined {
    const HEADER: &str = r#"{"format":"harness-history","version":1}"#;
    let history = History::read(HEADER.as_bytes(), &ReadOptions::default()).expect("a header is a history");
    examine_this(stored, history, &Options::default(), Instant::now())
}

/// Returns the path of a run's page, if it has been written.
pub fn page_of(stored: &Stored) -> Option<String> {
    let page = stored.folder.as_ref()?.join(PAGE);
    page.is_file().then(|| page.display().to_string())
}

pub fn exit_of(diagnosis: &Diagnosis) -> Exit {
    Exit::ALL
        .into_iter()
        .find(|exit| exit.code() == diagnosis.exit)
        .expect("a diagnosis ends with one of the codes")
}
