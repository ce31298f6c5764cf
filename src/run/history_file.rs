//! The file of a history as it grows: lines wait in a buffer, and a dedicated thread writes them.
//!
//! Adding a line blocks only when more than [`RECORDER_BUFFER`] bytes are queued.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use harness_checkers::history::event::{Header, Line};

use crate::process::not_started;

/// Bytes of history that may wait for the disk before recording blocks.
const RECORDER_BUFFER: usize = 64 << 20;
/// The most time until the history reaches the disk, so that a killed run leaves a history.
const RECORDER_FLUSH: Duration = Duration::from_millis(20);

#[derive(Default)]
struct RecorderBuffer {
    bytes: Vec<u8>,
    lines: u64,
    closed: bool,
    failed: Option<io::Error>,
    /// The longest wait of a line, for other lines or for the disk.
    longest_wait: Duration,
}

impl RecorderBuffer {
    fn has_room(&self) -> bool {
        self.bytes.len() <= RECORDER_BUFFER || self.failed.is_some()
    }
}

/// The file of a history that grows.
pub struct HistoryFile {
    buffer: Mutex<RecorderBuffer>,
    /// Notified when bytes were taken from the buffer, and when the recorder closes.
    moved: Condvar,
}

/// The writer's end: closing it writes all lines to disk.
pub struct HistoryFileCloser {
    file: Arc<HistoryFile>,
    thread: Option<JoinHandle<()>>,
}

impl HistoryFile {
    /// Starts a history on any sink, with its header as line 1.
    pub fn start(sink: impl Write + Send + 'static, header: &Header) -> io::Result<(Arc<Self>, HistoryFileCloser)> {
        let mut bytes = serde_json::to_vec(header)?;
        bytes.push(b'\n');
        let file = Arc::new(Self {
            buffer: Mutex::new(RecorderBuffer {
                bytes,
                ..RecorderBuffer::default()
            }),
            moved: Condvar::new(),
        });
        let writing = Arc::clone(&file);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || write(&writing, sink))
            .map_err(not_started)?;
        let closer = HistoryFileCloser {
            file: Arc::clone(&file),
            thread: Some(thread),
        };
        Ok((file, closer))
    }

    fn lock(&self) -> MutexGuard<'_, RecorderBuffer> {
        self.buffer.lock().expect("no one panics while recording a line")
    }

    /// Adds the line that `line` makes of its number and of the time, which is read while no other line can be added. Adds
    /// nothing after the disk failed.
    pub fn add<'a>(&self, stamp: impl FnOnce() -> u64, line: impl FnOnce(u64, u64) -> Line<'a>) -> u64 {
        let free = self.buffer.try_lock().ok().filter(|buffer| buffer.has_room());
        let mut buffer = free.unwrap_or_else(|| self.wait_for_room());
        let time = stamp();
        if buffer.failed.is_some() {
            return time;
        }
        buffer.lines += 1;
        let line = line(buffer.lines, time);
        serde_json::to_writer(&mut buffer.bytes, &line).expect("a line is plain data");
        buffer.bytes.push(b'\n');
        time
    }

    fn wait_for_room(&self) -> MutexGuard<'_, RecorderBuffer> {
        let asked = Instant::now();
        let buffer = self.lock();
        let waited = self.moved.wait_while(buffer, |buffer| !buffer.has_room());
        let mut buffer = waited.expect("no one panics while recording a line");
        buffer.longest_wait = buffer.longest_wait.max(asked.elapsed());
        buffer
    }

    /// Returns the longest wait of a line for its time.
    pub fn longest_wait(&self) -> Duration {
        self.lock().longest_wait
    }

    /// Returns the error of the disk, if it failed.
    pub fn failure(&self) -> Option<String> {
        self.lock().failed.as_ref().map(ToString::to_string)
    }
}

fn write(file: &HistoryFile, mut sink: impl Write) {
    let mut taken = Vec::new();
    loop {
        let mut buffer = file.lock();
        if buffer.bytes.is_empty() && !buffer.closed {
            let waited = file.moved.wait_timeout(buffer, RECORDER_FLUSH);
            buffer = waited.expect("no one panics while recording a line").0;
        }
        std::mem::swap(&mut taken, &mut buffer.bytes);
        let closed = buffer.closed;
        drop(buffer);
        file.moved.notify_all();
        if let Err(error) = sink.write_all(&taken) {
            // later lines are dropped: threads that wait for room must continue, and the run ends
            let mut buffer = file.lock();
            buffer.failed.get_or_insert(error);
            buffer.bytes = Vec::new();
            drop(buffer);
            file.moved.notify_all();
            return;
        }
        let idle = taken.is_empty();
        taken.clear();
        if closed && idle {
            return;
        }
        if !closed {
            std::thread::sleep(RECORDER_FLUSH);
        }
    }
}

impl HistoryFileCloser {
    /// Writes all lines to disk. The error is the first one of the disk.
    pub fn close(mut self) -> io::Result<()> {
        self.finish();
        self.file.lock().failed.take().map_or(Ok(()), Err)
    }

    fn finish(&mut self) {
        self.file.lock().closed = true;
        self.file.moved.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for HistoryFileCloser {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use harness_checkers::history::event::{Fields, Kind, Process};

    use super::*;

    #[test]
    fn the_wait_of_a_line_for_the_recorder_is_known() {
        let header = serde_json::from_str(r#"{"format":"harness-history","version":1}"#).unwrap();
        let (file, _closer) = HistoryFile::start(io::sink(), &header).unwrap();
        assert_eq!(file.longest_wait(), Duration::ZERO);
        let line = |index, time| Line {
            index,
            time,
            process: Process::Nemesis,
            client: None,
            kind: Kind::Info,
            f: "note",
            fields: Fields::default(),
            extra: serde_json::Map::new(),
        };
        // the other thread may come after the end of this wait
        for tries in 1.. {
            assert!(tries < 100, "no line waited");
            let adding = std::thread::scope(|scope| {
                let held = file.lock();
                let adding = scope.spawn(|| file.add(|| 0, line));
                std::thread::sleep(Duration::from_millis(5));
                drop(held);
                adding.join()
            });
            adding.unwrap();
            if file.longest_wait() > Duration::ZERO {
                break;
            }
        }
    }
}
