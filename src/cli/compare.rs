//! `harness compare`: findings of a run that are new, unchanged or gone since another run.

use harness_checkers::{Options, ReadOptions};
use serde_json::json;

use super::Failure;
use super::args::CompareArgs;
use super::examined::{examine, find};
use super::stdout::{print_json, print_table};
use crate::exit::Exit;
use crate::report::comparison::{self, RunSummary};
use crate::store::RunInfo;

/// Compares two runs. A new finding leads to the exit code of a violation; otherwise a later run that proves nothing is inconclusive.
pub fn compare(args: &CompareArgs) -> Result<Exit, Failure> {
    let (before, after) = (summary(args, &args.before)?, summary(args, &args.after)?);
    let models = |summary: &RunSummary| summary.run.as_ref().map(RunInfo::is_simulated);
    if let (Some(one), Some(other)) = (models(&before), models(&after))
        && one != other
    {
        return Err(Failure::usage(
            "one of these runs is on simulated servers and the other on real ones, so their findings cannot be compared\nhint: compare runs of the same kind; `harness list runs` shows both",
        ));
    }
    let compared = comparison::compare(&before, &after);
    if args.json {
        let mut object = json!(compared);
        for (label, summary) in [("before", &before), ("after", &after)] {
            object[label] = summary.name().into();
            object[format!("{label}_outcome")] = json!(summary.outcome);
        }
        print_json(&object);
    } else {
        print_table(&comparison::render(&compared, (&before, &after)));
    }
    Ok(match compared.new.is_empty() {
        false => Exit::Violated,
        true if after.outcome.is_verdict() => Exit::Holds,
        true => Exit::Inconclusive,
    })
}

/// Checks the history again, so that both runs are compared by the checkers of this version.
fn summary(args: &CompareArgs, wanted: &str) -> Result<RunSummary, Failure> {
    let stored = find(&args.results, wanted)?;
    let diagnosis = examine(&stored, &ReadOptions::default(), &Options::default())?.diagnosis;
    Ok(RunSummary {
        outcome: diagnosis.outcome,
        run: diagnosis.run,
        path: diagnosis.path,
        findings: diagnosis.findings,
        unsure: diagnosis.unsure,
        length_ns: diagnosis.length_ns,
    })
}
