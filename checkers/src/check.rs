//! All properties over one history, in order; and what follows from what.
//!
//! Start at [`check`]. Each property is one file with one function of a [`Context`]; this file only calls them.

use serde::{Deserialize, Serialize};

use crate::exclusion::{self, Clash, Overlap};
use crate::finding::{Finding, Property, Verdict};
use crate::grants::Grants;
use crate::history::event::Bounds;
use crate::history::names::FastSet;
use crate::history::{History, Window};
use crate::holds::Holds;
use crate::limits;
use crate::linearizability::certificate::Certificate;
use crate::model::Model;
use crate::options::Options;
use crate::{fairness, fencing, herd, linearizability, lost_update, phantom, progress, silent_loss};

/// The answers to all properties about one history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Findings {
    /// The model by which the history was judged, as `--model` takes it.
    pub model: String,
    /// One for each property, HL001 to HL009.
    pub findings: Vec<Finding>,
    /// What a reader of the verdicts should know: a partial history, a second reading that differs.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The order that proves HL002, lock by lock, when it was asked for and HL002 holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<Certificate>,
}

impl Findings {
    /// The answer to one property.
    pub fn of(&self, property: Property) -> &Finding {
        let found = self.findings.iter().find(|finding| finding.property == property);
        found.expect("every property has a finding")
    }

    /// The worst of all answers: violated, then inconclusive, then holds; not applicable when nothing applies.
    pub fn verdict(&self) -> Verdict {
        let any = |verdict| self.findings.iter().any(|finding| finding.verdict == verdict);
        let worst = [Verdict::Violated, Verdict::Inconclusive, Verdict::Holds];
        worst
            .into_iter()
            .find(|verdict| any(*verdict))
            .unwrap_or(Verdict::NotApplicable)
    }
}

/// What the properties look at: the history and everything that is derived from it once.
pub(crate) struct Context<'a> {
    pub history: &'a History,
    pub options: &'a Options,
    pub model: Model,
    pub holds: Holds,
    pub grants: Grants,
    pub windows: Vec<Window>,
    /// Overlaps of certain holds, worst first: many violations follow from one.
    pub overlaps: Vec<Overlap>,
    /// The same by the hold that was there first, worst first: one violation of HL001 each.
    pub clashes: Vec<Clash>,
    /// The replies that began the holds of those overlaps.
    pub overlapping: FastSet<u32>,
    pub bounds: Bounds,
    pub lease_ns: u64,
}

impl<'a> Context<'a> {
    pub(crate) fn new(history: &'a History, options: &'a Options) -> Self {
        let model = options.model.unwrap_or_else(|| Model::of_header(&history.header));
        let (asked, header) = (&options.bounds, &history.header.bounds);
        let mut context = Self {
            history,
            options,
            model,
            holds: Holds::of(history, &model),
            grants: Grants::of(history),
            windows: history.windows(),
            overlaps: Vec::new(),
            clashes: Vec::new(),
            overlapping: FastSet::default(),
            bounds: Bounds {
                herd: asked.herd.or(header.herd),
                requests: asked.requests.or(header.requests),
                progress_ms: asked.progress_ms.or(header.progress_ms),
                silent_ms: asked.silent_ms.or(header.silent_ms),
                passed_over: asked.passed_over.or(header.passed_over),
            },
            lease_ns: limits::ns(history.header.lease_ms.unwrap_or(limits::LEASE_MS)),
        };
        context.overlaps = exclusion::overlaps(&context);
        context.clashes = exclusion::clashes(history, &context.overlaps);
        let both = context
            .overlaps
            .iter()
            .flat_map(|overlap| [overlap.first.got, overlap.second.got]);
        context.overlapping = both.collect();
        context
    }

    /// The last fault window that started at or before a time.
    pub(crate) fn window_before(&self, ns: u64) -> Option<&Window> {
        self.windows.iter().rev().find(|window| window.start_ns <= ns)
    }

    /// The window that touched a client between two times: named it, or everybody when no line names anybody.
    pub(crate) fn window_of_client(&self, client: u32, from_ns: u64, to_ns: u64) -> Option<&Window> {
        let mut touching = self
            .windows
            .iter()
            .rev()
            .filter(|window| window.touches(from_ns, to_ns));
        touching.find(|window| window.names_client(client))
    }

    /// The id of the overlap that a process's hold takes part in, told by the position of its reply.
    pub(crate) fn root_of(&self, got: u32) -> Option<String> {
        let overlap = self
            .overlaps
            .iter()
            .find(|overlap| overlap.first.got == got || overlap.second.got == got)?;
        let place = self
            .clashes
            .iter()
            .position(|clash| clash.opening.first.got == overlap.first.got)?;
        let number = if place < limits::MAX_VIOLATIONS { place + 1 } else { 1 };
        Some(format!("HL001-{number}"))
    }

    /// Nothing can be said of locks without a single acquire that was answered.
    pub(crate) fn has_acquires(&self) -> bool {
        self.history.counts.acquires_ok > 0
    }
}

type Check = fn(&Context<'_>) -> Finding;

/// One row a property; HL002 stands apart because it may bring certificates.
const CHECKS: [(Property, Check); 8] = [
    (Property::Hl001, exclusion::check),
    (Property::Hl003, fencing::check),
    (Property::Hl004, herd::check),
    (Property::Hl005, progress::check),
    (Property::Hl006, fairness::check),
    (Property::Hl007, phantom::check),
    (Property::Hl008, lost_update::check),
    (Property::Hl009, silent_loss::check),
];

/// Decides all properties about a history.
///
/// Pure apart from the clock in the options, and total: it never panics, and answers every property.
pub fn check(history: &History, options: &Options) -> Findings {
    let clock = options.clock;
    let started = clock.now_ns();
    let context = Context::new(history, options);
    let mut spent = clock.now_ns() - started;
    let mut findings = Vec::with_capacity(Property::ALL.len());
    for (property, check) in CHECKS {
        let started = clock.now_ns();
        let mut finding = check(&context);
        debug_assert_eq!(finding.property, property, "the table names what it calls");
        // Holds, grants and overlaps are the decision of mutual exclusion; what is left of the rest is small.
        finding.check_us = (clock.now_ns() - started + std::mem::take(&mut spent)) / 1000;
        findings.push(finding);
    }
    let started = clock.now_ns();
    let mut linear = linearizability::check(&context);
    linear.finding.check_us = (clock.now_ns() - started) / 1000;
    findings.insert(1, linear.finding);
    let mut notes = notes(&context);
    notes.append(&mut linear.notes);
    notes.extend(lost_update::note(&context));
    Findings {
        model: context.model.to_string(),
        findings,
        notes,
        certificates: linear.certificates,
    }
}

fn notes(context: &Context<'_>) -> Vec<String> {
    let history = context.history;
    let mut notes = Vec::new();
    if let Some(reason) = history.partial() {
        notes.push(format!(
            "the history is partial: {reason}; verdicts are about what was recorded"
        ));
    }
    if history.time_inversions() > 0 {
        let count = crate::story::many(history.time_inversions(), "line has", "lines have");
        notes.push(format!("{count} a time before that of a line above them"));
    }
    notes
}
