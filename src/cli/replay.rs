//! `harness replay`: makes a run in virtual time again, and compares its history with the stored one, byte by byte.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::args::ReplayArgs;
use super::debugger::Debugger;
use super::examined::{find, unreadable};
use super::experiment::{completed, options_of, set_option};
use super::stdout::print_plain;
use super::{Failure, run_to_end};
use crate::cluster::Runtime;
use crate::cluster::leftovers::claim::Claim;
use crate::exit::Exit;
use crate::in_virtual_time::{self, Breakpoint};
use crate::plan::kept_windows::planned;
use crate::report::words::many;
use crate::run::{RunFolder, RunOutcome, RunSpec};
use crate::simulated;
use crate::store::{RunInfo, RunStatus};

/// Returns success if the histories are the same. A difference on models is a bug of this version, unless another version made the
/// stored run or it was not completed; with real programs it may be theirs.
pub fn replay(args: &ReplayArgs) -> Result<Exit, Failure> {
    let stored = find(&args.results, &args.wanted)?;
    let Some(info) = stored.info.as_ref().filter(|info| info.is_repeatable()) else {
        return Err(Failure::usage(
            "only a run in virtual time can be replayed (--runtime simulated or virtual): in real time the plan repeats and the timing does not\nhint: the report of a run ends with the command that repeats its plan",
        ));
    };
    let before = fs::read(&stored.history).map_err(|error| unreadable(&stored, error))?;
    if args.until.is_some() && info.is_simulated() {
        return Err(Failure::usage(
            "--debug is for the programs of a run with --runtime virtual\nhint: a run on models is one process: rust-gdb --args harness replay RUN",
        ));
    }
    let events = before.split(|byte| *byte == b'\n').count().saturating_sub(2) as u64;
    if args.until.is_some_and(|event| event > events) {
        return Err(Failure::usage(format!("the run has {}", many(events, "event"))));
    }
    let claim = Claim::make("replay").map_err(Failure::environment)?;
    let made = again(args, info, claim.folder());
    // the new history equals the stored one, or the output shows the difference
    drop(claim);
    let (same, told) = compared(&before, &made?);
    print_plain(&format!("{told}\n"));
    if same {
        return Ok(Exit::Holds);
    }
    if info.status != RunStatus::Complete {
        let status = info.status.word();
        print_plain(&format!(
            "the stored run is {status}, and its history ends before that of the whole run\n"
        ));
        return Ok(Exit::Inconclusive);
    }
    let this = env!("CARGO_PKG_VERSION");
    if !info.is_simulated() {
        print_plain(OTHER_PROGRAMS);
        return Ok(Exit::Different);
    }
    if info.harness == this {
        return Ok(Exit::Bug);
    }
    print_plain(&format!(
        "harness {} made the run, and this is {this}: a model or a recipe may have changed since\n",
        info.harness
    ));
    Ok(Exit::Inconclusive)
}

/// Number of characters of a long line before the first that differs.
const AROUND: usize = 40;

/// The reason for which two runs of real programs may differ.
const OTHER_PROGRAMS: &str = "a program, its libraries or its files may have changed since, or a program does something that virtual time \
does not control (docs/virtual.md)\n";

/// Makes the run in `folder`; its history.
fn again(args: &ReplayArgs, info: &RunInfo, folder: &Path) -> Result<Vec<u8>, Failure> {
    let mut options = options_of(&info.again);
    // a run that used models for want of servers does not name them
    set_option(&mut options, "runtime", Some(info.runtime.clone()));
    let (_, config) = completed(&options, folder)?;
    let plan = planned(&config).map_err(Failure::usage)?;
    let choice = run_to_end(config.choose_runtime()).map_err(Failure::environment)?;
    let spec = RunSpec::of(config, plan, info.run.clone(), RunFolder(folder.to_owned()), choice);
    let history = spec.folder.history();
    let outcome = match spec.choice.runtime {
        Runtime::Virtual => run_to_end(until_breakpoint(args, spec)),
        _ => simulated::execute_here(spec),
    };
    if let Some(error) = outcome.error {
        return Err(Failure::environment(error));
    }
    fs::read(&history).map_err(|error| Failure::environment(format!("could not read {}: {error}", history.display())))
}

/// Makes the run, and starts the debugger at its breakpoint, if there is one.
async fn until_breakpoint(args: &ReplayArgs, spec: RunSpec) -> RunOutcome {
    let (Some(before), Some(process)) = (args.until, args.debug) else {
        return in_virtual_time::execute(None, spec, Arc::default()).await;
    };
    // Ctrl-C is for the debugger, which has the same terminal
    tokio::spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    let debugger = Arc::new(Debugger::of(&args.debugger));
    let attached = Arc::clone(&debugger);
    let breakpoint = Breakpoint {
        before,
        program: process.program(spec.config.per_process),
        on_break: Box::new(move |pids| attached.attach(pids)),
    };
    let outcome = in_virtual_time::execute(Some(breakpoint), spec, Arc::default()).await;
    debugger.end();
    outcome
}

/// Whether two histories are the same, and a sentence with the result or with the first line that differs.
fn compared(before: &[u8], now: &[u8]) -> (bool, String) {
    let [before, now] = [before, now].map(|text| text.split(|byte| *byte == b'\n').collect::<Vec<_>>());
    let common = before.iter().zip(&now).take_while(|(one, other)| one == other).count();
    if common == before.len() && common == now.len() {
        let lines = many(common.saturating_sub(1) as u64, "line");
        return (true, format!("the same history, {lines}"));
    }
    let [before, now] = [before, now].map(|lines| lines.get(common).copied().unwrap_or_default());
    let [before, now] = [before, now].map(String::from_utf8_lossy);
    let same = before
        .chars()
        .zip(now.chars())
        .take_while(|(one, other)| one == other)
        .count();
    let (line, before, now) = (common + 1, excerpt(&before, same), excerpt(&now, same));
    let told = format!("a different history from line {line} on\n  stored  {before}\n  now     {now}");
    (false, told)
}

/// Returns the part of a line around its first character that differs.
fn excerpt(line: &str, differs: usize) -> String {
    if line.is_empty() {
        return "(no more lines)".to_owned();
    }
    let first = if differs > 3 * AROUND { differs - AROUND } else { 0 };
    let mut letters = line.chars().skip(first);
    let shown: String = letters.by_ref().take(4 * AROUND).collect();
    let ellipsis = |cut: bool| if cut { "…" } else { "" };
    format!("{}{shown}{}", ellipsis(first > 0), ellipsis(letters.next().is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_shown_and_so_is_an_end() {
        let same = (true, "the same history, 2 lines".to_owned());
        assert_eq!(compared(b"a\nb\n", b"a\nb\n"), same);
        let (same, told) = compared(b"a\nb\nc\n", b"a\nx\nc\n");
        assert!(!same && told.contains("line 2"), "{told}");
        assert!(told.contains("stored  b") && told.contains("now     x"), "{told}");
        let (same, told) = compared(b"a\nb\n", b"a\n");
        assert!(!same && told.contains("now     (no more lines)"), "{told}");
    }

    #[test]
    fn of_a_long_line_the_part_that_differs_is_shown() {
        let line = |letter: &str| format!("{}{letter}{}", "a".repeat(500), "b".repeat(500));
        let (_, told) = compared(line("x").as_bytes(), line("y").as_bytes());
        let part = |letter: &str| format!("  …{}{letter}{}…", "a".repeat(40), "b".repeat(119));
        assert!(told.contains(&part("x")) && told.ends_with(&part("y")), "{told}");
    }
}
