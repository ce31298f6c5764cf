//! Shrinking: cuts the plan of a violation down by smaller runs: windows by delta debugging, then clients, locks and
//! the options of the load.
//!
//! Delta debugging is `ddmin` of [Zeller and Hildebrandt](https://doi.org/10.1109/32.988498): parts of the remaining windows are
//! tried alone, then left out, in ever smaller parts. The window in which the violation happened is tried first.
//!
//! A violation need not happen in each run, so a set of windows without one is tried again before it is given up. A run in virtual
//! time is the same each time: there a candidate is tried in other worlds, which draw other latencies under the same plan.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Serialize, Serializer};

/// Options of a load that a violation may not need, in the order in which they are left out.
const OPTIONS: [&str; 8] = [
    "churn",
    "tries",
    "odd-turns",
    "reads",
    "reentrant",
    "think",
    WAIT,
    "hold",
];
const WAIT: &str = "wait";

/// The minimum wait that is tried.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// Maximum number of worlds in which a candidate is tried, if a violation took many worlds.
const MOST_WORLDS: u32 = 48;
/// Number of worlds in which three clients or a few more are tried.
const WORLDS_FOR_FEW_CLIENTS: u32 = 128;
/// Number of worlds in which each of many windows is tried alone.
const WORLDS_ALONE: u32 = 16;
/// Number of runs without a violation after which an order is given up.
const PATIENCE: u32 = 400;
const FEW_WINDOWS: usize = 6;
/// Number of windows up to which a result is small.
const MOST_LEFT: usize = 3;
/// Number of clients up to which a result is small. On models, fewer are not tried before windows have been left out: they need more.
const FEW_CLIENTS: u32 = 3;

/// A smaller run that may show the violation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShrinkCandidate {
    /// Numbers of the remaining windows of the plan; empty without faults.
    pub windows: Vec<u32>,
    pub clients: u32,
    pub locks: u32,
    /// The grants after which the faults end, if the run has a number of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grants: Option<u32>,
    /// The time in milliseconds that an acquire waits, if the run has one.
    #[serde(
        rename = "wait_ms",
        skip_serializing_if = "Option::is_none",
        serialize_with = "milliseconds"
    )]
    pub wait: Option<Duration>,
    /// Options that are reset to their defaults.
    pub without: BTreeSet<&'static str>,
    /// The world of the run in virtual time.
    pub world: u32,
}

impl ShrinkCandidate {
    /// Whether a reader can follow the run.
    fn is_small(&self) -> bool {
        self.windows.len() <= MOST_LEFT && self.clients <= FEW_CLIENTS
    }

    /// Returns the same run in another world.
    pub fn elsewhere(&self, other: u32) -> Self {
        Self {
            world: self.world + other,
            ..self.clone()
        }
    }

    /// Returns a size for comparison: windows and clients first.
    fn size(&self) -> (usize, u32, Option<u32>) {
        (self.windows.len() + self.clients as usize, self.locks, self.grants)
    }
}

fn milliseconds<S: Serializer>(wait: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    wait.map(|wait| wait.as_secs_f64() * 1e3).serialize(serializer)
}

/// The runtime of the runs, which decides the number of tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShrinkGround {
    /// A run takes seconds, and differs each time.
    Servers,
    /// Real processes in virtual time: a run takes seconds, and is the same each time.
    Processes,
    /// A run takes milliseconds, and is the same each time: candidates are tried in several worlds, and everything is
    /// repeated while that reduces the run.
    Models,
}

impl ShrinkGround {
    /// Returns the orders in which parts are cut down. A later order starts with the whole run, if the previous one
    /// left more than a reader can follow. On models the first order has windows late: with many windows and short
    /// waits, few clients show the violation. But short waits may need more windows than long ones.
    fn orders(self) -> &'static [&'static [ShrinkPart]] {
        use ShrinkPart::{Clients, Grants, Locks, Options, Wait, WindowAlone, Windows};
        match self {
            Self::Servers | Self::Processes => &[&[Windows, Clients, Locks, Options]],
            Self::Models => &[
                &[Wait, Clients, Locks, Options, WindowAlone, Windows, Grants],
                &[WindowAlone, Windows, Clients, Locks, Options, Wait, Grants],
                &[Clients, Locks, Options, WindowAlone, Windows, Wait, Grants],
            ],
        }
    }

    /// Returns the number of tries after which a candidate counts as one without the violation. A violation that took
    /// `longest` worlds happens in one of about as many.
    fn tries(self, part: ShrinkPart, candidate: &ShrinkCandidate, longest: u32) -> u32 {
        let worlds = |least: u32| (longest * 3).min(MOST_WORLDS).max(least);
        match (self, part) {
            (Self::Servers, ShrinkPart::Windows) if !candidate.windows.is_empty() => 2,
            (Self::Servers, _) => 1,
            // each in a world of its own
            (Self::Processes, ShrinkPart::Windows | ShrinkPart::Clients) if !candidate.windows.is_empty() => 3,
            (Self::Processes, _) => 1,
            // a reader cannot follow a run with more clients
            (Self::Models, ShrinkPart::Clients) if candidate.clients >= FEW_CLIENTS => worlds(WORLDS_FOR_FEW_CLIENTS),
            (Self::Models, ShrinkPart::Clients) => worlds(32),
            // each candidate has its own world
            (Self::Models, ShrinkPart::WindowAlone) => 1,
            // there are few subsets of a few windows
            (Self::Models, ShrinkPart::Windows) if candidate.windows.len() <= FEW_WINDOWS => worlds(32),
            (Self::Models, _) => worlds(8),
        }
    }
}

/// A part of a run that is cut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShrinkPart {
    Windows,
    /// Each of many windows alone, by turns, in one world after the other. A rare violation may need many windows to
    /// happen in a few worlds, and only one of them in some.
    WindowAlone,
    Clients,
    Locks,
    Options,
    Wait,
    Grants,
}

/// The search: [`Shrinking::candidate`] returns the run to make, and [`Shrinking::add_run`] takes its result.
#[derive(Debug)]
pub struct Shrinking {
    ground: ShrinkGround,
    original: ShrinkCandidate,
    /// The index of the current order of the ground.
    order: usize,
    /// The smallest candidate that failed in an earlier order.
    best_before: Option<ShrinkCandidate>,
    /// The smallest candidate that failed in this order.
    best: ShrinkCandidate,
    /// The maximum number of runs, and the number so far.
    most: u32,
    runs: u32,
    /// Whether the number of runs ended the search.
    pub is_spent: bool,
    /// Runs of this order since the last failed one.
    in_vain: u32,
    /// The best candidate at the start of this round, and whether it is the first round.
    before: ShrinkCandidate,
    is_first_round: bool,
    /// The index of the current part.
    part: usize,
    queue: VecDeque<ShrinkCandidate>,
    /// The number of pieces that the windows are divided into.
    pieces: usize,
    tried: BTreeSet<Vec<u32>>,
    /// The largest number of clients known not to show it.
    too_few: u32,
    /// The largest number of tries that a failed candidate took.
    longest: u32,
    /// The current candidate, and the number of its try.
    running: Option<(ShrinkCandidate, u32)>,
    suspect: Option<u32>,
    given: Vec<&'static str>,
}

impl Shrinking {
    /// Begins with a failed run, and ends after at most `most` others. `suspect` is the window in which its violation
    /// happened, `given` are the options that were set.
    pub fn of(ground: ShrinkGround, failed: ShrinkCandidate, suspect: Option<u32>, given: &[&str], most: u32) -> Self {
        let mut shrinking = Self {
            ground,
            order: 0,
            best_before: None,
            best: failed.clone(),
            before: failed.clone(),
            original: failed,
            most,
            runs: 0,
            is_spent: false,
            in_vain: 0,
            is_first_round: true,
            part: 0,
            queue: VecDeque::new(),
            pieces: 2,
            tried: BTreeSet::new(),
            too_few: 0,
            longest: 1,
            running: None,
            suspect,
            given: OPTIONS.into_iter().filter(|option| given.contains(option)).collect(),
        };
        shrinking.begin_part();
        shrinking
    }

    /// Returns the smallest candidate that failed so far.
    pub fn best(&self) -> &ShrinkCandidate {
        let before = self.best_before.as_ref();
        before.map_or(&self.best, |before| {
            if before.size() <= self.best.size() {
                before
            } else {
                &self.best
            }
        })
    }

    /// Returns the next candidate, or `None` if nothing is left to try.
    pub fn candidate(&mut self) -> Option<ShrinkCandidate> {
        if self.runs >= self.most {
            self.is_spent = true;
            return None;
        }
        if self.in_vain >= PATIENCE {
            // without another order, or a need for it, this one continues
            self.next_order();
        }
        self.runs += 1;
        self.in_vain += 1;
        match self.running {
            Some(_) => self.ran(),
            None => self.queued(),
        }
    }

    fn queued(&mut self) -> Option<ShrinkCandidate> {
        loop {
            while let Some(candidate) = self.queue.pop_front() {
                let is_new = self.part() != ShrinkPart::Windows || self.tried.insert(candidate.windows.clone());
                if is_new && candidate != self.best {
                    self.running = Some((candidate.clone(), 1));
                    return Some(candidate);
                }
            }
            self.refill()?;
        }
    }

    /// Adds the result of the candidate's run: whether it showed the violation.
    pub fn add_run(&mut self, failed: bool) {
        let ran = self.ran();
        let Some(((first, tries), ran)) = self.running.take().zip(ran) else {
            return;
        };
        let part = self.part();
        if !failed {
            if tries < self.ground.tries(part, &first, self.longest) {
                self.running = Some((first, tries + 1));
            } else if part == ShrinkPart::Clients {
                self.too_few = first.clients;
                self.fewer_clients();
            }
            return;
        }
        let is_complement = ran.windows.len() * 2 > self.best.windows.len();
        self.best = ran;
        self.in_vain = 0;
        self.longest = self.longest.max(tries);
        if part == ShrinkPart::Windows {
            self.pieces = if is_complement { (self.pieces - 1).max(2) } else { 2 };
        }
        self.queue.clear();
        self.queue_less();
    }

    /// Returns the candidate with the world of its current try.
    fn ran(&self) -> Option<ShrinkCandidate> {
        let (first, tries) = self.running.as_ref()?;
        let mut ran = first.clone();
        if self.ground != ShrinkGround::Servers {
            ran.world += tries - 1;
        }
        Some(ran)
    }

    fn part(&self) -> ShrinkPart {
        self.ground.orders()[self.order][self.part]
    }

    fn begin_part(&mut self) {
        match self.part() {
            ShrinkPart::Windows => {
                self.pieces = 2;
                self.tried = BTreeSet::from([self.best.windows.clone()]);
                if self.ground == ShrinkGround::Models {
                    self.queue_windows(Vec::new());
                }
                if let Some(suspect) = self.suspect.filter(|suspect| self.best.windows.contains(suspect)) {
                    self.queue_windows(vec![suspect]);
                }
            }
            ShrinkPart::Clients => {
                self.too_few = match self.ground {
                    ShrinkGround::Models if self.is_first_round => FEW_CLIENTS - 1,
                    _ => 0,
                };
            }
            _ => {}
        }
        self.queue_less();
    }

    /// Queues the candidates of the current part that are smaller than the best one.
    fn queue_less(&mut self) {
        match self.part() {
            ShrinkPart::Windows => self.divide(),
            ShrinkPart::WindowAlone => self.each_window_alone(),
            ShrinkPart::Clients => self.fewer_clients(),
            ShrinkPart::Locks => self.one_lock(),
            ShrinkPart::Options => self.rest_of_options(),
            ShrinkPart::Wait => self.shorter_wait(),
            ShrinkPart::Grants => self.fewer_grants(),
        }
    }

    /// Continues with smaller pieces, or with the next part.
    fn refill(&mut self) -> Option<()> {
        if self.part() == ShrinkPart::Windows {
            if self.pieces < self.best.windows.len() {
                self.pieces = (self.pieces * 2).min(self.best.windows.len());
                self.divide();
                return Some(());
            }
            if self.best.windows.len() == 1 && !self.tried.contains(&Vec::new()) {
                self.queue_windows(Vec::new());
                return Some(());
            }
        }
        if self.part + 1 < self.ground.orders()[self.order].len() {
            self.part += 1;
        } else {
            let is_less = self.best != self.before;
            if self.ground != ShrinkGround::Models || !is_less {
                return self.next_order();
            }
            self.before = self.best.clone();
            self.is_first_round = false;
            self.part = 0;
        }
        self.begin_part();
        Some(())
    }

    /// Starts again with the whole run, if there is another order and this one left too much.
    fn next_order(&mut self) -> Option<()> {
        if self.order + 1 == self.ground.orders().len() || self.best().is_small() {
            return None;
        }
        self.best_before = Some(self.best().clone());
        self.best.clone_from(&self.original);
        self.before.clone_from(&self.original);
        self.order += 1;
        (self.part, self.in_vain, self.is_first_round, self.longest) = (0, 0, true, 1);
        self.running = None;
        self.queue.clear();
        self.begin_part();
        Some(())
    }

    /// Queues the best candidate with a change.
    fn queue_with(&mut self, change: impl FnOnce(&mut ShrinkCandidate)) {
        let mut changed = self.best.clone();
        change(&mut changed);
        self.queue.push_back(changed);
    }

    fn queue_windows(&mut self, windows: Vec<u32>) {
        self.queue_with(|less| less.windows = windows);
    }

    /// Queues each piece alone, then all windows without each piece.
    fn divide(&mut self) {
        let windows = self.best.windows.clone();
        if windows.len() < 2 {
            return;
        }
        let size = windows.len().div_ceil(self.pieces);
        for piece in windows.chunks(size) {
            self.queue_windows(piece.to_vec());
        }
        for piece in windows.chunks(size) {
            let rest = windows.iter().filter(|window| !piece.contains(window)).copied();
            self.queue_windows(rest.collect());
        }
    }

    /// Queues each window alone, the suspect first.
    fn each_window_alone(&mut self) {
        if self.best.windows.len() <= MOST_LEFT {
            return;
        }
        let mut windows = self.best.windows.clone();
        windows.sort_by_key(|window| Some(*window) != self.suspect);
        for later in 0..WORLDS_ALONE {
            for window in &windows {
                self.queue_with(|alone| {
                    alone.windows = vec![*window];
                    alone.world += later;
                });
            }
        }
    }

    /// Queues the mean of the smallest number of clients that showed it and the largest one that did not.
    fn fewer_clients(&mut self) {
        let clients = u32::midpoint(self.too_few, self.best.clients);
        if clients > self.too_few {
            self.queue_with(|fewer| fewer.clients = clients);
        }
    }

    fn one_lock(&mut self) {
        if self.best.locks > 1 {
            // half of a single lock cannot be unused
            let churn = self.given.iter().copied().find(|option| *option == "churn");
            self.queue_with(|one| {
                one.locks = 1;
                one.without.extend(churn);
            });
        }
    }

    fn shorter_wait(&mut self) {
        if let Some(wait) = self.best.wait.filter(|wait| *wait >= SHORTEST_WAIT * 2) {
            let half = Duration::from_millis(wait.as_millis() as u64 / 2);
            self.queue_with(|shorter| shorter.wait = Some(half));
        }
    }

    fn fewer_grants(&mut self) {
        if let Some(grants) = self.best.grants.filter(|grants| *grants > 1) {
            self.queue_with(|fewer| fewer.grants = Some(grants / 2));
        }
    }

    /// Queues the candidates without each of the remaining options.
    fn rest_of_options(&mut self) {
        let left_out = self.best.without.iter();
        let places = left_out.filter_map(|left_out| self.given.iter().position(|given| given == left_out));
        let next = places.max().map_or(0, |place| place + 1);
        for option in &self.given[next..] {
            let mut without = self.best.clone();
            without.without.insert(option);
            without.wait = without.wait.filter(|_| *option != WAIT);
            self.queue.push_back(without);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST: u32 = 2_000;

    /// Runs the search against a lock that fails if `fails` says so. Returns the result and the number of runs.
    fn search(mut shrinking: Shrinking, fails: impl Fn(&ShrinkCandidate) -> bool) -> (ShrinkCandidate, u32) {
        let mut runs = 0;
        while let Some(candidate) = shrinking.candidate() {
            runs += 1;
            assert!(runs <= MOST, "it has no end");
            shrinking.add_run(fails(&candidate));
        }
        (shrinking.best().clone(), runs)
    }

    /// Returns a failed run with these windows.
    fn failed(windows: Vec<u32>, clients: u32, locks: u32) -> ShrinkCandidate {
        ShrinkCandidate {
            windows,
            clients,
            locks,
            grants: None,
            wait: None,
            without: BTreeSet::new(),
            world: 0,
        }
    }

    fn on_servers(windows: Vec<u32>, clients: u32, locks: u32, suspect: Option<u32>, given: &[&str]) -> Shrinking {
        let failed = failed(windows, clients, locks);
        Shrinking::of(ShrinkGround::Servers, failed, suspect, given, MOST)
    }

    fn has(candidate: &ShrinkCandidate, windows: &[u32]) -> bool {
        windows.iter().all(|window| candidate.windows.contains(window))
    }

    #[test]
    fn a_search_knows_whether_the_number_of_runs_ended_it() {
        for (most, is_spent) in [(3, true), (MOST, false)] {
            let mut shrinking = Shrinking::of(ShrinkGround::Servers, failed(vec![1, 2, 3, 4], 4, 2), None, &[], most);
            while shrinking.candidate().is_some() {
                shrinking.add_run(false);
            }
            assert_eq!(shrinking.is_spent, is_spent, "{most}");
        }
    }

    #[test]
    fn the_one_window_of_twelve_that_matters_is_found_in_twenty_runs() {
        for wanted in 1..=12 {
            // the hint may be right, wrong, or missing
            for suspect in [None, Some(wanted), Some(1 + wanted % 12)] {
                let shrinking = on_servers((1..=12).collect(), 5, 1, suspect, &[]);
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
        let shrinking = on_servers(vec![1], 8, 4, Some(1), &["hold", "churn", "wait", "lease"]);
        let needed = |candidate: &ShrinkCandidate| {
            has(candidate, &[1]) && candidate.clients >= 2 && !candidate.without.contains("hold")
        };
        let (best, _) = search(shrinking, needed);
        assert_eq!((best.windows.as_slice(), best.clients, best.locks), (&[1][..], 2, 1));
        assert_eq!(best.without, BTreeSet::from(["churn", "wait"]));
    }

    #[test]
    fn a_violation_that_needs_no_fault_is_left_without_windows() {
        let (best, _) = search(on_servers(vec![1, 2, 3], 4, 2, Some(2), &[]), |candidate| {
            candidate.clients == 4
        });
        assert!(best.windows.is_empty());
        assert_eq!((best.clients, best.without.len()), (4, 0));
    }

    #[test]
    fn a_miss_by_chance_is_tried_again() {
        let mut shrinking = on_servers(vec![1, 2], 2, 1, Some(1), &[]);
        let first = shrinking.candidate().unwrap();
        assert_eq!(first.windows, [1]);
        shrinking.add_run(false);
        assert_eq!(shrinking.candidate().unwrap(), first);
        shrinking.add_run(true);
        assert_eq!(shrinking.best().windows, [1]);
    }

    #[test]
    fn a_number_of_clients_between_half_and_all_is_found() {
        for needed in 1..=10 {
            let (best, _) = search(on_servers(vec![1], 10, 1, None, &[]), |candidate| {
                has(candidate, &[1]) && candidate.clients >= needed
            });
            assert_eq!(best.clients, needed);
        }
    }

    #[test]
    fn less_is_tried_in_several_worlds_and_again_when_there_is_less_of_something_else() {
        let original = ShrinkCandidate {
            grants: Some(100),
            wait: Some(Duration::from_secs(1)),
            ..failed((1..=12).collect(), 6, 2)
        };
        let shrinking = Shrinking::of(ShrinkGround::Models, original, Some(9), &["hold", "wait"], MOST);
        // three clients are enough once the load is the default one, and only in some worlds
        let (best, _) = search(shrinking, |candidate| {
            let enough = if candidate.without.contains("hold") { 3 } else { 5 };
            has(candidate, &[4, 7])
                && candidate.clients >= enough
                && candidate.world.is_multiple_of(5)
                && candidate.grants.unwrap() >= 10
                && candidate.wait.is_some_and(|wait| wait.as_millis() >= 60)
        });
        assert_eq!((best.windows.as_slice(), best.clients, best.locks), (&[4, 7][..], 3, 1));
        assert_eq!((best.grants, best.without), (Some(12), BTreeSet::from(["hold"])));
        assert_eq!(best.wait, Some(Duration::from_millis(62)));
        assert!(best.world.is_multiple_of(5));
    }

    #[test]
    fn what_needs_many_windows_with_a_short_wait_is_cut_down_from_all_of_it_again() {
        let original = ShrinkCandidate {
            wait: Some(Duration::from_secs(1)),
            ..failed((1..=12).collect(), 3, 1)
        };
        // with its wait one window is enough
        let fails = |candidate: &ShrinkCandidate| {
            let windows = if candidate.wait == Some(Duration::from_secs(1)) {
                1
            } else {
                5
            };
            candidate.clients >= 2 && candidate.windows.len() >= windows
        };
        let given = Some(9);
        let shrinking = Shrinking::of(ShrinkGround::Models, original.clone(), given, &["wait"], MOST);
        assert_eq!(search(shrinking, fails).0.windows.len(), 1);
        let few = Shrinking::of(ShrinkGround::Models, original, given, &["wait"], 3);
        assert!(search(few, fails).1 <= 3);
    }

    #[test]
    fn on_servers_there_is_one_world_and_the_length_stays() {
        let original = ShrinkCandidate {
            grants: Some(100),
            ..failed(vec![1, 2, 3], 6, 1)
        };
        let mut shrinking = Shrinking::of(ShrinkGround::Servers, original, None, &[], MOST);
        while let Some(candidate) = shrinking.candidate() {
            assert_eq!((candidate.world, candidate.grants), (0, Some(100)));
            shrinking.add_run(has(&candidate, &[2]));
        }
        assert_eq!(
            (shrinking.best().windows.as_slice(), shrinking.best().clients),
            (&[2][..], 1)
        );
    }

    proptest! {
        #[test]
        fn what_is_left_fails_and_no_window_of_it_can_be_left_out(
            windows in 1u32..40, needed in proptest::collection::btree_set(1u32..40, 1..4), suspect in 1u32..40,
        ) {
            let needed: Vec<u32> = needed.into_iter().filter(|window| *window <= windows).collect();
            prop_assume!(!needed.is_empty());
            let shrinking = on_servers((1..=windows).collect(), 2, 1, Some(suspect), &[]);
            let (best, _) = search(shrinking, |candidate| has(candidate, &needed));
            prop_assert_eq!(best.windows, needed);
        }
    }
}
