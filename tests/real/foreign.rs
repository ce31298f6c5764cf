//! Somebody's own client, in another language: heard as our own are, and never trusted.

use crate::command::Harness;

/// A lock that everybody always gets. It speaks the protocol in a dozen lines of Python.
const EVERYBODY: &str = r#"
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({"type": "ok", "id": request["id"]}), flush=True)
"#;

#[test]
fn a_lock_that_everybody_gets_is_caught_without_its_help() {
    let harness = Harness::new();
    let script = harness.folder.path().join("everybody.py");
    std::fs::write(&script, EVERYBODY).unwrap();
    let mut command = harness.command("run --json --runtime local --backend redis --lease 1s --time 7s --client");
    let output = command.arg(format!("python3 {}", script.display())).output().unwrap();
    let answer = crate::command::Answer::of(output);
    answer.assert_exit(1);
    assert_eq!(answer.verdict("HL001"), "violated");
    assert_eq!(answer.verdict("HL008"), "violated");
}

#[test]
fn the_client_of_the_protocol_page_is_a_lock() {
    let page = include_str!("../../docs/client-protocol.md");
    let (_, program) = page.rsplit_once("```python\n").unwrap();
    let (program, _) = program.split_once("```").unwrap();
    let harness = Harness::new();
    let script = harness.folder.path().join("my_lock.py");
    std::fs::write(&script, program).unwrap();
    let words = "run --json --runtime local --backend redis --fault partition=holder --lease 1s --time 12s --client";
    let mut command = harness.command(words);
    let output = command.arg(format!("python3 {}", script.display())).output().unwrap();
    let answer = crate::command::Answer::of(output);
    answer.assert_exit(0);
    assert_eq!(answer.verdict("HL007"), "holds", "its owners are found on the server");
}

#[test]
fn a_client_that_prints_garbage_is_named_with_its_line() {
    let harness = Harness::new();
    let mut command = harness.command("run --runtime local --backend redis --time 10s --client");
    let output = command.arg("echo 'connecting to redis ...'; cat").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(
        stderr.contains("not of the client protocol: `connecting to redis ...`"),
        "{stderr}"
    );
}

#[test]
fn a_client_that_cannot_be_started_says_why() {
    let harness = Harness::new();
    let mut command = harness.command("run --runtime local --backend redis --time 10s --client");
    let output = command.arg("no-such-program-anywhere").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{stderr}");
    assert!(stderr.contains("not found"), "{stderr}");
}
