//! Early ends (`--stop-on-violation`): the run of a broken lock ends long before its time. `simulated.rs` proves the rest.

use crate::command::{Harness, on_runtimes, processes_of};

fn a_run_on_a_broken_lock_ends_at_its_first_violation(runtime: &str) {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-del --holder naive --lease 1s --hold 300ms --seed 16 \
                 --fault partition=holder --time 120s --stop-on-violation";
    let answer = harness.run(&format!("--runtime {runtime} {words}"));
    answer.assert_violates("HL002");
    let at_ns = answer.finding("HL002")["violations"][0]["at_ns"].as_u64();
    let (at_ns, length_ns) = (
        at_ns.expect("a time"),
        answer.diagnosis["length_ns"].as_u64().expect("a length"),
    );
    // active faults heal first
    assert!(
        length_ns < 90_000_000_000,
        "violated after {at_ns} ns, ended after {length_ns} ns"
    );
    let why = answer.diagnosis["ended_early"].as_str().expect("it says so");
    assert!(why.contains("HL002"), "{why}");
    assert_eq!(answer.diagnosis["run"]["status"], "complete");
    assert_eq!(answer.diagnosis["partial"], serde_json::Value::Null);
    assert_eq!(processes_of(harness.folder.path()), Vec::<String>::new());
}

on_runtimes! {
    nightly:
        a_run_on_a_broken_lock_ends_at_its_first_violation;
}
