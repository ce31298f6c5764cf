//! `harness list`: the registries, as they are.

use harness_checkers::Property;
use harness_workloads::{RECIPES, Wakes};
use serde_json::{Value, json};

use super::args::{ListArgs, ListWhat};
use super::stdout::{print, print_json};
use crate::backends::{self, Backend};
use crate::config::NO_FAULT;
use crate::exit::Exit;
use crate::faults::FAULTS;
use crate::report::comparison::Gist;
use crate::report::{FORMATS, Format};
use crate::store;

/// One thing: its name, one line about it, and what a program wants to know.
struct Row {
    name: String,
    about: String,
    facts: Value,
}

pub fn list(args: &ListArgs) -> Exit {
    let rows = match args.what {
        ListWhat::Backends => backends(),
        ListWhat::Recipes => recipes(),
        ListWhat::Faults => faults(),
        ListWhat::Checkers => checkers(),
        ListWhat::Reports => reports(),
        ListWhat::Exits => exits(),
        ListWhat::Runs => runs(args),
    };
    if args.json {
        let objects = rows.into_iter().map(|row| {
            let mut object = json!({ "name": row.name, "about": row.about });
            if let (Some(object), Value::Object(facts)) = (object.as_object_mut(), row.facts) {
                object.extend(facts);
            }
            object
        });
        print_json(&objects.collect::<Vec<_>>());
    } else {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let lines = rows.iter().map(|row| format!("{:<width$}  {}\n", row.name, row.about));
        print(&lines.collect::<String>());
    }
    Exit::Holds
}

fn backends() -> Vec<Row> {
    let row = |backend: &Backend| {
        let software = backend.software;
        let default = backend.default_recipe.unwrap_or("none");
        Row {
            name: backend.to_string(),
            about: format!(
                "{}, {} servers, image {}, default recipe {default}",
                software.product, software.nodes, software.image
            ),
            facts: json!({ "product": software.product, "nodes": software.nodes, "image": software.image, "recipe": default }),
        }
    };
    backends::all().map(row).collect()
}

fn recipes() -> Vec<Row> {
    let row = |recipe: &harness_workloads::Recipe| Row {
        name: recipe.name.to_owned(),
        about: recipe.summary.to_owned(),
        facts: json!({
            "backend": recipe.backend.name(),
            "attitudes": recipe.attitudes,
            "guid": recipe.guid,
            "wakes": match recipe.wakes {
                Wakes::Notified => "notified",
                Wakes::Polls => "polls",
                Wakes::Unsaid => "unsaid",
            },
            "tokens": recipe.tokens,
            "fifo": recipe.fifo,
            "lease": recipe.lease,
        }),
    };
    RECIPES.iter().map(row).collect()
}

fn faults() -> Vec<Row> {
    let none = Row {
        name: NO_FAULT.into(),
        about: "fair weather: a real choice".into(),
        facts: json!({}),
    };
    let row = |fault: &&dyn crate::faults::Fault| Row {
        name: fault.name().to_owned(),
        about: match fault.argument() {
            "" => fault.summary().to_owned(),
            argument => format!("{}; ={argument}", fault.summary()),
        },
        facts: json!({ "argument": fault.argument() }),
    };
    [none].into_iter().chain(FAULTS.iter().map(row)).collect()
}

fn checkers() -> Vec<Row> {
    let row = |property: Property| Row {
        name: property.id().to_owned(),
        about: format!("{:<18} {}", property.name(), super::explain::sentence(property)),
        facts: json!({ "property": property.name() }),
    };
    Property::ALL.into_iter().map(row).collect()
}

fn reports() -> Vec<Row> {
    let row = |format: &Format| Row {
        name: format.name.to_owned(),
        about: match format.file {
            Some(file) => format!("{}; {file}", format.about),
            None => format.about.to_owned(),
        },
        facts: json!({ "file": format.file }),
    };
    FORMATS.iter().map(row).collect()
}

fn exits() -> Vec<Row> {
    let row = |exit: Exit| Row {
        name: exit.code().to_string(),
        about: exit.meaning().to_owned(),
        facts: json!({ "code": exit.code() }),
    };
    Exit::ALL.into_iter().map(row).collect()
}

fn runs(args: &ListArgs) -> Vec<Row> {
    let row = |name: String| {
        let folder = args.results.join(&name);
        let info = store::read_info(&folder).ok();
        let verdict = std::fs::read(folder.join("verdict.json")).ok();
        let gist: Option<Gist> = verdict.and_then(|text| serde_json::from_slice(&text).ok());
        let outcome = gist.as_ref().map_or("no verdict", |gist| gist.outcome.word());
        let what = info.as_ref().map(|info| format!("{} / {}", info.recipe, info.fault));
        let broken: Vec<&str> = gist
            .iter()
            .flat_map(Gist::broken)
            .map(|(_, worst)| worst.summary.as_str())
            .collect();
        let more = match broken.len() {
            0 | 1 => String::new(),
            all => format!(", and {} more", all - 1),
        };
        let first = broken.first().map(|summary| format!(": {summary}{more}"));
        Row {
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
