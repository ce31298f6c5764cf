//! The recorder: one clock, one writer, and a history that reaches the disk as it grows.
//!
//! A line is stamped and numbered under one lock, so the order of the file is the order of the stamps. A dedicated thread
//! writes to disk. Recording blocks only when more than [`RECORDER_BUFFER`] bytes are queued.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use harness_checkers::history::NemesisFact;
use harness_checkers::history::event::{Fields, Header, Kind, Line, Process};
use serde_json::{Map, Value};

use super::clock::RunClock;
/// Bytes of history that may wait for the disk before recording blocks.
const RECORDER_BUFFER: usize = 64 << 20;
/// The history reaches the disk at least this often, so that a killed run leaves a history.
const RECORDER_FLUSH: Duration = Duration::from_millis(20);
/// How often a run asks whether the disk still takes its history.
const FAILURE_LOOK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct RecorderBuffer {
    bytes: Vec<u8>,
    lines: u64,
    closed: bool,
    failed: Option<io::Error>,
}

struct RecorderState {
    buffer: Mutex<RecorderBuffer>,
    /// Notified when bytes were taken from the buffer, and when the recorder closes.
    moved: Condvar,
}

/// Writes the history of one run. Clones write to the same one.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<RecorderState>,
    clock: RunClock,
}

/// The writer's end: closing it puts everything on disk.
pub struct RecorderCloser {
    shared: Arc<RecorderState>,
    thread: Option<JoinHandle<()>>,
}

/// Starts a history at `path` with its header as line 1.
pub fn start(path: &Path, header: &Header, clock: RunClock) -> io::Result<(Recorder, RecorderCloser)> {
    record_to(File::create(path)?, header, clock)
}

/// Starts a history on any sink.
fn record_to(
    sink: impl Write + Send + 'static,
    header: &Header,
    clock: RunClock,
) -> io::Result<(Recorder, RecorderCloser)> {
    let mut bytes = serde_json::to_vec(header)?;
    bytes.push(b'\n');
    let shared = Arc::new(RecorderState {
        buffer: Mutex::new(RecorderBuffer {
            bytes,
            ..RecorderBuffer::default()
        }),
        moved: Condvar::new(),
    });
    let writing = Arc::clone(&shared);
    let thread = std::thread::Builder::new()
        .name("recorder".into())
        .spawn(move || write(&writing, sink))?;
    let closer = RecorderCloser {
        shared: Arc::clone(&shared),
        thread: Some(thread),
    };
    Ok((Recorder { shared, clock }, closer))
}

impl RecorderState {
    fn lock(&self) -> MutexGuard<'_, RecorderBuffer> {
        self.buffer.lock().expect("no one panics while recording a line")
    }
}

fn write(shared: &RecorderState, mut sink: impl Write) {
    let mut taken = Vec::new();
    loop {
        let mut buffer = shared.lock();
        if buffer.bytes.is_empty() && !buffer.closed {
            buffer = shared
                .moved
                .wait_timeout(buffer, RECORDER_FLUSH)
                .expect("no one panics while recording a line")
                .0;
        }
        std::mem::swap(&mut taken, &mut buffer.bytes);
        let closed = buffer.closed;
        drop(buffer);
        shared.moved.notify_all();
        if let Err(error) = sink.write_all(&taken) {
            // nothing more is kept: threads that wait for room must go on, and the run ends
            let mut buffer = shared.lock();
            buffer.failed.get_or_insert(error);
            buffer.bytes = Vec::new();
            drop(buffer);
            shared.moved.notify_all();
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

impl Recorder {
    /// Records an operation's call or reply, stamped now. Returns its time.
    pub fn operation(&self, process: u32, client: u32, kind: Kind, f: &str, fields: Fields<'_>) -> u64 {
        self.line(
            Process::Client(process),
            Some(client),
            kind,
            f,
            fields,
            Map::new(),
            None,
        )
    }

    /// Records a signal; `at` is a reading of `CLOCK_MONOTONIC` by the process that raised it.
    pub fn signal(&self, process: Process, client: Option<u32>, f: &str, fields: Fields<'_>, at: Option<u64>) -> u64 {
        self.line(process, client, Kind::Signal, f, fields, Map::new(), at)
    }

    /// Records a fact of the nemesis: a phase, what a window did, what happened to the servers.
    pub fn nemesis(&self, fact: &NemesisFact) -> u64 {
        let (fields, extra) = (Fields::default(), fact.fields());
        self.line(Process::Nemesis, None, Kind::Info, fact.f(), fields, extra, None)
    }

    /// The clock with which lines are stamped.
    pub fn clock(&self) -> RunClock {
        self.clock
    }

    /// Waits until the disk takes no more; returns why.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(error) = &self.shared.lock().failed {
                return error.to_string();
            }
            self.clock.sleep(FAILURE_LOOK).await;
        }
    }

    /// The time in the history of a reading of `CLOCK_MONOTONIC`.
    pub fn time_of(&self, reading: u64) -> u64 {
        self.clock.stamp_of(reading)
    }

    #[expect(clippy::too_many_arguments, reason = "the columns of a line")]
    fn line(
        &self,
        process: Process,
        client: Option<u32>,
        kind: Kind,
        f: &str,
        fields: Fields<'_>,
        extra: Map<String, Value>,
        at: Option<u64>,
    ) -> u64 {
        let mut buffer = self.shared.lock();
        while buffer.bytes.len() > RECORDER_BUFFER && buffer.failed.is_none() {
            buffer = self
                .shared
                .moved
                .wait(buffer)
                .expect("no one panics while recording a line");
        }
        if buffer.failed.is_some() {
            return self.clock.stamp();
        }
        buffer.lines += 1;
        let now = self.clock.stamp();
        let time = at.map_or(now, |at| self.clock.stamp_of(at).min(now));
        let line = Line {
            index: buffer.lines,
            time,
            process,
            client,
            kind,
            f,
            fields,
            extra,
        };
        serde_json::to_writer(&mut buffer.bytes, &line).expect("a line is plain data");
        buffer.bytes.push(b'\n');
        time
    }
}

impl RecorderCloser {
    /// Puts everything that was recorded on disk. The error is the first one that the disk gave.
    pub fn close(mut self) -> io::Result<()> {
        self.finish();
        match self.shared.lock().failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn finish(&mut self) {
        self.shared.lock().closed = true;
        self.shared.moved.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RecorderCloser {
    fn drop(&mut self) {
        self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{GroundClock, monotonic_ns};

    fn header() -> Header {
        serde_json::from_str(r#"{"format":"harness-history","version":1}"#).unwrap()
    }

    #[test]
    fn lines_of_all_writers_are_numbered_in_the_order_of_their_stamps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let (recorder, closer) = start(&path, &header(), RunClock::start(GroundClock::Real)).unwrap();
        std::thread::scope(|scope| {
            for process in 0..4 {
                let recorder = recorder.clone();
                scope.spawn(move || {
                    for _ in 0..500 {
                        recorder.operation(process, process, Kind::Invoke, "acquire", Fields::default());
                    }
                });
            }
        });
        closer.close().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .skip(1)
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2000);
        for (position, line) in lines.iter().enumerate() {
            assert_eq!(line["index"], position as u64 + 1);
        }
        let times: Vec<u64> = lines.iter().map(|line| line["time"].as_u64().unwrap()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn a_signal_keeps_the_reading_of_the_clock_that_it_came_with() {
        let folder = tempfile::tempdir().unwrap();
        let (recorder, _closer) =
            start(&folder.path().join("h"), &header(), RunClock::start(GroundClock::Real)).unwrap();
        let raised = monotonic_ns();
        let between = recorder.operation(1, 1, Kind::Invoke, "release", Fields::default());
        let time = recorder.signal(Process::Client(1), Some(1), "lost", Fields::default(), Some(raised));
        assert!(time <= between);
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_shorter_history() {
        let (recorder, closer) = start(Path::new("/dev/full"), &header(), RunClock::start(GroundClock::Real)).unwrap();
        recorder.operation(1, 1, Kind::Invoke, "acquire", Fields::default());
        let error = closer.close().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
