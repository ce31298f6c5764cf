//! Child processes that never outlive harness: killed with it even when it is killed, and out of reach of the terminal's
//! Ctrl-C.
//!
//! `PR_SET_PDEATHSIG` kills a child when the *thread* that started it ends
//! (<https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html>), and runtime threads may end. So one thread that
//! lives as long as harness, the spawner, starts them all.

use std::io;
use std::sync::LazyLock;
use std::sync::mpsc;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct SpawnRequest {
    command: Command,
    on: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: LazyLock<mpsc::Sender<SpawnRequest>> = LazyLock::new(|| {
    let (requests, incoming) = mpsc::channel::<SpawnRequest>();
    std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            for mut request in incoming {
                let _inside = request.on.enter();
                let _ = request.reply.send(request.command.spawn());
            }
        })
        .expect("a thread can be started");
    requests
});

/// Starts `command` as a child that dies with harness and is killed when its handle is dropped.
pub async fn spawn(mut command: Command) -> io::Result<Child> {
    command.process_group(0).kill_on_drop(true);
    die_with_parent(&mut command);
    let (reply, spawned) = oneshot::channel();
    let request = SpawnRequest {
        command,
        on: Handle::current(),
        reply,
    };
    SPAWNER.send(request).expect("the spawner lives as long as harness");
    spawned.await.expect("the spawner answers every request")
}

#[cfg(target_os = "linux")]
#[expect(
    unsafe_code,
    reason = "the standard library offers no safe way to set a parent-death signal"
)]
fn die_with_parent(command: &mut Command) {
    // SAFETY: prctl is async-signal-safe, and the closure touches nothing else.
    unsafe {
        command.pre_exec(|| nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_: &mut Command) {}

/// When the kernel started a process, in clock ticks since boot: its number may be given to another process later. `None`
/// when there is no such process.
pub fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the command's name is in parentheses and may hold anything; the fields after it are plain
    let fields = stat.rsplit_once(')')?.1;
    let state = fields.split_whitespace().next()?;
    if state == "Z" {
        return None;
    }
    fields.split_whitespace().nth(19)?.parse().ok()
}

/// Sends a signal to a process that [`spawn`] made and to whatever it started. Returns whether it was there.
pub fn signal(child: &Child, signal: Signal) -> bool {
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    group.is_some_and(|pid| killpg(Pid::from_raw(pid), signal).is_ok())
}

/// What a process does, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Running,
    /// Stopped by a signal.
    Stopped,
    /// It executes nothing any more: it ended, is about to, or is not there.
    Ending,
}

/// What a process does now. A process that is killed frees its memory before its pipes close and its parent hears of its
/// end, which takes up to a second; `PF_EXITING` and a pending SIGKILL show the end from its beginning.
///
/// The fields are those of `/proc/PID/stat`, <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
pub fn activity(pid: u32) -> Activity {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    activity_in(&stat)
}

fn activity_in(stat: &str) -> Activity {
    const PF_EXITING: u64 = 0x4;
    const KILLED: u64 = 1 << (Signal::SIGKILL as u64 - 1);
    // from `state`, the third field, on
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return Activity::Ending;
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    let (flags, pending) = (number(9).unwrap_or_default(), number(31).unwrap_or_default());
    match fields.first() {
        None | Some(&("Z" | "X")) => Activity::Ending,
        _ if flags & PF_EXITING != 0 || pending & KILLED != 0 => Activity::Ending,
        Some(&("T" | "t")) => Activity::Stopped,
        _ => Activity::Running,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_start() {
        let own = std::process::id();
        assert!(started_at(own).is_some());
        assert_eq!(started_at(own), started_at(own));
        assert_eq!(started_at(u32::MAX), None);
    }
    #[test]
    fn a_process_ends_when_it_begins_to_exit_and_not_when_it_is_reaped() {
        let stat = |state: &str, flags: u64, pending: u64| {
            let between = "0 ".repeat(21);
            format!("7 (a ) b) {state} 1 7 7 0 -1 {flags} {between}{pending} 0 0")
        };
        assert_eq!(activity_in(&stat("R", 0x40_0000, 0)), Activity::Running);
        assert_eq!(activity_in(&stat("T", 0, 0)), Activity::Stopped);
        assert_eq!(activity_in(&stat("R", 0x4, 0)), Activity::Ending);
        assert_eq!(
            activity_in(&stat("S", 0, 0x100)),
            Activity::Ending,
            "SIGKILL is pending"
        );
        assert_eq!(activity_in(&stat("Z", 0, 0)), Activity::Ending);
        assert_eq!(activity(std::process::id()), Activity::Running);
        assert_eq!(activity(u32::MAX), Activity::Ending);
    }
}
