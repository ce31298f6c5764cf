//! The recorder: one clock, one writer, and a history that reaches the disk as it grows, or is kept in memory.
//!
//! A line gets its time and its number under one lock, so the order of the history is the order of the times.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_checkers::history::event::{Fields, Header, Kind, Line, Process};
use harness_checkers::history::{Entry, F, NemesisFact};
use harness_checkers::{FormError, History, HistoryBuilder, Violation};

use super::clock::RunClock;
use super::history_file::{HistoryFile, HistoryFileCloser};
use super::locked::locked;
use super::online_check::OnlineCheck;

/// The time between two checks whether the disk still accepts the history.
const FAILURE_LOOK: Duration = Duration::from_millis(100);
/// The initial capacity of a history in memory, in lines: simulated experiments of a hunt have fewer.
const LINES: usize = 2_048;

/// The destination of a history.
enum RecorderSink {
    File(Arc<HistoryFile>),
    Memory(RecorderMemory),
}

/// Called with the number of each line, when it is recorded.
pub type OnLine = Arc<dyn Fn(u64) + Send + Sync>;

pub type RecorderMemory = Arc<Mutex<HistoryInMemory>>;

/// A history in memory alone.
pub struct HistoryInMemory {
    /// `None` after the end of the run.
    builder: Option<HistoryBuilder>,
    lines: u64,
    /// The error of the first line that could not be added.
    ill_formed: Option<FormError>,
}

/// Writes the history of one run.
pub struct Recorder {
    sink: RecorderSink,
    /// The clock of the lines.
    pub clock: RunClock,
    /// The check of every line, if the run has an online check.
    pub check: Option<OnlineCheck>,
    pub on_line: Option<OnLine>,
}

/// The columns of every line.
struct LineHead<'a> {
    process: Process,
    client: Option<u32>,
    kind: Kind,
    f: &'a str,
}

impl LineHead<'_> {
    /// Returns the event of the line without a fact: most lines of a history in memory are never more than that.
    fn entry<'a>(&self, index: u64, time: u64, fields: &Fields<'a>) -> Entry<'a> {
        let f = F::parse(self.f).unwrap_or(F::Nemesis);
        let event = Entry {
            client: self.client,
            ..Entry::new(index, time, self.process, self.kind, f)
        };
        event.with_fields(fields)
    }
}

/// The end of the history of one run.
pub enum RecorderCloser {
    File(HistoryFileCloser),
    Memory(RecorderMemory),
}

/// Starts a history with its header as line 1: at `path`, or in memory without one.
pub fn start(path: Option<&Path>, header: &Header, clock: RunClock) -> io::Result<(Recorder, RecorderCloser)> {
    let (sink, closer) = match path {
        Some(path) => {
            let started = HistoryFile::start(File::create(path)?, header);
            // a file without a header is no history
            let (file, closer) = started.inspect_err(|_| drop(std::fs::remove_file(path)))?;
            (RecorderSink::File(file), RecorderCloser::File(closer))
        }
        None => {
            let history = Arc::new(Mutex::new(HistoryInMemory {
                builder: Some(HistoryBuilder::with_capacity(header.clone(), LINES)),
                lines: 0,
                ill_formed: None,
            }));
            (RecorderSink::Memory(history.clone()), RecorderCloser::Memory(history))
        }
    };
    let recorder = Recorder {
        sink,
        clock,
        check: None,
        on_line: None,
    };
    Ok((recorder, closer))
}

impl Recorder {
    /// Returns the first violation of the online check, if there is a check.
    pub fn violation(&self) -> Option<Violation> {
        self.check.as_ref()?.first()
    }

    /// Records an operation's call or reply at the current time. Returns that time.
    pub fn operation(&self, process: u32, client: u32, kind: Kind, f: &str, fields: &Fields<'_>) -> u64 {
        let process = Process::Client(process);
        let head = LineHead {
            process,
            client: Some(client),
            kind,
            f,
        };
        self.line(head, fields, None, None)
    }

    /// Records a signal; `at` is a reading of `CLOCK_MONOTONIC` by the process that raised it.
    pub fn signal(&self, process: Process, client: Option<u32>, f: &str, fields: Fields<'_>, at: Option<u64>) -> u64 {
        let head = LineHead {
            process,
            client,
            kind: Kind::Signal,
            f,
        };
        self.line(head, &fields, None, at)
    }

    /// Records a fact of the nemesis: a phase, the effect of a window, an event of the servers.
    pub fn nemesis(&self, fact: &NemesisFact) -> u64 {
        let head = LineHead {
            process: Process::Nemesis,
            client: None,
            kind: Kind::Info,
            f: fact.f(),
        };
        self.line(head, &Fields::default(), Some(fact), None)
    }

    /// Waits until the disk fails; returns the reason. In virtual time the close of the history shows that, since the disk must
    /// not affect a world.
    pub async fn failed(&self) -> String {
        let file = match &self.sink {
            RecorderSink::File(file) if !self.clock.by.is_virtual() => file,
            _ => return std::future::pending().await,
        };
        loop {
            if let Some(error) = file.failure() {
                return error;
            }
            self.clock.sleep(FAILURE_LOOK).await;
        }
    }

    /// Returns the longest wait of a line for the recorder. In virtual time none waits.
    pub fn longest_wait(&self) -> Duration {
        match &self.sink {
            RecorderSink::File(file) if !self.clock.by.is_virtual() => file.longest_wait(),
            _ => Duration::ZERO,
        }
    }

    fn line(&self, head: LineHead<'_>, fields: &Fields<'_>, fact: Option<&NemesisFact>, at: Option<u64>) -> u64 {
        let stamp = || {
            let now = self.clock.stamp();
            at.map_or(now, |at| self.clock.stamp_of(at).min(now))
        };
        let line = |index, time| {
            let line = Line {
                index,
                time,
                process: head.process,
                client: head.client,
                kind: head.kind,
                f: head.f,
                fields: fields.clone(),
                extra: fact.map(NemesisFact::fields).unwrap_or_default(),
            };
            if let Some(check) = &self.check {
                check.see(&line);
            }
            if let Some(on_line) = &self.on_line {
                on_line(index);
            }
            line
        };
        let is_told = self.check.is_some() || self.on_line.is_some();
        match &self.sink {
            RecorderSink::File(file) => file.add(stamp, line),
            RecorderSink::Memory(history) if fact.is_none() && !is_told => locked(history)
                .add(stamp(), |builder, index, time| {
                    builder.push(&head.entry(index, time, fields))
                }),
            RecorderSink::Memory(history) => locked(history).add(stamp(), |builder, index, time| match fact {
                Some(fact) => builder.push_fact(&line(index, time), fact),
                None => builder.push_line(&line(index, time)),
            }),
        }
    }
}

impl HistoryInMemory {
    /// Adds the next line, with this time.
    fn add(&mut self, time: u64, push: impl FnOnce(&mut HistoryBuilder, u64, u64) -> Result<(), FormError>) -> u64 {
        self.lines += 1;
        if let Some(builder) = &mut self.builder
            && let Err(error) = push(builder, self.lines, time)
        {
            self.ill_formed.get_or_insert(error);
        }
        time
    }
}

impl RecorderCloser {
    /// Writes all lines to disk, or returns those in memory. The error is the first one of the disk, or that of a line that is
    /// not well formed, which is a bug.
    pub fn close(self) -> io::Result<Option<History>> {
        let history = match self {
            Self::File(closer) => return closer.close().map(|()| None),
            Self::Memory(history) => history,
        };
        let mut history = locked(&history);
        match history.ill_formed.take() {
            Some(error) => Err(io::Error::other(error)),
            None => Ok(history.builder.take().map(HistoryBuilder::finish)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::clock::{GroundClock, monotonic_ns};

    fn started(path: &Path) -> (Recorder, RecorderCloser) {
        let header = serde_json::from_str(r#"{"format":"harness-history","version":1}"#).unwrap();
        start(Some(path), &header, RunClock::start(GroundClock::Real)).unwrap()
    }

    #[test]
    fn lines_of_all_writers_are_numbered_in_the_order_of_their_stamps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("history.jsonl");
        let (recorder, closer) = started(&path);
        std::thread::scope(|scope| {
            for process in 0..4 {
                let recorder = &recorder;
                scope.spawn(move || {
                    for _ in 0..500 {
                        recorder.operation(process, process, Kind::Invoke, "acquire", &Fields::default());
                    }
                });
            }
        });
        closer.close().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines = text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
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
        let (recorder, _closer) = started(&folder.path().join("h"));
        let raised = monotonic_ns();
        let between = recorder.operation(1, 1, Kind::Invoke, "release", &Fields::default());
        let time = recorder.signal(Process::Client(1), Some(1), "lost", Fields::default(), Some(raised));
        assert!(time <= between);
    }

    #[test]
    fn a_full_disk_is_an_error_and_not_a_shorter_history() {
        let (recorder, closer) = started(Path::new("/dev/full"));
        recorder.operation(1, 1, Kind::Invoke, "acquire", &Fields::default());
        let error = closer.close().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
