//! Disks that can be made slow for one server alone: calls that sync its files (`fsync`, `fdatasync`, …) take longer.
//!
//! A small program (`gate.rs`, made by `build.rs` and part of the binary) starts the server and reports each of these calls to
//! harness before the kernel executes it; harness lets it continue, at once or later ([`supervisor`]). The kernel itself reports
//! them (seccomp user notification, <https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html>), so it is the same for a
//! server in C, in Java or in Go, needs no root, and works in containers. It does not reach writes that sync by themselves
//! (`O_DSYNC`) and syncs through `io_uring`.

mod supervisor;

use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

static GATE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/gate"));

const GATE_NAME: &str = "gate";
/// The kernel's list of the answers that filters may give.
const ACTIONS: &str = "/proc/sys/kernel/seccomp/actions_avail";

/// Returns the reason for which no disk can be slow on this machine, with a hint.
pub fn missing() -> Option<&'static str> {
    if GATE.is_empty() {
        return Some(
            "this harness was built without the program that reports syncs\nhint: build it on Linux, on x86_64 or aarch64",
        );
    }
    let actions = std::fs::read_to_string(ACTIONS).unwrap_or_default();
    (!actions.split_whitespace().any(|action| action == "user_notif")).then_some(
        "the kernel does not report system calls (seccomp user notification, Linux 5.5 and later)\n\
         hint: a newer kernel; --fault server-pause stops a server in place of its disk",
    )
}

/// The folder with the program and the sockets of a run. Dropping it removes the folder.
#[derive(Debug)]
pub struct DiskGates {
    folder: PathBuf,
}

impl DiskGates {
    /// Makes `folder`, which must not exist, and writes the program into it. A server in a container is another user and must
    /// reach its socket, so any user with access to the folder can: it must be in one that other users cannot enter.
    pub fn lay_out(folder: PathBuf) -> io::Result<Self> {
        std::fs::DirBuilder::new().mode(0o711).create(&folder)?;
        let gates = Self { folder };
        let program = gates.folder.join(GATE_NAME);
        std::fs::write(&program, GATE)?;
        std::fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        Ok(gates)
    }

    /// Makes the gate of one server, and starts to wait for that server.
    pub fn gate(&self, name: &str) -> io::Result<Arc<DiskGate>> {
        let folder = File::open(&self.folder)?;
        // the path of a socket is short, that of a folder need not be
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
        std::fs::set_permissions(self.folder.join(name), Permissions::from_mode(0o666))?;
        let gate = Arc::new(DiskGate {
            folder: self.folder.clone(),
            name: name.to_owned(),
            syncs: Arc::default(),
        });
        supervisor::start(listener, &gate.syncs)?;
        Ok(gate)
    }
}

impl Drop for DiskGates {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The losses of a server on its disk so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskLosses {
    /// The number of files that lost data with the power.
    pub files: u64,
    /// Windows at whose end no block was free.
    pub full: u64,
    /// Log lines in which its server reported a write without space.
    pub refused: u64,
    /// The number of ends of its server on the full disk.
    pub ended: u64,
}

impl DiskLosses {
    /// Returns the sums for two disks.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            files: self.files + other.files,
            full: self.full + other.full,
            refused: self.refused + other.refused,
            ended: self.ended + other.ended,
        }
    }
}

/// The state that a gate and its supervisor share.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// The time for which each sync is held back.
    delay_ns: AtomicU64,
    /// The number of syncs that were reported, and the number held back.
    reported: AtomicU64,
    pub(crate) delayed: AtomicU64,
    losses: Mutex<DiskLosses>,
    /// No further server will connect.
    over: AtomicBool,
}

impl Syncs {
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_nanos(self.delay_ns.load(SeqCst))
    }
}

/// The program between one server, with all processes that it starts, and the disk.
#[derive(Debug, Default)]
pub struct DiskGate {
    folder: PathBuf,
    name: String,
    pub(crate) syncs: Arc<Syncs>,
}

impl DiskGate {
    /// Returns the folder that the server must be able to reach.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the beginning of the server's command line. `folder` is the path at which the server finds [`DiskGate::folder`].
    pub fn command(&self, folder: &Path) -> [String; 3] {
        let path = |path: &Path| path.display().to_string();
        [path(&folder.join(GATE_NAME)), path(folder), self.name.clone()]
    }

    /// Counts syncs, and those among them that were held back, of a server in virtual time.
    pub fn note_syncs(&self, reported: u64, delayed: u64) {
        self.syncs.reported.fetch_add(reported, SeqCst);
        self.syncs.delayed.fetch_add(delayed, SeqCst);
    }

    /// Returns the losses so far, to read them or to count another one.
    pub fn losses(&self) -> MutexGuard<'_, DiskLosses> {
        self.syncs.losses.lock().expect("no one panics while counting")
    }

    /// Returns the number of syncs reported so far, held back or not.
    pub fn reported(&self) -> u64 {
        self.syncs.reported.load(SeqCst)
    }

    /// Delays each sync by this time more, including those that have begun. Delays add up.
    pub fn slow_down(&self, by: Duration) {
        self.syncs.delay_ns.fetch_add(nanoseconds(by), SeqCst);
    }

    /// Ends one such delay. Syncs that it held back continue at once.
    pub fn speed_up(&self, by: Duration) {
        self.syncs.delay_ns.fetch_sub(nanoseconds(by), SeqCst);
    }

    /// Returns the number of syncs held back so far.
    pub fn delayed(&self) -> u64 {
        self.syncs.delayed.load(SeqCst)
    }
}

/// Returns a delay, at most a day: that is as good as for ever, and many of them add up to less than the counter holds.
fn nanoseconds(by: Duration) -> u64 {
    const LONGEST: Duration = Duration::from_secs(24 * 3600);
    by.min(LONGEST).as_nanos() as u64
}

impl Drop for DiskGate {
    fn drop(&mut self) {
        self.syncs.over.store(true, SeqCst);
        self.syncs.delay_ns.store(0, SeqCst);
        // its supervisor waits for a server, and then checks whether the gate is dropped
        if let Ok(folder) = File::open(&self.folder) {
            let _ = UnixStream::connect(format!("/proc/self/fd/{}/{}", folder.as_raw_fd(), self.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Returns the command of a process that syncs a file three times.
    fn syncing(gate: &DiskGate, folder: &Path) -> Command {
        let [program, at, name] = gate.command(gate.folder());
        let mut command = Command::new(program);
        command.args([at, name]).arg("dd").current_dir(folder);
        command.args([
            "if=/dev/zero",
            "of=file",
            "bs=16",
            "count=3",
            "conv=fsync",
            "oflag=append",
        ]);
        command
    }

    /// Makes the gate of a server, with its folders.
    fn gated() -> (tempfile::TempDir, DiskGates, Arc<DiskGate>) {
        let folder = tempfile::tempdir().unwrap();
        let gates = DiskGates::lay_out(folder.path().join("gates")).unwrap();
        let gate = gates.gate("n1").unwrap();
        (folder, gates, gate)
    }

    #[test]
    fn a_sync_is_told_of_and_goes_on_at_once_where_the_disk_is_not_slow() {
        let (folder, _gates, gate) = gated();
        let output = syncing(&gate, folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!((gate.reported(), gate.delayed()), (1, 0));
        assert_eq!(std::fs::read(folder.path().join("file")).unwrap().len(), 48);
    }

    #[test]
    fn a_sync_on_a_slow_disk_goes_on_when_the_disk_is_well_again() {
        let (folder, _gates, gate) = gated();
        let hour = Duration::from_secs(3600);
        gate.slow_down(hour);
        let mut child = syncing(&gate, folder.path()).spawn().unwrap();
        while gate.delayed() == 0 && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(child.try_wait().unwrap().is_none(), "it waits for its disk");
        gate.speed_up(hour);
        assert!(child.wait().unwrap().success());
        assert_eq!(gate.delayed(), 1);
    }

    #[test]
    fn a_sync_takes_longer_by_what_was_said() {
        let (folder, _gates, gate) = gated();
        let by = Duration::from_millis(300);
        gate.slow_down(by);
        let began = std::time::Instant::now();
        assert!(syncing(&gate, folder.path()).status().unwrap().success());
        assert!(began.elapsed() >= by, "never less than that");
        assert_eq!(gate.delayed(), 1);
    }

    #[test]
    fn what_a_server_starts_is_behind_its_gate_and_so_is_one_that_starts_again() {
        let (folder, _gates, gate) = gated();
        let [program, at, name] = gate.command(gate.folder());
        for times in 1..=2 {
            let mut shell = Command::new(&program);
            shell
                .args([&at, &name])
                .args(["sh", "-c", "sync file; sync file & wait"]);
            std::fs::write(folder.path().join("file"), "x").unwrap();
            assert!(shell.current_dir(folder.path()).status().unwrap().success());
            assert_eq!(gate.reported(), times * 2);
        }
    }

    #[test]
    fn a_server_that_cannot_be_told_of_does_not_start() {
        let (_folder, _gates, gate) = gated();
        let [program, at, _] = gate.command(gate.folder());
        let output = Command::new(program).args([&at, "n2", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(126));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("could not reach harness"), "{said}");
    }
}
