//! `harness report`: renders a stored run in any format. `harness run` ends by writing the same files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use harness_checkers::{History, Options};
use serde_json::Value;

use super::Failure;
use super::args::ReportArgs;
use super::examined::{Examined, PAGE, examine, find, page_of};
use super::records::{hunts, suites};
use super::stdout::print;
use crate::exit::Exit;
use crate::hunt::{HuntFind, HuntRecord, render};
use crate::report::diagnosis::Outcome;
use crate::report::index;
use crate::report::listed::{Listed, ListedFind, ListedRecord};
use crate::report::{Diagnosis, FORMATS, Report, ReportFormat, SCHEMA, Timeline, proven};
use crate::store::{self, StoreError, Stored};
use crate::suite::{self, Record, RowOutcome};

/// The page of all runs.
const INDEX: &str = "index.html";
/// Number of runs in the index: it is written after every run, and reads a verdict for each.
const LISTED: usize = 500;

pub fn report(args: &ReportArgs) -> Result<Exit, Failure> {
    let Some(wanted) = args.wanted.as_ref().filter(|_| !args.schema) else {
        print(SCHEMA);
        return Ok(Exit::Holds);
    };
    let stored = find(&args.read.results, wanted)?;
    let mut examined = examine(&stored, &args.read.options(), &Options::default())?;
    let format = args
        .format
        .as_ref()
        .and_then(|name| FORMATS.iter().find(|format| format.name == name));
    let done = match (format, &stored.folder) {
        (Some(format), _) => one(format, &stored, &examined, args.output.as_deref()),
        (None, Some(_)) => all(&stored, &mut examined),
        (None, None) => {
            let why =
                "a history without a run has no folder for its reports\nhint: name a --format, such as --format html";
            return Err(Failure::usage(why));
        }
    };
    done.map_err(Failure::environment).map(|()| Exit::Holds)
}

fn one(format: &ReportFormat, stored: &Stored, examined: &Examined, output: Option<&Path>) -> Result<(), StoreError> {
    let text = with_report(stored, &examined.diagnosis, &examined.history, format.render);
    match output {
        // written in place: the path may be that of a device
        Some(path) => std::fs::write(path, text).map_err(|source| StoreError::Write {
            path: path.to_owned(),
            source,
        }),
        None => {
            print(&text);
            Ok(())
        }
    }
}

fn all(stored: &Stored, examined: &mut Examined) -> Result<(), StoreError> {
    let mut written = write(stored, examined)?;
    if let Some(results) = stored.folder.as_ref().and_then(|folder| folder.parent()) {
        written.extend(write_index(results)?);
    }
    for path in written {
        print(&format!("{}\n", path.display()));
    }
    Ok(())
}

/// Writes the file of every format that has one to the run's folder. The diagnosis then has the path of the page.
pub fn write(stored: &Stored, examined: &mut Examined) -> Result<Vec<PathBuf>, StoreError> {
    let Some(folder) = &stored.folder else {
        return Ok(Vec::new());
    };
    examined.diagnosis.page = Some(folder.join(PAGE).display().to_string());
    let (diagnosis, history) = (&examined.diagnosis, &examined.history);
    let written = with_report(stored, diagnosis, history, |report| {
        let files = FORMATS
            .iter()
            .filter_map(|format| Some((format, folder.join(format.file?))));
        let written = files.map(|(format, path)| {
            store::write_text(&path, &(format.render)(report))?;
            Ok(path)
        });
        written.collect::<Result<Vec<PathBuf>, StoreError>>()
    });
    if written.is_err() {
        examined.diagnosis.page = page_of(stored);
    }
    written
}

/// Builds the input of the renderers.
fn with_report<T>(stored: &Stored, diagnosis: &Diagnosis, history: &History, then: impl FnOnce(&Report<'_>) -> T) -> T {
    let timeline = Timeline::of(history);
    let lines = if timeline.numbered {
        store::lines(&stored.history, &proven(diagnosis))
    } else {
        BTreeMap::new()
    };
    let plan = stored
        .folder
        .as_ref()
        .and_then(|folder| std::fs::read(folder.join("plan.json")).ok());
    let plan: Option<Value> = plan.and_then(|text| serde_json::from_slice(&text).ok());
    then(&Report {
        diagnosis,
        timeline: &timeline,
        plan: plan.as_ref(),
        lines: &lines,
    })
}

/// Removes passing runs beyond the newest `keep`, and writes the index.
pub fn tidy_up(results: &Path, keep: u32) -> Result<(), StoreError> {
    store::prune(results, keep as usize)?;
    write_index(results).map(|_| ())
}

/// Writes the index, unless its path has a file that harness did not write.
pub fn write_index(results: &Path) -> Result<Option<PathBuf>, StoreError> {
    let path = results.join(INDEX);
    if std::fs::read(&path).is_ok_and(|page| !String::from_utf8_lossy(&page).contains(index::TITLE)) {
        return Ok(None);
    }
    let names = store::runs(results);
    let left_out = names.len().saturating_sub(LISTED);
    let listed: Vec<Listed> = names
        .into_iter()
        .skip(left_out)
        .map(|name| listed(results, name))
        .collect();
    let suites: Vec<ListedRecord> = suites(results).into_iter().map(suite).collect();
    let hunts: Vec<ListedRecord> = hunts(results)
        .into_iter()
        .map(|(name, record)| listed_hunt(results, name, &record))
        .collect();
    store::write_text(&path, &index::render(&listed, left_out, &suites, &hunts))?;
    Ok(Some(path))
}

fn listed_hunt(results: &Path, name: String, record: &HuntRecord) -> ListedRecord {
    let find = |find: &HuntFind| {
        let page = Path::new(&name).join(&find.run).join(PAGE);
        ListedFind {
            kind: find.name(),
            summary: find.summary.clone(),
            count: find.count,
            page: results.join(&page).is_file().then(|| page.display().to_string()),
        }
    };
    ListedRecord {
        outcome: Outcome::of(record.exit()),
        sentence: render::counts(record),
        rows: Vec::new(),
        finds: record.finds.iter().map(find).collect(),
        name,
    }
}

fn suite((name, record): (String, Record)) -> ListedRecord {
    ListedRecord {
        outcome: suite::render::outcome(&record),
        sentence: suite::page::sentence(&record),
        // rows of a shard are in the merged record
        rows: record
            .rows
            .iter()
            .filter(|row| record.shard.is_none() && row.judged != RowOutcome::NotRun)
            .map(|row| {
                let name = format!("{}: {}", record.suite, row.name);
                (name, Outcome::of(row.judged.exit()))
            })
            .collect(),
        finds: Vec::new(),
        name,
    }
}

/// Returns a run of a results folder, as the index and `harness list runs` have it.
pub fn listed(results: &Path, name: String) -> Listed {
    let folder = results.join(&name);
    let verdict = std::fs::read(folder.join("verdict.json")).ok();
    let info = store::read_info(&folder).ok();
    let status = info.as_ref().map_or("unreadable", |info| info.status.word());
    Listed {
        summary: verdict.and_then(|text| serde_json::from_slice(&text).ok()),
        status: status.to_owned(),
        info,
        page: folder.join(PAGE).is_file(),
        name,
    }
}
