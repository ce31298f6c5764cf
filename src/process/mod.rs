//! Child processes that never outlive harness: they are killed with it even when it is killed, and the terminal's Ctrl-C does not
//! reach them.
//!
//! `PR_SET_PDEATHSIG` kills a child when the *thread* that started it ends
//! (<https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html>), and runtime threads may end. So one thread that
//! lives as long as harness, the spawner, starts them all.

mod doubt;
mod spawner;

use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tokio::process::Child;

pub use doubt::EndDoubt;
pub use spawner::{leave_to_its_handle, not_started, spawn};

/// The identity of a process: it differs from a later one with the same number, and from one of another container or machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pid: u32,
    started: u64,
    /// The process namespace of the number; another container has another one.
    namespace: u64,
    /// The boot of its kernel, since engines and temporary folders can be shared by machines.
    #[serde(default)]
    boot: u64,
}

/// Whether a process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vitality {
    Alive,
    Over,
    /// It is, or was, in a namespace or on a machine that this process cannot see.
    Unseen,
}

/// The number of the first process namespace of a machine, which sees all others: `PROC_PID_INIT_INO` of Linux.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

impl Identity {
    /// Returns the identity of a process of this namespace.
    pub fn new(pid: u32, started: u64) -> Self {
        Self {
            pid,
            started,
            namespace: own_namespace(),
            boot: own_boot(),
        }
    }

    pub fn own() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or_else(|| Self::new(pid, 0))
    }

    pub fn of(pid: u32) -> Option<Self> {
        Some(Self::new(pid, started_at(pid)?))
    }

    #[cfg(test)]
    pub fn elsewhere() -> Self {
        Self {
            boot: own_boot() ^ 1,
            ..Self::own()
        }
    }

    pub fn pid(self) -> u32 {
        self.pid
    }

    pub fn vitality(self) -> Vitality {
        // earlier versions have none
        if self.boot != 0 && self.boot != own_boot() {
            return Vitality::Unseen;
        }
        if self.namespace == own_namespace() {
            return match started_at(self.pid) == Some(self.started) {
                true => Vitality::Alive,
                false => Vitality::Over,
            };
        }
        // this process sees those of all namespaces within its own
        match processes().any(|pid| namespace_of(pid) == self.namespace && started_at(pid) == Some(self.started)) {
            true => Vitality::Alive,
            false if own_namespace() == FIRST_NAMESPACE && nix::unistd::geteuid().is_root() => Vitality::Over,
            false => Vitality::Unseen,
        }
    }

    /// Returns `<pid>-<start>-<namespace>-<boot>`, for labels and environments. Its length is the same for each process: the
    /// addresses of a program's objects depend on the lengths of its environment variables.
    pub fn label(self) -> String {
        format!(
            "{:010}-{:016}-{:010}-{:010}",
            self.pid, self.started, self.namespace, self.boot
        )
    }

    pub fn from_label(label: &str) -> Option<Self> {
        let mut parts = label.split('-').map(|part| part.parse::<u64>().ok());
        let mut part = || parts.next().flatten();
        Some(Self {
            pid: part()?.try_into().ok()?,
            started: part()?,
            namespace: part()?,
            boot: part().unwrap_or(0),
        })
    }

    /// Kills it. The caller has checked that it may.
    pub fn kill(self) -> Result<(), String> {
        let pid = i32::try_from(self.pid).map_err(|error| error.to_string())?;
        match nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGKILL) {
            // it ended by itself
            Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Returns the number of the process namespace of this process, or 0 if there are none.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

fn namespace_of(pid: u32) -> u64 {
    std::fs::metadata(format!("/proc/{pid}/ns/pid")).map_or(0, |namespace| namespace.ino())
}

/// Returns the first digits of the kernel's random boot id, or 0 if there is none.
fn own_boot() -> u64 {
    static BOOT: LazyLock<u64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.get(..8)
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .unwrap_or(0)
    });
    *BOOT
}

/// Returns the numbers of all visible processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The environment variable that marks the processes of a harness, and all that they start unless it is removed.
const OWNER_MARK: &str = "OWNED_BY_HARNESS";

/// A process that has the mark of a harness.
#[derive(Debug)]
pub struct MarkedProcess {
    pub identity: Identity,
    pub command: String,
}

/// Returns this user's processes in this namespace with the mark of a harness that `owner` accepts.
pub fn marked(owner: impl Fn(Identity) -> bool) -> Vec<MarkedProcess> {
    let user = nix::unistd::geteuid().as_raw();
    let of_owner = |pid: u32| {
        let folder = format!("/proc/{pid}");
        // another user could have written anything there
        let own = std::fs::metadata(&folder).is_ok_and(|about| about.uid() == user);
        let environment = own.then(|| std::fs::read(format!("{folder}/environ")).ok()).flatten()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let mark = variables.find_map(|variable| variable.strip_prefix(OWNER_MARK.as_bytes())?.strip_prefix(b"="))?;
        let of = Identity::from_label(std::str::from_utf8(mark).ok()?)?;
        let identity = Identity::of(pid).filter(|_| owner(of))?;
        let command = std::fs::read(format!("{folder}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned();
        Some(MarkedProcess { identity, command })
    };
    processes().filter_map(of_owner).collect()
}

/// Returns the living descendants of a process.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = processes().filter_map(|pid| Some((pid, living_parent(pid)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn living_parent(pid: u32) -> Option<u32> {
    let stat = stat_of(pid);
    let fields = fields_in(&stat);
    let lives = *fields.first()? != "Z";
    lives.then(|| fields.get(1)?.parse().ok()).flatten()
}

/// Kills the surviving descendants of the processes that this harness started. Only for the end: it spares none.
///
/// A process that left the group and the session of its parent and cleared its environment is still a descendant: this process is
/// the parent of orphans below it ([`adopt_orphans`]). A marked one may be the child of another. After [`may_stay_without_mark`]
/// only marked ones are killed.
pub fn end_offspring() {
    if !STARTED_ANY.load(Relaxed) {
        return;
    }
    let own = Identity::own();
    let end = Instant::now() + GONE;
    // a killed one exists for another moment, and one may start another during the search
    loop {
        let mut left = if MAY_STAY.load(Relaxed) {
            Vec::new()
        } else {
            descendants(own.pid)
        };
        left.extend(marked(|owner| owner == own).iter().map(|one| one.identity.pid));
        if left.is_empty() || Instant::now() >= end {
            break;
        }
        for one in left.into_iter().filter_map(Identity::of) {
            let _ = one.kill();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The time in which killed processes must disappear.
const GONE: Duration = Duration::from_secs(2);

static STARTED_ANY: AtomicBool = AtomicBool::new(false);
static MAY_STAY: AtomicBool = AtomicBool::new(false);

/// Spares processes without a mark: they may be daemons that are to stay, such as a server that a command of the user starts.
pub fn may_stay_without_mark() {
    MAY_STAY.store(true, Relaxed);
}

/// Returns the time at which the kernel started a process, in clock ticks since boot: its number may be given to another process
/// later. `None` if there is no such process.
pub fn started_at(pid: u32) -> Option<u64> {
    let stat = stat_of(pid);
    let fields = fields_in(&stat);
    if *fields.first()? == "Z" {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Returns `/proc/PID/stat`, or nothing if there is no such process.
fn stat_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default()
}

/// Returns the fields of `/proc/PID/stat` from `state`, the third, on.
pub fn fields_in(stat: &str) -> Vec<&str> {
    // the command's name is in parentheses and may hold anything; the fields after it are plain
    let after_name = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    after_name.split_whitespace().collect()
}

/// Sends a signal to a process that [`spawn`] made and to all that it started. Returns whether it existed.
pub fn signal(child: &Child, signal: Signal) -> bool {
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    group.is_some_and(|pid| killpg(Pid::from_raw(pid), signal).is_ok())
}

/// SIGKILL in a mask of signals.
const KILLED: u64 = 1 << (Signal::SIGKILL as u64 - 1);

/// The activity of a process, as the kernel shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    Running,
    /// Stopped by a signal.
    Stopped,
    /// A process that it started is ending, or has just ended: it may continue, or end as well.
    Doubtful,
    /// It executes nothing any more: it ended, is about to, or does not exist.
    Ending,
}

/// Returns the current activity of a process. A killed process frees its memory before its pipes close and its parent learns of
/// its end, which takes up to a second; `PF_EXITING` and a pending SIGKILL show the end from its beginning.
///
/// The fields are those of `/proc/PID/stat`, <https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html>.
pub fn activity(pid: u32) -> Activity {
    match activity_in(&stat_of(pid)) {
        Activity::Running if is_killed(pid) => Activity::Ending,
        Activity::Running => parent_activity(pid),
        other => other,
    }
}

/// Whether a process was sent a SIGKILL, by the signals pending for all of its threads. `/proc/PID/stat` has the signals pending
/// for one thread, and shows nothing from the moment at which that thread takes the signal until `PF_EXITING` is set, which is
/// long if it has no processor: of 1,357 kills on a busy machine 12 were seen in between.
fn is_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    pending.unwrap_or_default() & KILLED != 0
}

/// Returns the activity of a running process by its children: a shell that waits for a program is as alive as the program.
fn parent_activity(pid: u32) -> Activity {
    let mut is_one_ending = false;
    for child in children(pid) {
        match activity(child) {
            Activity::Running | Activity::Stopped => return Activity::Running,
            Activity::Doubtful => is_one_ending = true,
            // an ended one waits to be reaped, which some parents never do
            Activity::Ending => is_one_ending |= !is_over(&stat_of(child)),
        }
    }
    if is_one_ending {
        return Activity::Doubtful;
    }
    if !is_shell(pid) {
        return Activity::Running;
    }
    // the end of a program wakes its shell, which may be about to end until it sleeps again
    let stat = stat_of(pid);
    match (activity_in(&stat), fields_in(&stat).first()) {
        (Activity::Running, Some(&"S")) => Activity::Running,
        (Activity::Running, _) => Activity::Doubtful,
        (other, _) => other,
    }
}

/// Whether a process is a shell, whatever script it runs.
fn is_shell(pid: u32) -> bool {
    const SHELLS: [&str; 7] = ["sh", "dash", "bash", "ash", "busybox", "ksh", "zsh"];
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let name = program.as_deref().and_then(|path| path.file_name()?.to_str());
    name.is_some_and(|name| SHELLS.contains(&name))
}

/// Returns the processes that the first thread of a process started.
fn children(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a process only waits to be reaped. Its first thread is a zombie before the others have ended.
fn is_over(stat: &str) -> bool {
    let fields = fields_in(stat);
    let threads = fields.get(17).and_then(|text| text.parse::<u32>().ok());
    matches!(fields.first(), None | Some(&("Z" | "X"))) && threads.unwrap_or_default() <= 1
}

fn activity_in(stat: &str) -> Activity {
    const PF_EXITING: u64 = 0x4;
    let fields = fields_in(stat);
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
    fn an_identity_survives_its_label() {
        let own = Identity::own();
        assert_eq!(Identity::from_label(&own.label()), Some(own));
        let first = Identity::new(1, 7);
        assert_eq!(Identity::from_label(&first.label()), Some(first));
        assert_eq!(first.label().len(), own.label().len());
        assert_eq!(own.vitality(), Vitality::Alive);
        let later = Identity::new(own.pid, own.started + 1);
        assert_eq!(later.vitality(), Vitality::Over);
        assert_eq!(Identity::elsewhere().vitality(), Vitality::Unseen, "of another machine");
    }

    #[test]
    fn a_process_whose_first_thread_is_a_zombie_is_over_with_its_last_one() {
        let stat =
            |state: &str, threads: u32| format!("7 (python3) {state} 1 7 7 0 -1 4 {}{threads} 0 0", "0 ".repeat(10));
        assert!(is_over(&stat("Z", 1)) && is_over(""));
        assert!(!is_over(&stat("Z", 2)) && !is_over(&stat("R", 1)));
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
