//! A suite's row with many seeds, each of them an experiment on models in memory, which must have the expected outcome.

use std::collections::BTreeMap;

use tokio::sync::watch;

use super::args::RunArgs;
use super::examined::exit_of;
use super::experiment::examined_in_memory;
use super::seeds::seeds;
use super::settings::{refusal, run_of};
use crate::cluster::RuntimeChoice;
use crate::report::Diagnosis;
use crate::suite::SuiteRow;
use crate::suite::judge::{Judgement, RowOutcome};
use crate::suite::record::SeedCounts;

/// The option of `harness run` that has another value in each experiment of such a row.
pub const SEED: &str = "seed";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowSeeds {
    pub first: u64,
    pub count: u32,
}

/// The outcomes of the experiments of a row.
#[derive(Debug, Default)]
pub struct SeedsExamined {
    pub counts: SeedCounts,
    /// The first experiment of each outcome.
    firsts: BTreeMap<RowOutcome, SeedExamined>,
}

/// An experiment of a row, with its seed and its diagnosis.
#[derive(Debug)]
pub struct SeedExamined {
    pub seed: u64,
    pub judgement: Judgement,
    /// `None` if the experiment could not be made.
    pub diagnosis: Option<Diagnosis>,
}

impl SeedsExamined {
    /// Returns the experiment with the outcome of a row of this number of seeds: the worst one. Those that prove nothing are ignored as
    /// long as more prove something. `None` if the user interrupted, unless a property was violated by then.
    pub fn decisive(mut self, count: u32) -> Option<SeedExamined> {
        if self.counts.made < count {
            return self.firsts.remove(&RowOutcome::Unexpected);
        }
        let few_unsure = self.counts.unsure < self.counts.as_expected;
        let passed_over = |judged: &RowOutcome| *judged == RowOutcome::Unsure && few_unsure;
        let worst = self.firsts.keys().copied().find(|judged| !passed_over(judged))?;
        self.firsts.remove(&worst)
    }

    fn add(&mut self, examined: SeedExamined) {
        let judged = examined.judgement.judged;
        self.counts.add(judged, examined.seed);
        self.firsts.entry(judged).or_insert(examined);
    }
}

/// Makes the experiments of a row, one after the other, on this thread, until the user interrupts.
pub fn examine(row: &SuiteRow, of: RowSeeds, stop: &watch::Receiver<bool>) -> SeedsExamined {
    let mut examined = SeedsExamined::default();
    examined.counts.first = format!("{:08x}", of.first);
    let args = run_of(&row.settings).map_err(|error| refusal(&error));
    for seed in seeds(of.first, of.count) {
        let made = args.as_ref().map_err(Clone::clone);
        match made.and_then(|args| diagnosed(args, seed, stop)) {
            Ok(Some(diagnosis)) => examined.add(SeedExamined {
                seed,
                judgement: row.judge(Some(exit_of(&diagnosis)), Some(&diagnosis)),
                diagnosis: Some(diagnosis),
            }),
            Ok(None) => break,
            Err(why) => examined.add(SeedExamined {
                seed,
                judgement: Judgement {
                    judged: RowOutcome::Bug,
                    why: vec![why],
                },
                diagnosis: None,
            }),
        }
    }
    examined
}

/// Makes one experiment; `None` when the user interrupted.
fn diagnosed(args: &RunArgs, seed: u64, stop: &watch::Receiver<bool>) -> Result<Option<Diagnosis>, String> {
    if *stop.borrow() {
        return Ok(None);
    }
    let choice = RuntimeChoice::simulated("--seeds".to_owned());
    let examined = examined_in_memory(args.config(seed)?, &choice, stop)?;
    Ok(examined.map(|(diagnosis, _)| diagnosis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_were_not_all_tried_decide_nothing_but_a_violation() {
        use RowOutcome::{AsExpected, Missing, Unexpected, Unsure};
        let decisive = |outcomes: &[RowOutcome], count: u32| {
            let mut examined = SeedsExamined::default();
            for (seed, judged) in (7..).zip(outcomes) {
                let (judged, why) = (*judged, Vec::new());
                examined.add(SeedExamined {
                    seed,
                    judgement: Judgement { judged, why },
                    diagnosis: None,
                });
            }
            let decisive = examined.decisive(count);
            decisive.map(|decisive| (decisive.judgement.judged, decisive.seed))
        };
        assert_eq!(decisive(&[AsExpected, Unexpected], 2), Some((Unexpected, 8)));
        assert_eq!(decisive(&[AsExpected, Unexpected], 3), Some((Unexpected, 8)));
        assert_eq!(decisive(&[AsExpected, Missing], 3), None);
        assert_eq!(decisive(&[AsExpected, AsExpected, Unsure], 3), Some((AsExpected, 7)));
    }
}
