//! Diagnoses for tests, built from findings and windows.

use serde_json::json;

use super::Diagnosis;
use crate::evidence::Evidence;

/// A property and its verdict; if it is violated, the class of its violation, and the violation that this one follows.
pub type TestFinding<'a> = (&'a str, &'a str, &'a str, Option<&'a str>);

/// Returns a diagnosis with these findings and windows: fault, and whether it had an effect.
pub fn diagnosis(outcome: &str, findings: &[TestFinding<'_>], windows: &[(&str, bool)]) -> Diagnosis {
    let finding = |(property, verdict, class, follows): &TestFinding<'_>| {
        let violation = json!({
            "id": format!("{property}-1"), "class": class, "lock": "l0", "processes": [], "clients": [], "at_ns": 1,
            "summary": format!("{property} broke"), "events": [], "follows": follows,
        });
        let violations = if *verdict == "violated" {
            vec![violation]
        } else {
            Vec::new()
        };
        json!({ "property": property, "verdict": verdict, "evidence": "as seen", "violations": violations })
    };
    let window = |(fault, effect): &(&str, bool)| {
        json!({
            "number": 1, "fault": fault, "title": "t", "start_ns": 0, "heal_ns": 1, "had_effect": effect, "targets": [],
            "locks_lost": 0, "acquires": 0, "expired": 0, "evidence": Evidence::default(),
        })
    };
    let findings: Vec<_> = findings.iter().map(finding).collect();
    let windows: Vec<_> = windows.iter().map(window).collect();
    serde_json::from_value(json!({
        "schema": "harness-diagnosis/1", "outcome": outcome, "exit": 0, "run": null, "path": "p", "model": "mutex",
        "findings": findings, "drawings": {}, "effect": { "windows": windows, "evidence": "", "too_little": null },
        "notes": [], "events": 1, "operations": 1, "acquires": 1, "clients": 1, "locks": ["l0"],
        "latency": { "p50_ns": 0, "p99_ns": 0, "max_ns": 0, "max_window": null }, "length_ns": 1, "check_ns": 1,
    }))
    .expect("a diagnosis")
}
