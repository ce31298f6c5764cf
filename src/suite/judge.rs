//! Judges whether a run has the outcome that its row expects: one [`Judgement`] of one run, from its diagnosis alone.

use harness_checkers::{Finding, Property, Verdict};
use serde::{Deserialize, Serialize};

use super::{Expectation, Expected, SuiteRow};
use crate::exit::Exit;
use crate::report::Diagnosis;
use crate::report::diagnosis::Outcome;
use crate::report::summary::verdict_word;

/// The outcome of a run against its expectation. An earlier one outranks a later one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowOutcome {
    /// A property is violated although the row does not expect it.
    Unexpected,
    /// A property has another verdict than expected: above all, a violation that the row expects was not found.
    Missing,
    /// A canary did not fail.
    Silent,
    /// A bug in harness.
    Bug,
    /// Servers or clients did not start.
    Environment,
    Interrupted,
    /// The row was not run.
    #[default]
    NotRun,
    /// The run proves nothing: a fault without effect, a checker out of budget.
    Unsure,
    AsExpected,
}

impl RowOutcome {
    pub fn exit(self) -> Exit {
        match self {
            Self::Unexpected | Self::Missing | Self::Silent => Exit::Violated,
            Self::Bug => Exit::Bug,
            Self::Environment | Self::NotRun => Exit::Environment,
            Self::Interrupted => Exit::Interrupted,
            Self::Unsure => Exit::Inconclusive,
            Self::AsExpected => Exit::Holds,
        }
    }

    /// Returns the word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Unexpected => "VIOLATED",
            Self::Missing => "NOT FOUND",
            Self::Silent => "SILENT",
            Self::Bug => "BUG",
            Self::Environment => "ERROR",
            Self::Interrupted => "interrupted",
            Self::NotRun => "not run",
            Self::Unsure => "UNSURE",
            Self::AsExpected => "ok",
        }
    }

    /// Returns the outcome whose sign and colour it has.
    pub fn shown_as(self) -> Outcome {
        match self {
            Self::AsExpected => Outcome::Pass,
            Self::Unsure | Self::Interrupted | Self::NotRun => Outcome::Unsure,
            _ => Outcome::Fail,
        }
    }

    /// Whether the row was run to an end.
    pub fn was_run(self) -> bool {
        !matches!(self, Self::NotRun | Self::Interrupted)
    }

    /// Whether another run may replace this one. A run with a verdict is never repeated, whatever the verdict: that
    /// would be repeating until the answer pleases.
    pub fn proves_nothing(self) -> bool {
        matches!(self, Self::Unsure | Self::Environment)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub judged: RowOutcome,
    /// The reasons for which it is not as expected, a sentence each.
    pub why: Vec<String>,
}

impl Judgement {
    fn of(judged: RowOutcome, why: impl Into<Vec<String>>) -> Self {
        Self {
            judged,
            why: why.into(),
        }
    }
}

impl SuiteRow {
    /// Judges a run of this row.
    pub fn judge(&self, exit: Option<Exit>, diagnosis: Option<&Diagnosis>) -> Judgement {
        let judgement = judge(&self.expect, exit, diagnosis);
        if self.canary {
            judge_canary(judgement)
        } else {
            judgement
        }
    }
}

/// Judges a run by its exit code, and by its diagnosis if it has one.
fn judge(expect: &Expectation, exit: Option<Exit>, diagnosis: Option<&Diagnosis>) -> Judgement {
    let Some(diagnosis) = diagnosis else {
        return match exit {
            Some(Exit::Interrupted) => Judgement::of(RowOutcome::Interrupted, []),
            Some(Exit::Environment) => Judgement::of(RowOutcome::Environment, []),
            Some(exit) => Judgement::of(RowOutcome::Bug, [format!("exit {} without a verdict", exit.code())]),
            None => Judgement::of(RowOutcome::Bug, ["the run ended without an exit code".to_owned()]),
        };
    };
    let unexpected = unexpected(expect, diagnosis);
    if !unexpected.is_empty() {
        return Judgement::of(RowOutcome::Unexpected, unexpected);
    }
    match exit {
        Some(Exit::Bug) | None => return Judgement::of(RowOutcome::Bug, []),
        Some(Exit::Interrupted) => return Judgement::of(RowOutcome::Interrupted, []),
        _ if diagnosis.outcome == Outcome::Error => return Judgement::of(RowOutcome::Environment, []),
        _ => {}
    }
    // a fault without effect proves nothing, whatever else was found
    if let Some(why) = diagnosis
        .effect
        .too_little
        .as_ref()
        .filter(|_| expect.outcome != Outcome::Unsure)
    {
        return Judgement::of(RowOutcome::Unsure, [format!("the fault had no effect: {why}")]);
    }
    other_than_expected(expect, diagnosis)
}

/// Returns the violations that were not expected. One that follows from an expected or allowed one is expected with it.
fn unexpected(expect: &Expectation, diagnosis: &Diagnosis) -> Vec<String> {
    let is = |property: Property, expected: Expected| expect.verdicts.get(&property) == Some(&expected);
    let root_expected = |finding: &Finding| {
        let roots = finding.violations.iter().map(|violation| violation.follows.as_deref());
        let expected_root = |root: Option<&str>| {
            let found = Property::ALL
                .into_iter()
                .find(|property| root.is_some_and(|root| root.starts_with(property.id())));
            found.is_some_and(|root| is(root, Expected::Violated) || is(root, Expected::Any))
        };
        !finding.violations.is_empty() && roots.into_iter().all(expected_root)
    };
    let violated = diagnosis
        .findings
        .iter()
        .filter(|finding| finding.verdict == Verdict::Violated);
    let not_expected = violated.filter(|finding| match expect.verdicts.get(&finding.property) {
        Some(Expected::Violated | Expected::Any) => false,
        Some(_) => true,
        None => !root_expected(finding),
    });
    not_expected
        .map(|finding| {
            let what = finding
                .violations
                .first()
                .map_or(finding.evidence.as_str(), |violation| &violation.summary);
            format!("{} is violated: {what}", finding.property.id())
        })
        .collect()
}

/// Compares verdicts and the outcome, if no violation is unexpected.
fn other_than_expected(expect: &Expectation, diagnosis: &Diagnosis) -> Judgement {
    let mut judged = RowOutcome::AsExpected;
    let mut why = Vec::new();
    for (property, expected) in &expect.verdicts {
        let finding = diagnosis.finding(*property);
        let verdict = finding.map_or(Verdict::NotApplicable, |finding| finding.verdict);
        if expected.is(verdict) {
            continue;
        }
        let evidence = finding.map_or("", |finding| &finding.evidence);
        why.push(format!(
            "{}: expected verdict {}, found {}: {evidence}",
            property.id(),
            expected.word(),
            verdict_word(verdict)
        ));
        judged = judged.min(if verdict == Verdict::Inconclusive {
            RowOutcome::Unsure
        } else {
            RowOutcome::Missing
        });
    }
    // the diagnosis says that a pause missed: so the expected violation could not happen
    if diagnosis.outcome == Outcome::Unsure && expect.outcome != Outcome::Unsure {
        why.extend(diagnosis.unsure.iter().cloned());
        judged = RowOutcome::Unsure;
    } else if expect.outcome == Outcome::Unsure
        && diagnosis.outcome != Outcome::Unsure
        && judged == RowOutcome::AsExpected
    {
        // pass and fail need no further comparison: every violation was expected or allowed
        why.push(format!(
            "expected outcome {}, found {}",
            expect.outcome.word(),
            diagnosis.outcome.word()
        ));
        judged = RowOutcome::Missing;
    }
    Judgement { judged, why }
}

/// Judges a run of a canary, which is as expected if the violation was found.
fn judge_canary(judgement: Judgement) -> Judgement {
    match judgement.judged {
        RowOutcome::Unexpected => Judgement::of(RowOutcome::AsExpected, judgement.why),
        RowOutcome::AsExpected | RowOutcome::Missing => Judgement::of(
            RowOutcome::Silent,
            ["the run found no violation of a lock that is known to be broken".to_owned()],
        ),
        _ => judgement,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_diagnosis;

    /// Returns a diagnosis with these findings: `HL001 holds`, or `HL008 violated HL001-1` if a violation follows another.
    fn diagnosis(outcome: &str, findings: &[&str]) -> Diagnosis {
        let findings = findings.iter().map(|finding| {
            let mut words = finding.split(' ');
            let mut word = || words.next().unwrap();
            (word(), word(), "c", words.next())
        });
        test_diagnosis::diagnosis(outcome, &findings.collect::<Vec<_>>(), &[])
    }

    fn without_effect(mut diagnosis: Diagnosis) -> Diagnosis {
        diagnosis.effect.too_little = Some("0 of 2 windows".to_owned());
        diagnosis
    }

    fn expect(outcome: Outcome, verdicts: &[(Property, Expected)]) -> Expectation {
        let verdicts = verdicts.iter().copied().collect();
        Expectation { outcome, verdicts }
    }

    /// Judges a run with the exit code of its outcome.
    fn judgement(expect: &Expectation, diagnosis: &Diagnosis) -> Judgement {
        let mut exits = Exit::ALL.into_iter();
        let exit = exits.find(|exit| Outcome::of(*exit) == diagnosis.outcome);
        judge(expect, exit, Some(diagnosis))
    }

    fn judged(expect: &Expectation, outcome: &str, findings: &[&str]) -> RowOutcome {
        judgement(expect, &diagnosis(outcome, findings)).judged
    }

    fn broken() -> Expectation {
        let verdicts = [
            (Property::Hl001, Expected::Violated),
            (Property::Hl003, Expected::Holds),
        ];
        expect(Outcome::Fail, &verdicts)
    }

    #[test]
    fn an_expected_violation_is_in_order_and_so_is_what_follows_from_it() {
        let found = ["HL001 violated", "HL003 holds", "HL008 violated HL001-1"];
        assert_eq!(judged(&broken(), "FAIL", &found), RowOutcome::AsExpected);
    }

    #[test]
    fn an_expected_violation_that_is_not_found_fails_the_row() {
        let found = diagnosis("PASS", &["HL001 holds", "HL003 holds"]);
        let Judgement { judged, why } = judgement(&broken(), &found);
        assert_eq!(judged, RowOutcome::Missing);
        let said = "HL001: expected verdict violated, found holds";
        assert!(why[0].contains(said), "{why:?}");
    }

    #[test]
    fn an_unexpected_violation_fails_the_row_whatever_else_is_as_expected() {
        let hold = expect(Outcome::Pass, &[(Property::Hl001, Expected::Holds)]);
        assert_eq!(judged(&hold, "FAIL", &["HL001 violated"]), RowOutcome::Unexpected);
        let root_of_its_own = ["HL001 violated", "HL003 holds", "HL007 violated"];
        assert_eq!(judged(&broken(), "FAIL", &root_of_its_own), RowOutcome::Unexpected);
        let follows_another = ["HL001 violated", "HL003 holds", "HL008 violated HL007-1"];
        assert_eq!(judged(&broken(), "FAIL", &follows_another), RowOutcome::Unexpected);
    }

    #[test]
    fn a_violation_counts_also_where_the_run_was_interrupted_or_its_fault_had_no_effect() {
        let hold = expect(Outcome::Pass, &[]);
        let found = without_effect(diagnosis("FAIL", &["HL001 violated"]));
        for exit in [Exit::Violated, Exit::Interrupted, Exit::Environment] {
            assert_eq!(judge(&hold, Some(exit), Some(&found)).judged, RowOutcome::Unexpected);
        }
    }

    #[test]
    fn a_fault_without_effect_fails_the_row_whatever_was_found() {
        let found = without_effect(diagnosis("FAIL", &["HL001 violated", "HL003 holds"]));
        let judgement = judgement(&broken(), &found);
        assert_eq!(judgement.judged, RowOutcome::Unsure);
        assert!(judgement.why[0].contains("had no effect"));
    }

    #[test]
    fn a_violation_that_was_expected_counts_though_no_client_acquired_meanwhile() {
        let mut stuck = diagnosis("FAIL", &["HL001 violated", "HL003 holds"]);
        stuck.effect.in_vain = Some("0 acquires in 2 fault windows, and 12 attempts failed".into());
        assert_eq!(judgement(&broken(), &stuck).judged, RowOutcome::AsExpected);
    }

    #[test]
    fn a_run_that_proves_nothing_is_unsure_and_only_such_a_run_is_made_again() {
        let unsure = judged(&broken(), "UNSURE", &["HL001 holds", "HL003 holds"]);
        assert_eq!(unsure, RowOutcome::Unsure);
        assert!(RowOutcome::Unsure.proves_nothing() && RowOutcome::Environment.proves_nothing());
        for found in [
            RowOutcome::Unexpected,
            RowOutcome::Missing,
            RowOutcome::Silent,
            RowOutcome::Bug,
            RowOutcome::AsExpected,
        ] {
            assert!(!found.proves_nothing(), "{found:?}");
        }
    }

    #[test]
    fn a_verdict_that_is_not_the_expected_one_fails_the_row() {
        let tokens = expect(Outcome::Pass, &[(Property::Hl003, Expected::Holds)]);
        let none = ["HL003 not-applicable"];
        assert_eq!(judged(&tokens, "PASS", &none), RowOutcome::Missing);
        let any = expect(Outcome::Pass, &[(Property::Hl003, Expected::Any)]);
        assert_eq!(judged(&any, "PASS", &none), RowOutcome::AsExpected);
    }

    #[test]
    fn what_may_be_violated_may_and_so_may_what_follows_from_it() {
        let may = expect(Outcome::Pass, &[(Property::Hl001, Expected::Any)]);
        let follows = ["HL001 violated", "HL008 violated HL001-1"];
        assert_eq!(judged(&may, "FAIL", &follows), RowOutcome::AsExpected);
        assert_eq!(judged(&may, "PASS", &["HL001 holds"]), RowOutcome::AsExpected);
        let another = ["HL001 violated", "HL007 violated"];
        assert_eq!(judged(&may, "FAIL", &another), RowOutcome::Unexpected);
    }

    #[test]
    fn a_row_that_should_prove_nothing_fails_when_it_proves_something() {
        let unsure = expect(Outcome::Unsure, &[]);
        let proves_nothing = without_effect(diagnosis("UNSURE", &[]));
        assert_eq!(judgement(&unsure, &proves_nothing).judged, RowOutcome::AsExpected);
        assert_eq!(judged(&unsure, "PASS", &[]), RowOutcome::Missing);
    }

    #[test]
    fn a_canary_is_in_order_only_when_its_alarm_goes_off() {
        let hold = expect(Outcome::Pass, &[(Property::Hl001, Expected::Holds)]);
        let canary = |diagnosis: &Diagnosis| judge_canary(judgement(&hold, diagnosis)).judged;
        let sings = diagnosis("FAIL", &["HL001 violated"]);
        assert_eq!(canary(&sings), RowOutcome::AsExpected);
        let silent = diagnosis("PASS", &["HL001 holds"]);
        assert_eq!(canary(&silent), RowOutcome::Silent);
        let unsure = without_effect(diagnosis("UNSURE", &["HL001 holds"]));
        assert_eq!(canary(&unsure), RowOutcome::Unsure, "no song, and no silence either");
        let failed = judge_canary(judge(&hold, Some(Exit::Environment), None));
        assert_eq!(failed.judged, RowOutcome::Environment);
    }
}
