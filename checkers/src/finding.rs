//! Findings: a verdict for each property, and for a violation the few events that prove it.
//!
//! These types are serialised as they are into `verdict.json`; every screen and report is a rendering of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits;

/// The properties, by their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Property {
    /// No two clients hold a lock at the same time. In words: [`Self::MUTUAL_EXCLUSION`].
    Hl001,
    /// The operations have an order that is legal for the model: [`Self::LINEARIZABLE`].
    Hl002,
    /// Later grants have larger tokens, and stale writes are refused: [`Self::FENCING_TOKENS`].
    Hl003,
    /// A release wakes few waiters: [`Self::HERD`].
    Hl004,
    /// A free lock is acquired by a client that waits for it: [`Self::PROGRESS`].
    Hl005,
    /// Clients get the lock in the order that is promised, and none starves: [`Self::FAIRNESS`].
    Hl006,
    /// Clients hold what the server granted: [`Self::PHANTOM_GRANT`].
    Hl007,
    /// No update of the guarded register is lost: [`Self::LOST_UPDATE`].
    Hl008,
    /// A client is told in time that the server took its lock: [`Self::SILENT_LOSS`].
    Hl009,
    /// No hold ends before its lease without a reason: [`Self::EARLY_LOSS`].
    Hl010,
    /// Calls are answered in time: [`Self::CALLS_IN_TIME`].
    Hl011,
}

impl Property {
    /// All properties, in their order.
    pub const ALL: [Self; 11] = [
        Self::Hl001,
        Self::Hl002,
        Self::Hl003,
        Self::Hl004,
        Self::Hl005,
        Self::Hl006,
        Self::Hl007,
        Self::Hl008,
        Self::Hl009,
        Self::Hl010,
        Self::Hl011,
    ];

    /// No two clients hold a lock at the same time.
    pub const MUTUAL_EXCLUSION: Self = Self::Hl001;
    /// The operations have an order that is legal for the model.
    pub const LINEARIZABLE: Self = Self::Hl002;
    /// Later grants have larger tokens, and stale writes are refused.
    pub const FENCING_TOKENS: Self = Self::Hl003;
    /// A release wakes few waiters.
    pub const HERD: Self = Self::Hl004;
    /// A free lock is acquired by a client that waits for it.
    pub const PROGRESS: Self = Self::Hl005;
    /// Clients get the lock in the order that is promised, and none starves.
    pub const FAIRNESS: Self = Self::Hl006;
    /// Clients hold what the server granted.
    pub const PHANTOM_GRANT: Self = Self::Hl007;
    /// No update of the guarded register is lost.
    pub const LOST_UPDATE: Self = Self::Hl008;
    /// A client is told in time that the server took its lock.
    pub const SILENT_LOSS: Self = Self::Hl009;
    /// No hold ends before its lease without a reason.
    pub const EARLY_LOSS: Self = Self::Hl010;
    /// Calls are answered in time.
    pub const CALLS_IN_TIME: Self = Self::Hl011;

    /// Returns the id, such as `HL001`.
    pub fn id(self) -> &'static str {
        PROPERTY_WORDS[self as usize].0
    }

    /// Returns the name, as tables print it.
    pub fn name(self) -> &'static str {
        PROPERTY_WORDS[self as usize].1
    }

    /// Returns the id of the violation at a place; of one that is not described, the id of the first.
    pub(crate) fn violation_id(self, place: usize) -> String {
        let number = if place < limits::MAX_VIOLATIONS { place + 1 } else { 1 };
        format!("{}-{number}", self.id())
    }
}

/// The id and the name of each property, in the order of the properties.
const PROPERTY_WORDS: [(&str, &str); Property::ALL.len()] = [
    ("HL001", "mutual exclusion"),
    ("HL002", "linearizable"),
    ("HL003", "fencing tokens"),
    ("HL004", "herd"),
    ("HL005", "progress"),
    ("HL006", "fairness"),
    ("HL007", "phantom grant"),
    ("HL008", "lost update"),
    ("HL009", "silent loss"),
    ("HL010", "early loss"),
    ("HL011", "calls in time"),
];

/// The verdict on a property. A checker that runs out of budget is inconclusive, never a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing in the history contradicts the property, and the history could have shown it.
    Holds,
    /// The history contradicts the property, with a proof.
    Violated,
    /// The property could not be decided; the evidence has the reason.
    Inconclusive,
    /// The history has no evidence for or against it: nothing was recorded, or nothing was promised.
    #[default]
    NotApplicable,
}

impl Verdict {
    /// Returns the verdict on a property for which the history has evidence.
    pub(crate) fn of(is_violated: bool) -> Self {
        if is_violated { Self::Violated } else { Self::Holds }
    }
}

/// The findings of all properties of one history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Findings {
    /// The model by which the history was judged, as `--model` takes it.
    pub model: String,
    /// The findings of HL001 to HL011.
    pub findings: Vec<Finding>,
    /// Remarks on the verdicts: a partial history, another reading with another verdict.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The order that proves HL002, lock by lock, if it was requested and HL002 holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
}

/// The operations of one lock in an order that is legal for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The name of the lock.
    pub lock: String,
    /// Indices of the calls, or of the lost signal that ended a hold. Operations that are missing did not happen.
    pub order: Vec<u64>,
}

impl Findings {
    /// Returns the finding of one property.
    ///
    /// # Panics
    /// If it is missing: findings of an older version of this crate may lack a property. [`check`](crate::check) has findings of all
    /// properties.
    pub fn of(&self, property: Property) -> &Finding {
        let found = self.findings.iter().find(|finding| finding.property == property);
        found.expect("every property has a finding")
    }

    /// Returns the worst of all verdicts: violated, then inconclusive, then holds; not applicable when nothing applies.
    pub fn verdict(&self) -> Verdict {
        let any = |verdict| self.findings.iter().any(|finding| finding.verdict == verdict);
        let worst = [Verdict::Violated, Verdict::Inconclusive, Verdict::Holds];
        worst
            .into_iter()
            .find(|verdict| any(*verdict))
            .unwrap_or(Verdict::NotApplicable)
    }
}

/// The finding of one property.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Finding {
    /// The property.
    pub property: Property,
    /// The verdict.
    pub verdict: Verdict,
    /// One line for a person: "11,042 holds, no two overlap"; the reason when inconclusive or not applicable.
    pub evidence: String,
    /// The violations that are described, worst first; at most `limits::MAX_VIOLATIONS`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The number of all violations, described or not.
    #[serde(default)]
    pub violation_count: u64,
    /// Numbers for reports and for `--json`, by name with the unit in it (`woken_max`, `longest_wait_ms`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// Time of the decision, in microseconds.
    #[serde(default)]
    pub check_us: u64,
}

/// One violation with its proof.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Violation {
    /// Its id, such as `HL001-1`: stable within a history.
    pub id: String,
    /// Its class within its property: `granted-twice`, `stale-holder`, `foreign-release`, `ghost`, …
    pub class: String,
    /// The name of its lock.
    pub lock: String,
    /// Its processes, in the order of the narrative.
    pub processes: Vec<u32>,
    /// The clients of those processes, in the same order.
    pub clients: Vec<u32>,
    /// The time at which it became certain, in nanoseconds of the history.
    pub at_ns: u64,
    /// The certain overlap, if there is one: both held from `.0` to `.1`. Open ends are the end of the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ns: Option<(u64, u64)>,
    /// The last fault window that started before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u32>,
    /// The headline: "two clients held `l0` at the same time, for at least 1.84s".
    pub summary: String,
    /// The smallest set of events that is still a violation, in the order of the history.
    pub events: Vec<ProofEvent>,
    /// The explanation: at most four sentences, each with one cause and its events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub because: Vec<Because>,
    /// The likely cause, marked as likely wherever it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<String>,
    /// The id of the violation from which this one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<String>,
    /// Numbers of this violation, by name with the unit in it (`woken`, `waiters`, `lost_updates`).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

/// One event of a proof and its role.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProofEvent {
    /// The event's `index` in the history.
    pub index: u64,
    /// Nanoseconds of the history.
    pub time_ns: u64,
    /// `None` for the server and the nemesis.
    pub process: Option<u32>,
    /// Its role in the proof: "got the lock", "release call", "woken", "write of 42", …
    pub role: String,
}

/// One sentence of an explanation with its events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Because {
    /// The sentence.
    pub text: String,
    /// Indices of its events.
    pub events: Vec<u64>,
}
