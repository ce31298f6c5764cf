//! Follows the log of a candidate: a file, or the output of a command whose lines begin with a time.
//!
//! A file is read to its end again and again, so a line was written after the last read that did not find it. The lines of a command
//! may be late by any time; `kubectl logs --timestamps` says when each was written.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, BufReader, SeekFrom};
use tokio::process::Command;
use tokio::sync::mpsc::UnboundedSender;

use crate::clock::monotonic_ns;

/// Between two reads of a file.
const POLL: Duration = Duration::from_millis(20);

/// Where lines come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    File(PathBuf),
    /// A line for the shell.
    Command(String),
}

/// A line, and between which readings of `CLOCK_MONOTONIC` it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedLine {
    pub candidate: usize,
    pub text: String,
    pub not_before: u64,
    pub by: u64,
}

/// Sends the lines that are written from now on, until nobody wants them. The error says why there are no more.
pub async fn follow(
    candidate: usize,
    source: LogSource,
    clock_error: Duration,
    lines: UnboundedSender<FollowedLine>,
) -> Result<(), String> {
    match source {
        LogSource::File(path) => follow_file(candidate, path, lines).await,
        LogSource::Command(line) => follow_command(candidate, &line, clock_error, lines).await,
    }
}

async fn follow_file(candidate: usize, path: PathBuf, lines: UnboundedSender<FollowedLine>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(&path).await.map_err(failed)?;
    let mut at = file.seek(SeekFrom::End(0)).await.map_err(failed)?;
    let mut part = Vec::new();
    let mut not_before = monotonic_ns();
    while !lines.is_closed() {
        let before = monotonic_ns();
        let length = tokio::fs::metadata(&path).await.map_or(at, |file| file.len());
        if length < at {
            // it was cut off, or another one took its place
            file = File::open(&path).await.map_err(failed)?;
            at = 0;
            part.clear();
            // what the new one has may have been written elsewhere, and long ago
            not_before = 0;
        }
        let mut read = Vec::new();
        at += file.read_to_end(&mut read).await.map_err(failed)? as u64;
        let by = monotonic_ns();
        part.extend_from_slice(&read);
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = part.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let followed = FollowedLine {
                candidate,
                text,
                not_before,
                by,
            };
            let _ = lines.send(followed);
        }
        not_before = before;
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}

async fn follow_command(
    candidate: usize,
    line: &str,
    clock_error: Duration,
    lines: UnboundedSender<FollowedLine>,
) -> Result<(), String> {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("`{line}`: {error}"))?;
    let mut output = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let error = clock_error.as_nanos() as u64;
    while let Some(text) = output.next_line().await.map_err(|error| format!("`{line}`: {error}"))? {
        let Some(written) = written_at(&text) else {
            return Err(format!(
                "`{line}` printed a line that does not begin with a time of RFC 3339: {text:?}\nhint: kubectl logs --timestamps"
            ));
        };
        let followed = FollowedLine {
            candidate,
            text,
            not_before: written.saturating_sub(error),
            by: written + error,
        };
        if lines.send(followed).is_err() {
            break;
        }
    }
    Err(format!("`{line}` has ended"))
}

/// The time at the beginning of a line, as a reading of `CLOCK_MONOTONIC`.
fn written_at(text: &str) -> Option<u64> {
    let written = OffsetDateTime::parse(text.split_whitespace().next()?, &Rfc3339).ok()?;
    let ago = OffsetDateTime::now_utc() - written;
    let at = i128::from(monotonic_ns()) - ago.whole_nanoseconds();
    Some(u64::try_from(at).unwrap_or(0))
}
