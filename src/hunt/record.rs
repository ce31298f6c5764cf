//! The record of a hunt, as in `hunt.json`: the counts of its experiments, the effects of its faults, and its finds by cause.

use std::collections::{BTreeMap, BTreeSet};

use harness_workloads::Contract;
use serde::{Deserialize, Serialize};

use super::counts::{FaultCount, HuntCounts};
use super::coverage::HuntCoverage;
use super::draw::what_it_strikes;
use super::exhaustive::{self, Exhaustive, NextExperiment};
use super::experiment::{ExperimentOutcome, ExperimentResult};
use super::find::{HuntFind, causes};
use super::states::HuntStates;
use super::typed_fault::{name, without_number_or_time};
use crate::exit::Exit;
use crate::report::Diagnosis;
use crate::report::diagnosis::Outcome;

pub const SCHEMA: &str = "harness-hunt/1";
/// The runtime whose servers are models.
const SIMULATED: &str = "simulated";
/// Windows without effect after which a fault is left out. An experiment on messages has more of them.
const PATIENCE: u32 = 2;
/// Successive experiments that could not be made before a hunt gives up.
const ERRORS_IN_A_ROW: u32 = 3;

/// The end of a hunt, beside its time and its number of experiments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum HuntUntil {
    /// End at the first violation other than a herd (HL004)
    #[default]
    First,
    /// Continue to the end of the time
    End,
    /// Continue until the last 30 % of the experiments saw nothing new
    Saturated,
}

/// A hunt's record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HuntRecord {
    pub schema: String,
    pub harness: String,
    pub started: String,
    /// The options of `harness run` in every experiment, as typed.
    pub options: Vec<(String, String)>,
    pub seed: String,
    /// The length of the hunt, including the time before an interruption.
    pub for_ms: u64,
    pub took_ms: u64,
    /// The maximum number of experiments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<u64>,
    /// The time, and the number of experiments, at which the present part began. Once a part is over, the next one is as long.
    #[serde(default)]
    pub from_ms: u64,
    #[serde(default)]
    pub from: u64,
    #[serde(default)]
    pub until: HuntUntil,
    /// The first experiment that was not begun.
    pub next: u64,
    /// Experiments that have begun and not ended. Those of an interrupted hunt are made when it continues.
    pub open: BTreeSet<u64>,
    /// The open experiments that this process runs.
    #[serde(skip)]
    pub running: BTreeSet<u64>,
    /// The open placements that could not be made since the hunt began or was continued. They are made again when it continues.
    #[serde(skip)]
    pub failed: BTreeSet<u64>,
    pub counts: HuntCounts,
    /// By fault as typed, without its number.
    pub faults: BTreeMap<String, FaultCount>,
    /// The parts of faults that are left out because they never have an effect; see [`what_it_strikes`].
    pub left_out: BTreeSet<String>,
    /// The search, if the experiments are placements and not drawn.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "exhaustive::stored"
    )]
    pub exhaustive: Option<Exhaustive>,
    /// Whether every placement was tried and decided, once such a hunt ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    #[serde(default)]
    pub states: HuntStates,
    /// The coverage of its faults on messages.
    #[serde(default)]
    pub coverage: HuntCoverage,
    /// The contract of the clients, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract: Option<Contract>,
    pub finds: Vec<HuntFind>,
    /// The error of the last experiment that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub errors_in_a_row: u32,
    pub interrupted: bool,
    /// Counts of a shard's placements with the maximum number of faults. Every shard makes the others, which merged records count once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<ShardCounts>,
    /// The seeds of the hunts that it was merged from; none in the record of one hunt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<String>,
}

/// Experiments of a shard that no other shard makes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardCounts {
    pub counts: HuntCounts,
    pub faults: BTreeMap<String, FaultCount>,
    pub finds: Vec<HuntFind>,
}

impl HuntRecord {
    /// Returns the value of an option of every experiment.
    pub fn option(&self, name: &str) -> Option<&str> {
        let mut given = self.options.iter();
        given
            .find(|(option, _)| option == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the number of experiments that were begun.
    fn begun(&self) -> u64 {
        let search = self.exhaustive.as_ref();
        // the numbers of a shard have gaps
        search.map_or(self.next, |search| search.all_tried() + self.open.len() as u64)
    }

    /// Prepares the record of a hunt that continues: for this time or this number of experiments more, or for those that are left, or, if
    /// none are, for as many as before. Placements without a verdict are open again.
    pub fn go_on(&mut self, length_ms: Option<u64>, experiments: Option<u64>) {
        let again_ms = (self.took_ms >= self.for_ms).then(|| self.for_ms - self.from_ms);
        if let Some(more_ms) = length_ms.or(again_ms) {
            (self.from_ms, self.for_ms) = (self.took_ms, self.took_ms + more_ms);
        }
        // a typed time is the only limit, and a search for every placement continues to its end
        if length_ms.is_some() || self.exhaustive.is_some() {
            self.at_most = None;
        }
        if let Some(search) = &mut self.exhaustive {
            self.open.extend(search.take_undecided());
        }
        let begun = self.begun();
        let is_over = |at_most: &u64| begun >= *at_most && self.open.is_empty();
        let again = self.at_most.filter(is_over).map(|at_most| at_most - self.from);
        if let Some(more) = experiments.or(again) {
            (self.from, self.at_most) = (begun, Some(begun + more));
        }
        self.errors_in_a_row = 0;
        self.complete = None;
    }

    /// Begins the next experiment, and returns its number; `NotYet` while it depends on open ones, `Over` if there are enough.
    pub fn begin(&mut self) -> NextExperiment {
        let is_left = |index: &&u64| !self.running.contains(*index) && !self.failed.contains(*index);
        let left = self.open.iter().find(is_left).copied();
        let next = match (left, &self.exhaustive) {
            (Some(left), _) => NextExperiment::Number(left),
            (None, _) if self.at_most.is_some_and(|at_most| self.begun() >= at_most) => NextExperiment::Over,
            (None, None) => NextExperiment::Number(self.next),
            (None, Some(search)) => match search.next(self.next) {
                // it depends on one that could not be made
                NextExperiment::NotYet if self.running.is_empty() => NextExperiment::Over,
                next => next,
            },
        };
        if let NextExperiment::Number(index) = next {
            self.next = self.next.max(index + 1);
            self.open.insert(index);
            self.running.insert(index);
        }
        next
    }

    /// Whether the hunt is a search for every placement, and all of them were tried and decided.
    pub fn is_complete(&self) -> bool {
        let complete = |search: &Exhaustive| search.is_complete(self.open.len());
        self.exhaustive.as_ref().is_some_and(complete)
    }

    /// Records whether the search is complete, at the end of the hunt or after a merge.
    pub fn end(&mut self) {
        self.complete = self.exhaustive.as_ref().map(|_| self.is_complete());
    }

    /// Whether a diagnosis shows a cause that no earlier run showed.
    pub fn is_new(&self, diagnosis: &Diagnosis) -> bool {
        let known = |property, class: &str| self.finds.iter().any(|find| find.is_of(property, class));
        let mut causes = causes(diagnosis).into_iter();
        causes.any(|(property, violation)| !known(property, &violation.class))
    }

    /// Adds an experiment. Returns whether its run shows a new cause, so that it must be kept.
    pub fn add(&mut self, result: &ExperimentResult) -> bool {
        self.open.remove(&result.index);
        self.running.remove(&result.index);
        let is_own = |search: &Exhaustive| search.shard.is_some() && result.faults.len() == search.acts as usize;
        let is_own = self.exhaustive.as_ref().is_some_and(is_own);
        let (diagnosis, run) = match &result.came_to {
            ExperimentOutcome::Decided(diagnosis, run) => (diagnosis, run),
            ExperimentOutcome::Failed(why) => {
                self.counts.add(Outcome::Error);
                if is_own {
                    self.own.get_or_insert_default().counts.add(Outcome::Error);
                }
                self.errors_in_a_row += 1;
                self.error = Some(why.clone());
                if self.exhaustive.is_some() {
                    self.open.insert(result.index);
                    self.failed.insert(result.index);
                }
                return false;
            }
            ExperimentOutcome::Stopped => {
                self.open.insert(result.index);
                return false;
            }
        };
        self.errors_in_a_row = 0;
        if is_own {
            let own = self.own.get_or_insert_default();
            own.counts.add(diagnosis.outcome);
            count_windows(&mut own.faults, &result.faults, diagnosis);
            add_finds(&mut own.finds, result, diagnosis, run);
        }
        self.counts.add(diagnosis.outcome);
        count_windows(&mut self.faults, &result.faults, diagnosis);
        self.leave_out();
        let is_new = add_finds(&mut self.finds, result, diagnosis, run);
        match &mut self.exhaustive {
            Some(search) => search.add(result.index, diagnosis, result.sent.requests),
            None => {
                self.states.add(&result.sent.states);
                if let Some(coverage) = &diagnosis.coverage {
                    self.coverage.add(coverage, &result.faults);
                }
            }
        }
        is_new
    }

    /// Leaves out the parts of faults that never had an effect.
    fn leave_out(&mut self) {
        // an experiment on models depends on its number alone, and a search for every placement leaves nothing out
        if self.option("runtime") == Some(SIMULATED) || self.exhaustive.is_some() {
            return;
        }
        let mut struck: BTreeMap<&str, FaultCount> = BTreeMap::new();
        for (fault, count) in &self.faults {
            *struck.entry(what_it_strikes(fault)).or_default() += *count;
        }
        let never = struck
            .into_iter()
            .filter(|(_, count)| count.windows >= PATIENCE && count.with_effect == 0)
            // for a message that passed, the client or the time was wrong
            .filter(|(strikes, _)| !self.coverage.has_passed(strikes));
        self.left_out = never.map(|(strikes, _)| strikes.to_owned()).collect();
    }

    /// Whether it is of no use to go on: experiments can no longer be made, or the one that all others extend cannot.
    pub fn gives_up(&self) -> bool {
        self.errors_in_a_row >= ERRORS_IN_A_ROW || self.failed.contains(&0)
    }

    /// Returns the exit code: a find outranks everything; without one, some experiment must prove something.
    pub fn exit(&self) -> Exit {
        let lacks_some = self.exhaustive.is_some() && !self.is_complete();
        let proves_nothing = lacks_some || self.counts.held + self.counts.violated == 0;
        let exits = [
            (!self.finds.is_empty(), Exit::Violated),
            (proves_nothing, Exit::Inconclusive),
            (self.gives_up(), Exit::Environment),
            (self.interrupted, Exit::Interrupted),
        ];
        let apply = exits.into_iter().filter(|(applies, _)| *applies);
        apply.map(|(_, exit)| exit).fold(Exit::Holds, Exit::and)
    }
}

/// Adds the causes that a run shows. Returns whether one of them is new.
fn add_finds(finds: &mut Vec<HuntFind>, result: &ExperimentResult, diagnosis: &Diagnosis, run: &str) -> bool {
    let known = finds.len();
    for (property, violation) in causes(diagnosis) {
        let same = finds.iter_mut().find(|find| find.is_of(property, &violation.class));
        match same {
            Some(find) => find.count += 1,
            None => finds.push(HuntFind {
                property,
                class: violation.class.clone(),
                summary: violation.summary.clone(),
                likely: violation.likely.clone(),
                count: 1,
                experiment: result.index,
                at_ms: result.at_ms,
                fault: result.faults.join(","),
                run: run.to_owned(),
                again: diagnosis.run.as_ref().map(|run| run.again.clone()).unwrap_or_default(),
            }),
        }
    }
    finds.len() > known
}

fn count_windows(counts: &mut BTreeMap<String, FaultCount>, faults: &[String], diagnosis: &Diagnosis) {
    for window in &diagnosis.effect.windows {
        let mut typed = faults.iter().filter(|fault| window.fault == name(fault));
        // one of several faults with the same name, or of `--fault any`, is counted by its name alone
        let fault = match (typed.next(), typed.next()) {
            (Some(fault), None) => without_number_or_time(fault),
            _ => window.fault.clone(),
        };
        let count = counts.entry(fault).or_default();
        count.windows += 1;
        count.with_effect += u32::from(window.had_effect);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{diagnosis_of, record, result, search};
    use super::*;

    #[test]
    fn finds_are_sorted_by_their_cause_and_the_first_run_of_each_is_kept() {
        let mut record = record();
        let stale = [("HL001", "stale-holder", None), ("HL008", "lost", Some("HL001-0"))];
        assert!(record.add(&result(4, &[("partition=holder", true)], &stale)));
        // the same cause a second time
        assert!(!record.add(&result(5, &[("partition=holder", true)], &stale)));
        assert!(record.add(&result(6, &[("reset", true)], &[("HL001", "granted-twice", None)])));
        assert!(!record.add(&result(7, &[("reset", true)], &[])));
        let finds = record.finds.iter();
        let finds = finds.map(|find| (find.class.as_str(), find.count, find.run.as_str()));
        // violations that follow from others are no finds
        let expected = [("stale-holder", 2, "runs/4"), ("granted-twice", 1, "runs/6")];
        assert_eq!(finds.collect::<Vec<_>>(), expected);
        assert_eq!((record.counts.violated, record.counts.held), (3, 1));
        assert_eq!(record.exit(), Exit::Violated);
    }

    #[test]
    fn a_hunt_in_which_nothing_had_an_effect_proves_nothing() {
        let mut record = record();
        assert_eq!(record.exit(), Exit::Inconclusive);
        let mut unsure = result(0, &[("reset", false)], &[]);
        diagnosis_of(&mut unsure).outcome = Outcome::Unsure;
        record.add(&unsure);
        assert_eq!(record.exit(), Exit::Inconclusive);
        record.add(&result(1, &[("reset", true)], &[]));
        assert_eq!(record.exit(), Exit::Holds);
        record.interrupted = true;
        assert_eq!(record.exit(), Exit::Interrupted);
    }

    #[test]
    fn a_herd_is_counted_and_does_not_end_a_hunt() {
        let mut record = record();
        assert!(record.add(&result(0, &[("reset", true)], &[("HL004", "herd", None)])));
        assert!(!record.add(&result(1, &[("reset", true)], &[("HL004", "herd", None)])));
        assert!(!record.finds.iter().any(HuntFind::ends_hunt));
        assert_eq!((record.finds[0].count, record.exit()), (2, Exit::Violated));
        let worse = [("HL004", "herd", None), ("HL005", "free", None)];
        assert!(record.add(&result(2, &[("reset", true)], &worse)));
        assert!(record.finds.iter().any(HuntFind::ends_hunt));
    }

    #[test]
    fn experiments_that_cannot_be_made_end_a_hunt_only_in_a_row() {
        let mut record = record();
        let failed = |index| ExperimentResult {
            came_to: ExperimentOutcome::Failed("no server".into()),
            ..result(index, &[], &[])
        };
        record.add(&failed(0));
        record.add(&failed(1));
        record.add(&result(2, &[("reset", true)], &[]));
        record.add(&failed(3));
        record.add(&failed(4));
        assert!(!record.gives_up());
        record.add(&failed(5));
        assert!(record.gives_up());
        assert_eq!(record.exit(), Exit::Environment);
    }

    #[test]
    fn a_message_that_never_passes_is_left_out_with_all_faults_on_it_and_one_that_does_is_not() {
        let mut record = record();
        record.add(&result(0, &[("drop-reply=EVAL:1:waiter", false)], &[]));
        record.add(&result(1, &[("drop-reply=SET:1", false)], &[]));
        assert!(record.left_out.is_empty());
        record.add(&result(2, &[("delay-reply=EVAL:1:holder", false)], &[]));
        assert!(record.left_out.contains("EVAL"));
        for index in 4..9 {
            record.add(&result(index, &[("drop-reply=SET:1", index == 4)], &[]));
        }
        assert_eq!(record.left_out, BTreeSet::from(["EVAL".to_owned()]));
        let drops = record.faults["drop-reply=SET"];
        assert_eq!((drops.windows, drops.with_effect), (6, 1));
        let seen = super::super::coverage::tests::experiment("GET:waiter", 500, &[]);
        record.coverage.add(&seen, &[]);
        for index in 9..12 {
            record.add(&result(index, &[("drop-reply=GET:1:holder", false)], &[]));
        }
        // it was awaited from a holder, and waiters send it
        assert!(!record.left_out.contains("GET"));
    }

    #[test]
    fn a_search_for_every_placement_leaves_no_fault_out() {
        let mut record = search();
        for index in 0..4 {
            record.add(&result(index, &[("drop-reply=any:1", false)], &[]));
        }
        assert_eq!(record.faults["drop-reply=any"].windows, 4);
        assert!(record.left_out.is_empty(), "{:?}", record.left_out);
    }

    #[test]
    fn a_hunt_continues_for_what_is_left_and_then_for_as_much_as_before() {
        let mut record = record();
        let mut go_on = |took_ms, length_ms, next, experiments| {
            (record.took_ms, record.next) = (took_ms, next);
            record.go_on(length_ms, experiments);
            (record.for_ms, record.at_most)
        };
        // ten minutes; one that is interrupted has a rest
        assert_eq!(go_on(400_000, None, 40, None), (600_000, None));
        assert_eq!(go_on(601_000, None, 60, None), (1_201_000, None));
        assert_eq!(go_on(1_205_000, None, 120, None), (1_805_000, None));
        assert_eq!(go_on(1_205_000, Some(60_000), 120, Some(50)), (1_265_000, Some(170)));
        assert_eq!(go_on(1_210_000, None, 130, None), (1_265_000, Some(170)));
        assert_eq!(go_on(1_220_000, None, 170, None), (1_265_000, Some(220)));
        assert_eq!(go_on(1_265_000, None, 220, None), (1_325_000, Some(270)));
        assert_eq!(go_on(1_270_000, Some(1000), 230, None), (1_271_000, None));
    }

    #[test]
    fn an_experiment_that_was_stopped_is_made_again() {
        let mut record = record();
        let number = NextExperiment::Number;
        assert_eq!((record.begin(), record.begin()), (number(0), number(1)));
        record.add(&result(1, &[("reset", true)], &[]));
        record.add(&ExperimentResult {
            came_to: ExperimentOutcome::Stopped,
            ..result(0, &[], &[])
        });
        assert_eq!((record.open.len(), record.counts.experiments), (1, 1));
        let stored = serde_json::to_string(&record).unwrap();
        let mut again: HuntRecord = serde_json::from_str(&stored).unwrap();
        assert_eq!((again.begin(), again.begin()), (number(0), number(2)));
        again.at_most = Some(3);
        assert_eq!(again.begin(), NextExperiment::Over, "there have been enough");
        again.add(&result(0, &[("reset", true)], &[]));
        assert_eq!(again.open, BTreeSet::from([2]));
    }
}
