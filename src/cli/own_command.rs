//! A command of harness that is run as a process of its own, and prints JSON.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::limits::LOG_TAIL_LINES;
use crate::process;

/// Returns a command of this program, whose standard error goes to a log.
pub fn own_command(log: &Path) -> Result<Command, String> {
    let failed = |error: std::io::Error| format!("could not write {}: {error}", log.display());
    log.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
    // the same program, even if a newer one has replaced its file
    let mut command = Command::new("/proc/self/exe");
    command.arg0("harness");
    // the parent process reports to the CI system, not this one
    command.env_remove("GITHUB_ACTIONS").env_remove("GITHUB_STEP_SUMMARY");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log).map_err(failed)?);
    Ok(command)
}

/// Runs a command to its end, or interrupts it when the user does. Returns its exit code and its output.
pub async fn run(
    command: Command,
    limit: Duration,
    mut stop: watch::Receiver<bool>,
) -> Result<(Option<i32>, Vec<u8>), String> {
    let mut child = process::spawn(command)
        .await
        .map_err(|error| format!("harness could not be started: {error}"))?;
    let mut stdout = child.stdout.take().expect("its output is a pipe");
    let mut printed = Vec::new();
    let to_its_end = async {
        let reading = timeout(limit, stdout.read_to_end(&mut printed));
        tokio::pin!(reading);
        // the receiver's guard must not be held across the wait for the child
        let enough = async { drop(stop.wait_for(|wanted| *wanted).await) };
        tokio::select! {
            ended = &mut reading => ended.is_ok(),
            () = enough => {
                // on SIGINT it heals faults, stops its servers and reports its history so far
                process::signal(&child, Signal::SIGINT);
                reading.await.is_ok()
            }
        }
    };
    if !to_its_end.await {
        let _ = child.kill().await;
        return Err(format!(
            "it was killed because it did not end within {}s",
            limit.as_secs()
        ));
    }
    let status = child
        .wait()
        .await
        .map_err(|error| format!("harness could not wait for its end: {error}"))?;
    Ok((status.code(), printed))
}

/// Returns the last lines of the log, for the report of a failure.
pub fn last_lines(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
    last.iter().map(|line| (*line).to_owned()).collect()
}
