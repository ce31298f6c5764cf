//! The spawner: one thread that starts all child processes, so that they die with harness and not with a thread, and that reaps
//! the orphans of those children.

use std::collections::HashSet;
use std::io;
use std::sync::LazyLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{Identity, OWNER_MARK, STARTED_ANY, fields_in, processes, stat_of};

struct SpawnRequest {
    command: Command,
    on: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// A request to the spawner.
enum ToSpawner {
    Spawn(Box<SpawnRequest>),
    /// Do not reap this child: it was started elsewhere and has a handle.
    Leave(u32),
}

static SPAWNER: LazyLock<io::Result<mpsc::Sender<ToSpawner>>> = LazyLock::new(|| {
    let (requests, incoming) = mpsc::channel::<ToSpawner>();
    std::thread::Builder::new()
        .name("spawner".into())
        .spawn(move || {
            adopt_orphans();
            let (mut started, mut reaped) = (HashSet::new(), Instant::now());
            loop {
                match incoming.recv_timeout(BETWEEN_REAPINGS) {
                    Ok(ToSpawner::Leave(pid)) => {
                        started.insert(pid);
                    }
                    Ok(ToSpawner::Spawn(mut request)) => {
                        let _inside = request.on.enter();
                        let child = request.command.spawn();
                        started.extend(child.as_ref().ok().and_then(Child::id));
                        let _ = request.reply.send(child);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => break,
                }
                if reaped.elapsed() >= BETWEEN_REAPINGS {
                    // an orphan may have the number of one that ended
                    started.retain(|pid| exists(*pid));
                    reap_orphans(&started);
                    reaped = Instant::now();
                }
            }
        })
        .map(|_| requests)
});

/// Adds a hint to the error of starting a process or a thread if a limit is the reason.
pub fn not_started(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock {
        let hint = "hint: raise `ulimit -u`, or the limit of processes of the container";
        io::Error::new(error.kind(), format!("{error}\n{hint}"))
    } else {
        error
    }
}

/// The least time between two searches for orphans that ended.
const BETWEEN_REAPINGS: Duration = Duration::from_secs(1);

/// Makes this process the parent of the processes below it whose own parent ends, so that they can be found
/// (<https://man7.org/linux/man-pages/man2/PR_SET_CHILD_SUBREAPER.2const.html>).
fn adopt_orphans() {
    // a kernel without it gives them to the first process, and the mark finds most of them
    let _ = nix::sys::prctl::set_child_subreaper(true);
}

/// Whether there is a process with this number; one that ended is there until it is waited for.
fn exists(pid: u32) -> bool {
    kill(Pid::from_raw(pid as i32), None::<Signal>) != Err(Errno::ESRCH)
}

/// Reaps the orphans that ended: their entries count towards the limit of processes. The children that were started here are left
/// to their handles: the spawned ones by number, all others since they stay in the group of this process.
fn reap_orphans(started: &HashSet<u32>) {
    use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};

    let looked = waitid(
        Id::All,
        WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT,
    );
    if matches!(looked, Err(_) | Ok(WaitStatus::StillAlive)) {
        return;
    }
    let (own, own_group) = (std::process::id(), nix::unistd::getpgrp().as_raw());
    for pid in processes().filter(|pid| !started.contains(pid)) {
        let stat = stat_of(pid);
        let [state, parent, group, ..] = fields_in(&stat)[..] else {
            continue;
        };
        if state == "Z" && parent.parse() == Ok(own) && group.parse() != Ok(own_group) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap_or_default());
            let _ = waitpid(pid, Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Starts `command` as a child that dies with harness and is killed when its handle is dropped.
pub async fn spawn(mut command: Command) -> io::Result<Child> {
    STARTED_ANY.store(true, Relaxed);
    command.process_group(0).kill_on_drop(true);
    command.env(OWNER_MARK, Identity::own().label());
    die_with_parent(&mut command);
    let spawner = SPAWNER.as_ref();
    let spawner = spawner.map_err(|error| not_started(io::Error::new(error.kind(), error.to_string())))?;
    let (reply, spawned) = oneshot::channel();
    let request = SpawnRequest {
        command,
        on: Handle::current(),
        reply,
    };
    let request = ToSpawner::Spawn(Box::new(request));
    spawner.send(request).expect("the spawner lives as long as harness");
    let spawned = spawned.await.expect("the spawner answers every request");
    spawned.map_err(not_started)
}

/// Excludes a process from the reaping of orphans: a child of harness has forked it for harness, or it has a group of its own.
pub fn leave_to_its_handle(pid: u32) {
    if let Ok(spawner) = SPAWNER.as_ref() {
        let _ = spawner.send(ToSpawner::Leave(pid));
    }
}

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

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    use tokio::io::{AsyncBufReadExt, BufReader};

    use super::*;
    use crate::process::{Vitality, marked, signal};

    #[tokio::test]
    async fn what_a_child_starts_has_its_mark_even_in_a_session_of_its_own() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 61.25 & wait"]);
        let child = spawn(command).await.unwrap();
        let own = Identity::own();
        let sleeping = loop {
            let all = marked(|owner| owner == own);
            if let Some(sleeping) = all.into_iter().find(|one| one.command == "sleep 61.25") {
                break sleeping;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        drop(child);
        sleeping.identity.kill().unwrap();
        while sleeping.identity.vitality() != Vitality::Over {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(marked(|_| false).is_empty());
    }

    #[tokio::test]
    async fn an_orphan_is_adopted_and_reaped_and_children_are_left_to_their_handles() {
        let mut command = Command::new("sh");
        command.args(["-c", "env -i setsid sleep 0.2 & echo $!; exec sleep 60.75"]);
        command.stdout(std::process::Stdio::piped());
        let mut child = spawn(command).await.unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let orphan: u32 = lines.next_line().await.unwrap().unwrap().parse().unwrap();
        // it ends after its parent
        assert!(signal(&child, Signal::SIGKILL));
        let limit = Instant::now() + Duration::from_secs(60);
        while exists(orphan) {
            assert!(Instant::now() < limit, "it is not reaped while others are started");
            let mut other = spawn(Command::new("true")).await.unwrap();
            assert!(other.wait().await.unwrap().success());
        }
        let mut other = std::process::Command::new("true").process_group(0).spawn().unwrap();
        leave_to_its_handle(other.id());
        tokio::time::sleep(BETWEEN_REAPINGS * 2).await;
        let status = child.wait().await.unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
        assert!(other.wait().unwrap().success());
    }
}
