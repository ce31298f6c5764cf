//! A child process with lock clients in it: requests in, replies and signals out, one line of JSON each.
//!
//! Output of a child is not trusted: a line that is not of the protocol, a reply without a request, or a line without end is an
//! error that names the client and the line, and the child is not read any more.

use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::protocol::{self, ClientOp, Message, Request};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::access::ClientAccess;
use super::pending::PendingRequests;
use crate::clock::monotonic_ns;
use crate::process::{self, Activity, EndDoubt};
use crate::run::locked::locked;
use crate::wall_clock::{WallClock, WallClockControl};

/// Time for a client to close its session before it is killed.
pub const CLIENT_CLOSE: Duration = Duration::from_secs(2);
/// Longest line that a client may print, in bytes. No message is longer, and a faulty client must not fill the memory.
const CLIENT_LINE: usize = 64 << 10;
/// Characters of a client's offending line that an error repeats.
const QUOTED_LINE: usize = 120;
/// Lines of a client's stderr that an error repeats.
const QUOTED_LINES: usize = 5;

/// The reason for which a child cannot be used (any more).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    #[error("could not start `{command}`: {why}")]
    Spawn { command: String, why: String },
    #[error("{who} printed a line that is not of the client protocol: `{line}` ({why})")]
    Garbage { who: String, line: String, why: String },
    #[error("{who} answered a request twice, or one that was not sent: `{line}`")]
    Unasked { who: String, line: String },
    #[error("{who} printed more than {} KiB without an end of line", CLIENT_LINE >> 10)]
    Endless { who: String },
    #[error("{who} ended ({how}){}", said.as_deref().unwrap_or_default())]
    Ended {
        who: String,
        how: String,
        /// Its last lines on stderr; see [`last_words`].
        said: Option<String>,
    },
}

impl ChildError {
    /// Whether the child broke the protocol, in contrast to its end.
    pub fn breaks_protocol(&self) -> bool {
        !matches!(self, Self::Ended { .. })
    }
}

/// A message of a child without a request.
#[derive(Debug)]
pub enum ChildEvent {
    Signal(protocol::LockSignal),
    /// The child ended, or broke the protocol. `at` (`CLOCK_MONOTONIC`) is the last time at which it was known to live, or the
    /// time at which its wrong line was read. Pending requests fail after this event.
    Over {
        error: ChildError,
        at: u64,
    },
}

/// A process with lock clients in it, from its start to its end.
#[async_trait]
pub trait ClientChild: Send + Sync {
    /// Sends a client's request and waits for its reply. Returns `None` if the child ended or broke the protocol before.
    async fn ask(&self, client: u32, op: ClientOp) -> Option<Message>;

    /// Sends a line that `words` makes of a request's id, and waits for the reply. The child of a model reads no lines.
    async fn ask_in_words(&self, _words: WordsOfRequest) -> Option<Message> {
        None
    }

    /// Sends a line as it is. Returns `None` if the child reads no more.
    async fn write_line(&self, _line: Vec<u8>) -> Option<()> {
        None
    }

    /// Ends the child's input.
    async fn close_input(&self) {}

    /// Ends the child's input, and waits a while for its end; then kills it.
    async fn end(&self);

    /// Kills the child at once, with all processes that it started. Returns whether there was a child to kill.
    fn kill(&self) -> bool;

    /// Stops the child until as many calls of [`ClientChild::go_on`]. Returns whether there is a child to stop.
    fn stop(&self) -> bool;

    fn go_on(&self);

    /// Returns the child's activity. `Running` and `Stopped` prove that it lived at the call.
    fn activity(&self) -> Activity;

    /// Returns the last time at which it was known to live, by `CLOCK_MONOTONIC`; `None` if its end is always reported.
    fn alive_at(&self) -> Option<u64> {
        None
    }
}

/// Returns the line of a client's request.
pub fn request_words(client: u32, op: ClientOp) -> WordsOfRequest {
    Box::new(move |id| serde_json::to_vec(&Request { id, client, op }).expect("a request is plain data"))
}

/// Returns the name in errors of the process with this first client.
pub fn process_name(first: u32) -> String {
    format!("client c{first}")
}

/// Starts the processes of clients.
#[async_trait]
pub trait ClientSpawner: Send + Sync {
    /// Starts the process that hosts this client, and those after it. None of them is open. Its stderr goes to `log`.
    async fn start(&self, first: u32, log: &Path, on_event: OnChildEvent) -> Result<Arc<dyn ClientChild>, ChildError>;

    /// Returns the wall clock of the process with this first client, if the plan steps clocks.
    fn wall_clock(&self, first: u32) -> Option<Arc<dyn WallClockControl>>;
}

/// Makes the line of a request from its id.
pub type WordsOfRequest = Box<dyn FnOnce(u64) -> Vec<u8> + Send>;

/// Called with each event as it is read, in the order in which the child printed them. It must not block.
pub type OnChildEvent = Arc<dyn Fn(ChildEvent) + Send + Sync>;

/// A running child. Dropping it kills it.
pub struct ChildProcess {
    stdin: AsyncMutex<Option<ChildStdin>>,
    pending: PendingRequests,
    next_id: AtomicU64,
    process: Mutex<Option<Child>>,
    /// The number of faults that stop it now.
    stops: Mutex<u32>,
    group: Pid,
    /// The last time at which it was known to live, by `CLOCK_MONOTONIC`.
    alive_at: AtomicU64,
    doubt: EndDoubt,
}

/// The command of a child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildCommand {
    pub program: String,
    pub args: Vec<String>,
    /// Variables in addition to the environment of harness.
    pub env: Vec<(String, String)>,
    pub access: ClientAccess,
}

impl ChildCommand {
    /// Returns the command for a line of the shell.
    pub fn of_shell(line: String, access: ClientAccess) -> Self {
        Self {
            program: "sh".into(),
            args: vec!["-c".into(), line],
            env: Vec::new(),
            access,
        }
    }

    /// Returns the command itself, with pipes for requests and replies. The child's stderr goes to `log`.
    pub fn command(&self, log: &Path) -> Result<Command, ChildError> {
        let errors = File::options().create(true).append(true).open(log);
        let errors = errors.map_err(|error| self.failed(&error))?;
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        self.access.set_variables(&mut command);
        Ok(command)
    }

    /// Returns the error of a failed start.
    pub fn failed(&self, why: &std::io::Error) -> ChildError {
        ChildError::Spawn {
            command: self.program.clone(),
            why: why.to_string(),
        }
    }
}

/// Starts child processes, all with one command.
pub struct ChildSpawner {
    pub command: ChildCommand,
    /// The wall clock of each client's process; empty if all have the machine's.
    pub clocks: Vec<Arc<WallClock>>,
}

impl ChildSpawner {
    fn clock_of(&self, first: u32) -> Option<&Arc<WallClock>> {
        self.clocks.get(first as usize)
    }
}

#[async_trait]
impl ClientSpawner for ChildSpawner {
    async fn start(&self, first: u32, log: &Path, on_event: OnChildEvent) -> Result<Arc<dyn ClientChild>, ChildError> {
        let mut command = self.command.clone();
        if let Some(clock) = self.clock_of(first) {
            command.env.extend(clock.environment(clock.folder()));
        }
        let child = ChildProcess::start(&command, process_name(first), log, on_event).await?;
        Ok(child as Arc<dyn ClientChild>)
    }

    fn wall_clock(&self, first: u32) -> Option<Arc<dyn WallClockControl>> {
        let clock = Arc::clone(self.clock_of(first)?);
        Some(clock)
    }
}

#[async_trait]
impl ClientChild for ChildProcess {
    async fn ask(&self, client: u32, op: ClientOp) -> Option<Message> {
        self.ask_in_words(request_words(client, op)).await
    }

    async fn ask_in_words(&self, words: WordsOfRequest) -> Option<Message> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let reply = self.pending.add(id)?;
        if self.write_line(words(id)).await.is_none() {
            self.pending.take(id);
            return None;
        }
        reply.await.ok()
    }

    async fn write_line(&self, mut line: Vec<u8>) -> Option<()> {
        line.push(b'\n');
        self.stdin.lock().await.as_mut()?.write_all(&line).await.ok()
    }

    async fn close_input(&self) {
        self.stdin.lock().await.take();
    }

    async fn end(&self) {
        self.close_input().await;
        let process = locked(&self.process).take();
        if let Some(mut process) = process {
            let _ = timeout(CLIENT_CLOSE, process.wait()).await;
        }
        self.kill();
    }

    fn kill(&self) -> bool {
        // records the last time at which it lived, before the kill
        self.activity();
        let there = self.signal(Signal::SIGKILL);
        // it leads a group, which may outlive it
        let _ = killpg(self.group, Signal::SIGKILL);
        there
    }

    fn stop(&self) -> bool {
        let mut stops = locked(&self.stops);
        if *stops == 0 && !self.signal(Signal::SIGSTOP) {
            return false;
        }
        *stops += 1;
        true
    }

    fn go_on(&self) {
        let mut stops = locked(&self.stops);
        *stops = stops.saturating_sub(1);
        if *stops == 0 {
            self.signal(Signal::SIGCONT);
        }
    }

    fn activity(&self) -> Activity {
        let now = monotonic_ns();
        let process = locked(&self.process);
        let id = process.as_ref().and_then(Child::id);
        let activity = self.doubt.judge(id.map_or(Activity::Ending, process::activity), now);
        if matches!(activity, Activity::Running | Activity::Stopped) {
            self.alive_at.fetch_max(now, Relaxed);
        }
        activity
    }

    fn alive_at(&self) -> Option<u64> {
        Some(self.alive_at.load(Relaxed))
    }
}

impl ChildProcess {
    /// Starts a child. `who` names it in errors; its stderr goes to `log`.
    pub async fn start(
        start: &ChildCommand,
        who: String,
        log: &Path,
        on_event: OnChildEvent,
    ) -> Result<Arc<Self>, ChildError> {
        let mut process = process::spawn(start.command(log)?)
            .await
            .map_err(|error| start.failed(&error))?;
        let group = Pid::from_raw(process.id().unwrap_or_default() as i32);
        let stdin = process.stdin.take().expect("stdin is piped");
        let stdout = process.stdout.take().expect("stdout is piped");
        let child = Arc::new(Self {
            stdin: AsyncMutex::new(Some(stdin)),
            pending: PendingRequests::default(),
            next_id: AtomicU64::new(1),
            group,
            process: Mutex::new(Some(process)),
            stops: Mutex::new(0),
            alive_at: AtomicU64::new(monotonic_ns()),
            doubt: EndDoubt::default(),
        });
        let reading = OutputReader {
            who,
            pending: child.pending.clone(),
            on_event,
            log: log.to_owned(),
        };
        tokio::spawn(reading.run(stdout, Arc::downgrade(&child)));
        Ok(child)
    }

    /// Sends a signal to the child and to all that it started. Returns whether it exists.
    fn signal(&self, signal: Signal) -> bool {
        let process = locked(&self.process);
        process.as_ref().is_some_and(|process| process::signal(process, signal))
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Reads the output of a child.
pub struct OutputReader {
    pub who: String,
    pub pending: PendingRequests,
    pub on_event: OnChildEvent,
    pub log: std::path::PathBuf,
}

impl OutputReader {
    async fn run(self, mut stdout: ChildStdout, child: std::sync::Weak<ChildProcess>) {
        let read = self.lines(&mut stdout).await;
        let now = monotonic_ns();
        let (error, at) = match read {
            Err(error) => (error, now),
            Ok(()) => {
                // the pipe closes up to a second after the process executed its last instruction
                let child = child.upgrade();
                let alive_at = child.as_ref().map_or(now, |child| child.alive_at.load(Relaxed));
                (self.ended(child).await, alive_at)
            }
        };
        self.over(error, at);
    }

    /// Reports the end of the output.
    pub fn over(&self, error: ChildError, at: u64) {
        (self.on_event)(ChildEvent::Over { error, at });
        self.pending.end();
    }

    /// Reads until the output ends (`Ok`) or breaks the protocol.
    async fn lines(&self, stdout: &mut ChildStdout) -> Result<(), ChildError> {
        let mut bytes: Vec<u8> = Vec::with_capacity(CLIENT_LINE);
        loop {
            if !matches!(stdout.read_buf(&mut bytes).await, Ok(1..)) {
                return Ok(());
            }
            self.take_lines(&mut bytes)?;
        }
    }

    /// Takes the whole lines out of the bytes that were read.
    pub fn take_lines(&self, bytes: &mut Vec<u8>) -> Result<(), ChildError> {
        let mut taken = 0;
        while let Some(length) = bytes[taken..].iter().position(|byte| *byte == b'\n') {
            self.line(&bytes[taken..taken + length])?;
            taken += length + 1;
        }
        bytes.drain(..taken);
        match bytes.len() > CLIENT_LINE {
            true => Err(ChildError::Endless { who: self.who.clone() }),
            false => Ok(()),
        }
    }

    fn line(&self, line: &[u8]) -> Result<(), ChildError> {
        let message = serde_json::from_slice(line).map_err(|error| ChildError::Garbage {
            who: self.who.clone(),
            line: quote(line),
            why: error.to_string(),
        })?;
        let id = match &message {
            Message::Signal(signal) => {
                (self.on_event)(ChildEvent::Signal(signal.clone()));
                return Ok(());
            }
            Message::Ok { id, .. } | Message::Fail { id, .. } | Message::Info { id, .. } => *id,
        };
        let asked = self.pending.take(id);
        let asked = asked.ok_or_else(|| ChildError::Unasked {
            who: self.who.clone(),
            line: quote(line),
        })?;
        // the requester may have stopped waiting
        let _ = asked.send(message);
        Ok(())
    }

    async fn ended(&self, child: Option<Arc<ChildProcess>>) -> ChildError {
        let process = child.and_then(|child| locked(&child.process).take());
        let how = match process {
            Some(mut process) => match timeout(CLIENT_CLOSE, process.wait()).await {
                Ok(Ok(status)) => status.to_string(),
                _ => "it closed its output".into(),
            },
            None => "by harness".into(),
        };
        self.ended_with(how)
    }

    /// Returns the error of its end, with its last words.
    pub fn ended_with(&self, how: String) -> ChildError {
        ChildError::Ended {
            who: self.who.clone(),
            how,
            said: last_words(&self.log),
        }
    }
}

/// Returns the last lines of a child's stderr for the end of a sentence: `: ` and the line if there is one, otherwise a block.
pub(super) fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read(log).ok()?;
    let lines = text.rsplit(|byte| *byte == b'\n');
    let lines = lines.filter(|line| !line.trim_ascii().is_empty()).take(QUOTED_LINES);
    let mut last: Vec<String> = lines.map(|line| quote(line.trim_ascii_end())).collect();
    last.reverse();
    match last.as_slice() {
        [] => None,
        [line] => Some(format!(": {}", line.trim())),
        lines => Some(format!("; its last lines on stderr:\n    {}", lines.join("\n    "))),
    }
}

/// Shortens a line for an error, and replaces control characters, which could disturb a terminal.
fn quote(line: &[u8]) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    let text: String = String::from_utf8_lossy(line).chars().map(shown).collect();
    match text.char_indices().nth(QUOTED_LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    /// Returns a handler of events, and the ends of children that it hears of: the error and the time of each.
    fn ends() -> (OnChildEvent, UnboundedReceiver<(ChildError, u64)>) {
        let (over, ended) = unbounded_channel();
        let on_event: OnChildEvent = Arc::new(move |event| {
            if let ChildEvent::Over { error, at } = event {
                over.send((error, at)).unwrap();
            }
        });
        (on_event, ended)
    }

    /// Starts a shell that hosts `c3`, with the folder of its log.
    async fn shell(script: &str, on_event: OnChildEvent) -> (Arc<ChildProcess>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let start = ChildCommand::of_shell(script.into(), ClientAccess::default());
        let log = folder.path().join("c3.log");
        let child = ChildProcess::start(&start, "c3".into(), &log, on_event).await.unwrap();
        (child, folder)
    }

    async fn lie(script: &str) -> (Option<Message>, ChildError) {
        let (on_event, mut ended) = ends();
        let (child, _folder) = shell(script, on_event).await;
        let reply = child.ask(3, ClientOp::Close).await;
        let (error, _) = ended.recv().await.expect("every child is over some time");
        (reply, error)
    }

    #[tokio::test]
    async fn a_child_that_prints_garbage_is_named_with_its_line() {
        let (reply, error) = lie("read x; echo 'connecting to the server...'").await;
        assert_eq!(reply, None);
        let text = error.to_string();
        for part in ["c3", "`connecting to the server...`"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(error.breaks_protocol());
    }

    #[tokio::test]
    async fn a_child_that_printed_garbage_is_asked_nothing_more_though_it_still_reads() {
        let (on_event, mut ended) = ends();
        let (child, _folder) = shell("echo hello; cat >/dev/null", on_event).await;
        ended.recv().await.unwrap();
        // requests end a moment after the event
        let asked = timeout(Duration::from_secs(60), child.ask(0, ClientOp::Close)).await;
        assert_eq!(asked.expect("it is not waited for"), None);
    }

    #[tokio::test]
    async fn a_child_that_answers_twice_is_caught_by_the_second_answer() {
        let (reply, error) = lie(r#"read x; echo '{"type":"ok","id":1}'; echo '{"type":"ok","id":1}'; cat"#).await;
        assert!(matches!(reply, Some(Message::Ok { id: 1, .. })));
        assert!(matches!(error, ChildError::Unasked { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_child_that_dies_says_its_last_words() {
        let (reply, error) = lie("read x; echo 'no such module: redis' >&2; exit 3").await;
        assert_eq!(reply, None);
        assert_eq!(error.to_string(), "c3 ended (exit status: 3): no such module: redis");
        assert!(!error.breaks_protocol());
    }

    #[tokio::test]
    async fn a_child_that_said_more_is_quoted_with_its_last_lines() {
        let (_, error) = lie("read x; seq 1 9 >&2; echo >&2; exit 3").await;
        let said = "c3 ended (exit status: 3); its last lines on stderr:\n    5\n    6\n    7\n    8\n    9";
        assert_eq!(error.to_string(), said);
    }

    /// Starts a program of Python and 256 MB, which are freed before its pipes close; returns it with its end.
    async fn heavy(program: &str, args: &[&str]) -> (Arc<ChildProcess>, UnboundedReceiver<(ChildError, u64)>) {
        let folder = tempfile::tempdir().unwrap();
        let start = ChildCommand {
            program: program.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: vec![("HEAVY".to_owned(), HEAVY.to_owned())],
            access: ClientAccess::default(),
        };
        let (on_event, ended) = ends();
        let log = folder.path().join("log");
        let child = ChildProcess::start(&start, "c0".into(), &log, on_event).await.unwrap();
        assert!(child.ask(0, ClientOp::Close).await.is_some());
        (child, ended)
    }

    /// Answers one request, and at the second one of its threads kills the process.
    const HEAVY: &str = r#"
import os, sys, threading
memory = b"x" * (256 << 20)
sys.stdin.readline()
print('{"type":"ok","id":1}', flush=True)
sys.stdin.readline()
threading.Thread(target=os.kill, args=(os.getpid(), 9)).start()
sys.stdin.readline()
"#;

    #[tokio::test]
    async fn a_child_is_not_alive_after_its_kill_however_long_its_end_takes() {
        let (child, mut ended) = heavy("python3", &["-c", HEAVY]).await;
        assert_eq!(child.activity(), Activity::Running);
        let alive_at = monotonic_ns();
        assert_eq!(child.activity(), Activity::Running);
        child.kill();
        let killed_at = monotonic_ns();
        let died_at = loop {
            assert_ne!(child.activity(), Activity::Running);
            tokio::select! {
                biased;
                end = ended.recv() => break end.unwrap().1,
                () = tokio::task::yield_now() => {}
            }
        };
        assert!(
            (alive_at..=killed_at).contains(&died_at),
            "{alive_at} {died_at} {killed_at}"
        );
    }

    /// Whether the end of a program that kills itself was seen before that of its parent. From then on no part of it lives.
    async fn ends_by_itself(args: &[&str]) -> bool {
        let (child, mut ended) = heavy("sh", args).await;
        let program = process::descendants(child.group.as_raw() as u32);
        let program = *program.last().expect("it answered");
        while child.activity() != Activity::Running {
            tokio::task::yield_now().await;
        }
        let alive_at = monotonic_ns();
        assert_eq!(child.write_line(b"end".to_vec()).await, Some(()));
        let mut ends_at = None;
        let died_at = loop {
            if process::activity(program) == Activity::Ending {
                ends_at.get_or_insert_with(monotonic_ns);
            }
            let is_alive = child.activity() == Activity::Running;
            // a shell between the end of its program and its own is one that may start another
            let is_there = std::fs::exists(format!("/proc/{program}")).unwrap_or(false);
            assert!(
                !(is_alive && is_there && ends_at.is_some()),
                "{args:?}: its shell was taken for it"
            );
            tokio::select! {
                biased;
                end = ended.recv() => break end.unwrap().1,
                () = tokio::task::yield_now() => {}
            }
        };
        assert!(
            died_at <= ends_at.unwrap_or(u64::MAX),
            "{args:?}: {alive_at} {died_at} {ends_at:?}"
        );
        ends_at.is_some()
    }

    #[tokio::test]
    async fn a_program_that_kills_itself_is_not_alive_because_its_shell_is() {
        for args in [
            ["-c", "python3 -c \"$HEAVY\""],
            ["-c", "cd / && python3 -c \"$HEAVY\"; exit $?"],
            ["-c", "sh -c 'python3 -c \"$HEAVY\"; true'; true"],
        ] {
            // a busy machine may miss it
            let mut seen = false;
            for _ in 0..20 {
                seen = seen || ends_by_itself(&args).await;
            }
            assert!(seen, "{args:?}");
        }
    }

    #[tokio::test]
    async fn a_shell_that_serves_by_itself_is_alive_between_the_programs_that_it_starts() {
        let script = r#"sleep 0.01 & while read x; do sleep 0.01; echo '{"type":"ok","id":'$((i += 1))'}'; done"#;
        let (child, _folder) = shell(script, Arc::new(|_: ChildEvent| {})).await;
        for _ in 0..5 {
            assert!(child.ask(0, ClientOp::Close).await.is_some());
            while child.activity() != Activity::Running {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test]
    async fn a_line_without_end_does_not_fill_the_memory() {
        let (_, error) = lie("read x; head -c 200000 /dev/zero | tr '\\0' x; cat").await;
        assert!(matches!(error, ChildError::Endless { .. }), "{error}");
    }

    #[test]
    fn a_quoted_line_is_short_and_harmless() {
        assert_eq!(quote(b"a\x1b[31mb"), "a\u{fffd}[31mb");
        assert!(quote(&[b'x'; 5000]).chars().count() <= QUOTED_LINE + 1);
    }
}
