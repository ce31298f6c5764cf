//! Facts about one fault window: its start, its heal, its effect, and the effect that a pass requires.
//!
//! Reading never fails: a field that is missing, or does not have today's form, stays in `extra`.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Counters of the effect of one window, by name: the `evidence` of its heal, `{"links":3,"resets":2,"acquires":41}`.
///
/// Each fault declares its own counters, so the map is open, and unknown counters stay in it. Names contain the unit of a value that is no
/// plain number (`stopped_ms`, `held_bytes`). A counter that is not in the map is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct EffectCounters(BTreeMap<String, u64>);

impl EffectCounters {
    /// Lost locks that clients' libraries signalled during the window. Of every window.
    pub const LOCKS_LOST: &'static str = "locks_lost";
    /// Acquires that were answered during the window. Of every window.
    pub const ACQUIRES: &'static str = "acquires";
    /// Packets that links dropped during the window.
    pub const DROPPED_PACKETS: &'static str = "dropped_packets";
    /// Attempts to connect that links left unanswered.
    pub const HELD_CONNECTS: &'static str = "held_connects";
    /// Operations with an unknown outcome during the window. Of every window.
    pub const UNKNOWN: &'static str = "unknown";

    /// Returns the counter of that name; 0 if it is not in the map.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns the sum of some counters.
    pub fn sum<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> u64 {
        names
            .into_iter()
            .fold(0, |sum: u64, name| sum.saturating_add(self.get(name)))
    }

    /// Returns all counters in the map, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, count)| (name.as_str(), *count))
    }
}

impl<K: Into<String>> FromIterator<(K, u64)> for EffectCounters {
    fn from_iter<I: IntoIterator<Item = (K, u64)>>(counters: I) -> Self {
        Self(counters.into_iter().map(|(name, count)| (name.into(), count)).collect())
    }
}

/// Values that are no whole numbers are ignored.
impl<'de> Deserialize<'de> for EffectCounters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Map::deserialize(deserializer)?;
        Ok(all
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_u64()?)))
            .collect())
    }
}

/// The effect that a window needs so that a pass means something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Milliseconds for which each stopped process or server must stand still, if the window stops any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_ms: Option<u64>,
    /// The id of the property that every lock with a lease violates under this fault (`HL001`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaks: Option<String>,
    /// Whether locks without a lease violate it as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_without_lease: bool,
}

/// The effect of an active fault on acquires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acquires {
    /// Some client can acquire. If none does although clients try, a pass says nothing about the lock under the fault.
    GoOn,
    /// No client can acquire: nothing reaches a majority of the servers.
    Stop,
}

/// The one message of a window, if it matched one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageMatch {
    /// The name in its protocol: `SET`, `create`.
    pub message: String,
    /// `c3`
    pub client: String,
    /// `c3->n1`
    pub link: String,
    /// The state of the client: `waiter`, `holder`, `releaser`.
    pub role: String,
    /// Whether the rule was executed to its end: the message was dropped and its connection ended, or it was delayed and passed on.
    pub done: bool,
    /// Whether its reply was seen and does not mean that nothing was changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepted: bool,
    /// The time at which it passed, in nanoseconds of the history.
    #[serde(rename = "time")]
    pub time_ns: u64,
}

/// The first line of a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WindowStart {
    /// Its number in the plan, from 1; 0 when the line has no number.
    #[serde(rename = "window")]
    pub number: u32,
    /// Its effect, in words, without the fault's name: `holder | every server`.
    pub title: String,
    /// The affected clients and servers: `c3`, `n1`. Empty without a target.
    pub targets: Vec<String>,
    /// The affected links: `c3->n1`. `None` without a target.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<Vec<String>>,
    /// The client that held the lock at the start of the window, if the fault has a holder as its target: `c3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Milliseconds for which this holder continues to work before it releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_works_ms: Option<u64>,
    /// Milliseconds of the injection, which ended when the line was written: a killed container takes a moment to die.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub injected_in_ms: Option<u64>,
    /// Milliseconds by which it steps the wall clocks of its targets, negative for steps back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_step_ms: Option<i64>,
    /// The verb for its effect on its targets, as sentences have it: `cut off` in "c3 was cut off by partition 1".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl WindowStart {
    pub(super) fn read(mut fields: Map<String, Value>) -> Self {
        Self {
            number: take(&mut fields, "window").unwrap_or_default(),
            title: take(&mut fields, "title").unwrap_or_default(),
            targets: take(&mut fields, "targets").unwrap_or_default(),
            cut: take(&mut fields, "cut"),
            holder: take(&mut fields, "holder"),
            holder_works_ms: take(&mut fields, "holder_works_ms"),
            injected_in_ms: take(&mut fields, "injected_in_ms"),
            clock_step_ms: take(&mut fields, "clock_step_ms"),
            verb: take(&mut fields, "verb"),
            extra: fields,
        }
    }

    /// Returns whether it names this client: `c3`, alone or in a link such as `c3->n1`.
    pub fn names_client(&self, client: u32) -> bool {
        let name = format!("c{client}");
        let links = self.cut.iter().flatten();
        let mut texts = self
            .targets
            .iter()
            .chain(links)
            .chain(&self.holder)
            .chain([&self.title]);
        let extra = |(key, value): (&String, &Value)| {
            (key == "client" && value.as_u64() == Some(client.into())) || mentions(value, &name)
        };
        texts.any(|text| mentions_in(text, &name)) || self.extra.iter().any(extra)
    }
}

/// A counter with its words: `3 connections reset` has the noun `connection` and the outcome `reset`. The line of the heal has them, so
/// that no reader needs a table of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceCounter<Text = &'static str> {
    /// Its name in [`EffectCounters`].
    pub key: Text,
    /// The noun, in the singular.
    pub noun: Text,
    /// The outcome, in words.
    pub outcome: Text,
}

impl EvidenceCounter {
    /// Creates a counter.
    pub const fn new(key: &'static str, noun: &'static str, outcome: &'static str) -> Self {
        Self { key, noun, outcome }
    }

    /// Returns the counter with owned texts.
    pub fn owned(&self) -> EvidenceCounter<String> {
        EvidenceCounter {
            key: self.key.into(),
            noun: self.noun.into(),
            outcome: self.outcome.into(),
        }
    }
}

impl<Text: AsRef<str>> EvidenceCounter<Text> {
    /// Returns the counter with borrowed texts.
    pub fn as_ref(&self) -> EvidenceCounter<&str> {
        EvidenceCounter {
            key: self.key.as_ref(),
            noun: self.noun.as_ref(),
            outcome: self.outcome.as_ref(),
        }
    }
}

/// The last line of a window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WindowHeal {
    /// Its number in the plan; `None` when the line has no number, which then heals the last window of its fault.
    #[serde(rename = "window", skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// The counters of its effect.
    pub evidence: EffectCounters,
    /// Whether it left the trace that only its fault leaves. `None` in histories without that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_trace: Option<bool>,
    /// Its effect, in words: `3 links, 310 KiB held back`. `None` in histories without that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The effect that it needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirement: Option<Requirement>,
    /// The message that it matched, if it was for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched: Option<MessageMatch>,
    /// The reason why it had no target, or no effect on it, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
    /// The words of the counters in `evidence` that the fault declares; empty in histories without that field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<EvidenceCounter<String>>,
    /// Advice for a run without an effect, if the fault has better advice than the general one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_effect_hint: Option<String>,
    /// The effect on acquires. `None` in histories without that field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acquires_meanwhile: Option<Acquires>,
    /// All other fields.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

impl WindowHeal {
    pub(super) fn read(mut fields: Map<String, Value>) -> Self {
        Self {
            number: take(&mut fields, "window"),
            evidence: take(&mut fields, "evidence").unwrap_or_default(),
            left_trace: take(&mut fields, "left_trace"),
            effect: take(&mut fields, "effect"),
            requirement: take(&mut fields, "requirement"),
            matched: take(&mut fields, "matched"),
            missed: take(&mut fields, "missed"),
            counters: take(&mut fields, "counters").unwrap_or_default(),
            no_effect_hint: take(&mut fields, "no_effect_hint"),
            acquires_meanwhile: take(&mut fields, "acquires_meanwhile"),
            extra: fields,
        }
    }

    /// Returns whether it matched a message of this client.
    pub fn names_client(&self, client: u32) -> bool {
        let name = format!("c{client}");
        let known = self.matched.as_ref();
        let known = known.is_some_and(|message| {
            [&message.client, &message.link]
                .iter()
                .any(|text| mentions_in(text, &name))
        });
        known || self.extra.get("matched").is_some_and(|other| mentions(other, &name))
    }
}

/// Takes a field with the wanted form; a field with another form stays.
pub(super) fn take<T: DeserializeOwned>(fields: &mut Map<String, Value>, key: &str) -> Option<T> {
    let typed = T::deserialize(fields.get(key)?).ok()?;
    fields.remove(key);
    Some(typed)
}

/// Reads a field with the wanted form; returns the default for another form.
pub(super) fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned + Default>(field: D) -> Result<T, D::Error> {
    let value = Value::deserialize(field)?;
    Ok(T::deserialize(value).unwrap_or_default())
}

/// Returns whether a name is a whole word somewhere in a value.
fn mentions(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => mentions_in(text, name),
        Value::Array(items) => items.iter().any(|item| mentions(item, name)),
        Value::Object(fields) => fields.values().any(|field| mentions(field, name)),
        _ => false,
    }
}

fn mentions_in(text: &str, name: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric())
        .any(|word| word == name)
}

pub(super) fn fields_of(facts: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(facts) {
        Ok(Value::Object(fields)) => fields,
        _ => unreachable!("facts are objects of plain data"),
    }
}

pub(super) fn with_phase(phase: &str, facts: &impl Serialize) -> Map<String, Value> {
    let mut fields = fields_of(facts);
    fields.insert("phase".to_owned(), phase.into());
    fields
}

pub(super) fn without_phase(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut fields = fields.clone();
    fields.remove("phase");
    fields
}
