//! A debugger on a client, at an event of a replayed run.

use std::fs;

use super::{CLIENT, harness_on};
use crate::command::{Harness, assert_has};

/// Returns the acquires of the latest run, by their number in its history.
fn acquires(harness: &Harness) -> Vec<u64> {
    let events = harness.latest_lines().into_iter();
    let acquires = events.filter(|event| event["f"] == "acquire" && event["type"] == "invoke");
    acquires.map(|event| event["index"].as_u64().unwrap()).collect()
}

#[test]
fn the_world_is_stopped_while_a_debugger_has_a_client_and_is_the_same_afterwards() {
    let Some(harness) = harness_on("redis") else { return };
    let tracer = harness.compiled("tracer.c", &[]);
    // each acquire is a byte
    let asked = harness.folder.path().join("asked");
    let begin = "    def acquire(self, lock, wait_ms):\n";
    let text = CLIENT.replace(begin, &format!("{begin}        open({asked:?}, 'a').write('x')\n"));
    let client = harness.client(&text);
    harness.virtual_time(&format!(
        "{client} --clients 1 --fault none --grants 40 --time 10s --seed 1"
    ));
    let acquires = acquires(&harness);
    fs::remove_file(&asked).unwrap();

    let debugger = format!("'{} {{pid}} {}'", tracer.display(), asked.display());
    let words = format!(
        "replay latest --until {} --debug c0 --debugger {debugger}",
        acquires[20]
    );
    let replayed = harness.answer(&words);
    replayed.assert_exit(0);
    assert_has(&replayed.stdout, &["tracer 20 20 1\n", "the same history"]);
}

#[test]
fn what_cannot_be_debugged_is_said_before_the_run_or_when_it_is_not_there() {
    let Some(harness) = harness_on("redis") else { return };
    let client = harness.client(CLIENT);
    harness.virtual_time(&format!(
        "{client} --clients 1 --fault none --grants 10 --time 5s --seed 1"
    ));
    harness.assert_says("replay latest --until 5 --debug l0", 2, &["`n1`"]);
    harness.assert_says("replay latest --until 5", 2, &["--debug"]);
    harness.assert_says("replay latest --until 100000 --debug c0", 2, &["events"]);
    harness.assert_says(
        "replay latest --until 5 --debug c7",
        4,
        &["client c7 does not run before event 5"],
    );
    let missing = "replay latest --until 5 --debug n1 --debugger no-such-debugger";
    harness.assert_says(missing, 4, &["no-such-debugger", "hint: --debugger"]);
    harness.run("--runtime simulated --backend redis --time 10s");
    harness.assert_says("replay latest --until 5 --debug c0", 2, &["rust-gdb"]);
}
