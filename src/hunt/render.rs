//! The screen of a hunt: a line for each experiment, the block of a live screen, and the summary at its end.

use std::collections::BTreeSet;

use super::counts::{FaultCount, HuntCounts};
use super::coverage::Struck;
use super::exhaustive::Exhaustive;
use super::experiment::{ExperimentOutcome, ExperimentResult};
use super::find::{HuntFind, cause_name, causes};
use super::record::HuntRecord;
use super::typed_fault::{joined, name};
use crate::report::diagnosis::Outcome;
use crate::report::screen::{Look, ScreenText};
use crate::report::words::{clock, many, on_run, quoted, quoted_words, run_path, thousands};

/// Columns of an experiment's faults.
const FAULTS: usize = 44;
/// Maximum number of faults without effect that a summary names.
const NAMED: usize = 6;
/// The time of a hunt that its number of experiments ends: it is no limit.
const DAY_MS: u64 = 24 * 3600 * 1000;

/// Returns the line for an experiment that has ended.
pub fn line(result: &ExperimentResult, is_new: bool, look: Look) -> String {
    let faults = joined(&result.faults);
    let (word, rest) = match &result.came_to {
        ExperimentOutcome::Decided(diagnosis, run) => match diagnosis.outcome {
            Outcome::Pass => (look.paint("32", "held    "), String::new()),
            Outcome::Fail => {
                let all = causes(diagnosis).into_iter();
                let all: Vec<String> = all
                    .map(|(property, violation)| cause_name(property, &violation.class))
                    .collect();
                let kept = if is_new { format!(": {run}") } else { String::new() };
                (look.paint("1;31", "VIOLATED"), format!("{}{kept}", all.join(", ")))
            }
            Outcome::Unsure | Outcome::Error => (
                look.paint("33", "unsure  "),
                diagnosis.unsure.first().cloned().unwrap_or_default(),
            ),
        },
        ExperimentOutcome::Failed(why) => (look.paint("1;31", "ERROR   "), why.clone()),
        ExperimentOutcome::Stopped => (look.paint("33", "stopped "), String::new()),
    };
    let number = format!("[{:>3}] ", result.index + 1);
    let took = result.took_ms as f64 / 1000.0;
    let rest = format!(
        "  {faults:<FAULTS$} {took:>5.1}s  {}",
        rest.lines().next().unwrap_or_default()
    );
    let line = ScreenText::from(number) + word + rest.trim_end();
    ScreenText::join_in_columns(vec![line], look.columns) + "\n"
}

/// Returns the block of a live screen; `now` has a line for each running experiment.
pub fn block(record: &HuntRecord, now: &[String], look: Look) -> String {
    let length = (record.for_ms < DAY_MS).then(|| format!(" of {}", clock(record.for_ms)));
    let at_most = record
        .at_most
        .map(|at_most| format!(", at most {}", many(at_most, "experiment")));
    let limits = length.unwrap_or_default() + &at_most.unwrap_or_default();
    let took = clock(record.took_ms);
    let mut rows = vec![
        ("hunt", format!("{took}{limits}   {}", rate(record))),
        ("so far", counts(record)),
        ("finds", finds(record)),
    ];
    if let Some(search) = &record.exhaustive {
        rows.insert(1, ("tries", tries(record, search)));
    }
    rows.extend(now.iter().map(|line| ("now", line.clone())));
    let lines = rows
        .iter()
        .map(|(name, text)| ScreenText::from(" ") + look.dim(&format!("{name:<7}")) + " " + text);
    format!("\n{}", ScreenText::join_in_columns(lines.collect(), look.columns))
}

/// `41,208 placements of up to 2 faults`, or an estimate; `None` before one is known.
pub fn placement_count(record: &HuntRecord) -> Option<String> {
    let search = record.exhaustive.as_ref()?;
    let about = if search.wanted().is_some() { "" } else { "about " };
    let of = many(u64::from(search.acts), "fault");
    Some(format!(
        "{about}{} placements of up to {of}",
        thousands(search.wanted_or_about()?)
    ))
}

/// `12,345 of 41,208 placements of up to 2 faults   about 1m 20s left`
fn tries(record: &HuntRecord, search: &Exhaustive) -> String {
    let tried = search.all_tried();
    let (Some(wanted), Some(count)) = (search.wanted_or_about(), placement_count(record)) else {
        let of = many(u64::from(search.acts), "fault");
        return format!("placements of up to {of}; a run without a fault counts them first");
    };
    let left = wanted.saturating_sub(tried);
    let left_ms = record.took_ms.saturating_mul(left) / tried.max(1);
    format!("{} of {count}   about {} left", thousands(tried), clock(left_ms))
}

/// Returns a sentence about the completeness of a search: every placement was tried, or this number of them.
pub fn completeness(record: &HuntRecord, search: &Exhaustive) -> String {
    let of = many(u64::from(search.acts), "fault");
    let of_shard = search.shard.map(|shard| format!("part {shard} of "));
    let (of_shard, tried) = (of_shard.unwrap_or_default(), thousands(search.all_tried()));
    let amount = match (record.is_complete(), search.wanted()) {
        (true, _) => format!("complete: {of_shard}all {tried}"),
        (false, Some(wanted)) => format!("not complete: {tried} of {of_shard}{}", thousands(wanted)),
        (false, None) => format!("not complete: {tried}"),
    };
    format!("{amount} placements of up to {of} were tried")
}

/// Returns the results of a search for every placement, in lines.
fn placements(record: &HuntRecord, search: &Exhaustive) -> Vec<String> {
    let mut lines = vec![completeness(record, search)];
    for (acts, counts) in search.tried.iter().enumerate().filter(|(_, counts)| counts.tried > 0) {
        let of = match acts {
            0 => "without a fault".to_owned(),
            acts => format!("with {}", many(acts as u64, "fault")),
        };
        let mut line = format!("  {} {of}", thousands(counts.tried));
        for (count, what) in [
            (counts.without_effect, "without an effect of the last fault"),
            (counts.undecided, "undecided"),
        ] {
            if count > 0 {
                line += &format!(", {} of them {what}", thousands(count));
            }
        }
        lines.push(line);
    }
    let example = |(faults, why): &(String, String)| format!("    undecided, for example: {faults}: {why}");
    lines.extend(search.undecided.as_ref().map(example));
    lines
}

fn finds(record: &HuntRecord) -> String {
    let find = |find: &HuntFind| format!("{} ×{}", find.name(), find.count);
    let finds: Vec<String> = record.finds.iter().map(find).collect();
    if finds.is_empty() {
        "none".to_owned()
    } else {
        finds.join("   ")
    }
}

/// `300 experiments: 174 held, 105 violated, 21 unsure`
pub fn counts(record: &HuntRecord) -> String {
    let some = record.counts.by_outcome().into_iter().filter(|(_, count)| *count > 0);
    let some: Vec<String> = some.map(|(word, count)| format!("{count} {word}")).collect();
    let all = many(record.counts.experiments, "experiment");
    if some.is_empty() {
        all
    } else {
        format!("{all}: {}", some.join(", "))
    }
}

fn rate(record: &HuntRecord) -> String {
    let minutes = record.took_ms as f64 / 60_000.0;
    let experiments = record.counts.experiments as f64;
    let rate = if minutes > 0.0 { experiments / minutes } else { 0.0 };
    format!("{rate:.1} experiments a minute")
}

/// `redis / redis-set-px-lua`
pub fn subject(record: &HuntRecord) -> String {
    let options = ["backend", "recipe", "client"].into_iter();
    let said: Vec<&str> = options.filter_map(|option| record.option(option)).collect();
    said.join(" / ")
}

/// Returns the summary at the end; `folder` is that of the record.
pub fn summary(record: &HuntRecord, folder: &str, look: Look) -> String {
    let seed = match record.merged.len() {
        0 => format!("seed {}", record.seed),
        hunts => format!("{} (seeds {})", many(hunts as u64, "hunt"), record.seed),
    };
    let title = format!(
        "  hunt {}   {seed}, {}, {}",
        subject(record),
        clock(record.took_ms),
        rate(record)
    );
    let mut lines = vec![
        look.outcome(Outcome::of(record.exit())) + title,
        ScreenText::default(),
        ScreenText::from("  ") + counts(record),
    ];
    let searched = record.exhaustive.iter().flat_map(|search| placements(record, search));
    lines.extend(searched.map(|line| ScreenText::from("  ") + line));
    lines.extend(effects(record).into_iter().map(|line| ScreenText::from("  ") + line));
    let error = record.error.as_ref().filter(|_| record.counts.failed > 0);
    lines.extend(error.map(|why| ScreenText::from("  error  ") + why));
    for find in &record.finds {
        lines.extend([ScreenText::default(), look.bold("x") + " " + look.bold(&find.name())]);
        lines.extend(details(find, record.counts));
        lines.extend(commands(find, folder, look));
    }
    lines.extend([ScreenText::default(), ScreenText::from("  results  ") + folder]);
    if record.merged.is_empty() {
        let words = ["harness", "hunt", "--continue", &quoted(folder)].map(str::to_owned);
        lines.extend(ScreenText::command("  go on    ", &words, look.columns));
    }
    ScreenText::join_in_columns(lines, look.columns) + "\n"
}

/// `once in 4 experiments`, `3 times in 4,000 experiments (1 in 1,333)`, of those that did not fail
pub fn how_often(count: u64, counts: HuntCounts) -> String {
    let experiments = counts.completed();
    let all = many(experiments, "experiment");
    match count {
        1 => format!("once in {all}"),
        _ if experiments < count * 10 => {
            let each = experiments as f64 / count as f64;
            format!("{count} times in {all} (1 in {each:.1})")
        }
        _ => format!("{count} times in {all} (1 in {})", thousands(experiments / count)),
    }
}

fn details(find: &HuntFind, counts: HuntCounts) -> Vec<ScreenText> {
    let times = how_often(find.count, counts);
    let mut lines = vec![
        find.summary.clone(),
        format!(
            "{times}, first in experiment {} after {}, under {}",
            find.experiment + 1,
            clock(find.at_ms),
            find.under()
        ),
    ];
    let explain = format!("(a guess; `harness explain {}`)", find.property.id());
    let likely = find.likely.as_ref();
    lines.extend(likely.map(|likely| format!("likely   {likely}   {explain}")));
    lines.into_iter().map(|line| ScreenText::from("    ") + line).collect()
}

/// Returns the commands that show a find, cut it down and repeat it.
fn commands(find: &HuntFind, folder: &str, look: Look) -> Vec<ScreenText> {
    let path = run_path(folder, &find.run);
    let all = [
        ("    see      ", on_run("check", &path)),
        ("    cut down ", on_run("shrink", &path)),
        ("    again    ", quoted_words(&find.again)),
    ];
    let lines = |(label, words): &(&str, Vec<String>)| ScreenText::command(label, words, look.columns);
    all.iter().flat_map(lines).collect()
}

/// Returns lines about the windows with an effect, and about the faults that never had one.
pub fn effects(record: &HuntRecord) -> Vec<String> {
    let sum = |of: fn(&FaultCount) -> u32| record.faults.values().map(of).sum::<u32>();
    let windows = sum(|count| count.windows);
    if windows == 0 {
        return Vec::new();
    }
    let effective = record.faults.iter().filter(|(_, count)| count.with_effect > 0);
    let families: BTreeSet<&str> = effective.map(|(fault, _)| name(fault)).collect();
    let mut lines = vec![format!(
        "{} of {} had an effect, of {}",
        sum(|count| count.with_effect),
        many(u64::from(windows), "fault window"),
        many(families.len() as u64, "fault")
    )];
    if record.exhaustive.is_none() {
        lines.extend(message_points(&record.coverage.struck()));
        lines.extend(record.states.in_words());
    }
    let left_out: Vec<&str> = record.left_out.iter().map(String::as_str).collect();
    if !left_out.is_empty() {
        let more = match left_out.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        lines.push(format!(
            "left out, since no window on it had an effect: {}{more}",
            left_out[..left_out.len().min(NAMED)].join(", ")
        ));
    }
    lines
}

/// Returns lines about the messages that were struck, and those that no fault could strike.
fn message_points(all: &Struck) -> Vec<String> {
    let in_vain: u64 = all.in_vain.values().sum();
    let possible = all.cells - in_vain;
    if possible == 0 {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{} of {possible} message points were struck ({} %): a point is a message, the state of its client, and a fault on messages",
        all.struck,
        all.struck * 100 / possible
    )];
    if in_vain > 0 {
        let names: Vec<&str> = all.in_vain.keys().map(String::as_str).collect();
        lines.push(format!(
            "{} had no message while a fault waited for one: {}",
            many(in_vain, "more point"),
            names.join(", ")
        ));
    }
    if !all.by_chance.is_empty() {
        let names: Vec<&str> = all.by_chance.iter().map(String::as_str).collect();
        let names = names.join(", ");
        lines.push(format!(
            "not counted, sent in few experiments and never struck: {names}"
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::super::testing::{begun, record, result, search};
    use super::*;
    use crate::report::test_text::assert_has;

    const PLAIN: Look = Look::PLAIN;

    #[test]
    fn a_line_says_what_became_of_an_experiment_and_a_new_find_where_it_is() {
        let held = line(&result(0, &[("reset", true)], &[]), false, PLAIN);
        assert!(
            held.starts_with("[  1] held      reset ") && held.ends_with("0.9s\n"),
            "{held}"
        );
        let found = result(41, &[("drop-reply=SET:1", true)], &[("HL005", "ghost", None)]);
        assert!(line(&found, true, PLAIN).ends_with("  HL005 ghost: runs/41\n"));
        assert!(line(&found, false, PLAIN).ends_with("  HL005 ghost\n"));
        let failed = ExperimentResult {
            came_to: ExperimentOutcome::Failed("no server\nlog".into()),
            ..result(2, &[], &[])
        };
        let line = line(&failed, false, PLAIN);
        assert!(line.contains("ERROR     none") && line.ends_with("no server\n"));
    }

    #[test]
    fn the_summary_has_each_find_with_what_to_type() {
        let mut record = record();
        record.took_ms = 62_000;
        for index in 0..3 {
            record.add(&result(
                index,
                &[("drop-reply=SET:1", true), ("drop-request=EVAL:1", false)],
                &[("HL005", "ghost", None)],
            ));
        }
        record.add(&result(3, &[("reset", true)], &[]));
        let text = summary(&record, "results/h", PLAIN);
        let parts = [
            "FAIL  hunt redis   seed 7, 1m 02s, 3.9 experiments a minute",
            "4 experiments: 1 held, 3 violated",
            "4 of 7 fault windows had an effect, of 2 faults",
            "left out, since no window on it had an effect: EVAL",
            "x HL005 ghost\n    HL005 broke\n    3 times in 4 experiments (1 in 1.3), first in experiment 1 after 0s, under drop-reply=SET:1,drop-request=EVAL:1",
            "harness check results/h/runs/0",
            "harness shrink results/h/runs/0",
            "harness hunt --continue results/h",
        ];
        assert_has(&text, &parts);
    }

    #[test]
    fn a_find_has_its_rate_among_the_experiments_that_did_not_fail() {
        let counts = |held: u64, violated: u64| HuntCounts {
            experiments: held + violated + 7,
            held,
            violated,
            failed: 7,
            ..HuntCounts::default()
        };
        assert_eq!(how_often(1, counts(0, 1)), "once in 1 experiment");
        let told = "3 times in 4,000 experiments (1 in 1,333)";
        assert_eq!(how_often(3, counts(3997, 3)), told);
    }

    #[test]
    fn a_search_says_how_far_it_is_and_whether_it_is_complete() {
        let mut record = search();
        let ended = |record: &mut HuntRecord, windows: &[(&str, bool)]| {
            let mut ended = result(begun(record), windows, &[]);
            ended.sent.requests = 2;
            record.add(&ended);
        };
        ended(&mut record, &[]);
        ended(&mut record, &[("drop-reply=any:1", true)]);
        record.took_ms = 60_000;
        let block = block(&record, &[], PLAIN);
        assert_has(&block, &["2 of 3 placements of up to 1 fault   about 30s left"]);
        let told = "not complete: 2 of 3 placements of up to 1 fault were tried";
        assert_has(&summary(&record, "results/h", PLAIN), &[told]);
        ended(&mut record, &[("drop-reply=any:2", false)]);
        let text = summary(&record, "results/h", PLAIN);
        let parts = [
            "PASS  hunt redis",
            "complete: all 3 placements of up to 1 fault were tried",
            "1 without a fault",
            "2 with 1 fault, 1 of them without an effect of the last fault",
        ];
        assert_has(&text, &parts);
    }

    #[test]
    fn the_block_of_a_screen_has_the_rate_the_finds_and_what_goes_on() {
        let mut record = record();
        record.took_ms = 30_000;
        record.add(&result(0, &[("reset", true)], &[("HL001", "granted-twice", None)]));
        let text = block(&record, &["experiment 2: faults".into()], PLAIN);
        let parts = [
            "30s of 10m 00s   2.0 experiments a minute",
            "1 experiment: 1 violated",
            "HL001 granted-twice ×1",
            "now     experiment 2: faults",
        ];
        assert_has(&text, &parts);
        (record.for_ms, record.at_most) = (DAY_MS, Some(100));
        let text = block(&record, &[], PLAIN);
        let limit = "hunt    30s, at most 100 experiments   2.0 experiments a minute";
        assert_has(&text, &[limit]);
    }
}
