//! Comparison of two runs: the classes of violation that are new, that are still there, and that are gone.
//!
//! Violations of two runs are the same when they are of one property and one class: times and clients never repeat.

use std::collections::BTreeMap;

use harness_checkers::{Finding, Property, Violation};
use serde::{Deserialize, Serialize};

use super::diagnosis::Outcome;
use super::escape::line;
use super::summary::roots;
use crate::store::RunInfo;

pub const SCHEMA: &str = "harness-comparison/1";

/// The part of a diagnosis that comparisons and lists need. Deserializes from `verdict.json`, and ignores the rest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    pub outcome: Outcome,
    pub run: Option<RunInfo>,
    /// The folder of the run, or the history file.
    #[serde(default)]
    pub path: String,
    pub findings: Vec<Finding>,
    #[serde(default)]
    pub unsure: Vec<String>,
    pub length_ns: u64,
}

impl RunSummary {
    /// Returns the row of the run: its backend, recipe, policy and fault. Only runs of one row can be compared.
    pub fn row(&self) -> Option<[&str; 4]> {
        let run = self.run.as_ref()?;
        let attitude = run.attitude.as_deref().unwrap_or_default();
        Some([&run.backend, &run.recipe, attitude, &run.fault])
    }

    /// Returns the name of the run, or the path of a history that came from elsewhere.
    pub fn name(&self) -> &str {
        self.run.as_ref().map_or(self.path.as_str(), |run| &run.run)
    }

    /// Returns the worst violation of each property that follows from no other.
    pub fn broken(&self) -> impl Iterator<Item = (&Finding, &Violation)> {
        roots(&self.findings)
    }
}

/// A class of violation in the two runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViolationClass {
    pub property: Property,
    pub class: String,
    /// The sentence of the worst of them.
    pub summary: String,
    pub before: u64,
    pub after: u64,
    /// Whether a run may have had more of them.
    pub before_is_least: bool,
    pub after_is_least: bool,
}

impl ViolationClass {
    /// `HL001 stale-holder`
    pub fn name(&self) -> String {
        format!("{} {}", self.property.id(), self.class)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Comparison {
    pub schema: &'static str,
    /// Whether both runs are of one row: otherwise, a new violation may come from another test.
    pub same_row: bool,
    pub new: Vec<ViolationClass>,
    pub still: Vec<ViolationClass>,
    pub gone: Vec<ViolationClass>,
}

/// Compares the violations of two runs by their classes.
pub fn compare(before: &RunSummary, after: &RunSummary) -> Comparison {
    // by class, the number in each run and whether it is a lower limit, and the worst one of the later run that has any
    let mut classes = BTreeMap::new();
    for (run, summary) in [before, after].into_iter().enumerate() {
        for finding in &summary.findings {
            // the classes of those that are not described are not known
            let is_least = finding.violation_count > finding.violations.len() as u64;
            for violation in &finding.violations {
                let key = (finding.property, violation.class.as_str());
                let (counts, shown) = classes.entry(key).or_insert(([(0, false); 2], violation));
                if counts[run].0 == 0 {
                    *shown = violation;
                }
                counts[run] = (counts[run].0 + 1, is_least);
            }
        }
    }
    let mut comparison = Comparison {
        schema: SCHEMA,
        same_row: before.row() == after.row(),
        new: Vec::new(),
        still: Vec::new(),
        gone: Vec::new(),
    };
    for ((property, class), (counts, shown)) in classes {
        let [(before, before_is_least), (after, after_is_least)] = counts;
        let class = ViolationClass {
            property,
            class: class.to_owned(),
            summary: shown.summary.clone(),
            before,
            after,
            before_is_least,
            after_is_least,
        };
        let list = match (class.before, class.after) {
            (0, _) => &mut comparison.new,
            (_, 0) => &mut comparison.gone,
            _ => &mut comparison.still,
        };
        list.push(class);
    }
    comparison
}

/// Returns the comparison as lines for a terminal.
pub fn render(comparison: &Comparison, (before, after): (&RunSummary, &RunSummary)) -> String {
    let mut lines = Vec::new();
    for (label, summary) in [("before", before), ("after", after)] {
        let run = summary.run.as_ref();
        let row = run.map(|run| format!("   {} / {}", line(&run.recipe), line(&run.fault)));
        let (outcome, name, row) = (summary.outcome.word(), line(summary.name()), row.unwrap_or_default());
        lines.push(format!("{label:<8}{outcome:<7} {name}{row}"));
    }
    if !comparison.same_row {
        lines.push("note    the runs differ in lock or fault".to_owned());
    }
    if !before.outcome.is_verdict() {
        lines.push("note    the earlier run proves nothing: a violation that is new here may be older".to_owned());
    }
    if !after.outcome.is_verdict() {
        lines.push("note    the later run proves nothing, and not that a violation is gone".to_owned());
    }
    lines.push(String::new());
    for (label, classes) in [
        ("new", &comparison.new),
        ("still", &comparison.still),
        ("gone", &comparison.gone),
    ] {
        for class in classes {
            let count = |count: u64, is_least: bool| format!("{count}{}", if is_least { " or more" } else { "" });
            let before = count(class.before, class.before_is_least);
            let after = count(class.after, class.after_is_least);
            let counts = match (class.before, class.after) {
                (0, _) => after,
                (_, 0) => before,
                _ => format!("{before}, now {after}"),
            };
            let (name, told) = (class.name(), line(&class.summary));
            lines.push(format!("{label:<8}{name:<28} {told}   ({counts})"));
        }
    }
    let [new, still, gone] = [&comparison.new, &comparison.still, &comparison.gone].map(Vec::len);
    if new + still + gone == 0 {
        lines.push("neither run has a violation".to_owned());
    } else {
        let class = if new == 1 { "class" } else { "classes" };
        lines.push(format!("\n{new} {class} new, {still} still there, {gone} gone"));
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_diagnosis::diagnosis;

    fn summary(classes: &[(&str, &str)]) -> RunSummary {
        let findings = classes
            .iter()
            .map(|(property, class)| (*property, "violated", *class, None));
        let diagnosis = diagnosis("FAIL", &findings.collect::<Vec<_>>(), &[]);
        // the rest of it is ignored
        serde_json::from_value(serde_json::json!(diagnosis)).unwrap()
    }

    #[test]
    fn new_still_there_and_gone_are_distinguished_by_property_and_class() {
        let before = summary(&[("HL001", "stale-holder"), ("HL008", "lost-update")]);
        let after = summary(&[("HL001", "granted-twice"), ("HL008", "lost-update")]);
        let comparison = compare(&before, &after);
        let names = |classes: &[ViolationClass]| classes.iter().map(ViolationClass::name).collect::<Vec<_>>();
        assert_eq!(names(&comparison.new), ["HL001 granted-twice"]);
        assert_eq!(names(&comparison.still), ["HL008 lost-update"]);
        assert_eq!(names(&comparison.gone), ["HL001 stale-holder"]);
        let shown = render(&comparison, (&before, &after));
        assert!(shown.ends_with("\n1 class new, 1 still there, 1 gone\n"), "{shown}");
    }

    #[test]
    fn a_number_of_those_that_are_described_is_a_lower_limit_if_there_are_more() {
        let before = summary(&[("HL001", "stale-holder")]);
        let mut after = before.clone();
        after.findings[0].violation_count = 7;
        let shown = render(&compare(&before, &after), (&before, &after));
        assert!(shown.contains("(1, now 1 or more)"), "{shown}");
    }
}
