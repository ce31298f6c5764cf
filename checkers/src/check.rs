//! All properties over one history, in order.
//!
//! Start at [`check`]. Each property is one module that decides and one of the same name in `narrative` that tells; this
//! file joins them.

use crate::context::Context;
use crate::finding::{Finding, Findings, Property};
use crate::history::History;
use crate::model::{Model, UnknownModel};
use crate::narrative::{self, many};
use crate::options::Options;
use crate::{
    calls, early_loss, exclusion, fairness, fencing, herd, linearizability, lost_update, phantom, progress, silent_loss,
};

/// Decides one property and tells what was decided.
type Check = fn(&Context<'_>) -> Finding;

/// One row a property. HL002 and HL008 are not here: they bring certificates and notes as well.
const CHECKS: [(Property, Check); 9] = [
    (Property::Hl001, |context| {
        narrative::exclusion::tell(context, &exclusion::decide(context))
    }),
    (Property::Hl003, |context| {
        narrative::fencing::tell(context, &fencing::decide(context))
    }),
    (Property::Hl004, |context| {
        narrative::herd::tell(context, &herd::decide(context))
    }),
    (Property::Hl005, |context| {
        narrative::progress::tell(context, &progress::decide(context))
    }),
    (Property::Hl006, |context| {
        narrative::fairness::tell(context, &fairness::decide(context))
    }),
    (Property::Hl007, |context| {
        narrative::phantom::tell(context, &phantom::decide(context))
    }),
    (Property::Hl009, |context| {
        narrative::silent_loss::tell(context, &silent_loss::decide(context))
    }),
    (Property::Hl010, |context| {
        narrative::early_loss::tell(context, &early_loss::decide(context))
    }),
    (Property::Hl011, |context| {
        narrative::calls::tell(context, &calls::decide(context))
    }),
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
    let linearization = linearizability::linearization(&context);
    let mut linear = narrative::linearizability::tell(&context, &linearization);
    linear.check_us = (clock.now_ns() - started) / 1000;
    findings.insert(1, linear);
    let started = clock.now_ns();
    let updates = lost_update::decide(&context);
    let mut updated = narrative::lost_update::tell(&context, &updates);
    updated.check_us = (clock.now_ns() - started) / 1000;
    findings.insert(7, updated);
    let mut notes = notes(&context);
    notes.extend(narrative::linearizability::notes(history, &linearization));
    notes.extend(narrative::lost_update::note(&updates));
    Findings {
        model: context.model.to_string(),
        findings,
        notes,
        certificates: linearization.certificates.unwrap_or_default(),
    }
}

fn notes(context: &Context<'_>) -> Vec<String> {
    let history = context.history;
    let mut notes = Vec::new();
    if context.options.model.is_none()
        && let Err(UnknownModel { name }) = Model::named_by(&history.header)
    {
        notes.push(format!(
            "the header names the model `{name}`, which is not known: judged as {}",
            context.model
        ));
    }
    if let Some(reason) = history.partial() {
        notes.push(format!(
            "the history is partial: {reason}; verdicts are about what was recorded"
        ));
    }
    if history.time_inversions() > 0 {
        let count = many(history.time_inversions(), "line has", "lines have");
        notes.push(format!("{count} a time before that of a line above them"));
    }
    notes
}
