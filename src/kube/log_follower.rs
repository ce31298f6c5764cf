//! The log follower of a candidate: it reads a file, or the output of a command whose lines begin with a time.
//!
//! A file is read to its end again and again, so a line was written after the last read that did not find it. The lines of a
//! command may be late by any time; `kubectl logs --timestamps` has the time at which each was written.

use std::os::unix::fs::MetadataExt;
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
use crate::process;

/// The time between two reads of a file.
const POLL: Duration = Duration::from_millis(20);
/// The time before a command that has ended is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// The source of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogSource {
    File(PathBuf),
    /// A command for the shell.
    Command(String),
}

/// A line, with the two readings of `CLOCK_MONOTONIC` between which it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowedLine {
    pub candidate: usize,
    pub text: String,
    /// A reading at which it was not written yet, in nanoseconds.
    pub not_before: u64,
    /// A reading at which it was written.
    pub by: u64,
}

/// Sends the lines that are written from now on, until the receiver is dropped. The error says why it ended before.
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
    let length = file.seek(SeekFrom::End(0)).await.map_err(failed)?;
    // from its last byte, after which the first whole line begins
    let mut at = length.saturating_sub(1);
    file.seek(SeekFrom::Start(at)).await.map_err(failed)?;
    let mut is_cut = length > 0;
    let mut part = Vec::new();
    let mut not_before = monotonic_ns();
    let mut part_not_before = not_before;
    while !lines.is_closed() {
        let before = monotonic_ns();
        // read first: a program that writes to another file of this name has left this one, which is then read to its end
        let named = tokio::fs::metadata(&path).await;
        at += file.read_to_end(&mut part).await.map_err(failed)? as u64;
        let by = monotonic_ns();
        while let Some(end) = part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = part.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            let followed = FollowedLine {
                candidate,
                text,
                not_before: part_not_before,
                by,
            };
            if !std::mem::take(&mut is_cut) {
                let _ = lines.send(followed);
            }
            part_not_before = not_before;
        }
        not_before = before;
        // an incomplete line may be about an event before its first part was written
        if part.is_empty() {
            part_not_before = before;
        }
        let open = file.metadata().await.map_err(failed)?;
        let is_other =
            named.is_ok_and(|named| named.len() > 0 && (named.dev(), named.ino()) != (open.dev(), open.ino()));
        if (is_other || open.len() < at)
            && let Ok(next) = File::open(&path).await
        {
            file = next;
            at = 0;
            part.clear();
            is_cut = false;
            // its content may have been written elsewhere, and long ago
            not_before = 0;
            part_not_before = 0;
        }
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
    let failed = |error: std::io::Error| format!("`{line}`: {error}");
    let error = clock_error.as_nanos() as u64;
    let mut newest = 0;
    let (mut is_undated, mut has_ended) = (false, false);
    while !lines.is_closed() {
        let mut command = Command::new("sh");
        command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = process::spawn(command).await.map_err(failed)?;
        let mut output = BufReader::new(child.stdout.take().expect("its output is piped")).split(b'\n');
        while let Some(text) = output.next_segment().await.map_err(failed)? {
            let text = String::from_utf8_lossy(&text).trim_end().to_owned();
            let Some([earliest, latest]) = written_at(&text) else {
                if !std::mem::replace(&mut is_undated, true) {
                    eprintln!("warning: `{line}` printed a line that does not begin with a time of RFC 3339: {text:?}");
                    eprintln!("hint: kubectl logs --timestamps");
                }
                continue;
            };
            if earliest > monotonic_ns() + error {
                return Err(format!(
                    "`{line}` printed a time that is yet to come, so its clock is wrong by more than --clock-error: {text:?}"
                ));
            }
            // printed by an earlier start of the command
            if latest + error < newest {
                continue;
            }
            newest = newest.max(earliest);
            let followed = FollowedLine {
                candidate,
                text,
                not_before: earliest.saturating_sub(error),
                by: latest + error,
            };
            let _ = lines.send(followed);
        }
        // a container that was started again has a new log
        if !std::mem::replace(&mut has_ended, true) {
            eprintln!("warning: `{line}` has ended, and is started again whenever it ends");
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// Returns the two readings of `CLOCK_MONOTONIC` between which the time at the beginning of a line was: they differ by the time that
/// harness takes to read both clocks, in which it may be stopped.
fn written_at(text: &str) -> Option<[u64; 2]> {
    let written = OffsetDateTime::parse(text.split_whitespace().next()?, &Rfc3339).ok()?;
    let before = monotonic_ns();
    let ago = (OffsetDateTime::now_utc() - written).whole_nanoseconds();
    let readings = [before, monotonic_ns()];
    Some(readings.map(|reading| (i128::from(reading) - ago).clamp(0, u64::MAX.into()) as u64))
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;
    use std::path::Path;

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
    use tokio::time::timeout;

    use super::*;

    fn write(path: &Path, text: &str) {
        let file = OpenOptions::new().append(true).create(true).open(path);
        file.unwrap().write_all(text.as_bytes()).unwrap();
    }

    /// Follows a file from its first line that was read.
    async fn followed(path: &Path) -> UnboundedReceiver<FollowedLine> {
        let (sender, mut lines) = unbounded_channel();
        tokio::spawn(follow(0, LogSource::File(path.to_owned()), Duration::ZERO, sender));
        loop {
            write(path, "begin\n");
            if let Ok(line) = timeout(5 * POLL, lines.recv()).await {
                assert_eq!(line.unwrap().text, "begin");
                return lines;
            }
        }
    }

    async fn next(lines: &mut UnboundedReceiver<FollowedLine>) -> FollowedLine {
        loop {
            let line = lines.recv().await.unwrap();
            if line.text != "begin" {
                return line;
            }
        }
    }

    #[tokio::test]
    async fn a_file_is_read_to_its_end_before_the_one_that_takes_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let (log, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
        write(&log, "the rest of this line is cut: ");
        let mut lines = followed(&log).await;
        std::fs::rename(&log, &rotated).unwrap();
        write(&rotated, "old\n");
        write(&log, "new\n");
        assert_eq!(next(&mut lines).await.text, "old");
        let new = next(&mut lines).await;
        assert_eq!((new.text.as_str(), new.not_before), ("new", 0));
    }

    #[tokio::test]
    async fn a_line_may_be_as_old_as_its_first_part() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let mut lines = followed(&log).await;
        write(&log, "lost ");
        tokio::time::sleep(5 * POLL).await;
        let between = monotonic_ns();
        tokio::time::sleep(5 * POLL).await;
        write(&log, "lease\n");
        let line = next(&mut lines).await;
        assert_eq!(line.text, "lost lease");
        assert!(line.not_before < between && between < line.by);
    }

    fn ago(seconds: i64) -> String {
        let at = OffsetDateTime::now_utc() - time::Duration::seconds(seconds);
        at.format(&Rfc3339).unwrap()
    }

    #[tokio::test]
    async fn a_command_that_prints_its_lines_again_says_nothing_new() {
        let (sender, mut lines) = unbounded_channel();
        let command = format!("echo '{} one'; echo no time; echo '{} two'", ago(10), ago(5));
        let error = Duration::from_millis(500);
        let following = tokio::spawn(async move { follow(0, LogSource::Command(command), error, sender).await });
        for word in ["one", "two", "two"] {
            assert!(lines.recv().await.unwrap().text.ends_with(word), "{word}");
        }
        following.abort();
    }

    #[tokio::test]
    async fn a_command_has_the_mark_of_harness_and_what_it_leaves_is_found() {
        let (sender, mut lines) = unbounded_channel();
        let command = LogSource::Command(format!("echo \"{} $OWNED_BY_HARNESS\"", ago(1)));
        let following = tokio::spawn(follow(0, command, Duration::from_secs(1), sender));
        let line = lines.recv().await.unwrap();
        following.abort();
        assert!(line.text.ends_with(&process::Identity::own().label()), "{}", line.text);
    }

    #[tokio::test]
    async fn a_command_whose_clock_is_ahead_is_refused() {
        for ahead in [ago(-60), "9999-12-31T23:59:59Z".to_owned()] {
            let (sender, _lines) = unbounded_channel();
            let command = LogSource::Command(format!("echo '{ahead} one'"));
            let refused = follow(0, command, Duration::from_secs(1), sender).await.unwrap_err();
            assert!(refused.contains("--clock-error"), "{refused}");
        }
    }
}
