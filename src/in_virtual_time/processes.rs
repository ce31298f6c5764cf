//! The processes of a family ([`FamilyProcesses`]), which share one page with harness.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use tokio::process::Child;

use super::hindrance::{Hindrance, Patience, is_static};
use super::memory::{self, SharedPage};
use super::page::{about, dirty};
use crate::process::{Activity, activity};

/// The time between two looks at a family that does not become quiet.
pub const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// The longest time that a process takes to end after its last turn, also on a busy machine: its files and its status are known then.
const ENDS: Duration = Duration::from_secs(60);

/// The first process of a family, a child of harness.
pub enum FirstProcess {
    Started(Child),
    /// A fork of a fork server.
    Forked(Pid),
    /// A fork that was waited for: its number may be that of another child by now.
    Reaped,
}

impl FirstProcess {
    fn pid(&self) -> Pid {
        match self {
            Self::Started(child) => Pid::from_raw(child.id().unwrap_or_default() as i32),
            Self::Forked(pid) => *pid,
            Self::Reaped => unreachable!("a family begins with a process that lives"),
        }
    }

    /// Returns its exit status, if it has ended and that is still known.
    fn status(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Started(child) => child.try_wait().ok().flatten(),
            Self::Forked(pid) => {
                let status = match waitpid(*pid, Some(WaitPidFlag::WNOHANG)).ok()? {
                    WaitStatus::Exited(_, code) => code << 8,
                    WaitStatus::Signaled(_, signal, false) => signal as i32,
                    WaitStatus::Signaled(_, signal, true) => signal as i32 | 0x80,
                    _ => return None,
                };
                *self = Self::Reaped;
                Some(ExitStatus::from_raw(status))
            }
            Self::Reaped => None,
        }
    }
}

/// The processes of a program: the first one, and those that it forked.
pub struct FamilyProcesses {
    pub page: SharedPage,
    /// The file of the first program.
    program: PathBuf,
    pub group: Pid,
    first: RefCell<FirstProcess>,
}

impl FamilyProcesses {
    pub fn of(first: FirstProcess, program: PathBuf, page: SharedPage) -> Self {
        Self {
            page,
            program,
            group: first.pid(),
            first: RefCell::new(first),
        }
    }

    /// Returns the exit status of its first process, where that is known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.first.borrow_mut().status()
    }

    /// Waits until no thread has the turn.
    pub fn await_quiet(&self) -> Result<(), Hindrance> {
        let mut patience = Patience::default();
        loop {
            let owner = self.page.owner.load(SeqCst);
            if owner == 0 {
                let leaving = self.page.leaving_process.swap(0, SeqCst);
                if leaving != 0 {
                    memory::await_end(leaving, ENDS);
                }
                break;
            }
            memory::sleep_on(&self.page.owner, owner, LOOK_AGAIN);
            if self.page.owner.load(SeqCst) != owner {
                continue;
            }
            let slot = &self.page.slots[owner as usize - 1];
            let (own, turn) = (slot.pid.load(SeqCst), slot.turn.load(SeqCst));
            let pid = if own == 0 { self.group.as_raw() as u32 } else { own };
            // a process of which only the first thread has ended continues
            let is_over = activity(pid) == Activity::Ending && memory::await_end(pid, LOOK_AGAIN);
            // a process that ends in order has passed its turn before, and another one may have its slot and the turn by now
            let has_kept_it = slot.pid.load(SeqCst) == own && slot.turn.load(SeqCst) == turn;
            if self.page.owner.load(SeqCst) != owner || !has_kept_it {
                continue;
            }
            if is_over {
                if slot.loaded.load(SeqCst) == 0 {
                    let is_first = slot.pid.load(SeqCst) == 0;
                    let program = self.program.display().to_string();
                    match is_first {
                        true if is_static(&self.program) => return Err(Hindrance::Static { program }),
                        // it could not be started
                        true => {}
                        false => {
                            let program = "a program that it started".to_owned();
                            return Err(Hindrance::Unloaded { program });
                        }
                    }
                }
                self.bury(pid);
                continue;
            }
            let did = self.page.looked.load(SeqCst) + u64::from(self.page.calls.load(SeqCst));
            let thread = match self.page.awaited_process.load(SeqCst) {
                0 => (pid, slot.tid.load(SeqCst)),
                ending => (ending, ending),
            };
            patience.look(thread, slot.loaded.load(SeqCst) != 0, did)?;
        }
        match self.page.refused.load(SeqCst) {
            0 => Ok(()),
            next => Err(Hindrance::Refused { number: next - 1 }),
        }
    }

    /// Frees the threads of a process that a signal killed while it had the turn, and passes the turn.
    fn bury(&self, pid: u32) {
        self.page.free_slots(|slot| [0, pid].contains(&slot.pid.load(SeqCst)));
        if let Some(process) = self.page.process(pid) {
            process.alarm.store(0, SeqCst);
        }
        self.page.signals.fetch_add(1, SeqCst);
        self.page.dirty.fetch_or(dirty::ALL, SeqCst);
        self.page.poke(about::ANY);
        self.pass_turn();
    }

    /// Returns the processes that have not ended, and the first one before them: harness waits for that. The number of another one that has
    /// ended may be that of a process outside of the world by now.
    pub fn pids(&self) -> Vec<u32> {
        let first = self.group.as_raw() as u32;
        let living = self.page.living().map(|slot| slot.pid.load(SeqCst));
        let forked: BTreeSet<u32> = living.filter(|pid| ![0, first].contains(pid)).collect();
        std::iter::once(first).chain(forked).collect()
    }

    /// Kills all processes, and waits until they have ended.
    pub fn end(&self) {
        let _ = killpg(self.group, Signal::SIGKILL);
        for pid in self.pids() {
            if activity(pid) != Activity::Ending {
                // one that left the group
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            memory::await_end(pid, ENDS);
        }
    }

    pub fn pass_turn(&self) {
        if let Some(next) = self.page.pass_turn() {
            memory::wake(&self.page.slots[next].turn);
        }
    }
}

impl Drop for FamilyProcesses {
    fn drop(&mut self) {
        if matches!(*self.first.borrow(), FirstProcess::Forked(_)) {
            // its entry is not left behind
            let _ = self.status();
        }
    }
}
