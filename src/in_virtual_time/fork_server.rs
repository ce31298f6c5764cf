//! The fork server ([`ForkServer`]): a client's program starts once for many experiments, and each of its clients is a fork of it.
//!
//! A client is forked if it promises `forks`, waits for its first input, and has done nothing by then that two processes would share: it
//! has one process with one thread, its three pipes and files, and no connection. A Python client is such a program, a JVM is not. A fork
//! and a started client do the same.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use tokio::runtime::Handle;

use super::library;
use super::memory::{self, SharedPage, prepare, write_path};
use super::page::{FAILED, FILES, NEVER, about, kind, state};
use super::processes::{FamilyProcesses, FirstProcess, LOOK_AGAIN};
use super::startup::{FIRST_NUMBER, STARTUP_SEED, StartedProcess, family_path, page_of, show_startup, start_process};
use super::trace;
use crate::cluster::leftovers::claim::Claim;
use crate::process::{self, Activity, activity};
use crate::run::ChildCommand;

/// The longest time that a fork takes, in real time.
const FORKS: Duration = Duration::from_secs(5);

/// The command of a client, with its log.
pub struct ClientProgram<'a> {
    pub command: &'a ChildCommand,
    /// The file of its errors.
    pub log: &'a Path,
    /// Whether it promises that it may be a fork.
    pub forks: bool,
}

/// A request for a fork: the client, and the parts of its family.
pub struct WantedFork<'a> {
    pub client: &'a ClientProgram<'a>,
    /// The reading of the wall clock when the clock of the world is 0.
    pub epoch: i64,
    pub page: &'a SharedPage,
    pub path: &'a Path,
    pub runtime: &'a Handle,
    pub processor: Option<usize>,
}

/// The fork server of several experiments, which starts with the first client. It ends when this is dropped.
#[derive(Default)]
pub struct ForkServer(Mutex<Option<ServedProgram>>);

/// The program of the last client that asked for a fork.
struct ServedProgram {
    command: ChildCommand,
    /// `None`: it cannot be forked.
    begun: Option<BegunProgram>,
}

impl ForkServer {
    /// Forks this client's program. Returns `None` if it is to be started, with a new page.
    pub fn fork(&self, wanted: &WantedFork<'_>) -> Option<StartedProcess> {
        let mut served = self.0.lock().ok()?;
        let command = wanted.client.command;
        if served.as_ref().is_none_or(|served| served.command != *command) {
            // the one before ends first
            *served = None;
            *served = Some(ServedProgram {
                command: command.clone(),
                begun: BegunProgram::begin(wanted),
            });
        }
        let begun = &mut served.as_mut()?.begun;
        let forked = begun.as_ref()?.fork(wanted);
        if forked.is_err() {
            *begun = None;
        }
        forked.ok()
    }
}

/// A program that has started and waits for its first input.
struct BegunProgram {
    processes: FamilyProcesses,
    program: PathBuf,
    path: PathBuf,
    /// The file of its errors.
    log: PathBuf,
    input: OwnedFd,
    output: OwnedFd,
    /// Its descriptors of its input, its output or its errors, with the flags of each.
    files: Vec<(u32, ClientFile, u32)>,
    /// The folder of its page.
    _claim: Claim,
}

/// A file of a client, of which each fork has its own.
#[derive(Clone, Copy)]
enum ClientFile {
    Input,
    Output,
    Log,
}

impl BegunProgram {
    /// Starts the program. `None`: it cannot be forked, or does not start; a client that is started instead says why.
    fn begin(wanted: &WantedFork<'_>) -> Option<Self> {
        let claim = library::claim().ok()?;
        let path = family_path(claim.folder(), "fork", 0);
        // the environment of a started client has the same length
        if path.as_os_str().len() != wanted.path.as_os_str().len() {
            return None;
        }
        trace::share(wanted.path, claim.folder()).ok()?;
        let page = SharedPage::make(&page_of(&path)).ok()?;
        prepare(&page, &path, (STARTUP_SEED, Ipv4Addr::LOCALHOST, FIRST_NUMBER)).ok()?;
        show_startup(&page, wanted.epoch);
        let log = path.with_extension("log");
        let command = wanted.client.command.command(&log).ok()?;
        let own = (claim.folder(), &*path, &page);
        let started = start_process(command, own, wanted.processor, wanted.runtime).ok()?;
        let mut begun = Self {
            processes: FamilyProcesses::of(started.first, started.program.clone(), page),
            program: started.program,
            path,
            log,
            input: started.input?,
            output: started.output?,
            files: Vec::new(),
            _claim: claim,
        };
        begun.processes.await_quiet().ok()?;
        begun.files = begun.own_files().ok().flatten()?;
        begun.can_fork().then_some(begun)
    }

    /// Returns whether a fork of it has nothing in common with it.
    fn can_fork(&self) -> bool {
        let page = &self.processes.page;
        let pid = self.processes.group;
        // the first of each is the first process and its thread; others may have ended
        let (slot, process) = (&page.slots[0], &page.processes[0]);
        let processes = page.processes.iter().filter(|process| process.pid.load(SeqCst) != 0);
        let is_one = page.living().count() == 1
            && processes.count() == 1
            && slot.pid.load(SeqCst) == pid.as_raw() as u32
            && process.pid.load(SeqCst) == pid.as_raw() as u32;
        let waits_for_input = slot.state.load(SeqCst) == state::WAITS
            && slot.kind.load(SeqCst) == kind::DESCRIPTORS
            && slot.word.load(SeqCst) == about::LOCAL
            && page.next_deadline() == NEVER;
        let has_dialled = page.dialled.load(SeqCst) != 0 || page.inherits.load(SeqCst) != 0;
        let mut output = [PollFd::new(self.output.as_fd(), PollFlags::POLLIN)];
        let has_said_something = !matches!(poll(&mut output, PollTimeout::ZERO), Ok(0));
        waits_for_input && is_one && !has_dialled && !has_said_something && is_alone(pid, &page_of(&self.path))
    }

    /// Returns its descriptors, without those that every client inherits from harness. `None`: there are others.
    fn own_files(&self) -> io::Result<Option<Vec<(u32, ClientFile, u32)>>> {
        let own = format!("/proc/{}", self.processes.group);
        let here = |number: &dyn std::fmt::Display| fs::read_link(format!("/proc/self/fd/{number}"));
        let (input, output) = (here(&self.input.as_raw_fd())?, here(&self.output.as_raw_fd())?);
        let mut files = Vec::new();
        for entry in fs::read_dir(format!("{own}/fd"))? {
            let entry = entry?;
            let number = entry.file_name().to_string_lossy().into_owned();
            let file = match fs::read_link(entry.path())? {
                is if is == input => ClientFile::Input,
                is if is == output => ClientFile::Output,
                is if is == self.log => ClientFile::Log,
                is if here(&number).is_ok_and(|same| same == is) => continue,
                _ => return Ok(None),
            };
            let about = fs::read_to_string(format!("{own}/fdinfo/{number}"))?;
            let flags = about.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            let (Ok(number), Some(flags)) = (number.parse(), flags) else {
                return Ok(None);
            };
            files.push((number, file, flags));
        }
        Ok((files.len() <= FILES).then_some(files))
    }

    fn fork(&self, wanted: &WantedFork<'_>) -> io::Result<StartedProcess> {
        let (page, order) = (wanted.page, &self.processes.page.fork);
        let (numbers, address) = (page.numbers.load(SeqCst), page.address.load(SeqCst));
        page.copy_from(&self.processes.page);
        // the answer of the fork before
        page.fork.answer.store(0, SeqCst);
        write_path(wanted.path, &page.path)?;
        page.address.store(address, SeqCst);
        page.numbers.store(numbers, SeqCst);
        for number in [&page.slots[0].number, &page.processes[0].number] {
            number.fetch_add(numbers - FIRST_NUMBER, SeqCst);
        }
        let (its_input, input) = pipe2(OFlag::O_CLOEXEC)?;
        let (output, its_output) = pipe2(OFlag::O_CLOEXEC)?;
        let mut log = File::options().create(true).append(true).open(wanted.client.log)?;
        log.write_all(&fs::read(&self.log)?)?;
        for (kept, (descriptor, file, flags)) in order.files.iter().zip(&self.files) {
            let file = match file {
                ClientFile::Input => its_input.as_raw_fd(),
                ClientFile::Output => its_output.as_raw_fd(),
                ClientFile::Log => log.as_raw_fd(),
            };
            kept.descriptor.store(descriptor + 1, SeqCst);
            kept.file.store(file as u32, SeqCst);
            kept.flags.store(*flags, SeqCst);
        }
        write_path(wanted.path, &order.path)?;
        let processor = wanted.processor.map_or(0, |number| number as u32 + 1);
        order.processor.store(processor, SeqCst);
        order.answer.store(0, SeqCst);
        order.wanted.store(1, SeqCst);
        let turn = &self.processes.page.slots[0].turn;
        turn.fetch_add(1, SeqCst);
        memory::wake(turn);
        let forked = answered(&order.answer, self.processes.group)?;
        let pid = Pid::from_raw(forked as i32);
        if let Err(error) = answered(&page.fork.answer, pid) {
            // without a handle it is reaped as an orphan
            let _ = kill(pid, Signal::SIGKILL);
            return Err(error);
        }
        process::leave_to_its_handle(forked);
        Ok(StartedProcess {
            first: FirstProcess::Forked(pid),
            program: self.program.clone(),
            input: Some(input),
            output: Some(output),
        })
    }
}

impl Drop for BegunProgram {
    fn drop(&mut self) {
        self.processes.end();
    }
}

/// Waits, in real time, for the answer of a process.
fn answered(word: &AtomicU32, by: Pid) -> io::Result<u32> {
    let until = Instant::now() + FORKS;
    loop {
        match word.load(SeqCst) {
            0 if activity(by.as_raw() as u32) == Activity::Ending || Instant::now() > until => {
                return Err(io::Error::other("the fork server does not answer"));
            }
            0 => memory::sleep_on(word, 0, LOOK_AGAIN),
            FAILED => return Err(io::Error::other("the fork server could not fork")),
            pid => return Ok(pid),
        }
    }
}

/// Returns whether a process has one thread, and no writable memory that it shares with others but this page.
fn is_alone(pid: Pid, page: &Path) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return false;
    };
    let page = page.display().to_string();
    let is_shared = |line: &str| {
        let rights = line.split(' ').nth(1);
        rights.is_some_and(|rights| rights.ends_with('s') && rights.contains('w'))
    };
    threads == 1 && !maps.lines().any(|line| is_shared(line) && !line.ends_with(&page))
}
