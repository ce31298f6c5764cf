//! The screen of `harness shrink --bisect-image`, `--bisect-server` and `--bisect-client`: a line for each run, and the answer.

use std::path::Path;
use std::time::Duration;

use harness_checkers::Property;
use serde::Serialize;

use super::shrink_screen::{headline, pointers, run_line};
use crate::hunt::bisect::{BisectAnswer, VersionRun, VersionState};
use crate::hunt::hit_rate::HitRate;
use crate::report::screen::{Look, ScreenText};
use crate::report::words::many;

/// The kind of version that a search compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionKind {
    Image,
    /// The value of `--server-version`.
    Server,
    Client,
}

/// The result for one version, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct VersionResult {
    /// The image, the version of the servers or the command.
    pub version: String,
    pub state: VersionState,
    /// Hit rate of the runs that are not unsure.
    pub hit_rate: HitRate,
    pub unsure: u32,
    /// The reason for which its last run proves nothing or could not be made.
    pub why: Option<String>,
}

/// The result of a search for a version, as `--json` prints it.
#[derive(Debug, Serialize)]
pub struct BisectResult {
    pub schema: &'static str,
    /// The run with the violation.
    pub run: String,
    pub property: Property,
    pub class: String,
    pub kind: VersionKind,
    /// The oldest first.
    pub versions: Vec<VersionResult>,
    /// Number of runs without the violation after which a version counts as free of it.
    pub needed: Option<u32>,
    /// The 95 % Wilson interval of the hit rate of the newest version.
    pub interval: (f64, f64),
    /// The versions of which one introduced the violation; the last of them shows it. Empty if there is no answer.
    pub began: Vec<String>,
    /// The probability that none of them introduced it.
    pub wrong: Option<f64>,
    /// The answer, or why there is none.
    pub answer: String,
    /// The command that runs the first version known to show the violation.
    pub again: Vec<String>,
    /// The last failed run of that version.
    pub kept: Option<String>,
    pub interrupted: bool,
}

/// `[ 3] held      ./lock-1.0   8.1s`
pub fn progress_line(
    number: u32,
    version: &str,
    run: VersionRun,
    why: Option<&str>,
    took: Duration,
    look: Look,
) -> String {
    let word = match run {
        VersionRun::Showed => look.paint("1;31", "violated"),
        VersionRun::Held => look.paint("32", "held    "),
        VersionRun::Unsure => look.paint("33", "unsure  "),
        VersionRun::NoStart => look.paint("33", "no start"),
    };
    let first_line = why.and_then(|why| why.lines().next());
    let why = first_line.map_or_else(String::new, |why| format!("   {why}"));
    let rest = format!("  {version}   {:.1}s{why}", took.as_secs_f64());
    run_line(number, word, &rest, look)
}

pub fn sentence(answer: &BisectAnswer, versions: &[String], rate: HitRate) -> String {
    let newest = &versions[versions.len() - 1];
    let runs = many(rate.runs.into(), "run");
    match *answer {
        BisectAnswer::Between { holds, fails, .. } if holds + 1 == fails => {
            format!("{} introduced it", versions[fails])
        }
        BisectAnswer::Between { holds, fails, .. } => {
            let (began, last) = (versions[holds + 1..=fails].join(", "), &versions[fails]);
            format!("one of these versions introduced it, and {last} has it: {began}")
        }
        BisectAnswer::NewestHolds => format!(
            "the newest version does not show it: {newest} held in {runs}; name a version that shows it as the last one"
        ),
        BisectAnswer::NewestSkipped => format!("the runs of the newest version, {newest}, prove nothing"),
        BisectAnswer::TooRare { needed } => format!(
            "the newest version shows it too rarely, in {rate}: a version counts as held only after {} without it; --bisect-runs {needed} allows them, and a longer --time may show it more often",
            many(needed.into(), "run")
        ),
        BisectAnswer::OldestFails { oldest } => {
            let oldest = &versions[oldest];
            format!("{oldest}, the oldest of these that can be run, has it already: name older versions")
        }
        BisectAnswer::NoneToCompare => "only the newest version can be run".to_owned(),
        BisectAnswer::Unfinished => "no answer within the time of --limit".to_owned(),
    }
}

pub fn summary(result: &BisectResult, folder: &Path, look: Look) -> String {
    let mut lines = vec![
        headline(result.property, &result.class, &result.run, look),
        ScreenText::from("  answer    ") + result.answer.clone(),
    ];
    lines.extend(result.wrong.map(|wrong| {
        let percent = (wrong * 1000.0).ceil() / 10.0;
        ScreenText::from(format!(
            "  wrong     with a chance of {percent:.1} %: an older version introduced it, and its runs missed it"
        ))
    }));
    let rows = result.versions.iter().enumerate();
    lines.extend(rows.map(|(place, version)| {
        let label = if place == 0 { "  versions  " } else { "            " };
        ScreenText::from(label) + version_row(version)
    }));
    if let (Some(needed), Some(newest)) = (result.needed, result.versions.last()) {
        let rate = newest.hit_rate;
        lines.push(ScreenText::from(format!("  hit rate  {rate} of the newest")));
        lines.push(ScreenText::from(format!(
            "            so a version counts as held after {} without it: they would show it with a chance of 95 %",
            many(needed.into(), "run")
        )));
    }
    lines.extend(pointers(&result.again, folder, result.kept.as_deref(), look));
    ScreenText::join_in_columns(lines, look.columns) + "\n"
}

/// `violated  ./lock-1.1   1 of 1 run`
fn version_row(version: &VersionResult) -> String {
    let rate = version.hit_rate;
    let runs = format!("{} of {}", rate.hits, many(rate.runs.into(), "run"));
    let (word, facts) = match version.state {
        VersionState::Fails => ("violated", runs),
        VersionState::Holds => ("held", runs),
        VersionState::Open if rate.runs + version.unsure == 0 => ("not run", String::new()),
        VersionState::Open => ("unknown", runs),
        VersionState::Skipped => {
            let why = version.why.as_deref().and_then(|why| why.lines().next());
            ("skipped", why.unwrap_or_default().to_owned())
        }
    };
    format!("{word:<9} {}   {facts}", version.version).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(version: &str, state: VersionState, hits: u32, runs: u32) -> VersionResult {
        VersionResult {
            version: version.to_owned(),
            state,
            hit_rate: HitRate { hits, runs },
            unsure: 0,
            why: (state == VersionState::Skipped).then(|| "no image redis:7.0: denied\nhint: pull it".to_owned()),
        }
    }

    fn result(answer: BisectAnswer) -> BisectResult {
        let names = ["redis:6.2", "redis:7.0", "redis:7.2"];
        let versions = vec![
            version(names[0], VersionState::Holds, 0, 4),
            version(names[1], VersionState::Skipped, 0, 0),
            version(names[2], VersionState::Fails, 5, 5),
        ];
        let is_found = matches!(answer, BisectAnswer::Between { .. });
        BisectResult {
            schema: "harness-bisect/1",
            run: "20261122-1048-redis-reset-5eed".to_owned(),
            property: Property::Hl001,
            class: "stale-holder".to_owned(),
            kind: VersionKind::Image,
            answer: sentence(&answer, &names.map(str::to_owned), HitRate { hits: 5, runs: 5 }),
            versions,
            needed: Some(4),
            interval: (0.5655, 1.0),
            began: names[1..]
                .iter()
                .filter(|_| is_found)
                .map(ToString::to_string)
                .collect(),
            wrong: is_found.then_some(0.0047),
            again: ["harness", "run", "--image", names[2]].map(str::to_owned).to_vec(),
            kept: Some("runs/20261122-1049".to_owned()),
            interrupted: false,
        }
    }

    #[test]
    fn a_range_names_its_versions_and_why_they_are_not_told_apart() {
        let found = BisectAnswer::Between {
            holds: 0,
            fails: 2,
            wrong: 0.0047,
        };
        let screen = summary(&result(found), Path::new("results/b"), Look::PLAIN);
        let expected = "\
x HL001 stale-holder  of 20261122-1048-redis-reset-5eed
  answer    one of these versions introduced it, and redis:7.2 has it: redis:7.0, redis:7.2
  wrong     with a chance of 0.5 %: an older version introduced it, and its runs missed it
  versions  held      redis:6.2   0 of 4 runs
            skipped   redis:7.0   no image redis:7.0: denied
            violated  redis:7.2   5 of 5 runs
  hit rate  5 of 5 runs (57 % to 100 %) of the newest
            so a version counts as held after 4 runs without it: they would show it with a chance of 95 %
  again     harness run --image redis:7.2
  see       harness check results/b/runs/20261122-1049
";
        assert_eq!(screen, expected);
    }

    #[test]
    fn where_there_is_no_version_the_sentence_says_what_to_do() {
        for (answer, says) in [
            (BisectAnswer::NewestHolds, "name a version that shows it"),
            (BisectAnswer::NewestSkipped, "prove nothing"),
            (BisectAnswer::TooRare { needed: 82 }, "--bisect-runs 82"),
            (BisectAnswer::OldestFails { oldest: 0 }, "name older versions"),
            (BisectAnswer::NoneToCompare, "can be run"),
            (BisectAnswer::Unfinished, "--limit"),
        ] {
            let screen = summary(&result(answer), Path::new("results/b"), Look::PLAIN);
            assert!(screen.contains(says) && !screen.contains("wrong"), "{screen}");
        }
    }
}
