//! The start of a program ([`start_process`]). A client that promises `forks` has a *startup*, until it waits for the first time: its time
//! and its random numbers are the same in each, so that it may as well be a fork of a program that has started before.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use tokio::process::Command;
use tokio::runtime::Handle;

use super::UPTIME;
use super::hindrance::is_static;
use super::library;
use super::memory::{SharedPage, lie_still, prepare, sleep_on};
use super::page::VARIABLE;
use super::processes::FirstProcess;
use super::trace;
use crate::cluster::find_program;
use crate::process::{self, Activity, activity};

/// The first number of processes: no kernel gives as large ones.
pub const FIRST_NUMBER: u32 = 5_000_000;
/// The seed of the random numbers of a startup.
pub const STARTUP_SEED: u64 = 1;

/// Returns the prefix of a family's paths. All are of one length, so that memory behind the environment has the same addresses.
pub fn family_path(folder: &Path, short: &str, number: u32) -> PathBuf {
    folder.join(format!("{short:->6}-{number:05}"))
}

/// Returns the file of the page of a family.
pub fn page_of(path: &Path) -> PathBuf {
    path.with_extension("page")
}

/// Writes the time of a startup to a page.
pub fn show_startup(page: &SharedPage, epoch: i64) {
    page.now.store(UPTIME.as_nanos() as u64, SeqCst);
    page.epoch.store(epoch, SeqCst);
}

/// The path, the address and the seeds of a new family.
pub struct FamilyLot {
    pub path: PathBuf,
    /// The seed of its random numbers.
    pub first_seed: u64,
    /// The seed once its startup is over, if it has one.
    pub startup: Option<u64>,
    pub address: Ipv4Addr,
    /// The first number of its processes.
    pub numbers: u32,
    /// The seed of the order of its threads, or 0.
    pub order: u64,
    /// The source of all else that is drawn of it.
    pub dice: ChaCha8Rng,
}

impl FamilyLot {
    /// Makes the parts that its first process needs, which runs in parallel with harness until it waits.
    pub fn lay_out(&self) -> Result<FamilyPlot, io::Error> {
        let (page, net) = (page_of(&self.path), self.path.with_extension("net"));
        // those of a fork that failed, which may still run for a moment
        let _ = [&page, &net].map(fs::remove_file);
        let page = SharedPage::make(&page)?;
        prepare(&page, &self.path, (self.first_seed, self.address, self.numbers))?;
        page.order.store(self.order, SeqCst);
        let dialled = UnixListener::bind(net)?;
        dialled.set_nonblocking(true)?;
        Ok(FamilyPlot { page, dialled })
    }
}

/// The parts of a family that exist before its first process.
pub struct FamilyPlot {
    pub page: SharedPage,
    /// Accepts the connections that the family dials.
    pub dialled: UnixListener,
}

/// A process that was started or forked, and its pipes, where there are any.
pub struct StartedProcess {
    pub first: FirstProcess,
    /// The file of its program.
    pub program: PathBuf,
    pub input: Option<OwnedFd>,
    pub output: Option<OwnedFd>,
}

/// Changes the command of a static program so that another one executes it: the library is loaded into that, and starts the static one.
pub fn execute_static(program: &mut String, arguments: &mut Vec<String>) {
    const EXECUTES: &str = "env";
    let file = find_program(program);
    if is_static(file.as_deref().unwrap_or(Path::new(program))) {
        arguments.insert(0, std::mem::replace(program, EXECUTES.to_owned()));
    }
}

/// Held while a process that harness starts has copies of the descriptors of harness, which the jobs of a hunt share.
static COPIES: Mutex<()> = Mutex::new(());

/// Waits until there are no copies, and keeps harness from starting a process.
pub fn without_copies() -> MutexGuard<'static, ()> {
    COPIES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits, in real time, until a process has the library, or has ended: it has no copies any more before its program begins.
fn await_program(page: &SharedPage, pid: u32) {
    const LONGEST: Duration = Duration::from_secs(1);
    const LOOK_AGAIN: Duration = Duration::from_millis(1);
    let until = Instant::now() + LONGEST;
    let loaded = &page.slots[0].loaded;
    // it may execute another program by now
    let has_begun = || loaded.load(SeqCst) != 0 || page.calls.load(SeqCst) != 0;
    while !has_begun() && activity(pid) != Activity::Ending && Instant::now() < until {
        sleep_on(loaded, 0, LOOK_AGAIN);
    }
}

/// Starts the first process of a family, which has this path and this page, with the library in a folder.
pub fn start_process(
    mut command: Command,
    (folder, path, page): (&Path, &Path, &SharedPage),
    processor: Option<usize>,
    runtime: &Handle,
) -> io::Result<StartedProcess> {
    surround(&mut command, folder, &page_of(path), processor);
    let program = command.as_std().get_program().to_owned();
    let program = find_program(&program.to_string_lossy()).unwrap_or(program.into());
    let mut child = {
        let (_alone, _inside) = (without_copies(), runtime.enter());
        let child = runtime.block_on(process::spawn(command))?;
        await_program(page, child.id().unwrap_or_default());
        child
    };
    let input = child.stdin.take().map(|pipe| pipe.into_owned_fd()).transpose()?;
    let output = child.stdout.take().map(|pipe| pipe.into_owned_fd()).transpose()?;
    Ok(StartedProcess {
        first: FirstProcess::Started(child),
        program,
        input,
        output,
    })
}

/// Sets the environment of a program, so that it is in virtual time and the same each time.
fn surround(command: &mut Command, folder: &Path, page: &Path, processor: Option<usize>) {
    command
        .env("LD_PRELOAD", folder.join(library::NAME))
        .env(VARIABLE, page);
    // variables that a shell sets differ each time, and move all that lies behind the environment
    for of_shell in ["_", "OLDPWD", "PWD", "SHLVL"] {
        command.env_remove(of_shell);
    }
    command.env_remove(trace::VARIABLE);
    // the C library would read in its own memory which processor a thread is on
    command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    // Python would keep what it compiles, which changes the calls of the next run
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    // Go would preempt its threads by the clock
    command.env("GOMAXPROCS", "1").env("GODEBUG", "asyncpreemptoff=1");
    lie_still(command, processor);
}
