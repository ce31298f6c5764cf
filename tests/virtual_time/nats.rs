//! Real servers of NATS, which are written in Go.

use super::harness_on;

#[test]
fn a_key_that_is_put_without_a_revision_is_two_holders() {
    let Some(harness) = harness_on("nats") else { return };
    let words = "--runtime virtual --backend nats --nodes 1 --clients 3 --time 15s --seed 1";
    let right = harness.run(&format!("{words} --fault partition=holder --grants 60"));
    right.assert_exit(0);
    let wrong = harness.run(&format!(
        "{words} --recipe nats-key-put --fault none --stop-on-violation"
    ));
    wrong.assert_violates("HL001");
}

mod nightly {
    use super::*;
    use crate::machine::has_no_valkey;

    /// Servers of 2.9, which Debian 12 has, store two writes over one revision.
    #[test]
    fn three_servers_elect_and_those_of_2_9_grant_a_key_over_its_marker_twice() {
        let Some(harness) = harness_on("nats") else { return };
        let words = "--runtime virtual --backend nats --time 30s --seed 3";
        let right = harness.run(&format!("{words} --fault server-kill=leader --window 12s"));
        right.assert_exit(0);
        harness.assert_replayed();
        if right.diagnosis["run"]["version"].as_str().unwrap().starts_with("2.9.") {
            let marker = harness.run(&format!("{words} --recipe nats-key-marker --fault none"));
            marker.assert_violates("HL001");
            harness.assert_replayed();
        }
    }

    #[test]
    fn a_refusal_that_counts_as_a_grant_is_two_holders() {
        let Some(harness) = harness_on("nats") else { return };
        let canary = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/canaries/nats_lock.py");
        let words = "--runtime virtual --backend nats --nodes 1 --clients 3 --grants 30 --time 15s --seed 1";
        let right = harness.run(&format!("{words} --fault reset --client 'python3 {canary}'"));
        right.assert_exit(0);
        let planted = format!("--client 'python3 {canary} --defect refusal-is-a-grant' --stop-on-violation");
        let wrong = harness.run(&format!("{words} --fault none {planted}"));
        wrong.assert_violates("HL001");
    }

    /// As they are built by those who make them: static programs.
    #[test]
    fn the_official_servers_of_nats_and_etcd_are_the_same_again() {
        // Valkey is here where PyPI could be reached
        if has_no_valkey() {
            return;
        }
        let Some(harness) = harness_on("nats") else { return };
        for words in [
            "--backend nats --server-version 2.15.1 --recipe nats-key-no-revision --holder naive --fault pause-holder",
            "--backend etcd --server-version 3.5.1 --holder naive --fault pause-holder",
        ] {
            let wrong = harness.run(&format!("--runtime virtual --time 20s --seed 4 {words}"));
            wrong.assert_violates("HL001");
            harness.assert_replayed();
        }
    }
}
