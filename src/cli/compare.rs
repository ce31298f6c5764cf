//! `harness compare`: what is new in a run, what is still there, and what is gone, beside another one.

use harness_checkers::{Options, ReadOptions};
use serde_json::json;

use super::args::CompareArgs;
use super::check::examine;
use super::complain;
use super::stdout::{print, print_json};
use crate::exit::Exit;
use crate::report::comparison::{self, RunSummary};
use crate::store;

/// Ends as a violation does when something is new.
pub fn compare(args: &CompareArgs) -> Exit {
    let gists = summary(args, &args.before).and_then(|before| Ok((before, summary(args, &args.after)?)));
    let (before, after) = match gists {
        Ok(gists) => gists,
        Err(sentence) => return complain(Exit::Usage, sentence),
    };
    let compared = comparison::compare(&before, &after);
    if args.json {
        let name = |summary: &RunSummary| summary.run.as_ref().map(|run| run.run.clone());
        let mut object = json!(compared);
        object["before"] = json!(name(&before));
        object["after"] = json!(name(&after));
        print_json(&object);
    } else {
        print(&comparison::render(&compared, (&before, &after)));
    }
    if compared.new.is_empty() {
        Exit::Holds
    } else {
        Exit::Violated
    }
}

/// Decides from the history, as `harness check` does: both runs are judged by the checkers of today.
fn summary(args: &CompareArgs, wanted: &str) -> Result<RunSummary, String> {
    let stored = store::find(&args.results, wanted).map_err(|error| error.to_string())?;
    let examined = examine(&stored, &ReadOptions::default(), &Options::default())
        .map_err(|error| format!("{}: {error}", stored.history.display()))?;
    let diagnosis = examined.diagnosis;
    Ok(RunSummary {
        outcome: diagnosis.outcome,
        run: diagnosis.run,
        findings: diagnosis.findings,
        unsure: diagnosis.unsure,
        length_ns: diagnosis.length_ns,
    })
}
