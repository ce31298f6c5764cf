//! A real PostgreSQL server, which forks a process for each connection.

use super::harness_on;

#[test]
fn an_advisory_lock_is_right_and_a_lease_whose_holder_stands_still_is_not() {
    let Some(harness) = harness_on("postgres") else { return };
    let words = "--runtime virtual --backend postgres --clients 2 --grants 30 --time 15s --seed 1";
    let right = harness.run(&format!("{words} --recipe pg-advisory --fault latency"));
    right.assert_exit(0);
    let wrong = harness.run(&format!(
        "{words} --recipe pg-row-lease --holder naive --fault pause-holder"
    ));
    wrong.assert_violates("HL001");
    harness.assert_replayed();
}
