//! The check of all properties of a history.
//!
//! Start at [`check`]. Each property has a module that decides it and a module of the same name in `narrative` with its sentences; this
//! file joins them.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::context::Context;
use crate::finding::{Certificate, Finding, Findings, Property};
use crate::history::History;
use crate::linearizability::Decision;
use crate::model::{Model, UnknownModel};
use crate::narrative::{self, many};
use crate::options::Options;
use crate::{
    calls, early_loss, exclusion, fairness, fencing, herd, limits, linearizability, lost_update, phantom, progress,
    silent_loss,
};

/// Decides one property and writes its finding.
type Check = fn(&Derived<'_>) -> PropertyAnswer;

/// The input of all checks; of a large history, with the decisions on linearizability, which another thread made.
struct Derived<'a> {
    context: Context<'a>,
    decisions: Option<Vec<Decision>>,
}

/// The result of one check.
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

/// Makes the check of a property from its module and the module of the same name in `narrative`.
macro_rules! decided_and_told {
    ($module:ident) => {
        |Derived { context, .. }| narrative::$module::tell(context, &$module::decide(context)).into()
    };
}

/// The checks, in the order of the properties.
const CHECKS: [(Property, Check); Property::ALL.len()] = [
    (Property::Hl001, decided_and_told!(exclusion)),
    (Property::Hl002, |Derived { context, decisions }| {
        let linearization = linearizability::linearization(context, decisions.as_deref());
        PropertyAnswer {
            finding: narrative::linearizability::tell(context, &linearization),
            notes: narrative::linearizability::notes(context.history, &linearization),
            certificates: linearization.certificates.unwrap_or_default(),
        }
    }),
    (Property::Hl003, decided_and_told!(fencing)),
    (Property::Hl004, decided_and_told!(herd)),
    (Property::Hl005, decided_and_told!(progress)),
    (Property::Hl006, decided_and_told!(fairness)),
    (Property::Hl007, decided_and_told!(phantom)),
    (Property::Hl008, |Derived { context, .. }| {
        let updates = lost_update::decide(context);
        let mut answer = PropertyAnswer::from(narrative::lost_update::tell(context, &updates));
        answer.notes.extend(narrative::lost_update::note(&updates));
        answer
    }),
    (Property::Hl009, decided_and_told!(silent_loss)),
    (Property::Hl010, decided_and_told!(early_loss)),
    (Property::Hl011, decided_and_told!(calls)),
];

/// The least number of events for which properties are decided in parallel; below it, threads cost more than they save.
const MANY_EVENTS: usize = 100_000;

/// Decides all properties of a history.
///
/// The function reads only the clock in the options, never panics, and has a finding for every property. The properties of a large history
/// are decided in parallel.
pub fn check(history: &History, options: &Options) -> Findings {
    let (derived, [spent, early]) = derived(history, options);
    let mut answers = answers(&derived);
    let context = &derived.context;
    // Holds, grants and overlaps are most of the decision of mutual exclusion.
    answers[0].finding.check_us += spent / 1000;
    answers[1].finding.check_us += early / 1000;
    let mut findings = Findings {
        model: context.model.to_string(),
        findings: Vec::with_capacity(answers.len()),
        notes: notes(context),
        certificates: Vec::new(),
    };
    for answer in answers {
        findings.findings.push(answer.finding);
        findings.notes.extend(answer.notes);
        findings.certificates.extend(answer.certificates);
    }
    findings
}

/// Decides one property of a history, as [`check`] does.
pub fn check_property(history: &History, options: &Options, property: Property) -> Finding {
    let started = options.clock.now_ns();
    let derived = Derived {
        context: Context::new(history, options),
        decisions: None,
    };
    let mut finding = answer(&derived, property as usize).finding;
    finding.check_us = (options.clock.now_ns() - started) / 1000;
    finding
}

/// Derives the input of all checks, and returns the nanoseconds that its two parts took.
fn derived<'a>(history: &'a History, options: &'a Options) -> (Derived<'a>, [u64; 2]) {
    let clock = options.clock;
    let started = clock.now_ns();
    let since = || clock.now_ns() - started;
    let alone = |context, spent| {
        let decisions = None;
        (Derived { context, decisions }, [spent, 0])
    };
    if !is_side_by_side(history) {
        return alone(Context::new(history, options), since());
    }
    thread::scope(|scope| {
        let decide = || (linearizability::decided_early(history, options), since());
        let early = thread::Builder::new().spawn_scoped(scope, decide);
        let context = Context::new(history, options);
        let spent = since();
        // without a second thread, linearizability is decided with the other properties
        let Ok(early) = early else {
            return alone(context, spent);
        };
        let (decisions, early) = early.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (Derived { context, decisions }, [spent, early])
    })
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

fn is_side_by_side(history: &History) -> bool {
    history.len() >= MANY_EVENTS && processors() > 1
}

/// Returns the results of all checks, in the order of the properties.
fn answers(derived: &Derived<'_>) -> Vec<PropertyAnswer> {
    if !is_side_by_side(derived.context.history) {
        return (0..CHECKS.len()).map(|place| answer(derived, place)).collect();
    }
    let answers: Vec<OnceLock<PropertyAnswer>> = CHECKS.iter().map(|_| OnceLock::new()).collect();
    let begun = AtomicUsize::new(0);
    // the last checks are the longest, since holds are derived already
    let next = || (CHECKS.len() - 1).checked_sub(begun.fetch_add(1, Ordering::Relaxed));
    let decide_some = || {
        while let Some(place) = next() {
            answers[place].get_or_init(|| answer(derived, place));
        }
    };
    thread::scope(|scope| {
        for _ in 1..processors().min(CHECKS.len()) {
            // without more threads, this one decides all properties
            let _ = thread::Builder::new().spawn_scoped(scope, decide_some);
        }
        decide_some();
    });
    answers.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn answer(derived: &Derived<'_>, place: usize) -> PropertyAnswer {
    let clock = derived.context.options.clock;
    let started = clock.now_ns();
    let (property, check) = CHECKS[place];
    let mut answer = check(derived);
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
            "the header names the unknown model `{name}`: judged as {}",
            context.model
        ));
    }
    if let Some(reason) = history.partial() {
        notes.push(format!(
            "the history is partial: {reason}; the verdicts cover only the recorded events"
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
            0 => "this history is ordered by its lines: the clock error changes nothing".to_owned(),
            _ => format!(
                "properties that compare times of clients allow for timestamps that are wrong by up to {}",
                narrative::length(error_ns)
            ),
        });
    }
    if history.time_inversions() > 0 {
        let lines = many(history.time_inversions(), "line has", "lines have");
        notes.push(format!("{lines} an earlier time than a line above"));
    }
    notes
}
