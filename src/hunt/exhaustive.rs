//! Every placement of up to K acts on single messages, in one scenario.
//!
//! ```text
//! no act ─► each act on each message of that run ─► each act on each later message of each of those runs ─► …
//! ```
//!
//! A placement is a list of acts, each on the n-th message that clients send, in the order of the messages; a message that is late can
//! have a second one, on who gets it. An experiment in virtual time
//! is a function of its configuration, so a placement is the same run each time, and up to its last act it is the run of the
//! placement without that act. The messages that one more act can be placed on are therefore those of a run that was made, and every
//! placement has a number: those of fewer acts come first, those of as many in the order of the placements that they extend.

use harness_checkers::Property;
use serde::{Deserialize, Deserializer, Serialize};

use crate::config::Shard;
use crate::report::Diagnosis;
use crate::report::diagnosis::Outcome;
use crate::report::effect::WindowEffect;

/// Stands for the number of a message in the kind of an act.
pub const NUMBER: &str = "#";

/// Why a search over a lock whose clients speak a protocol that taps do not read proves nothing.
const NO_MESSAGES: &str = "no message of a client could be read, so there is none to place a fault on";

/// Acts that make a message late, and acts on the client that gets it.
pub const LATE: &str = "delay-";
pub const ON_LATE: [&str; 2] = ["partition", "pause"];

/// The search for a violation in every placement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exhaustive {
    /// Acts of a placement at most.
    pub acts: u32,
    /// Acts as faults are typed, with [`NUMBER`] for that of the message: `drop-reply=any:#`.
    pub kinds: Vec<String>,
    /// Placements whose last act found nothing to act on are extended, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_reduction: bool,
    /// The part of the placements with most acts that is tried; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<Shard>,
    /// Shards that are not among those that were merged.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u32,
    /// By the number of acts, from none.
    pub tried: Vec<PlacementCounts>,
    /// The first placement that came to no verdict, as faults are typed, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<(String, String)>,
    /// By the number of a placement that others extend, once it was tried: up to which message. There is none where that is below the
    /// message of its last act.
    messages: Vec<Option<u64>>,
    #[serde(skip)]
    tree: Tree,
}

/// Placements with the same number of acts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementCounts {
    pub tried: u64,
    /// The last act found nothing to act on, such as a reply that never comes: the run is that of the placement without it, and its
    /// extensions are tried as those of that one.
    pub without_effect: u64,
    /// Neither violated nor held.
    pub undecided: u64,
}

/// The next experiment of a hunt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextExperiment {
    Number(u64),
    /// It depends on experiments that go on.
    NotYet,
    /// There are no more.
    Over,
}

/// Placements with fewer acts than there are at most; the place of each is its number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Tree {
    placements: Vec<Extended>,
    /// The number of the first extension of each placement, as far as they are known without a gap.
    first: Vec<u64>,
    /// The number after the last extension that is known.
    end: u64,
}

/// A placement that others extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Extended {
    /// The one without its last act; of the one without acts, itself.
    parent: usize,
    acts: u32,
    last: Act,
}

/// An act on one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Act {
    /// From 1; 0 where there is none.
    message: u64,
    /// A place in [`Exhaustive::kinds`].
    kind: usize,
}

/// Reads a stored search: without its tree it would seem to have come to its end.
pub fn stored<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Exhaustive>, D::Error> {
    let search = Option::<Exhaustive>::deserialize(deserializer)?;
    Ok(search.map(Exhaustive::resumed))
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Exhaustive {
    /// A search for placements of up to so many acts of these kinds, in which nothing was tried.
    pub fn new(acts: u32, kinds: Vec<String>) -> Self {
        let search = Self {
            acts,
            kinds,
            tried: vec![PlacementCounts::default(); acts as usize + 1],
            ..Self::default()
        };
        search.resumed()
    }

    /// Makes again of a stored search what is not stored.
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

    /// Adds the extensions of placements whose messages became known.
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

    /// How many acts can follow this one, on messages up to this one.
    fn extensions(&self, last: Act, messages: u64) -> u64 {
        match messages.checked_sub(last.message) {
            Some(later) => self.on_late(last).count() as u64 + later * self.kinds.len() as u64,
            None => 0,
        }
    }

    /// The act at this place among those that can follow: first those on the same message.
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

    /// Kinds of acts on the client of a message whose request or reply comes late by this act, once the client has that reply.
    fn on_late(&self, act: Act) -> impl Iterator<Item = usize> {
        let is_late = act.message > 0 && self.kinds[act.kind].starts_with(LATE);
        let kinds = self.kinds.iter().enumerate().filter(move |_| is_late);
        let of_its_client = |kind: &str| ON_LATE.iter().any(|name| kind.starts_with(name));
        kinds
            .filter(move |(_, kind)| of_its_client(kind))
            .map(|(place, _)| place)
    }

    /// The acts of the placement with this number, in the order of their messages; `None` while it is not known to exist.
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

    /// The faults of the placement with this number, as they are typed.
    pub fn faults(&self, number: u64) -> Option<Vec<String>> {
        let acts = self.acts_of(number)?;
        let typed = |act: Act| self.kinds[act.kind].replace(NUMBER, &act.message.to_string());
        Some(acts.into_iter().map(typed).collect())
    }

    /// The first placement from `number` on that is not another shard's.
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

    /// How many placements there are, once that is known.
    pub fn total(&self) -> Option<u64> {
        (self.tree.first.len() == self.tree.placements.len()).then_some(self.tree.end)
    }

    /// How many placements are to be tried, or about how many as long as that is not known; those of other shards aside.
    pub fn wanted_or_about(&self) -> Option<u64> {
        let about = || {
            let (fewer, most) = self.about()?;
            // a shard has all placements with fewer acts
            Some(fewer.saturating_add(most / self.shard.map_or(1, |shard| u64::from(shard.of))))
        };
        self.wanted().or_else(about)
    }

    /// How many placements there may be with fewer acts than there are at most, and with as many, as long as that is not known: as many as
    /// if clients sent as many messages in each of the runs to come as in the one without acts. `None` before that one.
    fn about(&self) -> Option<(u64, u64)> {
        let messages = self.messages.first().copied().flatten()?;
        let (kinds, known) = (self.kinds.len() as u64, self.tree.placements.len() as u64);
        let (mut fewer, mut most) = (known, self.tree.end - known);
        for extended in &self.tree.placements[self.tree.first.len()..] {
            let later = messages.saturating_sub(extended.last.message);
            // ways to choose so many of the later messages, each with an act of some kind
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

    /// How many placements were tried.
    pub fn all_tried(&self) -> u64 {
        self.tried.iter().map(|counts| counts.tried).sum()
    }

    /// How many placements are to be tried, those of other shards aside, once that is known.
    pub fn wanted(&self) -> Option<u64> {
        let (total, fewer) = (self.total()?, self.tree.placements.len() as u64);
        let of_shard = |shard: Shard| {
            // numbers below a bound that are of the shard
            let below = |bound: u64| (bound + u64::from(shard.of - shard.number)) / u64::from(shard.of);
            fewer + below(total) - below(fewer)
        };
        Some(self.shard.map_or(total, of_shard))
    }

    /// Takes in what became of the placement with this number, in whose run clients sent so many messages.
    pub fn add(&mut self, number: u64, diagnosis: &Diagnosis, sent: u64) {
        let Some(acts) = self.acts_of(number) else { return };
        let effect = &diagnosis.effect;
        let windows = &effect.windows;
        // one that lasts has a target as soon as it begins, which may hold the lock for longer though it met no packet
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
        let is_decided = is_decided && windows.len() == acts.len() && has_messages;
        let counts = &mut self.tried[acts.len()];
        counts.tried += 1;
        counts.without_effect += u64::from(!last);
        if !is_decided {
            counts.undecided += 1;
            if self.undecided.is_none() {
                let why = match windows.len() {
                    _ if !has_messages => NO_MESSAGES.to_owned(),
                    begun if begun < acts.len() => format!("{begun} of {} faults were begun", acts.len()),
                    _ => diagnosis.unsure.join("; "),
                };
                self.undecided = Some((self.faults(number).unwrap_or_default().join(","), why));
            }
        }
        let is_extended = last || self.without_reduction;
        let place = number as usize;
        if place < self.tree.placements.len() {
            let known = self.messages.len().max(place + 1);
            self.messages.resize(known, None);
            self.messages[place] = Some(if is_extended { sent } else { 0 });
            self.grow();
        }
    }

    /// Whether every placement was tried and decided, or every one of its shard; `open` is how many were begun and did not end. They are
    /// counted, since of merged shards one may have been ended before its last placement.
    pub fn is_complete(&self, open: usize) -> bool {
        let decided = self.tried.iter().all(|counts| counts.undecided == 0);
        let all = self.wanted() == Some(self.all_tried());
        all && open == 0 && decided && self.missing == 0
    }

    /// Adds what another shard of the same search tried. The error says why they are not of one search.
    pub fn take_in(&mut self, other: &Self) -> Result<(), String> {
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

    /// This is what so many shards came to together.
    pub fn are_all(&mut self, shards: usize) {
        if let Some(shard) = self.shard.take() {
            self.missing = shard.of - shards as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{diagnosis_of, record, result};
    use super::super::record::{ExperimentOutcome, ExperimentResult, HuntRecord};
    use super::*;
    use crate::evidence::SentUnderFaults;
    use crate::exit::Exit;
    use crate::hunt::merge;

    type Acts = Vec<(u64, &'static str)>;

    const KINDS: [&str; 4] = ["drop-reply", "kill", "delay-reply", "partition"];

    /// How many messages a lock sends that asks once more for each message that is lost, and no more once it is killed.
    fn messages(acts: &Acts) -> u64 {
        let killed = acts.iter().find(|(_, kind)| *kind == "kill");
        killed.map_or(3 + acts.len() as u64, |(message, _)| *message)
    }

    /// The fourth message has no reply that could be lost.
    fn has_effect(acts: &Acts) -> bool {
        acts.last() != Some(&(4, "drop-reply"))
    }

    /// Every placement that extends this one by up to so many acts, and that one.
    fn all(acts: Acts, more: u32) -> Vec<Acts> {
        let mut found = vec![acts.clone()];
        if more > 0 && has_effect(&acts) {
            let (after, last) = acts.last().copied().unwrap_or_default();
            let later = (after + 1..=messages(&acts)).flat_map(|message| KINDS.map(|kind| (message, kind)));
            // who gets a late reply can be cut off then
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

    /// The number of the next experiment, which begins.
    fn begun(record: &mut HuntRecord) -> u64 {
        match record.begin() {
            NextExperiment::Number(number) => number,
            other => panic!("{other:?}"),
        }
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

    /// Makes every experiment, so many at a time, of which the one in the middle ends first; returns what was tried.
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
        let stored = |record: &HuntRecord| -> HuntRecord {
            let text = serde_json::to_string(record).unwrap();
            serde_json::from_str(&text).unwrap()
        };
        // the index of all runs reads it so
        assert_eq!(stored(&record).exit(), Exit::Inconclusive);
        // one was begun and did not end
        record.begin();
        let mut again = stored(&record);
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
            // those with fewer are needed to go on
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
        let twice = [&records[0], &records[0]].map(HuntRecord::clone).to_vec();
        assert!(merge(twice).unwrap_err().contains("named twice"));
        let mut other = records[1].clone();
        // one of two and two of three leave some out
        other.exhaustive.as_mut().unwrap().shard = Some(Shard { number: 2, of: 2 });
        let refused = merge(vec![records[0].clone(), other.clone()]).unwrap_err();
        assert!(refused.contains("different numbers of parts"), "{refused}");
        other.seed = "8".to_owned();
        let refused = merge(vec![records[0].clone(), other]).unwrap_err();
        assert!(refused.contains("the same scenario"), "{refused}");
    }

    #[test]
    fn a_shard_that_was_not_ended_or_is_of_another_division_makes_no_search_complete() {
        let part = |number, of| hunt(2, Some(Shard { number, of }));
        let mut ended = part(1, 2);
        make(&mut ended, 1);
        let mut early = part(2, 2);
        // all placements with fewer acts, and a few more
        early.at_most = Some(all(Vec::new(), 1).len() as u64 + 6);
        make(&mut early, 1);
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
        // nothing says that a fault had no effect
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

    /// Nothing is known of the messages of such a run, so no placement that extends it can be tried before it was made.
    #[test]
    fn a_search_ends_without_experiments_that_could_not_be_made_and_makes_them_when_it_goes_on() {
        let whole = sorted(all(Vec::new(), 2));
        for failing in [0, 3, whole.len() as u64 - 1] {
            let mut record = hunt(2, None);
            let mut tried = Vec::new();
            while let NextExperiment::Number(number) = record.begin() {
                let (acts, ended) = ended(&record, number);
                if number == failing {
                    let came_to = ExperimentOutcome::Failed("no server".to_owned());
                    record.add(&ExperimentResult { came_to, ..ended });
                } else {
                    record.add(&ended);
                    tried.push(acts);
                }
            }
            assert_eq!(record.begin(), NextExperiment::Over);
            // without the run that all others extend there is nothing to try
            let exit = [Exit::Inconclusive, Exit::Environment][usize::from(failing == 0)];
            assert_eq!((record.is_complete(), record.exit()), (false, exit));
            let stored = serde_json::to_string(&record).unwrap();
            let mut again: HuntRecord = serde_json::from_str(&stored).unwrap();
            tried.extend(make(&mut again, 2));
            assert_eq!(sorted(tried), whole, "{failing}");
            assert!(again.is_complete());
        }
    }
}
