//! A find in virtual time: cut down, it shows the violation each time, and is written as a test.

use super::{forking_client, harness_on};
use crate::fixtures::fails_until;

/// Asserts that a find is cut down to a test of this name, which fails on the broken lock and passes on the mended one.
fn is_cut_down_to(name: &str) {
    let Some(harness) = harness_on("redis") else { return };
    let client = forking_client();
    let mended = harness.program("mended", &client);
    let without_lease = client.replace(r#""NX", "PX", str(self.lease_ms)"#, r#""NX""#);
    assert_ne!(without_lease, client);
    let broken = harness.program("broken", &without_lease);
    let found = harness.virtual_time(&format!(
        "--client={} --clients 3 --fault kill-holder --time 15s --seed 1",
        broken.display()
    ));
    found.assert_violates("HL005");
    let words = "shrink latest --runs 2 --confirm 1 --json --as-test";
    let result = harness.printed(&format!("{words} {name}"), 1);
    assert!(result["detected_after_ms"].is_u64(), "{result}");
    assert_eq!(result["ended_early"], "--runs", "{result}");
    assert_eq!(result["hit_rate"]["runs"], 1, "in another world: {result}");
    fails_until(harness.folder.path(), name, |test| test.env("LOCK_CLIENT", mended));
}

#[test]
fn a_find_is_cut_down_to_a_test_of_pytest_that_fails_until_the_lock_is_mended() {
    is_cut_down_to("test_lock.py");
}

mod nightly {
    #[test]
    fn a_find_is_cut_down_to_a_test_of_each_language_that_fails_until_the_lock_is_mended() {
        for name in ["lock.sh", "LockTest.java", "lock.js", "tests/lock.rs"] {
            super::is_cut_down_to(name);
        }
    }
}
