//! Early ends (`--stop-on-violation`): the run of a broken lock ends long before its time, and that of a correct one at its end.

use crate::command::{Harness, on_runtimes, processes_of, run_on};

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

fn a_run_on_a_right_lock_goes_on_to_its_end(runtime: &str) {
    let words = "--backend redis --lease 1s --tries 20 --fault partition=holder,kill-holder --time 16s --seed 2";
    let answer = run_on(runtime, &format!("{words} --stop-on-violation"));
    answer.assert_exit(0);
    assert!(answer.diagnosis.get("ended_early").is_none());
    let phases = answer.diagnosis["phases"].as_array().expect("a run has phases");
    assert_eq!(phases.last().map(|phase| &phase["name"]), Some(&"end".into()));
    assert!(phases.iter().any(|phase| phase["name"] == "recovery"));
}

on_runtimes! {
    models:
        a_run_on_a_broken_lock_ends_at_its_first_violation
        a_run_on_a_right_lock_goes_on_to_its_end;
}
