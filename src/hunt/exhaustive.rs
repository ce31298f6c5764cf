//! Exhaustive search: every placement of up to K acts on single messages, in one scenario.
//!
//! ```text
//! no act ─► each act on each message of that run ─► each act on each later message of each of those runs ─► …
//! ```
//!
//! A placement is a list of acts, each on the n-th message that clients send, in the order of the messages; a late
//! message can have a second one, on its receiver. An experiment in virtual time is a function of its configuration, so
//! a placement is the same run each time, and up to its last act it is the run of the placement without that act. The
//! messages on which one more act can be placed are therefore those of a run that was made, and every placement has a
//! number: those with fewer acts come first, those with as many in the order of the placements that they extend.

use std::collections::BTreeSet;

use harness_checkers::Property;
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::Shard;
use crate::report::Diagnosis;
use crate::report::diagnosis::Outcome;
use crate::report::effect::WindowEffect;

/// The placeholder for the number of a message in the kind of an act.
pub const NUMBER: &str = "#";

/// The reason for which a search proves nothing about a lock whose protocol has no tap.
const NO_MESSAGES: &str = "no message of a client could be read, so there is none to place a fault on";
/// The reason for which a placement that was tried again is not decided.
const OTHER_MESSAGES: &str =
    "its clients sent other messages than in its first run, which the numbers of the others come from";

/// Acts that make a message late, and acts on its receiver.
pub const LATE: &str = "delay-";
pub const ON_LATE: [&str; 2] = ["partition", "pause"];

/// The search for a violation in every placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhaustive {
    /// Maximum number of acts of a placement.
    pub acts: u32,
    /// Acts as typed faults, with [`NUMBER`] for the number of the message: `drop-reply=any:#`.
    pub kinds: Vec<String>,
    /// Whether placements whose last act has no effect are extended, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_reduction: bool,
    /// The part of the placements with most acts that is tried; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Number of shards that are missing from a merged record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u32,
    /// Counts of placements by the number of their acts, from 0.
    pub tried: Vec<PlacementCounts>,
    /// The first placement without a verdict, as typed faults, and the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<(String, String)>,
    /// The numbers of the placements without a verdict.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    again: BTreeSet<u64>,
    /// For each placement that others extend, once it was tried, the last message on which an extension can act. It has
    /// no extensions if that is before the message of its last act.
    messages: Vec<Option<u64>>,
    #[serde(skip)]
    tree: Tree,
}

/// Counts of the placements with the same number of acts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementCounts {
    pub tried: u64,
    /// Placements whose last act has no effect, such as on a reply that never comes: the run is that of the placement
    /// without it, whose extensions are the same.
    pub without_effect: u64,
    /// Placements that neither violate nor hold.
    pub undecided: u64,
}

/// The next experiment of a hunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextExperiment {
    Number(u64),
    /// The next one depends on experiments that have not ended.
    NotYet,
    /// All experiments have begun.
    Over,
}

/// The placements with fewer acts than the maximum; the index of each is its number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tree {
    placements: Vec<Extended>,
    /// The number of the first extension of each placement, as far as known without a gap.
    first: Vec<u64>,
    /// The number after the last known extension.
    end: u64,
}

/// A placement that others extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extended {
    /// The placement without its last act; for the one without acts, itself.
    parent: usize,
    acts: u32,
    last: Act,
}

/// An act on one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Act {
    /// The number of the message, from 1; 0 if there is none.
    message: u64,
    /// The index in [`Exhaustive::kinds`].
    kind: usize,
}

/// Reads a stored search and rebuilds its tree, without which it would seem complete.
pub fn stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Exhaustive>, D::Error> {
    let search = Option::<Exhaustive>::deserialize(deserializer)?;
    Ok(search.map(Exhaustive::resumed))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Exhaustive {
    /// Returns a new search for placements of up to this number of acts of these kinds.
    pub fn new(acts: u32, kinds: Vec<String>) -> Self {
        let search = Self {
            acts,
            kinds,
            tried: vec![PlacementCounts::default(); acts as usize + 1],
            ..Self::default()
        };
        search.resumed()
    }

    /// Rebuilds the tree of a stored search.
    fn resumed(mut self) -> Self {
        let root = Extended {
            parent: 0,
            acts: 0,
            last: Act { message: 0, kind: 0 },
        };
        self.tree = Tree {
            placements: vec![root],
            first: Vec::new(),
            end: 1,
        };
        self.grow();
        self
    }

    /// Adds the extensions of placements whose messages are known by now.
    fn grow(&mut self) {
        while let Some(extended) = self.tree.placements.get(self.tree.first.len()).copied() {
            let parent = self.tree.first.len();
            let Some(messages) = self.messages.get(parent).copied().flatten() else {
                break;
            };
            self.tree.first.push(self.tree.end);
            let extensions = self.extensions(extended.last, messages);
            self.tree.end += extensions;
            if extended.acts + 1 < self.acts {
                let acts = (0..extensions).map(|place| self.extension(extended.last, place));
                let placements = acts.map(|last| Extended {
                    parent,
                    acts: extended.acts + 1,
                    last,
                });
                let placements: Vec<Extended> = placements.collect();
                self.tree.placements.extend(placements);
            }
        }
    }

    /// Returns the number of acts that can follow this one, on messages up to this one.
    fn extensions(&self, last: Act, messages: u64) -> u64 {
        match messages.checked_sub(last.message) {
            Some(later) => self.on_late(last).count() as u64 + later * self.kinds.len() as u64,
            None => 0,
        }
    }

    /// Returns an act by its place among those that can follow: first those on the same message.
    fn extension(&self, last: Act, place: u64) -> Act {
        if let Some(kind) = self.on_late(last).nth(place as usize) {
            let message = last.message;
            return Act { message, kind };
        }
        let place = place - self.on_late(last).count() as u64;
        let kinds = self.kinds.len() as u64;
        Act {
            message: last.message + 1 + place / kinds,
            kind: (place % kinds) as usize,
        }
    }

    /// Returns the kinds of acts on the client of a message that this act delays, at the time when the client has the reply.
    fn on_late(&self, act: Act) -> impl Iterator<Item = usize> {
        let is_late = act.message > 0 && self.kinds[act.kind].starts_with(LATE);
        let kinds = self.kinds.iter().enumerate().filter(move |_| is_late);
        let of_its_client = |kind: &str| ON_LATE.iter().any(|name| kind.starts_with(name));
        kinds
            .filter(move |(_, kind)| of_its_client(kind))
            .map(|(place, _)| place)
    }

    /// Returns the acts of the placement with this number, in the order of their messages; `None` while it is not known to exist.
    fn acts_of(&self, number: u64) -> Option<Vec<Act>> {
        let tree = &self.tree;
        let mut acts = Vec::new();
        let mut place = usize::try_from(number).ok()?;
        if place >= tree.placements.len() {
            if number >= tree.end {
                return None;
            }
            place = tree.first.partition_point(|first| *first <= number) - 1;
            acts.push(self.extension(tree.placements[place].last, number - tree.first[place]));
        }
        while place != 0 {
            acts.push(tree.placements[place].last);
            place = tree.placements[place].parent;
        }
        acts.reverse();
        Some(acts)
    }

    /// Returns the typed faults of the placement with this number.
    pub fn faults(&self, number: u64) -> Option<Vec<String>> {
        let acts = self.acts_of(number)?;
        let typed = |act: Act| self.kinds[act.kind].replace(NUMBER, &act.message.to_string());
        Some(acts.into_iter().map(typed).collect())
    }

    /// Returns the first placement from `number` on that belongs to this shard.
    pub fn next(&self, number: u64) -> NextExperiment {
        for number in number.. {
            let Some(acts) = self.acts_of(number) else {
                return match self.total() {
                    Some(_) => NextExperiment::Over,
                    None => NextExperiment::NotYet,
                };
            };
            let is_last = acts.len() == self.acts as usize;
            if !is_last || self.shard.is_none_or(|shard| shard.has_turn(number)) {
                return NextExperiment::Number(number);
            }
        }
        NextExperiment::Over
    }

    /// Returns the number of placements, once it is known.
    pub fn total(&self) -> Option<u64> {
        (self.tree.first.len() == self.tree.placements.len()).then_some(self.tree.end)
    }

    /// Returns the number of placements of this shard, or an estimate while it is not known.
    pub fn wanted_or_about(&self) -> Option<u64> {
        let about = || {
            let (fewer, most) = self.about()?;
            // a shard has all placements with fewer acts
            Some(fewer.saturating_add(most / self.shard.map_or(1, |shard| u64::from(shard.of))))
        };
        self.wanted().or_else(about)
    }

    /// Returns an estimate of the numbers of placements with fewer acts than the maximum and with the maximum, as if clients sent as many
    /// messages in each of the remaining runs as in the one without acts. Returns `None` before that one.
    fn about(&self) -> Option<(u64, u64)> {
        let messages = self.messages.first().copied().flatten()?;
        let (kinds, known) = (self.kinds.len() as u64, self.tree.placements.len() as u64);
        let (mut fewer, mut most) = (known, self.tree.end - known);
        for extended in &self.tree.placements[self.tree.first.len()..] {
            let later = messages.saturating_sub(extended.last.message);
            // the ways to choose this number of the later messages, each with an act of some kind
            let mut ways = 1_u64;
            let more = self.acts - extended.acts;
            for acts in 1..=more {
                let number = u64::from(acts);
                ways = ways.saturating_mul((later + 1).saturating_sub(number)) / number;
                let of_each = if acts == more { &mut most } else { &mut fewer };
                *of_each = of_each.saturating_add(ways.saturating_mul(kinds.saturating_pow(acts)));
            }
        }
        Some((fewer, most))
    }

    /// Returns the number of placements that were tried.
    pub fn all_tried(&self) -> u64 {
        self.tried.iter().map(|counts| counts.tried).sum()
    }

    /// Returns the number of placements without a verdict.
    pub fn all_undecided(&self) -> u64 {
        self.tried.iter().map(|counts| counts.undecided).sum()
    }

    /// Returns the number of placements of this shard, once it is known.
    pub fn wanted(&self) -> Option<u64> {
        let (total, fewer) = (self.total()?, self.tree.placements.len() as u64);
        let of_shard = |shard: Shard| {
            // numbers below a bound that belong to the shard
            let below = |bound: u64| (bound + u64::from(shard.of - shard.number)) / u64::from(shard.of);
            fewer + below(total) - below(fewer)
        };
        Some(self.shard.map_or(total, of_shard))
    }

    /// Adds the result of the placement with this number, in whose run clients sent this number of messages.
    pub fn add(&mut self, number: u64, diagnosis: &Diagnosis, sent: u64) {
        let Some(acts) = self.acts_of(number) else { return };
        let effect = &diagnosis.effect;
        let windows = &effect.windows;
        // a fault that lasts has a target from its start, and may delay the lock's release although it met no packet
        let acted = |window: &WindowEffect| window.had_effect || !window.targets.is_empty();
        // one that awaits a message begins with the faults, and one at a message only then: a history has them in another order
        let last = windows.iter().max_by_key(|window| window.number).is_none_or(acted);
        // a run in which an act has nothing to act on is another placement's, one in which acts leave no client able to acquire is a placement
        // like others, and one in which nobody waits has no herd: none of them is less decided for it
        let herd = format!("{}: ", Property::Hl004.name());
        let is_of_placement = |reason: &String| {
            [&effect.too_little, &effect.in_vain].contains(&&Some(reason.clone())) || reason.starts_with(&herd)
        };
        let is_decided = match diagnosis.outcome {
            Outcome::Pass | Outcome::Fail => true,
            Outcome::Unsure => diagnosis.unsure.iter().all(is_of_placement) && !diagnosis.unsure.is_empty(),
            Outcome::Error => false,
        };
        let has_messages = sent > 0 || !acts.is_empty();
        let place = number as usize;
        let is_extended = last || self.without_reduction;
        let messages = if is_extended { sent } else { 0 };
        // the numbers of all others come from the first of its runs
        let before = self.messages.get(place).copied().flatten();
        let is_same = before.is_none_or(|before| before == messages);
        let is_decided = is_decided && windows.len() == acts.len() && has_messages && is_same;
        let counts = &mut self.tried[acts.len()];
        counts.tried += 1;
        if is_decided {
            counts.without_effect += u64::from(!last);
        } else {
            counts.undecided += 1;
            self.again.insert(number);
            if self.undecided.is_none() {
                let why = match windows.len() {
                    _ if !has_messages => NO_MESSAGES.to_owned(),
                    _ if !is_same => OTHER_MESSAGES.to_owned(),
                    begun if begun < acts.len() => format!("{begun} of {} faults were begun", acts.len()),
                    _ => diagnosis.unsure.join("; "),
                };
                self.undecided = Some((self.faults(number).unwrap_or_default().join(","), why));
            }
        }
        if place < self.tree.placements.len() && before.is_none() {
            let known = self.messages.len().max(place + 1);
            self.messages.resize(known, None);
            self.messages[place] = Some(messages);
            self.grow();
        }
    }

    /// Takes the placements without a verdict back, and returns their numbers: on a busy machine the time of a checker may have ended.
    pub fn take_undecided(&mut self) -> BTreeSet<u64> {
        let again = std::mem::take(&mut self.again);
        for number in &again {
            let Some(acts) = self.acts_of(*number) else { continue };
            let counts = &mut self.tried[acts.len()];
            counts.tried -= 1;
            counts.undecided -= 1;
        }
        if self.tried.iter().all(|counts| counts.undecided == 0) {
            self.undecided = None;
        }
        again
    }

    /// Whether every placement was tried and decided, or every one of its shard; `open` is how many were begun and did not end. They are
    /// counted, since of merged shards one may have been ended before its last placement.
    pub fn is_complete(&self, open: usize) -> bool {
        let decided = self.tried.iter().all(|counts| counts.undecided == 0);
        let all = self.wanted() == Some(self.all_tried());
        all && open == 0 && decided && self.missing == 0
    }

    /// Adds what another shard of the same search tried. The error says why they are not of one search.
    pub fn merge(&mut self, other: &Self) -> Result<(), String> {
        let own = (self.acts, self.without_reduction, &self.kinds, &self.messages);
        if own != (other.acts, other.without_reduction, &other.kinds, &other.messages) {
            return Err(
                "the hunts searched for placements in different runs, or one of them is not complete".to_owned(),
            );
        }
        let parts = [self.shard, other.shard].map(|shard| shard.map(|shard| shard.of));
        if parts[0] != parts[1] {
            return Err("the hunts divided the placements into different numbers of parts".to_owned());
        }
        if let (Some(all), Some(more)) = (self.tried.last_mut(), other.tried.last()) {
            all.tried += more.tried;
            all.without_effect += more.without_effect;
            all.undecided += more.undecided;
        }
        if self.undecided.is_none() {
            self.undecided.clone_from(&other.undecided);
        }
        Ok(())
    }

    /// Sets the number of missing shards after a merge.
    pub fn set_missing(&mut self, shards: usize) {
        if let Some(shard) = self.shard.take() {
            self.missing = shard.of - shards as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{begun, diagnosis_of, record, result};
    use super::*;
    use crate::evidence::SentUnderFaults;
    use crate::exit::Exit;
    use crate::hunt::{ExperimentOutcome, ExperimentResult, HuntRecord, merge};

    type Acts = Vec<(u64, &'static str)>;

    const KINDS: [&str; 4] = ["drop-reply", "kill", "delay-reply", "partition"];

    /// Returns the number of messages of a lock that retries each lost message once, and sends none after it is killed.
    fn messages(acts: &Acts) -> u64 {
        let killed = acts.iter().find(|(_, kind)| *kind == "kill");
        killed.map_or(3 + acts.len() as u64, |(message, _)| *message)
    }

    /// The fourth message has no reply that could be lost.
    fn has_effect(acts: &Acts) -> bool {
        acts.last() != Some(&(4, "drop-reply"))
    }

    /// Returns this placement and every extension of it by up to this number of acts.
    fn all(acts: Acts, more: u32) -> Vec<Acts> {
        let mut found = vec![acts.clone()];
        if more > 0 && has_effect(&acts) {
            let (after, last) = acts.last().copied().unwrap_or_default();
            let later = (after + 1..=messages(&acts)).flat_map(|message| KINDS.map(|kind| (message, kind)));
            // the receiver of a late reply can be cut off then
            let same = (last == "delay-reply").then_some((after, "partition"));
            for act in later.chain(same) {
                let mut extended = acts.clone();
                extended.push(act);
                found.extend(all(extended, more - 1));
            }
        }
        found
    }

    fn hunt(acts: u32, shard: Option<Shard>) -> HuntRecord {
        let kinds = KINDS.map(|kind| format!("{kind}=any:{NUMBER}")).to_vec();
        HuntRecord {
            exhaustive: Some(Exhaustive {
                shard,
                ..Exhaustive::new(acts, kinds)
            }),
            ..record()
        }
    }

    fn search(record: &HuntRecord) -> &Exhaustive {
        record.exhaustive.as_ref().unwrap()
    }

    fn ended(record: &HuntRecord, number: u64) -> (Acts, ExperimentResult) {
        let faults = search(record).faults(number).unwrap();
        let act = |fault: &String| {
            let (name, number) = fault.split_once("=any:").unwrap();
            let kind = KINDS.into_iter().find(|kind| *kind == name).unwrap();
            (number.parse().unwrap(), kind)
        };
        let acts: Acts = faults.iter().map(act).collect();
        let windows = faults
            .iter()
            .zip(1..)
            .map(|(fault, upto)| (fault.as_str(), has_effect(&acts[..upto].to_vec())));
        let result = ExperimentResult {
            sent: SentUnderFaults {
                requests: messages(&acts),
                ..SentUnderFaults::default()
            },
            ..result(number, &windows.collect::<Vec<_>>(), &[])
        };
        (acts, result)
    }

    /// Makes every experiment, this number at a time, of which the middle one ends first. Returns the tried placements.
    fn make(record: &mut HuntRecord, jobs: usize) -> Vec<Acts> {
        let (mut tried, mut going) = (Vec::new(), Vec::new());
        loop {
            let mut next = NextExperiment::NotYet;
            while going.len() < jobs {
                next = record.begin();
                let NextExperiment::Number(number) = next else { break };
                going.push(number);
            }
            if going.is_empty() {
                assert_eq!(next, NextExperiment::Over);
                return tried;
            }
            // it is not complete before its last experiment
            assert_eq!(record.exit(), Exit::Inconclusive);
            let (acts, result) = ended(record, going.remove(going.len() / 2));
            record.add(&result);
            tried.push(acts);
        }
    }

    /// Makes every experiment, with these changes of its result.
    fn make_changed(record: &mut HuntRecord, mut change: impl FnMut(u64, Acts, &mut ExperimentResult)) {
        while let NextExperiment::Number(number) = record.begin() {
            let (acts, mut result) = ended(record, number);
            change(number, acts, &mut result);
            record.add(&result);
        }
    }

    /// Merges three shards of a search in which results are changed so. Returns them, the merged record, and the search without shards.
    fn merged(change: impl Fn(u64, Acts, &mut ExperimentResult)) -> ([HuntRecord; 3], HuntRecord, HuntRecord) {
        let of = |shard| {
            let mut record = hunt(2, shard);
            make_changed(&mut record, &change);
            record
        };
        let shards = [1, 2, 3].map(|number| of(Some(Shard { number, of: 3 })));
        let merged = merge(shards.to_vec()).unwrap();
        (shards, merged, of(None))
    }

    fn read_again(record: &HuntRecord) -> HuntRecord {
        let text = serde_json::to_string(record).unwrap();
        serde_json::from_str(&text).unwrap()
    }

    fn sorted(mut acts: Vec<Acts>) -> Vec<Acts> {
        acts.sort();
        acts
    }

    #[test]
    fn every_placement_is_tried_once_in_whichever_order_experiments_end() {
        for acts in 1..=3 {
            for jobs in [1, 4] {
                let mut record = hunt(acts, None);
                let tried = make(&mut record, jobs);
                let wanted = all(Vec::new(), acts);
                let fewer_first = tried.windows(2).all(|pair| pair[0].len() <= pair[1].len());
                assert!(jobs > 1 || fewer_first, "{tried:?}");
                assert_eq!(sorted(tried), sorted(wanted.clone()), "{acts} acts, {jobs} at a time");
                let (search, all) = (search(&record), Some(wanted.len() as u64));
                assert_eq!([search.wanted_or_about(), search.total(), search.wanted()], [all; 3]);
                assert_eq!(search.about().map(|(fewer, most)| fewer + most), all);
                let without = wanted.iter().filter(|acts| !has_effect(acts)).count() as u64;
                let counted = search.tried.iter().map(|counts| counts.without_effect);
                assert_eq!(counted.sum::<u64>(), without);
                assert!(record.is_complete());
                assert_eq!(record.exit(), Exit::Holds);
            }
        }
    }

    #[test]
    fn a_search_says_about_how_many_placements_there_are_once_it_knows_one_run() {
        let mut record = hunt(2, None);
        assert_eq!(search(&record).about(), None);
        record.begin();
        let (_, root) = ended(&record, 0);
        record.add(&root);
        // three messages: one run without an act, 3 × 4 with one, and 4 × 4 for each of three pairs
        assert_eq!(search(&record).about(), Some((1 + 12, 3 * 16)));
        let search = record.exhaustive.as_mut().unwrap();
        assert_eq!(search.wanted_or_about(), Some(1 + 12 + 3 * 16));
        search.shard = Some(Shard { number: 1, of: 4 });
        assert_eq!(search.wanted_or_about(), Some(1 + 12 + 3 * 4));
    }

    #[test]
    fn the_last_fault_is_the_last_of_the_plan_and_not_the_last_that_began() {
        let mut record = hunt(3, None);
        let mut pair = loop {
            let number = begun(&mut record);
            let (acts, result) = ended(&record, number);
            if acts.len() == 2 {
                break result;
            }
            record.add(&result);
        };
        let windows = &mut diagnosis_of(&mut pair).effect.windows;
        (windows[0].number, windows[0].had_effect) = (2, false);
        (windows[1].number, windows[1].had_effect) = (1, true);
        record.add(&pair);
        let counts = search(&record).tried[2];
        assert_eq!((counts.tried, counts.without_effect), (1, 1));
    }

    #[test]
    fn without_reduction_a_placement_without_an_effect_is_extended_as_any_other() {
        let tried = |acts| {
            let mut record = hunt(acts, None);
            record.exhaustive.as_mut().unwrap().without_reduction = true;
            make(&mut record, 1)
        };
        // the run without acts has three messages
        let without = |acts: &Acts| acts.len() == 2 && !has_effect(&acts[..1].to_vec());
        assert!(!tried(2).iter().any(without));
        let more = tried(3);
        let without = |acts: &Acts| acts.len() == 3 && !has_effect(&acts[..2].to_vec());
        assert!(more.iter().any(without), "{more:?}");
        let reduced = all(Vec::new(), 3);
        assert!(reduced.iter().all(|acts| more.contains(acts)));
    }

    #[test]
    fn a_stored_search_goes_on_where_it_was() {
        let mut record = hunt(2, None);
        let mut tried = Vec::new();
        for _ in 0..9 {
            let number = begun(&mut record);
            let (acts, result) = ended(&record, number);
            record.add(&result);
            tried.push(acts);
        }
        // the index of all runs reads it so
        assert_eq!(read_again(&record).exit(), Exit::Inconclusive);
        // one was begun and has not ended
        record.begin();
        let mut again = read_again(&record);
        tried.extend(make(&mut again, 2));
        assert_eq!(sorted(tried), sorted(all(Vec::new(), 2)));
        assert!(again.is_complete());
    }

    #[test]
    fn shards_share_the_placements_with_most_acts_and_are_complete_together() {
        let whole = all(Vec::new(), 2);
        let is_last = |acts: &&Acts| acts.len() == 2;
        let mut of_all = Vec::new();
        let mut records = Vec::new();
        for number in 1..=3 {
            let mut record = hunt(2, Some(Shard { number, of: 3 }));
            let tried = make(&mut record, 1);
            assert_eq!(search(&record).wanted(), Some(tried.len() as u64));
            // placements with fewer acts are needed to continue
            let fewer = |all: &[Acts]| all.iter().filter(|acts| !is_last(acts)).count();
            assert_eq!(fewer(&tried), fewer(&whole));
            of_all.extend(tried.into_iter().filter(|acts| acts.len() == 2));
            records.push(record);
        }
        assert_eq!(sorted(of_all), sorted(whole.iter().filter(is_last).cloned().collect()));
        let some = merge(records[1..].to_vec()).unwrap();
        assert_eq!((some.is_complete(), some.exit()), (false, Exit::Inconclusive));
        let merged = merge(records.clone()).unwrap();
        assert_eq!((merged.is_complete(), merged.exit()), (true, Exit::Holds));
        // placements with fewer acts are in each record, and count once
        let mut alone = hunt(2, None);
        make(&mut alone, 1);
        assert_eq!((merged.counts, &merged.faults), (alone.counts, &alone.faults));
        let twice = [&records[0], &records[0]].map(HuntRecord::clone).to_vec();
        assert!(merge(twice).unwrap_err().contains("named twice"));
        let mut other = records[1].clone();
        other.seed = "8".to_owned();
        let refused = merge(vec![records[0].clone(), other]).unwrap_err();
        assert!(refused.contains("the same scenario"), "{refused}");
    }

    #[test]
    fn a_violation_counts_once_in_each_placement_of_merged_shards() {
        let (shards, merged, alone) = merged(|number, acts, ended| {
            if acts.first() == Some(&(1, "drop-reply")) {
                let mut shown = result(number, &[], &[("HL005", "ghost", None)]);
                let shown = diagnosis_of(&mut shown).clone();
                let diagnosis = diagnosis_of(ended);
                (diagnosis.outcome, diagnosis.findings) = (shown.outcome, shown.findings);
            }
        });
        assert!(merged.is_complete() && alone.finds[0].count > 3);
        assert_eq!(merged.finds[0].count, alone.finds[0].count);
        assert_eq!(merged.counts, alone.counts);
        // those of an older harness add up, and none of their violations is lost
        let old = shards.map(|shard| HuntRecord { own: None, ..shard });
        let all = old.iter().map(|shard| shard.counts.violated).sum::<u64>();
        let merged = merge(old.to_vec()).unwrap();
        assert_eq!([merged.finds[0].count, merged.counts.violated], [all; 2]);
    }

    #[test]
    fn a_placement_that_failed_in_each_of_merged_shards_counts_once() {
        // with one fault, which every shard places, and with two
        for failing in [3, all(Vec::new(), 2).len() as u64 - 1] {
            let (_, merged, alone) = merged(|number, _, ended| {
                if number == failing {
                    ended.came_to = ExperimentOutcome::Failed("no server".to_owned());
                }
            });
            assert_eq!((merged.counts, merged.counts.failed), (alone.counts, 1));
        }
    }

    #[test]
    fn a_shard_that_was_not_ended_or_is_of_another_division_makes_no_search_complete() {
        let part = |number, of| hunt(2, Some(Shard { number, of }));
        let mut ended = part(1, 2);
        make(&mut ended, 1);
        let mut early = part(2, 2);
        // all placements with fewer acts, and a few more
        let few = all(Vec::new(), 1).len() as u64 + 6;
        early.at_most = Some(few);
        make(&mut early, 1);
        assert_eq!(search(&early).all_tried(), few);
        for shards in [[&ended, &early], [&early, &ended]] {
            let merged = merge(shards.map(HuntRecord::clone).to_vec()).unwrap();
            assert_eq!((merged.is_complete(), merged.exit()), (false, Exit::Inconclusive));
        }
        for of in [None, Some(3)] {
            let mut other = hunt(2, of.map(|of| Shard { number: 2, of }));
            make(&mut other, 1);
            let refused = merge(vec![ended.clone(), other]).unwrap_err();
            assert!(refused.contains("different numbers of parts"), "{refused}");
        }
    }

    #[test]
    fn an_experiment_without_a_verdict_leaves_a_search_incomplete() {
        let mut record = hunt(1, None);
        make(&mut record, 1);
        assert!(record.is_complete());
        let mut unsure = hunt(1, None);
        let number = begun(&mut unsure);
        let (_, mut result) = ended(&unsure, number);
        diagnosis_of(&mut result).outcome = Outcome::Unsure;
        result.sent = SentUnderFaults::default();
        unsure.add(&result);
        // no reason says that a fault had no effect
        assert_eq!(search(&unsure).tried[0].undecided, 1);
        assert_eq!((unsure.begin(), unsure.is_complete()), (NextExperiment::Over, false));
        let (diagnosis, in_vain) = (diagnosis_of(&mut result), "an act found nothing".to_owned());
        diagnosis.effect.too_little = Some(in_vain.clone());
        diagnosis.unsure = vec![in_vain];
        // no placement at all is no proof
        let mut silent = hunt(1, None);
        silent.begin();
        silent.add(&result);
        assert_eq!(search(&silent).undecided.as_ref().unwrap().1, NO_MESSAGES);
        assert!(!silent.is_complete());
        result.sent = ended(&silent, number).1.sent;
        let mut in_vain = hunt(1, None);
        in_vain.begin();
        in_vain.add(&result);
        assert_eq!(search(&in_vain).tried[0].undecided, 0);
    }

    #[test]
    fn a_placement_without_a_verdict_is_tried_again_when_the_search_goes_on() {
        let whole = all(Vec::new(), 2).len() as u64;
        for undecided in [0, 3, whole - 1] {
            let mut record = hunt(2, None);
            make_changed(&mut record, |number, _, result| {
                if number == undecided {
                    diagnosis_of(result).outcome = Outcome::Unsure;
                }
            });
            assert_eq!((search(&record).all_tried(), record.is_complete()), (whole, false));
            let mut again = read_again(&record);
            again.go_on(None, None);
            assert_eq!(again.begin(), NextExperiment::Number(undecided));
            let mut other = again.clone();
            let (_, mut result) = ended(&again, undecided);
            again.add(&result);
            assert_eq!((again.begin(), again.exit()), (NextExperiment::Over, Exit::Holds));
            assert_eq!((search(&again).all_tried(), again.is_complete()), (whole, true));
            // the placements that extend it are those of its first run
            result.sent.requests += 1;
            other.add(&result);
            assert_eq!(other.is_complete(), undecided == whole - 1);
        }
    }

    /// Nothing is known of the messages of such a run, so no placement that extends it can be tried before it was made.
    #[test]
    fn a_search_ends_without_experiments_that_could_not_be_made_and_makes_them_when_it_goes_on() {
        let whole = sorted(all(Vec::new(), 2));
        for failing in [0, 3, whole.len() as u64 - 1] {
            let mut record = hunt(2, None);
            let mut tried = Vec::new();
            make_changed(&mut record, |number, acts, ended| {
                if number == failing {
                    ended.came_to = ExperimentOutcome::Failed("no server".to_owned());
                } else {
                    tried.push(acts);
                }
            });
            assert_eq!(record.begin(), NextExperiment::Over);
            // without the run that all others extend there is nothing to try
            let exit = [Exit::Inconclusive, Exit::Environment][usize::from(failing == 0)];
            assert_eq!((record.is_complete(), record.exit()), (false, exit));
            let mut again = read_again(&record);
            tried.extend(make(&mut again, 2));
            assert_eq!(sorted(tried), whole, "{failing}");
            assert!(again.is_complete());
        }
    }
}
