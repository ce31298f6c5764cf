//! Child processes that never outlive harness: killed with it even when it is killed, and deaf to the terminal's Ctrl-C.
//!
//! Linux kills a child when the *thread* that made it ends, and runtime threads may end; so one thread that lives as
//! long as harness makes them all.

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

/// Who a process is beyond its number: the time at which the kernel started it, in clock ticks since boot. `None` when
/// there is no such process.
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

/// Whether a process stands still because of a signal.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    state == Some("T")
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
}
