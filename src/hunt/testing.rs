//! Records of hunts and results of experiments for unit tests.

use serde_json::json;

use super::exhaustive::{Exhaustive, NextExperiment};
use super::record::SCHEMA;
use super::typed_fault::name;
use super::{ExperimentOutcome, ExperimentResult, HuntCounts, HuntRecord};
use crate::report::Diagnosis;
use crate::report::test_diagnosis::diagnosis;

pub fn record() -> HuntRecord {
    serde_json::from_value(json!({
        "schema": SCHEMA, "harness": "0.1.0", "started": "20261122-0930", "options": [["backend", "redis"]], "seed": "7",
        "for_ms": 600_000, "took_ms": 0, "next": 0, "open": [], "counts": HuntCounts::default(), "faults": {},
        "left_out": [], "finds": [], "errors_in_a_row": 0, "interrupted": false,
    }))
    .unwrap()
}

/// Returns an experiment with these windows (fault, effect) and violations (property, class, the violation that it follows).
pub fn result(index: u64, windows: &[(&str, bool)], violations: &[(&str, &str, Option<&str>)]) -> ExperimentResult {
    let outcome = if violations.is_empty() { "PASS" } else { "FAIL" };
    let findings = violations.iter();
    let findings = findings.map(|(property, class, follows)| (*property, "violated", *class, *follows));
    let shown: Vec<_> = windows.iter().map(|(fault, effect)| (name(fault), *effect)).collect();
    let diagnosis = diagnosis(outcome, &findings.collect::<Vec<_>>(), &shown);
    ExperimentResult {
        index,
        faults: windows.iter().map(|(fault, _)| (*fault).to_owned()).collect(),
        came_to: ExperimentOutcome::Decided(Box::new(diagnosis), format!("runs/{index}")),
        at_ms: index * 1000,
        took_ms: 900,
        ..ExperimentResult::default()
    }
}

/// Returns the record of a search for every placement of one act.
pub fn search() -> HuntRecord {
    let search = Exhaustive::new(1, vec!["drop-reply=any:#".to_owned()]);
    HuntRecord {
        exhaustive: Some(search),
        ..record()
    }
}

/// Begins the next experiment, and returns its number.
pub fn begun(record: &mut HuntRecord) -> u64 {
    match record.begin() {
        NextExperiment::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

/// Returns the diagnosis of an experiment, for changes.
pub fn diagnosis_of(result: &mut ExperimentResult) -> &mut Diagnosis {
    match &mut result.came_to {
        ExperimentOutcome::Decided(diagnosis, _) => diagnosis,
        other => panic!("{other:?}"),
    }
}
