//! A find in virtual time: cut down, it comes each time, and is kept as a test.

use std::path::Path;
use std::process::Command;

use super::{forking_client, has_no_redis};
use crate::command::Harness;

/// Runs a test that was written, with another client where one is named; its exit code.
fn exit_of(test: &Path, client: Option<&Path>) -> Option<i32> {
    let mut command = match test.extension().is_some_and(|end| end == "py") {
        // as pytest calls it
        true => {
            let mut python = Command::new("python3");
            let text = "import pathlib, runpy, sys, tempfile; test = runpy.run_path(sys.argv[1])['test_hl005']; \
                        test(pathlib.Path(tempfile.mkdtemp(dir=pathlib.Path(sys.argv[1]).parent)))";
            python.args(["-c", text]).arg(test);
            python
        }
        false => Command::new(test),
    };
    command.env("HARNESS", env!("CARGO_BIN_EXE_harness"));
    if let Some(client) = client {
        command.env("LOCK_CLIENT", client);
    }
    command.output().unwrap().status.code()
}

/// A find is cut down to a test of this name, which fails on the broken lock and passes on the mended one.
fn is_cut_down_to(name: &str) {
    if has_no_redis() {
        return;
    }
    let harness = Harness::new();
    let client = forking_client();
    let mended = harness.program("mended", &client);
    let without_lease = client.replace(r#""NX", "PX", str(self.lease_ms)"#, r#""NX""#);
    assert_ne!(without_lease, client);
    let broken = harness.program("broken", &without_lease);
    let found = harness.virtual_time(&format!(
        "--client={} --clients 3 --fault kill-holder --time 15s --seed 1",
        broken.display()
    ));
    found.assert_exit(1);
    assert_eq!(found.verdict("HL005"), "violated");
    let test = harness.folder.path().join(name);
    let words = "shrink latest --runs 2 --confirm 2 --json --as-test";
    let shrunk = harness.output(&format!("{words} {}", test.display()));
    let said = String::from_utf8_lossy(&shrunk.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&shrunk.stderr);
    assert_eq!(shrunk.status.code(), Some(1), "{said}{stderr}");
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(result["hit_rate"]["hits"], result["hit_rate"]["runs"], "{said}");
    assert_eq!(exit_of(&test, None), Some(1));
    assert_eq!(exit_of(&test, Some(&mended)), Some(0));
}

#[test]
fn a_find_is_cut_down_to_a_test_of_pytest_that_fails_until_the_lock_is_mended() {
    is_cut_down_to("test_lock.py");
}

mod nightly {
    #[test]
    fn a_find_is_cut_down_to_a_script_that_fails_until_the_lock_is_mended() {
        super::is_cut_down_to("lock.sh");
    }
}
