//! Churn: the number of locks that were removed while they were not in use, and of those that were created again.

use std::collections::BTreeMap;

use harness_checkers::history::event::Kind;
use harness_checkers::history::{ChurnFact, NemesisFact};
use harness_checkers::{F, History};

use super::words::many;

/// The numbers of locks that `--churn` left unused: those removed, and those created again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Churn {
    removed: u64,
    made_again: u64,
}

impl Churn {
    /// Returns `None` if the run had no churn.
    pub fn of(history: &History) -> Option<Self> {
        let lines = history.nemesis();
        let churn = lines.iter().filter_map(|line| match &line.fact {
            NemesisFact::Churn(churn) => Some((line.time_ns, churn)),
            _ => None,
        });
        let mut churn = churn.peekable();
        churn.peek()?;
        let mut removals: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (time_ns, churn) in churn {
            if let ChurnFact::Removed { lock } = churn {
                removals.entry(lock).or_default().push(time_ns);
            }
        }
        let removed = removals.values().map(|times| times.len() as u64).sum();
        let mut made_again = 0;
        for entry in history.entries_of(F::Acquire).filter(|entry| entry.kind == Kind::Ok) {
            let Some(times) = entry.lock.and_then(|lock| removals.get_mut(lock)) else {
                continue;
            };
            let before = times.partition_point(|time| *time < entry.time_ns);
            // the first grant since the removal
            made_again += u64::from(before > 0);
            times.drain(..before);
        }
        Some(Self { removed, made_again })
    }

    pub fn in_words(self) -> String {
        let removed = many(self.removed, "unused lock");
        format!("{removed} removed, {} of them created again", self.made_again)
    }

    /// Returns the reason for which the churn did not test the lock, if there is one.
    pub fn too_little(self) -> Option<String> {
        (self.made_again == 0).then(|| {
            format!(
                "churn: {}; longer turns (--churn) or more locks (--locks) leave locks unused",
                self.in_words()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    /// Returns the churn of a history with these events, one after the other.
    fn churn(events: &[&str]) -> Option<Churn> {
        Churn::of(&history_of((1_u64..).zip(events)))
    }

    const BEGIN: &str = r#""process":"nemesis","type":"info","f":"churn","phase":"begin""#;
    const REMOVED: &str = r#""process":"nemesis","type":"info","f":"churn","phase":"removed","lock":"l0""#;
    const ASKED: &str = r#""process":0,"type":"invoke","f":"acquire","lock":"l0""#;
    const GRANTED: &str = r#""process":0,"type":"ok","f":"acquire","lock":"l0""#;
    const ASKED_ELSEWHERE: &str = r#""process":1,"type":"invoke","f":"acquire","lock":"l1""#;
    const GRANTED_ELSEWHERE: &str = r#""process":1,"type":"ok","f":"acquire","lock":"l1""#;

    #[test]
    fn a_lock_is_made_again_by_the_first_to_hold_it_since() {
        assert_eq!(churn(&[ASKED, GRANTED]), None);
        let again = [BEGIN, REMOVED, ASKED, GRANTED, REMOVED];
        let elsewhere = [ASKED_ELSEWHERE, GRANTED_ELSEWHERE];
        let seen = churn(&[&again[..], &elsewhere].concat()).unwrap();
        assert_eq!((seen.removed, seen.made_again), (2, 1));
        assert_eq!(seen.too_little(), None);
        let words = "2 unused locks removed, 1 of them created again";
        assert_eq!(seen.in_words(), words);
    }

    #[test]
    fn locks_that_were_not_made_again_test_nothing() {
        let none = churn(&[BEGIN, ASKED, GRANTED]).unwrap();
        let why = none.too_little().unwrap_or_default();
        assert!(why.contains("0 unused locks removed"), "{why}");
        assert!(churn(&[BEGIN, REMOVED]).unwrap().too_little().is_some());
    }
}
