//! @ABOUT@
//!
//! @HINT@

use std::process::Command;

#[test]
fn @NAME@() {
    let mut command = Command::new(std::env::var("HARNESS").unwrap_or_else(|_| "harness".into()));
    command.args([@WORDS@]);
    command.arg("--client=".to_owned() + &std::env::var("LOCK_CLIENT").unwrap_or_else(|_| @CLIENT@.into()));
    command.arg("--results").arg(env!("CARGO_TARGET_TMPDIR"));
    let ran = command.output().expect("harness is on the PATH, or HARNESS names it");
    let text = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
    assert!(matches!(ran.status.code(), Some(0 | 3)), "\n{text}");
}
