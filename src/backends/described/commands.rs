//! The commands of a description about servers, run by the shell in the folder of the file.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use super::QUESTION;
use crate::process;

/// Returns a command for the shell, in this folder.
pub fn shell(line: &str, folder: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).stdin(Stdio::null());
    command
}

/// Returns the output of a command. The error is its last line on stderr, or its exit status.
pub async fn output(line: &str, folder: &Path) -> Result<String, String> {
    let mut command = shell(line, folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let failed = |error: std::io::Error| format!("`{line}`: {error}");
    let child = process::spawn(command).await.map_err(failed)?;
    let ended = timeout(QUESTION, child.wait_with_output()).await;
    let ended = ended.map_err(|_| format!("`{line}` did not end within {}s", QUESTION.as_secs()))?;
    let output = ended.map_err(failed)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty());
    Err(last.map_or_else(|| format!("`{line}`: {}", output.status), |last| last.trim().to_owned()))
}
