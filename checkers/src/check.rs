//! All properties over one history, in order.
//!
//! Start at [`check`]. Each property is one module that decides and one of the same name in `narrative` that tells; this
//! file joins them.

use std::iter;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::context::Context;
use crate::finding::{Finding, Findings, Property};
use crate::history::History;
use crate::linearizability::certificate::Certificate;
use crate::model::{Model, UnknownModel};
use crate::narrative::{self, many};
use crate::options::Options;
use crate::{
    calls, early_loss, exclusion, fairness, fencing, herd, limits, linearizability, lost_update, phantom, progress,
    silent_loss,
};

/// Decides one property and tells what was decided.
type Check = fn(&Context<'_>) -> PropertyAnswer;

/// What comes out of one property.
struct PropertyAnswer {
    finding: Finding,
    notes: Vec<String>,
    certificates: Vec<Certificate>,
}

impl From<Finding> for PropertyAnswer {
    fn from(finding: Finding) -> Self {
        Self {
            finding,
            notes: Vec::new(),
            certificates: Vec::new(),
        }
    }
}

/// One row a property, in their order.
const CHECKS: [(Property, Check); 11] = [
    (Property::Hl001, |context| {
        narrative::exclusion::tell(context, &exclusion::decide(context)).into()
    }),
    (Property::Hl002, |context| {
        let linearization = linearizability::linearization(context);
        PropertyAnswer {
            finding: narrative::linearizability::tell(context, &linearization),
            notes: narrative::linearizability::notes(context.history, &linearization),
            certificates: linearization.certificates.unwrap_or_default(),
        }
    }),
    (Property::Hl003, |context| {
        narrative::fencing::tell(context, &fencing::decide(context)).into()
    }),
    (Property::Hl004, |context| {
        narrative::herd::tell(context, &herd::decide(context)).into()
    }),
    (Property::Hl005, |context| {
        narrative::progress::tell(context, &progress::decide(context)).into()
    }),
    (Property::Hl006, |context| {
        narrative::fairness::tell(context, &fairness::decide(context)).into()
    }),
    (Property::Hl007, |context| {
        narrative::phantom::tell(context, &phantom::decide(context)).into()
    }),
    (Property::Hl008, |context| {
        let updates = lost_update::decide(context);
        let mut answer = PropertyAnswer::from(narrative::lost_update::tell(context, &updates));
        answer.notes.extend(narrative::lost_update::note(&updates));
        answer
    }),
    (Property::Hl009, |context| {
        narrative::silent_loss::tell(context, &silent_loss::decide(context)).into()
    }),
    (Property::Hl010, |context| {
        narrative::early_loss::tell(context, &early_loss::decide(context)).into()
    }),
    (Property::Hl011, |context| {
        narrative::calls::tell(context, &calls::decide(context)).into()
    }),
];

/// Events from which on properties are decided side by side: below, threads cost more than they bring.
const MANY_EVENTS: usize = 100_000;

/// Decides all properties about a history.
///
/// Pure apart from the clock in the options, and total: it never panics, and answers every property. Properties of a large history
/// are decided by as many threads as there are processors.
pub fn check(history: &History, options: &Options) -> Findings {
    let (context, [spent, early]) = derived(history, options);
    let mut answers = answers(&context);
    // Holds, grants and overlaps are the decision of mutual exclusion; what is left of the rest is small.
    answers[0].finding.check_us += spent / 1000;
    answers[1].finding.check_us += early / 1000;
    let mut findings = Findings {
        model: context.model.to_string(),
        findings: Vec::with_capacity(answers.len()),
        notes: notes(&context),
        certificates: Vec::new(),
    };
    for answer in answers {
        findings.findings.push(answer.finding);
        findings.notes.extend(answer.notes);
        findings.certificates.extend(answer.certificates);
    }
    findings
}

/// Decides one property about a history: what [`check`] answers about it.
pub fn check_property(history: &History, options: &Options, property: Property) -> Finding {
    let started = options.clock.now_ns();
    let context = Context::new(history, options);
    let place = Property::ALL.iter().position(|listed| *listed == property);
    let mut finding = answer(&context, place.expect("every property is listed")).finding;
    finding.check_us = (options.clock.now_ns() - started) / 1000;
    finding
}

/// What all properties look at, beside which linearizability is decided where the history is large; and the time of both.
fn derived<'a>(history: &'a History, options: &'a Options) -> (Context<'a>, [u64; 2]) {
    let clock = options.clock;
    let started = clock.now_ns();
    let since = || clock.now_ns() - started;
    if !is_side_by_side(history) {
        let context = Context::new(history, options);
        return (context, [since(), 0]);
    }
    thread::scope(|scope| {
        let decide = || (linearizability::decided_early(history, options), since());
        let early = thread::Builder::new().spawn_scoped(scope, decide);
        let mut context = Context::new(history, options);
        let spent = since();
        // where a limit of the machine allows no other thread, it is decided with the other properties
        let Ok(early) = early else {
            return (context, [spent, 0]);
        };
        let (decisions, early) = early.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        context.decisions = decisions;
        (context, [spent, early])
    })
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn is_side_by_side(history: &History) -> bool {
    history.len() >= MANY_EVENTS && processors() > 1
}

/// The answers to all properties, in their order.
fn answers(context: &Context<'_>) -> Vec<PropertyAnswer> {
    if !is_side_by_side(context.history) {
        return (0..CHECKS.len()).map(|place| answer(context, place)).collect();
    }
    // the last ones are the longest, since holds are derived already
    let begun = AtomicUsize::new(0);
    let decide_some = || {
        let begun = iter::repeat_with(|| begun.fetch_add(1, Ordering::Relaxed));
        let places = begun.map_while(|begun| (CHECKS.len() - 1).checked_sub(begun));
        places.map(|place| (place, answer(context, place))).collect::<Vec<_>>()
    };
    let mut answers: Vec<(usize, PropertyAnswer)> = thread::scope(|scope| {
        let others: Vec<_> = (1..processors().min(CHECKS.len()))
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, decide_some).ok())
            .collect();
        let mut answers: Vec<(usize, PropertyAnswer)> = decide_some();
        for other in others {
            answers.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        answers
    });
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

fn answer(context: &Context<'_>, place: usize) -> PropertyAnswer {
    let clock = context.options.clock;
    let started = clock.now_ns();
    let (property, check) = CHECKS[place];
    let mut answer = check(context);
    debug_assert_eq!(answer.finding.property, property, "the table names what it calls");
    answer.finding.check_us = (clock.now_ns() - started) / 1000;
    answer
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
    if history.is_renewed {
        notes.push(
            "processes renew leases (`refresh`): a hold is known until the call of its last renewal or release that was answered ok, and \
             may have ended at any time after it"
                .to_owned(),
        );
    }
    let error_ns = limits::at_most_a_length(context.options.clock_error);
    if error_ns > 0 {
        notes.push(match context.clock_error_ns {
            0 => "this history goes by the order of its lines: the clock error changes nothing".to_owned(),
            _ => format!(
                "HL001, HL002 and HL003 allow for stamps of clients that are wrong by up to {}",
                narrative::length(error_ns)
            ),
        });
    }
    if history.time_inversions() > 0 {
        let count = many(history.time_inversions(), "line has", "lines have");
        notes.push(format!("{count} a time before that of a line above them"));
    }
    notes
}
