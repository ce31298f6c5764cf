//! `harness list`: backends, recipes, clients, faults, messages, checkers, report formats, exit codes, versions of servers and stored
//! runs.

use harness_checkers::Property;
use harness_workloads::Wakeup;
use serde_json::{Value, json};

use super::args::{ListArgs, ListWhat};
use super::stdout::{print_json, print_plain, print_table};
use crate::adapters::{self, Adapter};
use crate::backends::{self, Backend};
use crate::cluster::versions::{FetchedVersion, fetched_versions, image_of};
use crate::config::{self, ANY_FAULT, NO_FAULT};
use crate::exit::Exit;
use crate::faults::FAULTS;
use crate::report::comparison::RunSummary;
use crate::report::words::{many, wrap_words};
use crate::report::{FORMATS, ReportFormat};
use crate::store;

/// One thing that is listed.
struct ListEntry {
    name: String,
    /// A sentence; a second line about its argument.
    about: String,
    /// Members of its object in JSON.
    facts: Value,
}

/// Columns of a list where stdout is not a terminal.
const COLUMNS: usize = 80;
/// Columns of a list at most: longer lines are hard to read.
const MOST_COLUMNS: usize = 100;

pub fn list(args: &ListArgs) -> Exit {
    let rows = match args.what {
        ListWhat::Backends => backends(),
        ListWhat::Recipes => recipes(),
        ListWhat::Clients => clients(),
        ListWhat::Faults => faults(),
        ListWhat::Messages => messages(),
        ListWhat::Checkers => checkers(),
        ListWhat::Reports => reports(),
        ListWhat::Exits => exits(),
        ListWhat::Runs => runs(args),
        ListWhat::Versions => versions(),
    };
    if args.json {
        let objects = rows.into_iter().map(|row| {
            let mut object = json!({ "name": row.name, "about": row.about.replace('\n', "; ") });
            if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), row.facts) {
                object.extend(facts);
            }
            object
        });
        print_json(&objects.collect::<Vec<_>>());
    } else {
        match args.what {
            // in a pipe a run keeps its line, whatever its length, so that lists of runs can be searched by line
            ListWhat::Runs => print_table(&table(&rows, usize::MAX)),
            _ => {
                let columns =
                    terminal_size::terminal_size().map_or(COLUMNS, |(width, _)| MOST_COLUMNS.min(width.0.into()));
                print_plain(&table(&rows, columns));
            }
        }
    }
    Exit::Holds
}

/// Names on the left, wrapped text on the right.
fn table(rows: &[ListEntry], columns: usize) -> String {
    let names = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let lines = rows.iter().flat_map(|row| {
        let about = row
            .about
            .lines()
            .flat_map(|line| wrap_words(line.split(' '), columns.saturating_sub(names + 2)));
        about.enumerate().map(move |(number, line)| {
            let name = if number == 0 { &row.name } else { "" };
            format!("{name:<names$}  {line}\n")
        })
    });
    lines.collect()
}

fn backends() -> Vec<ListEntry> {
    let row = |backend: &Backend| {
        let software = backend.software;
        let image = software.images.first().copied().unwrap_or("none");
        let default = backend.default_recipe.unwrap_or("none");
        ListEntry {
            name: backend.to_string(),
            about: format!(
                "{}, {}, image {image}, default recipe {default}",
                software.product,
                many(software.nodes.into(), "server")
            ),
            facts: json!({ "product": software.product, "nodes": software.nodes, "image": image, "recipe": default }),
        }
    };
    config::named_backends().map(row).collect()
}

fn recipes() -> Vec<ListEntry> {
    let row = |recipe: &harness_workloads::Recipe| ListEntry {
        name: recipe.name.to_owned(),
        about: recipe.summary.to_owned(),
        facts: json!({
            "backend": recipe.backend.name(),
            "attitudes": recipe.policies,
            "guid": recipe.guid,
            "wall_clock": recipe.wall_clock,
            "wakes": match recipe.wakeup {
                Wakeup::Notified => "notified",
                Wakeup::Polling => "polls",
                Wakeup::Unreported => "unsaid",
            },
            "tokens": recipe.tokens,
            "fifo": recipe.fifo,
            "lease": recipe.lease,
        }),
    };
    harness_workloads::recipes().map(row).collect()
}

fn clients() -> Vec<ListEntry> {
    let row = |adapter: &Adapter| ListEntry {
        name: adapter.name.clone(),
        about: format!(
            "{}, on {}{}",
            adapter.library,
            adapter.backend,
            if adapter.is_installed() { "" } else { "; not installed" }
        ),
        facts: json!({ "backend": adapter.backend, "library": adapter.library, "installed": adapter.is_installed() }),
    };
    adapters::all().iter().map(row).collect()
}

fn faults() -> Vec<ListEntry> {
    let none = ListEntry {
        name: NO_FAULT.into(),
        about: "no fault".into(),
        facts: json!({}),
    };
    let any = ListEntry {
        name: ANY_FAULT.into(),
        about: "every fault below that a lock with a lease withstands, by turns".into(),
        facts: json!({}),
    };
    let row = |fault: &&dyn crate::faults::Fault| ListEntry {
        name: fault.name().to_owned(),
        about: match fault.argument() {
            "" => fault.summary().to_owned(),
            argument => format!("{}\n={argument}", fault.summary()),
        },
        facts: json!({ "argument": fault.argument() }),
    };
    [none, any].into_iter().chain(FAULTS.iter().map(row)).collect()
}

fn messages() -> Vec<ListEntry> {
    let row = |backend: &Backend| {
        let names = backend.protocol.names();
        ListEntry {
            name: backend.to_string(),
            about: if names.is_empty() {
                "no messages are read".into()
            } else {
                names.join(", ")
            },
            facts: json!({ "messages": names }),
        }
    };
    backends::all().map(row).collect()
}

fn checkers() -> Vec<ListEntry> {
    let row = |property: Property| ListEntry {
        name: property.id().to_owned(),
        about: format!("{}\n{}", property.name(), super::explain::sentence(property)),
        facts: json!({ "property": property.name() }),
    };
    Property::ALL.into_iter().map(row).collect()
}

fn reports() -> Vec<ListEntry> {
    let row = |format: &ReportFormat| ListEntry {
        name: format.name.to_owned(),
        about: match format.file {
            Some(file) => format!("{}; {file}", format.about),
            None => format.about.to_owned(),
        },
        facts: json!({ "file": format.file }),
    };
    FORMATS.iter().map(row).collect()
}

fn exits() -> Vec<ListEntry> {
    let row = |exit: Exit| ListEntry {
        name: exit.code().to_string(),
        about: exit.meaning().to_owned(),
        facts: json!({ "code": exit.code() }),
    };
    Exit::ALL.into_iter().map(row).collect()
}

fn runs(args: &ListArgs) -> Vec<ListEntry> {
    let row = |name: String| {
        let folder = args.results.join(&name);
        let info = store::read_info(&folder).ok();
        let verdict = std::fs::read(folder.join("verdict.json")).ok();
        let summary: Option<RunSummary> = verdict.and_then(|text| serde_json::from_slice(&text).ok());
        let status = info.as_ref().map_or("no verdict", |info| info.status.word());
        let outcome = summary.as_ref().map_or(status, |summary| summary.outcome.word());
        let what = info.as_ref().map(|info| format!("{} / {}", info.recipe, info.fault));
        let broken: Vec<&str> = summary
            .iter()
            .flat_map(RunSummary::broken)
            .map(|(_, worst)| worst.summary.as_str())
            .collect();
        let more = match broken.len() {
            0 | 1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let first = broken.first().map(|summary| format!(": {summary}{more}"));
        ListEntry {
            about: format!(
                "{outcome:<11} {}{}",
                what.unwrap_or_default(),
                first.unwrap_or_default()
            ),
            facts: json!({ "outcome": outcome, "broken": broken, "info": info }),
            name,
        }
    };
    store::runs(&args.results).into_iter().map(row).collect()
}

/// By backend, oldest first: which programs can be fetched, and which image has the same version.
fn versions() -> Vec<ListEntry> {
    let row = |backend: &Backend, version: &FetchedVersion| {
        let (name, source) = (backend.name(), version.source());
        let fetched = version.is_here(name);
        let image = image_of(backend.software, &version.is);
        ListEntry {
            name: format!("{name} {}", version.is),
            about: format!("{source}{}", if fetched { ", fetched" } else { "" }),
            facts: json!({ "backend": name, "version": version.is, "source": source, "fetched": fetched, "image": image }),
        }
    };
    let of_backend = |backend: &'static Backend| {
        let known = fetched_versions(backend.name()).iter();
        known.map(move |version| row(backend, version))
    };
    backends::all().flat_map(of_backend).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_fits_into_its_columns_and_loses_no_word() {
        for rows in [
            backends(),
            recipes(),
            faults(),
            messages(),
            checkers(),
            reports(),
            exits(),
            versions(),
        ] {
            let table = table(&rows, COLUMNS);
            let wide: Vec<&str> = table.lines().filter(|line| line.chars().count() > COLUMNS).collect();
            assert!(wide.is_empty(), "{wide:#?}");
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let all: Vec<String> = rows
                .iter()
                .flat_map(|row| words(&format!("{} {}", row.name, row.about)))
                .collect();
            assert_eq!(words(&table), all);
        }
    }
}
