//! Bisection: finds the version of a lock or of a server that introduced a violation, by binary search. A version with
//! the violation need not show it in each run.
//!
//! One violation proves that a version has it. Its absence is never proved: a version counts as free of it after as
//! many runs without it as would have shown it with a probability of 95 %, at the hit rate of the newest version. That
//! rate is the lower bound of its [Wilson score interval](HitRate::interval), since it is measured in a few runs.
//!
//! An answer among many versions is less certain than each of its steps. So the answer has the probability that it is wrong
//! ([`BisectAnswer::Between`]), and the version before the first failing one is run again while that is above 5 %.
//!
//! Versions are numbered from the oldest. A version that cannot be decided (it does not start, its runs prove nothing) is skipped
//! as in [`git bisect skip`](https://git-scm.com/docs/git-bisect#_bisect_skip), and the answer is then a range.

use harness_checkers::{Property, Verdict, Violation};
use serde::Serialize;

use super::find::causes;
use super::hit_rate::HitRate;
use crate::report::Diagnosis;
use crate::report::diagnosis::Outcome;

/// Maximum probability that a version with the violation passes for one without it.
const CHANCE: f64 = 0.05;
/// Number of successive runs without a proof after which a version is skipped.
const UNSURE_IN_A_ROW: u32 = 3;

/// Limits of the number of runs in a search.
#[derive(Debug, Clone, Copy)]
pub struct BisectLimits {
    /// Runs of the newest version for its hit rate, if they are enough for one.
    pub confirm: u32,
    /// Maximum number of runs of one version.
    pub runs: u32,
}

/// The result of one run of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionRun {
    /// The run shows the violation.
    Showed,
    /// The run could have shown the violation, and does not.
    Held,
    /// The run proves nothing.
    Unsure,
    /// The version cannot be run.
    NoStart,
}

impl VersionRun {
    /// Returns the result of a run for violations of `property` in `class`. A run that is unsure, or in which the
    /// property is violated in another class, does not prove their absence.
    pub fn of(diagnosis: &Diagnosis, property: Property, class: &str) -> Self {
        let is_it = |(known, violation): &(Property, &Violation)| *known == property && violation.class == class;
        if causes(diagnosis).iter().any(is_it) {
            return Self::Showed;
        }
        let mut findings = diagnosis.findings.iter();
        let holds = findings.any(|finding| finding.property == property && finding.verdict == Verdict::Holds);
        match diagnosis.outcome {
            Outcome::Pass | Outcome::Fail if holds => Self::Held,
            _ => Self::Unsure,
        }
    }
}

/// The decision about a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum VersionState {
    /// Undecided so far.
    Open,
    Fails,
    Holds,
    Skipped,
}

/// The runs of one version.
#[derive(Debug, Clone, Copy)]
pub struct VersionTally {
    pub state: VersionState,
    /// Hit rate of the runs that prove something.
    pub rate: HitRate,
    /// Runs that prove nothing.
    pub unsure: u32,
    unsure_in_a_row: u32,
}

/// The answer of a search. Versions are given by their numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BisectAnswer {
    /// One of the versions after `holds`, up to and with `fails`, introduced it: `fails` if none between them is
    /// undecided. `wrong` is the probability that `holds` has it as well.
    Between { holds: usize, fails: usize, wrong: f64 },
    /// No run of the newest version shows it.
    NewestHolds,
    /// The newest version cannot be run, or its runs prove nothing.
    NewestSkipped,
    /// The newest version shows it so rarely that a version without it needs more runs than allowed: this number.
    TooRare { needed: u32 },
    /// The oldest version that can be run has it already.
    OldestFails { oldest: usize },
    /// All versions without the violation are skipped.
    NoneToCompare,
    /// The search ended without an answer.
    Unfinished,
}

/// The search: [`Bisecting::candidate`] returns the version to run, and [`Bisecting::add_run`] takes the result of its run.
#[derive(Debug)]
pub struct Bisecting {
    tallies: Vec<VersionTally>,
    limits: BisectLimits,
}

impl Bisecting {
    /// Begins with this many versions, two or more.
    pub fn of(versions: usize, limits: BisectLimits) -> Self {
        let untried = VersionTally {
            state: VersionState::Open,
            rate: HitRate { hits: 0, runs: 0 },
            unsure: 0,
            unsure_in_a_row: 0,
        };
        Self {
            tallies: vec![untried; versions],
            limits,
        }
    }

    pub fn tallies(&self) -> &[VersionTally] {
        &self.tallies
    }

    /// Returns the number of runs without the violation after which a version counts as free of it, once the newest has failed.
    pub fn needed(&self) -> Option<u32> {
        (self.tallies[self.newest()].state == VersionState::Fails).then(|| self.needed_by_rate())
    }

    /// Returns the version to run next, or `None` if there is an answer.
    pub fn candidate(&self) -> Option<usize> {
        let newest = self.newest();
        match self.tallies[newest].state {
            VersionState::Open => return (!self.is_too_rare()).then_some(newest),
            VersionState::Fails => {}
            VersionState::Holds | VersionState::Skipped => return None,
        }
        let fails = self.lowest_that_fails()?;
        let Some(holds) = self.highest_that_holds() else {
            let oldest = self.oldest()?;
            return (self.tallies[oldest].state == VersionState::Open).then_some(oldest);
        };
        let open = (holds + 1..fails).filter(|version| self.tallies[*version].state == VersionState::Open);
        open.min_by_key(|version| (2 * version).abs_diff(holds + fails))
            .or_else(|| self.is_doubtful(holds, fails).then_some(holds))
    }

    /// Adds the result of a run of the candidate.
    pub fn add_run(&mut self, version: usize, run: VersionRun) {
        let needed = self.needed();
        let newest = version == self.newest();
        let tally = &mut self.tallies[version];
        let was_run = tally.rate.runs + tally.unsure > 0;
        match run {
            VersionRun::NoStart if !was_run => tally.state = VersionState::Skipped,
            // a version that was run before can be run, and its other results stay valid
            VersionRun::Unsure | VersionRun::NoStart => {
                tally.unsure += 1;
                tally.unsure_in_a_row += 1;
                let in_a_row = tally.unsure_in_a_row >= UNSURE_IN_A_ROW && tally.rate.hits == 0;
                if tally.state == VersionState::Open && (in_a_row || tally.unsure > self.limits.runs) {
                    tally.state = VersionState::Skipped;
                }
            }
            VersionRun::Showed | VersionRun::Held => {
                tally.unsure_in_a_row = 0;
                tally.rate.runs += 1;
                tally.rate.hits += u32::from(run == VersionRun::Showed);
            }
        }
        if tally.state == VersionState::Skipped {
            return;
        }
        if newest {
            self.settle_newest();
        } else if run == VersionRun::Showed {
            tally.state = VersionState::Fails;
        } else if run == VersionRun::Held && needed.is_some_and(|needed| tally.rate.runs >= needed) {
            tally.state = VersionState::Holds;
        }
    }

    /// Returns the answer after the runs so far.
    pub fn answer(&self) -> BisectAnswer {
        match self.tallies[self.newest()].state {
            VersionState::Holds => return BisectAnswer::NewestHolds,
            VersionState::Skipped => return BisectAnswer::NewestSkipped,
            VersionState::Open if self.is_too_rare() => {
                return BisectAnswer::TooRare {
                    needed: self.needed_by_rate(),
                };
            }
            VersionState::Open => return BisectAnswer::Unfinished,
            VersionState::Fails => {}
        }
        match (self.highest_that_holds(), self.lowest_that_fails(), self.oldest()) {
            (Some(holds), Some(fails), _) => BisectAnswer::Between {
                holds,
                fails,
                wrong: self.wrong(holds, fails),
            },
            (None, _, Some(oldest)) if oldest == self.newest() => BisectAnswer::NoneToCompare,
            (None, _, Some(oldest)) if self.tallies[oldest].state == VersionState::Fails => {
                BisectAnswer::OldestFails { oldest }
            }
            _ => BisectAnswer::Unfinished,
        }
    }

    fn newest(&self) -> usize {
        self.tallies.len() - 1
    }

    /// Returns the lower bound of the hit rate of the newest version.
    fn low(&self) -> f64 {
        self.tallies[self.newest()].rate.interval().0
    }

    fn needed_by_rate(&self) -> u32 {
        let low = self.low();
        if low <= 0.0 {
            return u32::MAX;
        }
        (CHANCE.ln() / (1.0 - low).ln()).ceil() as u32
    }

    /// Whether the newest version had all of its runs, and showed the violation in too few of them.
    fn is_too_rare(&self) -> bool {
        let rate = self.tallies[self.newest()].rate;
        rate.hits > 0 && rate.runs >= self.most() && self.needed_by_rate() > self.limits.runs
    }

    /// Returns the maximum number of runs of the newest version.
    fn most(&self) -> u32 {
        self.limits.runs.max(self.limits.confirm)
    }

    /// Evaluates its runs at most twice: an interval that is evaluated after each run would not be valid.
    fn settle_newest(&mut self) {
        let (most, needed, allowed) = (self.most(), self.needed_by_rate(), self.limits.runs);
        let confirm = self.limits.confirm;
        let newest = self.newest();
        let tally = &mut self.tallies[newest];
        let is_looked_at = tally.rate.runs == confirm || tally.rate.runs >= most;
        if is_looked_at && tally.rate.hits > 0 && needed <= allowed {
            tally.state = VersionState::Fails;
        } else if tally.rate.runs >= most && tally.rate.hits == 0 {
            tally.state = VersionState::Holds;
        }
    }

    fn lowest_that_fails(&self) -> Option<usize> {
        self.tallies.iter().position(|tally| tally.state == VersionState::Fails)
    }

    fn highest_that_holds(&self) -> Option<usize> {
        self.tallies
            .iter()
            .rposition(|tally| tally.state == VersionState::Holds)
    }

    /// Returns the oldest version that is not skipped.
    fn oldest(&self) -> Option<usize> {
        self.tallies
            .iter()
            .position(|tally| tally.state != VersionState::Skipped)
    }

    /// Whether the answer is wrong with too high a probability, and more runs of `holds` can change that.
    fn is_doubtful(&self, holds: usize, fails: usize) -> bool {
        let tally = &self.tallies[holds];
        let may_run = tally.rate.runs < self.limits.runs && tally.unsure_in_a_row < UNSURE_IN_A_ROW;
        may_run && self.wrong(holds, fails) > CHANCE
    }

    /// Returns the probability that `holds` or an older version introduced it. A priori, each version is as likely as
    /// any other to have introduced it, and each hit rate is as likely as any other.
    fn wrong(&self, holds: usize, fails: usize) -> f64 {
        let mut older = 0.0;
        let mut runs = 0;
        for version in (0..=holds).rev() {
            // if this version introduced it, all runs of it and of the later ones that hold missed it
            if self.tallies[version].state == VersionState::Holds {
                runs += self.tallies[version].rate.runs;
            }
            older += self.would_miss(runs);
        }
        older / (older + (fails - holds) as f64)
    }

    /// Returns the expected value of `(1 - rate)^runs` for a rate of which the runs of the newest version are known:
    /// <https://en.wikipedia.org/wiki/Beta-binomial_distribution>
    fn would_miss(&self, runs: u32) -> f64 {
        let newest = self.tallies[self.newest()].rate;
        let (hits, misses) = (f64::from(newest.hits + 1), f64::from(newest.runs - newest.hits + 1));
        let one = |run| (misses + f64::from(run)) / (hits + misses + f64::from(run));
        (0..runs).map(one).product()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use serde_json::json;

    use super::*;
    use crate::hunt::testing::{diagnosis_of, result};

    const LIMITS: BisectLimits = BisectLimits { confirm: 5, runs: 30 };

    /// Runs the search to its end; `run` returns the result of a run of a version. Returns the number of runs.
    fn search(search: &mut Bisecting, mut run: impl FnMut(usize) -> VersionRun) -> u32 {
        let mut runs = 0;
        while let Some(version) = search.candidate() {
            runs += 1;
            assert!(runs < 2000, "it has no end");
            search.add_run(version, run(version));
        }
        runs
    }

    fn showed(shows: bool) -> VersionRun {
        if shows { VersionRun::Showed } else { VersionRun::Held }
    }

    fn first(began: usize) -> impl Fn(usize) -> VersionRun {
        move |version| showed(version >= began)
    }

    #[test]
    fn the_version_that_began_it_is_found_and_the_doubt_is_told() {
        for versions in 2..12 {
            for began in 1..versions {
                let mut bisecting = Bisecting::of(versions, LIMITS);
                let runs = search(&mut bisecting, first(began));
                let BisectAnswer::Between { holds, fails, wrong } = bisecting.answer() else {
                    panic!("{:?}", bisecting.answer());
                };
                assert_eq!((holds, fails), (began - 1, began), "{versions} versions");
                assert!(wrong > 0.0 && wrong < 0.05, "{wrong}");
                // five of the newest, four of each that holds
                let most = 5 + 4 + 4 * versions.ilog2() + 4;
                assert!(runs <= most, "{runs} runs of {versions} versions");
            }
        }
    }

    #[test]
    fn so_many_runs_are_needed_as_a_version_with_the_rate_would_have_shown_it_in() {
        // (1 - low)^runs <= 0.05, with the bounds of Wilson that are tested in hit_rate.rs: 0.5655, 0.3755
        for (hits, needed) in [(5, 4), (4, 7)] {
            let mut bisecting = Bisecting::of(2, LIMITS);
            for run in 0..5 {
                bisecting.add_run(1, showed(run < hits));
            }
            assert_eq!(bisecting.needed(), Some(needed));
            for _ in 0..needed {
                assert_eq!(bisecting.candidate(), Some(0));
                assert_eq!(bisecting.answer(), BisectAnswer::Unfinished);
                bisecting.add_run(0, VersionRun::Held);
            }
            assert_eq!(bisecting.candidate(), None);
        }
    }

    #[test]
    fn ends_that_are_not_as_they_should_be_give_no_version() {
        let ended = |run: &mut dyn FnMut(usize) -> VersionRun| {
            let mut bisecting = Bisecting::of(3, LIMITS);
            (search(&mut bisecting, run), bisecting.answer())
        };
        assert_eq!(ended(&mut |_| VersionRun::Held), (30, BisectAnswer::NewestHolds));
        let oldest = BisectAnswer::OldestFails { oldest: 0 };
        assert_eq!(ended(&mut |_| VersionRun::Showed), (6, oldest));
        assert_eq!(ended(&mut |_| VersionRun::NoStart), (1, BisectAnswer::NewestSkipped));
        let mut run = 0;
        let (_, rare) = ended(&mut |_| {
            run += 1;
            showed(run == 9)
        });
        assert!(
            matches!(rare, BisectAnswer::TooRare { needed } if needed > 30),
            "{rare:?}"
        );
        let (_, alone) = ended(&mut |version| match version {
            2 => VersionRun::Showed,
            _ => VersionRun::NoStart,
        });
        assert_eq!(alone, BisectAnswer::NoneToCompare);
    }

    #[test]
    fn a_rate_that_is_low_in_the_first_runs_is_measured_in_more() {
        let mut bisecting = Bisecting::of(2, LIMITS);
        let mut run = 0;
        while bisecting.needed().is_none() {
            run += 1;
            // one of the first five, and half of the others
            bisecting.add_run(1, showed(run == 3 || (run > 5 && run % 2 == 0)));
        }
        assert_eq!(run, 30);
    }

    #[test]
    fn versions_that_cannot_be_decided_widen_the_answer() {
        let between = |skipped: &'static [usize], with: VersionRun| {
            let mut bisecting = Bisecting::of(9, LIMITS);
            search(&mut bisecting, |version| match skipped.contains(&version) {
                true => with,
                false => first(5)(version),
            });
            match bisecting.answer() {
                BisectAnswer::Between { holds, fails, .. } => (holds, fails),
                answer => panic!("{answer:?}"),
            }
        };
        for with in [VersionRun::NoStart, VersionRun::Unsure] {
            assert_eq!(between(&[4], with), (3, 5));
            assert_eq!(between(&[4, 5, 6], with), (3, 7));
            assert_eq!(between(&[0, 1, 7], with), (4, 5), "those are not between");
        }
    }

    #[test]
    fn a_run_that_proves_nothing_is_no_evidence() {
        let mut bisecting = Bisecting::of(2, LIMITS);
        (0..5).for_each(|_| bisecting.add_run(1, VersionRun::Showed));
        for _ in 0..3 {
            bisecting.add_run(0, VersionRun::Held);
            bisecting.add_run(0, VersionRun::Unsure);
        }
        let tally = bisecting.tallies()[0];
        assert_eq!((tally.state, tally.rate.runs, tally.unsure), (VersionState::Open, 3, 3));
    }

    #[test]
    fn a_version_that_was_run_and_does_not_start_once_keeps_what_is_known_of_it() {
        let mut bisecting = Bisecting::of(2, LIMITS);
        (0..5).for_each(|_| bisecting.add_run(1, VersionRun::Showed));
        bisecting.add_run(1, VersionRun::NoStart);
        assert_eq!(bisecting.tallies()[1].state, VersionState::Fails);
        bisecting.add_run(0, VersionRun::Held);
        bisecting.add_run(0, VersionRun::NoStart);
        assert_eq!(bisecting.candidate(), Some(0));
    }

    #[test]
    fn a_run_speaks_of_one_property_in_one_class() {
        let run = |outcome, verdict: Option<&str>, violations: &[(&str, &str, Option<&str>)]| {
            let mut result = result(0, &[], violations);
            let diagnosis = diagnosis_of(&mut result);
            diagnosis.outcome = outcome;
            let finding = |verdict| json!({ "property": "HL001", "verdict": verdict, "evidence": "e" });
            let findings = verdict.map(|verdict| serde_json::from_value(finding(verdict)).unwrap());
            diagnosis.findings.extend(findings);
            VersionRun::of(diagnosis, Property::Hl001, "stale-holder")
        };
        let it = ("HL001", "stale-holder", None);
        let other_class = ("HL001", "granted-twice", None);
        let other_property = ("HL004", "herd", None);
        let follows = ("HL001", "stale-holder", Some("HL007-1"));
        assert_eq!(run(Outcome::Fail, None, &[it]), VersionRun::Showed);
        assert_eq!(run(Outcome::Fail, None, &[other_class, it]), VersionRun::Showed);
        assert_eq!(run(Outcome::Pass, Some("holds"), &[]), VersionRun::Held);
        assert_eq!(run(Outcome::Fail, Some("holds"), &[other_property]), VersionRun::Held);
        // another violation may hide it, and a run that proves nothing is no evidence
        assert_eq!(run(Outcome::Fail, None, &[other_class]), VersionRun::Unsure);
        assert_eq!(run(Outcome::Fail, None, &[follows]), VersionRun::Unsure);
        let inconclusive = run(Outcome::Fail, Some("inconclusive"), &[other_property]);
        assert_eq!(inconclusive, VersionRun::Unsure);
        assert_eq!(run(Outcome::Unsure, Some("holds"), &[]), VersionRun::Unsure);
        assert_eq!(run(Outcome::Error, None, &[]), VersionRun::Unsure);
    }

    /// In 4,000 searches with drawn versions and hit rates, the share of wrong answers is at most the one that the answers state.
    #[test]
    fn answers_are_wrong_as_often_as_they_say_or_less() {
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        let (mut wrong, mut said, mut answers) = (0.0, 0.0, 0);
        for _ in 0..4000 {
            let versions = rng.random_range(2..20);
            // 0: the oldest has it, and may pass for one without it
            let began = rng.random_range(0..versions);
            let rate = rng.random_range(0.2..1.0);
            let mut bisecting = Bisecting::of(versions, LIMITS);
            search(&mut bisecting, |version| {
                showed(version >= began && rng.random_bool(rate))
            });
            if let BisectAnswer::Between {
                holds, wrong: doubt, ..
            } = bisecting.answer()
            {
                answers += 1;
                said += doubt;
                wrong += f64::from(u8::from(holds >= began));
            }
        }
        assert!(answers > 2000, "{answers}");
        assert!(wrong <= said, "{wrong} of {answers} wrong, {said} said");
    }

    proptest! {
        #[test]
        fn an_answer_has_evidence_whatever_began_and_however_often_it_comes(
            versions in 2usize..12, began in 0usize..12, rate in 1u8..18, runs in proptest::collection::vec(0u8..20, 0..600),
            confirm in 1u32..8, most in 1u32..40,
        ) {
            let mut bisecting = Bisecting::of(versions, BisectLimits { confirm, runs: most });
            for run in runs {
                let Some(version) = bisecting.candidate() else { break };
                // one that holds is run again while the answer is doubtful
                prop_assert!(matches!(bisecting.tallies()[version].state, VersionState::Open | VersionState::Holds));
                bisecting.add_run(version, match run {
                    0..18 => showed(version >= began && run < rate),
                    18 => VersionRun::Unsure,
                    _ => VersionRun::NoStart,
                });
                for tally in bisecting.tallies() {
                    prop_assert!(tally.rate.runs <= confirm.max(most));
                }
            }
            if let BisectAnswer::Between { holds, fails, wrong } = bisecting.answer() {
                let tallies = bisecting.tallies();
                prop_assert!(holds < fails && tallies[fails].rate.hits > 0);
                prop_assert!(tallies[holds].rate.hits == 0);
                // the rate of the newest, by another form of the same bound
                let newest = tallies[versions - 1].rate;
                let low = newest.interval().0;
                prop_assert!(newest.hits > 0 && newest.runs >= confirm);
                prop_assert!((1.0 - low).powf(f64::from(tallies[holds].rate.runs)) <= 0.05);
                prop_assert!(tallies[holds].rate.runs <= most);
                let more = tallies[holds].rate.runs < most && tallies[holds].unsure < 3;
                prop_assert!(bisecting.candidate().is_some() || wrong <= 0.05 || !more, "{}", wrong);
                // nothing between them is decided, and after a search to its end nothing is open
                for tally in &tallies[holds + 1..fails] {
                    prop_assert!(matches!(tally.state, VersionState::Skipped | VersionState::Open));
                    prop_assert!(bisecting.candidate().is_some() || tally.state == VersionState::Skipped);
                }
            }
        }
    }
}
