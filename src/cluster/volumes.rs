//! File systems of servers' own whose power can be cut: unsynced writes are lost then, as on a machine. They can also be filled
//! to the last block, for one server alone.
//!
//! Each server's folder is an ext4 in a file, mounted through a loop device. The kernel itself cuts the power: the file system is
//! shut down without writing what is not on the disk yet (`FS_IOC_SHUTDOWN`, with which file systems are tested for crashes:
//! <https://docs.kernel.org/filesystems/ext4/index.html>), and mounted again, which replays its journal. Data that the kernel
//! wrote by itself before stay, as on a machine.
//!
//! The mounts are in a mount namespace of a process that does nothing else and dies with harness, so that none can outlive a run:
//! the kernel ends them, and their loop devices, with the last process in it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs;
use tokio::process::{Child, Command};

use super::programs::{find_on_machine, missing_program};
use crate::clock::GroundClock;
use crate::process;

/// Bytes of a file system; its file takes only what is written. etcd makes logs of 64 MB.
const SIZE: u64 = 1 << 30;
/// The programs that volumes need.
const PROGRAMS: [&str; 5] = ["unshare", "nsenter", "mount", "umount", "mkfs.ext4"];
/// The file that takes all free space, beside a server's own.
const FILLER: &str = "harness-filler";
/// The time of an unmount, and that between two tries: a killed process may be in its last call.
const UNMOUNT: Duration = Duration::from_secs(10);
const TRY: Duration = Duration::from_millis(20);

/// Returns the reason for which this machine can have none, with a hint.
fn missing() -> Option<String> {
    let hint = "hint: `lost` and disk-full need it; --fault server-kill and --fault slow-disk do not";
    if !nix::unistd::geteuid().is_root() {
        return Some(format!(
            "a full disk and the loss of unsynced data need a file system for each server, and only root mounts one\n{hint}"
        ));
    }
    let gone: Vec<String> = PROGRAMS.into_iter().flat_map(missing_program).collect();
    (!gone.is_empty()).then(|| {
        format!(
            "a full disk and the loss of unsynced data need a file system for each server, and {} is not installed \
             (util-linux, e2fsprogs)\n{hint}",
            gone.join(", ")
        )
    })
}

/// The file systems of a run, by the names of their servers.
pub struct Volumes {
    /// The process whose mount namespace they are in.
    keeper: Child,
    folder: PathBuf,
}

impl Volumes {
    /// Makes one for each name, in a folder of that name in `folder`. The error is a sentence.
    pub async fn lay_out(folder: &Path, names: impl Iterator<Item = &str>) -> Result<Self, String> {
        if let Some(why) = missing() {
            return Err(why);
        }
        let mut keeping = Command::new(find_on_machine("unshare").unwrap_or_default());
        keeping.args(["--mount", "--propagation", "private"]);
        keeping.args(["sh", "-c", "echo; exec sleep infinity"]);
        keeping.stdin(Stdio::null()).stdout(Stdio::piped());
        let keeper = process::spawn(keeping).await;
        let mut keeper = keeper.map_err(|error| format!("unshare: {error}"))?;
        let said = keeper.stdout.take().ok_or("unshare has no output")?;
        let mut byte = [0];
        let mut said = tokio::io::BufReader::new(said);
        // it writes a byte when it is in its namespace
        let there = tokio::io::AsyncReadExt::read_exact(&mut said, &mut byte).await;
        there.map_err(|_| "a mount namespace was refused: unshare ended".to_owned())?;
        let volumes = Self {
            keeper,
            folder: folder.to_owned(),
        };
        for name in names {
            volumes.make(name).await?;
        }
        Ok(volumes)
    }

    async fn make(&self, name: &str) -> Result<(), String> {
        let image = self.image(name);
        let failed = |error: io::Error| format!("{}: {error}", image.display());
        let made = File::create(&image).and_then(|file| file.set_len(SIZE));
        made.map_err(failed)?;
        fs::create_dir_all(self.folder.join(name)).map_err(failed)?;
        let mut making = Command::new(find_on_machine("mkfs.ext4").unwrap_or_default());
        run(making.args(["-q", "-F", "-m", "0", "-O", "^resize_inode"]).arg(&image)).await?;
        self.mount(name).await
    }

    fn image(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ext4"))
    }

    async fn mount(&self, name: &str) -> Result<(), String> {
        let mount = find_on_machine("mount").unwrap_or_default();
        let mut mounting = self.inside(Path::new("/"), &mount);
        mounting.args(["-t", "ext4", "-o", "loop"]);
        run(mounting.arg(self.image(name)).arg(self.folder.join(name))).await
    }

    /// Returns `program_there` as a command in the mount namespace, in a folder there.
    pub fn inside(&self, folder: &Path, program_there: &Path) -> Command {
        let mut command = Command::new(find_on_machine("nsenter").unwrap_or_default());
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.keeper.id().unwrap_or_default()));
        // the folder is resolved there, and not at the start of nsenter
        command.args(["--", "sh", "-c", r#"cd "$0" && exec "$@""#]);
        command.arg(folder).arg(program_there);
        command
    }

    /// Writes all data there to the disk: the files with which a server starts are not its own to sync.
    pub fn sync(&self, folder: &Path) -> io::Result<()> {
        nix::unistd::syncfs(File::open(self.seen_at(folder))?)?;
        Ok(())
    }

    /// Returns the path by which harness reaches a path on one of the file systems.
    pub fn seen_at(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.keeper.id().unwrap_or_default()));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// Takes every free block of a server's file system. Blocks that were allocated before can still be written.
    pub fn fill(&self, name: &str) -> Result<(), String> {
        let failed = |error: io::Error| format!("{name}: {error}");
        let file = File::options().create(true).append(true).open(self.filler(name));
        let file = file.map_err(failed)?;
        let mut length = file.metadata().map_err(failed)?.len();
        let state = statvfs::fstatvfs(&file).map_err(|error| failed(error.into()))?;
        let block = state.fragment_size();
        let mut piece = SIZE;
        // a piece that does not fit is halved; the file system needs some blocks itself to account for those that are taken
        while piece >= block {
            match fallocate(&file, FallocateFlags::empty(), length as i64, piece as i64) {
                Ok(()) => length += piece,
                Err(Errno::ENOSPC) => piece /= 2,
                Err(error) => return Err(failed(error.into())),
            }
        }
        match self.is_full(name)? {
            true => Ok(()),
            false => Err(format!("{name}: blocks are free and cannot be taken")),
        }
    }

    /// Whether no block is free on a server's file system.
    pub fn is_full(&self, name: &str) -> Result<bool, String> {
        let state = statvfs::statvfs(&self.seen_at(&self.folder.join(name)));
        let state = state.map_err(|error| format!("{name}: {error}"))?;
        Ok(state.blocks_available() == 0)
    }

    /// Frees the blocks that [`Volumes::fill`] took.
    pub fn free(&self, name: &str) -> Result<(), String> {
        let removed = match fs::remove_file(self.filler(name)) {
            // removed with all files of a replaced server
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        // blocks are free for others after the removal is in the journal
        let freed = removed.and_then(|()| self.sync(&self.folder.join(name)));
        freed.map_err(|error| format!("{name}: {error}"))
    }

    fn filler(&self, name: &str) -> PathBuf {
        self.seen_at(&self.folder.join(name)).join(FILLER)
    }

    /// Cuts the power of a server whose processes have ended: unsynced data are lost, unless the kernel wrote them. Returns the
    /// number of files that changed or disappeared.
    pub async fn cut_power(&self, name: &str) -> Result<u64, String> {
        let root = self.seen_at(&self.folder.join(name));
        let failed = |error: io::Error| format!("the power of {name}: {error}");
        let before = contents(&root).await.map_err(failed)?;
        let disk = File::open(&root).map_err(failed)?;
        shut_down(&disk).map_err(failed)?;
        drop(disk);
        let umount = find_on_machine("umount").unwrap_or_default();
        let unmount = || async { run(self.inside(Path::new("/"), &umount).arg(self.folder.join(name))).await };
        let clock = GroundClock::Real;
        clock.try_until(clock.after(UNMOUNT), TRY, unmount).await?;
        self.mount(name).await?;
        let after = contents(&root).await.map_err(failed)?;
        let lost = before.iter().filter(|(path, was)| after.get(*path) != Some(*was));
        Ok(lost.count() as u64)
    }
}

/// Runs a program to its end. The error is its output.
async fn run(command: &mut Command) -> Result<(), String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().await;
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{name}: {}", said.trim().lines().next().unwrap_or("it failed"))),
    }
}

/// Reads the files of a server below a folder: some ten megabytes for one of a run.
async fn contents(root: &Path) -> io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let root = root.to_owned();
    let read = tokio::task::spawn_blocking(move || {
        let mut found = BTreeMap::new();
        let mut folders = vec![root];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                let (path, kind) = (entry.path(), entry.file_type()?);
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() && path.file_name() != Some(OsStr::new(FILLER)) {
                    let contents = fs::read(&path)?;
                    found.insert(path, contents);
                }
            }
        }
        Ok(found)
    });
    read.await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Shuts a file system down at once, with nothing written that is not on its disk: `FS_IOC_SHUTDOWN`.
#[expect(
    unsafe_code,
    reason = "a request to a file system is a number and a structure of the kernel's"
)]
fn shut_down(root: &File) -> io::Result<()> {
    const WITHOUT_LOG: u32 = 2;
    nix::ioctl_read!(shutdown, b'X', 125, u32);
    let mut flags = WITHOUT_LOG;
    // SAFETY: the kernel reads one number at this address.
    unsafe { shutdown(root.as_raw_fd(), &raw mut flags) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Makes file systems in a folder, or returns `None` if this user may not mount any.
    async fn laid_out(folder: &Path, names: &[&str]) -> Option<Volumes> {
        match Volumes::lay_out(folder, names.iter().copied()).await {
            Err(why) if !nix::unistd::geteuid().is_root() => {
                eprintln!("skipped: {why}");
                None
            }
            made => Some(made.unwrap()),
        }
    }

    #[tokio::test]
    async fn what_was_synced_is_there_after_a_cut_and_what_was_not_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let Some(volumes) = laid_out(folder.path(), &["n1"]).await else {
            return;
        };
        let data = volumes.seen_at(&folder.path().join("n1"));
        let mut file = File::create(data.join("log")).unwrap();
        file.write_all(b"synced ").unwrap();
        file.sync_all().unwrap();
        file.write_all(b"not").unwrap();
        fs::write(data.join("new"), "not synced either").unwrap();
        drop(file);
        let lost = volumes.cut_power("n1").await.unwrap();
        assert_eq!(fs::read(data.join("log")).unwrap(), b"synced ");
        assert!(!fs::read(data.join("new")).is_ok_and(|read| !read.is_empty()));
        assert_eq!(lost, 2);
        assert!(!folder.path().join("n1/log").exists(), "nobody else sees the mount");
        assert_eq!(volumes.cut_power("n1").await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_full_disk_refuses_what_needs_a_new_block_until_it_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let Some(volumes) = laid_out(folder.path(), &["n1", "n2"]).await else {
            return;
        };
        let [data, other] = ["n1", "n2"].map(|name| volumes.seen_at(&folder.path().join(name)));
        let mut old = File::create(data.join("old")).unwrap();
        old.write_all(&[b'a'; 4096]).unwrap();
        old.sync_all().unwrap();
        assert_eq!(volumes.is_full("n1"), Ok(false));
        for _ in 0..2 {
            volumes.fill("n1").unwrap();
            assert_eq!((volumes.is_full("n1"), volumes.is_full("n2")), (Ok(true), Ok(false)));
            let refused = old.write_all(&[b'b'; 4096]).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
            fs::write(other.join("new"), [b'c'; 4096]).unwrap();
        }
        drop(old);
        let lost = volumes.cut_power("n1").await.unwrap();
        assert_eq!(lost, 0, "what fills it is no file of the server");
        let mut old = File::options().append(true).open(data.join("old")).unwrap();
        for _ in 0..2 {
            volumes.free("n1").unwrap();
        }
        assert_eq!(volumes.is_full("n1"), Ok(false));
        old.write_all(&[b'b'; 4096]).unwrap();
        old.sync_all().unwrap();
        assert_eq!(fs::read(data.join("old")).unwrap().len(), 8192);
        assert!(!data.join(FILLER).exists());
    }
}
