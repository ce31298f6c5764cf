//! Cuts the plan of a violation down by running it again with less: windows by delta debugging, then clients, locks and the
//! options of the load.
//!
//! Delta debugging is `ddmin` of [Zeller and Hildebrandt](https://doi.org/10.1109/32.988498): parts of what is left are tried
//! alone, then left out, in ever smaller parts. The window in which the violation fell is tried first.
//!
//! A violation need not come each time, so a set of windows that shows none is tried again before it is given up.

use std::collections::{BTreeSet, VecDeque};

/// Tries of a set of windows before it counts as one that does not fail.
const TRIES: u32 = 2;
/// Options of a load that a violation may not need, the first to be left out in front.
const OPTIONS: [&str; 6] = ["churn", "tries", "reads", "reentrant", "wait", "hold"];

/// What a run is cut down to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShrinkCandidate {
    /// Numbers of the windows of the plan that stay; none: no faults at all.
    pub windows: Vec<u32>,
    pub clients: u32,
    pub locks: u32,
    /// Options that have their defaults in place of what they had.
    pub without: BTreeSet<&'static str>,
}

/// What is cut down now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShrinkPart {
    Windows,
    Clients,
    Locks,
    Options,
    Done,
}

/// The search: [`Shrinking::candidate`] says what to run, [`Shrinking::came_to`] hears whether it failed.
#[derive(Debug)]
pub struct Shrinking {
    /// The least that failed.
    best: ShrinkCandidate,
    part: ShrinkPart,
    queue: VecDeque<ShrinkCandidate>,
    /// Into how many parts the windows are divided.
    parts: usize,
    tried: BTreeSet<Vec<u32>>,
    running: Option<(ShrinkCandidate, u32)>,
    given: Vec<&'static str>,
}

impl Shrinking {
    /// Begins with a run that failed with these windows of its plan. `suspect` is the one in which its violation fell, `given`
    /// are the options that it was given.
    pub fn of(windows: Vec<u32>, clients: u32, locks: u32, suspect: Option<u32>, given: &[&str]) -> Self {
        let best = ShrinkCandidate {
            windows,
            clients,
            locks,
            without: BTreeSet::new(),
        };
        let mut shrinking = Self {
            parts: 2,
            part: ShrinkPart::Windows,
            queue: VecDeque::new(),
            tried: BTreeSet::new(),
            running: None,
            given: OPTIONS.into_iter().filter(|option| given.contains(option)).collect(),
            best,
        };
        shrinking.tried.insert(shrinking.best.windows.clone());
        if let Some(suspect) = suspect.filter(|suspect| shrinking.best.windows.contains(suspect)) {
            shrinking.queue.push_back(shrinking.with_windows(vec![suspect]));
        }
        shrinking.divide();
        shrinking
    }

    /// The least that failed so far.
    pub fn best(&self) -> &ShrinkCandidate {
        &self.best
    }

    /// What to run next; `None` when nothing is left to try.
    pub fn candidate(&mut self) -> Option<ShrinkCandidate> {
        if let Some((again, _)) = &self.running {
            return Some(again.clone());
        }
        loop {
            while let Some(candidate) = self.queue.pop_front() {
                let is_new = self.part != ShrinkPart::Windows || self.tried.insert(candidate.windows.clone());
                if is_new && candidate != self.best {
                    self.running = Some((candidate.clone(), 1));
                    return Some(candidate);
                }
            }
            self.refill()?;
        }
    }

    /// Hears whether the run of the candidate showed the violation.
    pub fn came_to(&mut self, failed: bool) {
        let Some((candidate, tries)) = self.running.take() else {
            return;
        };
        if !failed {
            if self.part == ShrinkPart::Windows && !candidate.windows.is_empty() && tries < TRIES {
                self.running = Some((candidate, tries + 1));
            } else if matches!(self.part, ShrinkPart::Clients | ShrinkPart::Locks) {
                // fewer still would fail even less often
                self.queue.clear();
            }
            return;
        }
        let left = self.best.windows.len();
        let is_complement = candidate.windows.len() * 2 > left;
        self.best = candidate;
        match self.part {
            ShrinkPart::Windows => {
                self.parts = if is_complement { (self.parts - 1).max(2) } else { 2 };
                self.queue.clear();
                self.divide();
            }
            ShrinkPart::Clients | ShrinkPart::Locks => self.halve(),
            ShrinkPart::Options | ShrinkPart::Done => self.rest_of_options(),
        }
    }

    /// Goes on to smaller parts, or to the next thing to cut down.
    fn refill(&mut self) -> Option<()> {
        match self.part {
            ShrinkPart::Windows if self.parts < self.best.windows.len() => {
                self.parts = (self.parts * 2).min(self.best.windows.len());
                self.divide();
            }
            ShrinkPart::Windows if self.best.windows.len() == 1 && !self.tried.contains(&Vec::new()) => {
                self.queue.push_back(self.with_windows(Vec::new()));
            }
            ShrinkPart::Windows => {
                self.part = ShrinkPart::Clients;
                self.halve();
            }
            ShrinkPart::Clients => {
                self.part = ShrinkPart::Locks;
                self.halve();
            }
            ShrinkPart::Locks => {
                self.part = ShrinkPart::Options;
                self.rest_of_options();
            }
            ShrinkPart::Options => self.part = ShrinkPart::Done,
            ShrinkPart::Done => return None,
        }
        Some(())
    }

    fn with_windows(&self, windows: Vec<u32>) -> ShrinkCandidate {
        ShrinkCandidate {
            windows,
            ..self.best.clone()
        }
    }

    /// Each part alone, then all without each part.
    fn divide(&mut self) {
        let windows = self.best.windows.clone();
        if windows.len() < 2 {
            return;
        }
        let size = windows.len().div_ceil(self.parts);
        for part in windows.chunks(size) {
            self.queue.push_back(self.with_windows(part.to_vec()));
        }
        for part in windows.chunks(size) {
            let rest = windows.iter().filter(|window| !part.contains(window)).copied();
            self.queue.push_back(self.with_windows(rest.collect()));
        }
    }

    /// Half of the clients, or of the locks.
    fn halve(&mut self) {
        let (clients, locks) = (self.best.clients, self.best.locks);
        let half = match self.part {
            ShrinkPart::Clients if clients > 1 => ShrinkCandidate {
                clients: clients / 2,
                ..self.best.clone()
            },
            ShrinkPart::Locks if locks > 1 => {
                let mut one = self.best.clone();
                one.locks = 1;
                // half of one lock cannot be out of use
                one.without
                    .extend(self.given.iter().filter(|option| **option == "churn"));
                one
            }
            _ => return,
        };
        self.queue.push_back(half);
    }

    /// Each option left out that is still there.
    fn rest_of_options(&mut self) {
        self.queue.clear();
        let place = self
            .best
            .without
            .iter()
            .filter_map(|left_out| self.given.iter().position(|given| given == left_out));
        let next = place.max().map_or(0, |place| place + 1);
        for option in &self.given[next..] {
            let mut without = self.best.clone();
            without.without.insert(option);
            self.queue.push_back(without);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs the search against a lock that fails when `fails` says so; returns what is left and how many runs it took.
    fn search(mut shrinking: Shrinking, fails: impl Fn(&ShrinkCandidate) -> bool) -> (ShrinkCandidate, u32) {
        let mut runs = 0;
        while let Some(candidate) = shrinking.candidate() {
            runs += 1;
            assert!(runs < 500, "it has no end");
            shrinking.came_to(fails(&candidate));
        }
        (shrinking.best().clone(), runs)
    }

    fn has(candidate: &ShrinkCandidate, windows: &[u32]) -> bool {
        windows.iter().all(|window| candidate.windows.contains(window))
    }

    #[test]
    fn the_one_window_of_twelve_that_matters_is_found_in_twenty_runs() {
        for wanted in 1..=12 {
            // the hint may be right, wrong, or missing
            for suspect in [None, Some(wanted), Some(1 + wanted % 12)] {
                let shrinking = Shrinking::of((1..=12).collect(), 5, 1, suspect, &[]);
                let (best, runs) = search(shrinking, |candidate| {
                    has(candidate, &[wanted]) && candidate.clients >= 2
                });
                assert_eq!((best.windows, best.clients), (vec![wanted], 2));
                assert!(runs <= 20, "{runs} runs for window {wanted} with {suspect:?}");
            }
        }
    }

    #[test]
    fn clients_locks_and_options_that_do_not_matter_go() {
        let shrinking = Shrinking::of(vec![1], 8, 4, Some(1), &["hold", "churn", "wait", "lease"]);
        let needed = |candidate: &ShrinkCandidate| {
            has(candidate, &[1]) && candidate.clients >= 2 && !candidate.without.contains("hold")
        };
        let (best, _) = search(shrinking, needed);
        assert_eq!((best.windows.as_slice(), best.clients, best.locks), (&[1][..], 2, 1));
        assert_eq!(best.without, BTreeSet::from(["churn", "wait"]));
    }

    #[test]
    fn a_violation_that_needs_no_fault_is_left_without_windows() {
        let (best, _) = search(Shrinking::of(vec![1, 2, 3], 4, 2, Some(2), &[]), |candidate| {
            candidate.clients == 4
        });
        assert!(best.windows.is_empty());
        assert_eq!((best.clients, best.without.len()), (4, 0));
    }

    #[test]
    fn a_run_that_was_cut_down_before_goes_on_from_there() {
        let (best, _) = search(Shrinking::of(vec![3, 7], 2, 1, Some(7), &[]), |candidate| {
            has(candidate, &[3, 7])
        });
        assert_eq!(best.windows, [3, 7]);
    }

    #[test]
    fn a_miss_by_chance_is_tried_again() {
        let mut shrinking = Shrinking::of(vec![1, 2], 2, 1, Some(1), &[]);
        let first = shrinking.candidate().unwrap();
        assert_eq!(first.windows, [1]);
        shrinking.came_to(false);
        assert_eq!(shrinking.candidate().unwrap(), first);
        shrinking.came_to(true);
        assert_eq!(shrinking.best().windows, [1]);
    }

    proptest! {
        #[test]
        fn what_is_left_fails_and_no_window_of_it_can_be_left_out(
            windows in 1u32..40, needed in proptest::collection::btree_set(1u32..40, 1..4), suspect in 1u32..40,
        ) {
            let needed: Vec<u32> = needed.into_iter().filter(|window| *window <= windows).collect();
            prop_assume!(!needed.is_empty());
            let shrinking = Shrinking::of((1..=windows).collect(), 2, 1, Some(suspect), &[]);
            let (best, _) = search(shrinking, |candidate| has(candidate, &needed));
            prop_assert_eq!(best.windows, needed);
        }
    }
}
