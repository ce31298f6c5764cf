//! `harness check`: checks a stored history. A live run ends by calling the same function, so the two cannot disagree.

use std::fs;
use std::io;
use std::path::Path;

use harness_checkers::{Model, Options, OrderDrawing};

use super::args::CheckArgs;
use super::examined::{Examined, examine, exit_of, find};
use super::stdout::{print, print_json};
use super::{Failure, online};
use crate::exit::Exit;
use crate::report::Diagnosis;
use crate::report::terminal::{Look, render};
use crate::store::Stored;

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
    let examined = examine(&stored, &args.stored.read.options(), &options)?;
    show(&examined.diagnosis, args.json, look);
    let exit = exit_of(&examined.diagnosis);
    // written in place: the path may be that of a device
    let write = |path: &Path, text: String| {
        let failed = |error: io::Error| format!("could not write {}: {error}", path.display());
        fs::write(path, text).map_err(|error| Failure::of(exit.and(Exit::Environment), failed(error)))
    };
    if let Some(path) = &args.certificate {
        let certificates = serde_json::to_string_pretty(&examined.certificates).expect("they are plain data");
        write(path, certificates + "\n")?;
    }
    if let Some(path) = &args.draw {
        write(path, page_of(&stored, &examined))?;
    }
    Ok(exit)
}

/// Returns the page that draws the operations of each violation that can be drawn.
fn page_of(stored: &Stored, examined: &Examined) -> String {
    let model = examined.diagnosis.model.parse();
    let model = model.unwrap_or_else(|_| Model::of_header(examined.history.header()));
    let drawn = |violation| OrderDrawing::of_violation(&examined.history, &model, violation);
    let drawings: Vec<OrderDrawing> = examined.diagnosis.violations().filter_map(drawn).collect();
    OrderDrawing::page(&stored.history.display().to_string(), &drawings)
}

/// Prints a diagnosis on stdout.
pub fn show(diagnosis: &Diagnosis, json: bool, look: Look) {
    if json {
        print_json(diagnosis);
    } else {
        print(&render(diagnosis, look));
    }
}
