//! The screen of `harness shrink`: a line for each run, and the result.

use std::path::Path;
use std::time::Duration;

use harness_checkers::Property;
use serde::Serialize;

use crate::hunt::find::cause_name;
use crate::hunt::hit_rate::HitRate;
use crate::hunt::shrink::ShrinkCandidate;
use crate::report::screen::{Look, ScreenText};
use crate::report::words::{many, on_run, quoted_words, span};

pub const SHRINK_SCHEMA: &str = "harness-shrink/1";

/// The result of the search, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct ShrinkResult {
    pub schema: &'static str,
    /// The run that was cut down.
    pub run: String,
    pub property: Property,
    pub class: String,
    /// Numbers of windows, clients and locks of the original run, and those that are left.
    pub windows_before: usize,
    pub clients_before: u32,
    pub locks_before: u32,
    #[serde(flatten)]
    pub left: ShrinkCandidate,
    pub length_before_ms: u64,
    pub length_ms: u64,
    /// Runs in which less was tried.
    pub tried: u32,
    /// On models and in virtual time, the hit rate in other worlds.
    pub hit_rate: HitRate,
    /// The 95 % Wilson interval of the rate.
    pub interval: (f64, f64),
    /// Median time from the start of a run to its violation; on models and in virtual time, the time in the world of this run.
    pub detected_after_ms: Option<u64>,
    /// The command that runs the result.
    pub again: Vec<String>,
    /// The last failed run of the result, if there is one.
    pub kept: Option<String>,
    /// The option, or Ctrl-C, that ended the search while less could be tried.
    pub ended_early: Option<&'static str>,
    pub interrupted: bool,
    /// Whether it was run on models, where the violation repeats each time.
    pub simulated: bool,
    /// Whether the run is the same each time in its world.
    #[serde(skip)]
    pub in_worlds: bool,
}

/// `[ 3] violated  window 3, 2 clients, 1 lock   8.1s`
pub fn progress_line(number: u32, left: &ShrinkCandidate, failed: bool, took: Duration, look: Look) -> String {
    let word = match failed {
        true => look.paint("1;31", "violated"),
        false => look.paint("32", "held    "),
    };
    let rest = format!("  {}   {:.1}s", in_words(left), took.as_secs_f64());
    run_line(number, word, &rest, look)
}

/// `[ 3] no run    window 3, 2 clients, 1 lock   the client did not start`
pub fn not_made_line(number: u32, left: &ShrinkCandidate, why: &str, look: Look) -> String {
    let why = why.lines().next().unwrap_or_default();
    let rest = format!("  {}   {why}", in_words(left));
    run_line(number, look.paint("33", "no run  "), &rest, look)
}

/// Returns the line of one run of a search.
pub fn run_line(number: u32, word: ScreenText, rest: &str, look: Look) -> String {
    let line = ScreenText::from(format!("[{number:>2}] ")) + word + rest;
    ScreenText::join_in_columns(vec![line], look.columns)
}

/// `windows 3 7, 2 clients, 1 lock, 12 grants, wait 250ms, world 7`
fn in_words(left: &ShrinkCandidate) -> String {
    let numbers: Vec<String> = left.windows.iter().map(u32::to_string).collect();
    let windows = match left.windows.len() {
        0 => "no fault".to_owned(),
        1 => format!("window {}", numbers[0]),
        _ => format!("windows {}", numbers.join(" ")),
    };
    let (clients, locks) = (many(left.clients.into(), "client"), many(left.locks.into(), "lock"));
    let without = left.without.iter().map(|option| format!("without --{option}"));
    let grants = left.grants.map(|grants| many(grants.into(), "grant"));
    let wait = left.wait.map(|wait| format!("wait {}", span(wait.as_nanos() as u64)));
    let world = (left.world > 0).then(|| format!("world {}", left.world));
    let more = grants.into_iter().chain(wait).chain(world).chain(without);
    let all = [windows, clients, locks].into_iter().chain(more);
    all.collect::<Vec<_>>().join(", ")
}

pub fn summary(result: &ShrinkResult, folder: &Path, look: Look) -> String {
    let seconds = |ms: u64| ms as f64 / 1000.0;
    let length = seconds(result.length_ms);
    let before = format!(
        "from {}, {}, {} and {:.0}s, in {}",
        many(result.windows_before as u64, "window"),
        many(result.clients_before.into(), "client"),
        many(result.locks_before.into(), "lock"),
        seconds(result.length_before_ms),
        many(result.tried.into(), "run")
    );
    let (worlds, times) = match result.in_worlds {
        true => (" in other worlds", ", each time"),
        false => ("", ", the median"),
    };
    let mut lines = vec![
        headline(result.property, &result.class, &result.run, look),
        ScreenText::from(format!("  left      {}, {length:.0}s", in_words(&result.left))),
        ScreenText::from(format!("            {before}")),
        ScreenText::from(format!("  hit rate  {}{worlds}", result.hit_rate)),
    ];
    let after = result.detected_after_ms.map(|ms| span(ms * 1_000_000));
    lines.extend(after.map(|after| ScreenText::from(format!("  detected  after {after}{times}"))));
    if result.detected_after_ms.is_none() && result.hit_rate.runs > 0 {
        lines.push(ScreenText::from(
            "  No run showed the violation: it is rare, or depends on the timing of this machine. More runs: --confirm 20.",
        ));
    }
    lines.extend(result.ended_early.map(|by| {
        let text = format!("  The search ended early, by {by}: a smaller run may show the violation, too.");
        ScreenText::from(text)
    }));
    lines.extend(pointers(&result.again, folder, result.kept.as_deref(), look));
    ScreenText::join_in_columns(lines, look.columns) + "\n"
}

/// Returns the headline of a search: the violation, and the run that it began with.
pub fn headline(property: Property, class: &str, run: &str, look: Look) -> ScreenText {
    look.bold("x") + " " + look.bold(&cause_name(property, class)) + &format!("  of {run}")
}

/// Returns the commands that run the result of a search and check its kept run.
pub fn pointers(again: &[String], folder: &Path, kept: Option<&str>, look: Look) -> Vec<ScreenText> {
    let see = kept.map(|kept| on_run("check", &folder.join(kept).display().to_string()));
    let again = (!again.is_empty()).then(|| ScreenText::command("  again     ", &quoted_words(again), look.columns));
    let see = see.map(|words| ScreenText::command("  see       ", &words, look.columns));
    [again, see].into_iter().flatten().flatten().collect()
}
