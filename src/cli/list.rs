//! `harness list`: backends, recipes, clients, faults, messages, checkers, report formats, exit codes, versions of servers and stored
//! runs.

use std::io::IsTerminal;

use harness_checkers::Property;
use harness_workloads::Wakeup;
use serde_json::{Value, json};

use super::args::{ListArgs, ListWhat};
use super::columns;
use super::report::listed;
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

/// An entry of a list.
struct ListEntry {
    name: String,
    /// A sentence; a second line about its argument.
    about: String,
    /// Members of its object in JSON.
    facts: Value,
}

impl ListEntry {
    fn of(name: impl Into<String>, about: impl Into<String>, facts: Value) -> Self {
        let (name, about) = (name.into(), about.into());
        Self { name, about, facts }
    }
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
            ListWhat::Runs if rows.is_empty() => eprintln!("no runs in {}", args.results.display()),
            // in a pipe each run is one line of any length, so that lists of runs can be searched by line
            ListWhat::Runs => print_table(&table(&rows, usize::MAX)),
            _ => {
                let columns = columns(std::io::stdout().is_terminal()).unwrap_or(COLUMNS);
                print_plain(&table(&rows, columns.min(MOST_COLUMNS)));
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
        let (product, nodes) = (software.product, software.nodes);
        let servers = many(nodes.into(), "server");
        let about = format!("{product}, {servers}, image {image}, default recipe {default}");
        let facts = json!({ "product": product, "nodes": nodes, "image": image, "recipe": default });
        ListEntry::of(backend.to_string(), about, facts)
    };
    config::named_backends().map(row).collect()
}

fn recipes() -> Vec<ListEntry> {
    let row = |recipe: &harness_workloads::Recipe| {
        let wakes = match recipe.wakeup {
            Wakeup::Notified => "notified",
            Wakeup::Polling => "polls",
            Wakeup::Unreported => "unsaid",
        };
        let facts = json!({
            "backend": recipe.backend.name(), "attitudes": recipe.policies, "guid": recipe.guid,
            "wall_clock": recipe.wall_clock, "wakes": wakes, "tokens": recipe.tokens, "fifo": recipe.fifo,
            "lease": recipe.lease,
        });
        ListEntry::of(recipe.name, recipe.summary, facts)
    };
    harness_workloads::recipes().map(row).collect()
}

fn clients() -> Vec<ListEntry> {
    let row = |adapter: &Adapter| {
        let (library, backend, installed) = (&adapter.library, &adapter.backend, adapter.is_installed());
        let how = if installed { "" } else { "; not installed" };
        let facts = json!({ "backend": backend, "library": library, "installed": installed });
        ListEntry::of(&adapter.name, format!("{library}, on {backend}{how}"), facts)
    };
    adapters::all().iter().map(row).collect()
}

fn faults() -> Vec<ListEntry> {
    let none = ListEntry::of(NO_FAULT, "no fault", json!({}));
    let any = "every fault below that a lock with a lease withstands, by turns";
    let any = ListEntry::of(ANY_FAULT, any, json!({}));
    let row = |fault: &&dyn crate::faults::Fault| {
        let about = match fault.argument() {
            "" => fault.summary().to_owned(),
            argument => format!("{}\n={argument}", fault.summary()),
        };
        ListEntry::of(fault.name(), about, json!({ "argument": fault.argument() }))
    };
    [none, any].into_iter().chain(FAULTS.iter().map(row)).collect()
}

fn messages() -> Vec<ListEntry> {
    let row = |backend: &Backend| {
        let names = backend.protocol.names();
        let about = match names.is_empty() {
            true => "no messages are read".to_owned(),
            false => names.join(", "),
        };
        ListEntry::of(backend.to_string(), about, json!({ "messages": names }))
    };
    backends::all().map(row).collect()
}

fn checkers() -> Vec<ListEntry> {
    let row = |property: Property| {
        let about = format!("{}\n{}", property.name(), super::explain::sentence(property));
        ListEntry::of(property.id(), about, json!({ "property": property.name() }))
    };
    Property::ALL.into_iter().map(row).collect()
}

fn reports() -> Vec<ListEntry> {
    let row = |format: &ReportFormat| {
        let about = match format.file {
            Some(file) => format!("{}; {file}", format.about),
            None => format.about.to_owned(),
        };
        ListEntry::of(format.name, about, json!({ "file": format.file }))
    };
    FORMATS.iter().map(row).collect()
}

fn exits() -> Vec<ListEntry> {
    let row = |exit: Exit| {
        let code = exit.code();
        ListEntry::of(code.to_string(), exit.meaning(), json!({ "code": code }))
    };
    Exit::ALL.into_iter().map(row).collect()
}

fn runs(args: &ListArgs) -> Vec<ListEntry> {
    let row = |name: String| {
        let run = listed(&args.results, name);
        let summary = run.summary.as_ref();
        let outcome = summary.map_or(run.status.as_str(), |summary| summary.outcome.word());
        let what = run
            .info
            .as_ref()
            .map(|info| format!("{} / {}", info.recipe, info.fault));
        let broken = summary.into_iter().flat_map(RunSummary::broken);
        let broken: Vec<&str> = broken.map(|(_, worst)| worst.summary.as_str()).collect();
        let more = match broken.len() {
            0 | 1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let first = broken.first().map(|summary| format!(": {summary}{more}"));
        let (what, first) = (what.unwrap_or_default(), first.unwrap_or_default());
        let facts = json!({ "outcome": outcome, "broken": broken, "info": run.info });
        ListEntry::of(run.name, format!("{outcome:<11} {what}{first}"), facts)
    };
    store::runs(&args.results).into_iter().map(row).collect()
}

/// Returns the versions by backend, oldest first: the programs that can be fetched, and the image of the same version.
fn versions() -> Vec<ListEntry> {
    let row = |backend: &Backend, version: &FetchedVersion| {
        let (name, source) = (backend.name(), version.source());
        let fetched = version.is_here(name);
        let image = image_of(backend.software, &version.is);
        let about = format!("{source}{}", if fetched { ", fetched" } else { "" });
        let facts =
            json!({ "backend": name, "version": version.is, "source": source, "fetched": fetched, "image": image });
        ListEntry::of(format!("{name} {}", version.is), about, facts)
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
            let wide = table.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(wide, None);
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let all = rows.iter().map(|row| format!("{} {}", row.name, row.about));
            assert_eq!(words(&table), words(&all.collect::<Vec<_>>().join(" ")));
        }
    }
}
