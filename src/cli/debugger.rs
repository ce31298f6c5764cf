//! `harness replay --until EVENT --debug PROCESS`: a debugger on a process of a run whose world is stopped ([`Debugger`]).

use std::fs;
use std::process::{Child, Command};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::Duration;

use crate::process::{Activity, activity};

/// gdb on a process. Virtual time answers system calls in the handler of `SIGSYS`, and `rdtsc` in that of `SIGSEGV`.
pub const GDB: &str = "gdb -q -p {pid} -ex 'handle SIGSYS SIGSEGV nostop noprint pass'";
/// The placeholder for the process in the command of a debugger.
const PID: &str = "{pid}";
/// Interval at which the status of a debugged process is polled.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A process of a run, as the history and the report name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebuggedProcess {
    Client(u32),
    Server(u32),
}

impl FromStr for DebuggedProcess {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let number = |kind| name.strip_prefix(kind)?.parse().ok();
        let client = || number("c").map(Self::Client);
        let server = || number("n").map(Self::Server);
        client()
            .or_else(server)
            .ok_or_else(|| "a client is `c0` or the like, and a server `n1`".to_owned())
    }
}

impl DebuggedProcess {
    /// Returns the name of its program in the world; `per_process` clients share one program.
    pub fn program(self, per_process: u32) -> String {
        match self {
            Self::Client(number) => format!("client c{}", number - number % per_process),
            Self::Server(number) => format!("server n{number}"),
        }
    }
}

/// A debugger that is started while the world is stopped.
pub struct Debugger {
    command: String,
    started: Mutex<Option<Child>>,
}

impl Debugger {
    pub fn of(command: &str) -> Self {
        Self {
            command: command.to_owned(),
            started: Mutex::default(),
        }
    }

    /// Starts the debugger on the first of these processes. Returns when it resumes the process, or ends.
    pub fn attach(&self, pids: &[u32]) -> Result<(), String> {
        let Some((pid, others)) = pids.split_first() else {
            return Ok(());
        };
        let others: Vec<String> = others.iter().map(|pid| named(*pid)).collect();
        let and = if others.is_empty() { "" } else { ", which started " };
        let (process, others) = (named(*pid), others.join(", "));
        eprintln!("the world is stopped; process {process}{and}{others}");
        let command = self.command.replace(PID, &pid.to_string());
        let failed =
            |why: String| format!("the debugger `{command}` {why}\nhint: --debugger COMMAND names another one");
        let mut debugger = Command::new("sh")
            .args(["-c", &command])
            .spawn()
            .map_err(|error| failed(format!("could not be started: {error}")))?;
        let mut had_stopped = false;
        loop {
            let ended = debugger.try_wait().map_err(|error| failed(error.to_string()))?;
            let is_stopped = activity(*pid) == Activity::Stopped;
            match ended {
                Some(status) if !had_stopped && !status.success() => return Err(failed(format!("ended: {status}"))),
                Some(_) => return Ok(()),
                None if had_stopped && !is_stopped => break,
                None => had_stopped = is_stopped,
            }
            sleep(LOOK_AGAIN);
        }
        *self.started() = Some(debugger);
        Ok(())
    }

    /// Waits until the debugger has ended.
    pub fn end(&self) {
        if let Some(mut debugger) = self.started().take() {
            let _ = debugger.wait();
        }
    }

    fn started(&self) -> MutexGuard<'_, Option<Child>> {
        self.started.lock().expect("no one panics with a debugger in hand")
    }
}

/// `4711 (python3)`
fn named(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{pid} ({})", name.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_in_the_program_of_the_first_that_shares_it() {
        let program = |name: &str| name.parse().map(|process: DebuggedProcess| process.program(4));
        assert_eq!(program("c6"), Ok("client c4".to_owned()));
        assert_eq!(program("n3"), Ok("server n3".to_owned()));
        assert!(program("l0").is_err() && program("c").is_err());
    }

    #[test]
    fn a_debugger_that_cannot_be_started_is_an_error_and_one_that_ends_is_none() {
        let own = [std::process::id()];
        let told = Debugger::of("no-such-debugger {pid}").attach(&own).unwrap_err();
        assert!(told.contains("no-such-debugger") && told.contains("127"), "{told}");
        assert_eq!(Debugger::of("test -d /proc/{pid}").attach(&own), Ok(()));
    }
}
