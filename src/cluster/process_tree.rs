//! The process tree of a server, such as PostgreSQL, whose sessions leave the process group of the process that started them.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::{sleep, timeout};

use crate::process;

/// The time between two checks whether a process has ended, and the limit of these checks.
const LOOK: Duration = Duration::from_millis(2);
const GONE: Duration = Duration::from_secs(10);

/// Sends a signal to a server that was started here and to all its descendants. Returns whether it existed.
///
/// The first process gets it first: once stopped or killed, it starts no more.
pub fn signal(child: &Child, signal: Signal) -> bool {
    signal_all(child, signal).is_some()
}

/// Kills a server with all its descendants, and waits for their end: a server that starts again on the same data refuses while a
/// process of the previous one lives.
pub async fn end(child: &mut Child) {
    let others = signal_all(child, Signal::SIGKILL).unwrap_or_default();
    let _ = child.kill().await;
    let gone = async {
        while others.iter().any(|pid| is_there(*pid)) {
            sleep(LOOK).await;
        }
    };
    let _ = timeout(GONE, gone).await;
}

/// Returns the descendants of the server, all of which were sent the signal, or `None` if the server did not exist.
fn signal_all(child: &Child, signal: Signal) -> Option<Vec<Pid>> {
    let pid = child.id()?;
    let before = process::descendants(pid);
    let sent = process::signal(child, signal);
    // including those that were started until then
    let mut all = process::descendants(pid);
    all.extend(before);
    all.sort_unstable();
    all.dedup();
    let all = all.into_iter().filter_map(|pid| i32::try_from(pid).ok());
    let all: Vec<Pid> = all.map(Pid::from_raw).collect();
    for pid in &all {
        // it may have ended
        let _ = kill(*pid, signal);
    }
    sent.then_some(all)
}

fn is_there(pid: Pid) -> bool {
    u32::try_from(pid.as_raw()).is_ok_and(|pid| process::started_at(pid).is_some())
}

#[cfg(test)]
mod tests {
    use tokio::process::Command;

    use super::*;
    use crate::process::{Activity, activity};

    #[tokio::test]
    async fn a_process_that_left_the_group_is_stopped_and_killed_with_the_one_that_started_it() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 60 & wait"]);
        let mut child = process::spawn(command).await.unwrap();
        let pid = child.id().unwrap();
        let sleeping = loop {
            if let [sleeping] = process::descendants(pid)[..] {
                break sleeping;
            }
            sleep(Duration::from_millis(5)).await;
        };
        let until = async |expected: Activity| {
            while activity(sleeping) != expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(signal(&child, Signal::SIGSTOP));
        until(Activity::Stopped).await;
        assert!(signal(&child, Signal::SIGCONT));
        until(Activity::Running).await;
        end(&mut child).await;
        assert!(!is_there(Pid::from_raw(sleeping as i32)));
        assert!(!signal(&child, Signal::SIGKILL), "it was not there");
    }
}
