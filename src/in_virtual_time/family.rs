//! A family of processes ([`Family`]): one program that runs in the time of a world, with what it forks.
//!
//! A step gives the family its turn and waits, in real time, until it is quiet: every thread of it waits. Nothing else happens
//! meanwhile, in the world or in another family. What the family wrote until then leaves it at that moment.

mod output;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use harness_simulation::{ScheduledCall, World};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::Child;

use super::ends::{EndNumber, FamilyEnd, FamilySaid, OnSaid};
use super::hindrance::{Hindrance, Patience, is_static};
use super::memory::{self, SharedPage};
use super::page::{CONNECTIONS, NEVER, about, connection, dirty, state};
use super::wall_clock::FamilyClock;
use crate::process::{Activity, activity};

/// Between two looks at a family that does not become quiet.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a process that gave up its last turn takes to end, at most.
const ENDS: Duration = Duration::from_secs(5);

/// The state that steps change.
#[derive(Default)]
struct FamilyState {
    ends: BTreeMap<EndNumber, FamilyEnd>,
    next_end: EndNumber,
    due: Option<ScheduledCall>,
    child: Option<Child>,
}

/// Called when a family did something on the network.
pub type OnNetwork = Box<dyn Fn(&Rc<Family>)>;
/// Called with how it ended.
type OnEnd = Box<dyn FnOnce(&str)>;

/// A program and what came of it.
pub struct Family {
    pub world: World,
    /// `client c0`, `server n1`.
    pub name: String,
    /// The file of its first program.
    program: PathBuf,
    /// What the paths of its sockets and of its page begin with.
    pub path: PathBuf,
    page: SharedPage,
    clock: Arc<FamilyClock>,
    group: Pid,
    state: RefCell<FamilyState>,
    /// How many faults stop it now.
    stops: Cell<u32>,
    /// What its threads are to look at, at its next step.
    stirred: RefCell<Vec<u64>>,
    has_begun: Cell<bool>,
    dialled: Cell<u32>,
    is_over: Cell<bool>,
    /// How it ended, once it has.
    ended: RefCell<Option<String>>,
    on_network: OnNetwork,
    on_end: RefCell<Option<OnEnd>>,
    on_hindrance: Box<dyn Fn(String)>,
}

/// What a family is begun with.
pub struct FamilyParts {
    pub world: World,
    pub name: String,
    pub program: PathBuf,
    pub path: PathBuf,
    pub page: SharedPage,
    pub clock: Arc<FamilyClock>,
    pub child: Child,
    /// Called when it has dialled, or begun to listen.
    pub on_network: OnNetwork,
    /// Called with a sentence when it keeps the world from going on.
    pub on_hindrance: Box<dyn Fn(String)>,
}

impl Family {
    /// A family whose first process was started, and which has not made a step.
    pub fn of(parts: FamilyParts) -> Rc<Self> {
        let group = Pid::from_raw(parts.child.id().unwrap_or_default() as i32);
        let state = FamilyState {
            child: Some(parts.child),
            ..FamilyState::default()
        };
        Rc::new(Self {
            world: parts.world,
            name: parts.name,
            program: parts.program,
            path: parts.path,
            page: parts.page,
            clock: parts.clock,
            group,
            state: RefCell::new(state),
            stops: Cell::new(0),
            stirred: RefCell::default(),
            has_begun: Cell::new(false),
            dialled: Cell::new(0),
            is_over: Cell::new(false),
            ended: RefCell::default(),
            on_network: parts.on_network,
            on_end: RefCell::default(),
            on_hindrance: parts.on_hindrance,
        })
    }

    /// Adds an end; what it says is given to `on_said` after each step.
    pub fn add_end(&self, descriptor: OwnedFd, on_said: Option<OnSaid>, connection: Option<u16>) -> EndNumber {
        let mut state = self.state.borrow_mut();
        let number = state.next_end;
        state.next_end += 1;
        let end = FamilyEnd {
            descriptor,
            on_said,
            connection,
            unsent: Default::default(),
            is_closing: false,
        };
        state.ends.insert(number, end);
        number
    }

    /// Calls this with how it ended, once it has.
    pub fn on_end(&self, call: impl FnOnce(&str) + 'static) {
        *self.on_end.borrow_mut() = Some(Box::new(call));
    }

    pub fn is_over(&self) -> bool {
        self.is_over.get()
    }

    pub fn ended(&self) -> Option<String> {
        self.ended.borrow().clone()
    }

    pub fn is_stopped(&self) -> bool {
        self.stops.get() > 0
    }

    pub fn set_connection(&self, number: u16, became: u8) {
        self.page.connections[usize::from(number)].store(became, SeqCst);
        self.stir(Some(number));
    }

    /// Its threads look at a connection, or at the input of its first process, at its next step.
    fn stir(&self, connection: Option<u16>) {
        let about = connection.map_or(about::LOCAL, about::connection);
        let mut stirred = self.stirred.borrow_mut();
        if !stirred.contains(&about) {
            stirred.push(about);
        }
    }

    /// Whether it has bound this port, at which it listens a moment later.
    pub fn listens(&self, port: u16) -> bool {
        self.path.with_extension(format!("{port:05}")).exists()
    }

    /// The number of a connection that harness dials.
    pub fn next_connection(&self) -> u16 {
        let made = self.page.connections_made.fetch_add(1, SeqCst);
        let number = (made as usize % CONNECTIONS) as u16;
        self.page.connections[usize::from(number)].store(connection::OPEN, SeqCst);
        // one that listens takes it
        self.stirred.borrow_mut().push(about::ANY);
        number
    }

    /// Writes to an end; what has no room waits there. The family does not look at it before its next step.
    pub fn write(&self, number: EndNumber, bytes: &[u8]) {
        let mut state = self.state.borrow_mut();
        if let Some(end) = state.ends.get_mut(&number) {
            end.unsent.extend(bytes);
            end.flush();
            self.stir(end.connection);
        }
    }

    /// Closes an end, behind what it has no room for yet unless it is reset; how the family sees that is said where it is a
    /// connection.
    pub fn close(&self, number: EndNumber, became: u8) {
        let mut state = self.state.borrow_mut();
        let (closed, said) = match state.ends.get_mut(&number) {
            Some(end) if !end.unsent.is_empty() && became == connection::CLOSED => {
                end.is_closing = true;
                (None, end.on_said.take())
            }
            Some(_) => (state.ends.remove(&number), None),
            None => return,
        };
        drop(state);
        drop(said);
        match closed.as_ref().map(|end| end.connection) {
            Some(Some(number)) => self.set_connection(number, became),
            Some(None) => self.stir(None),
            None => {}
        }
        drop(closed);
    }

    /// Its threads look at what was stirred, and those whose time has come go on.
    pub fn step(self: &Rc<Self>) {
        if self.is_over.get() || self.is_stopped() {
            return;
        }
        // its first program runs since it was started
        if self.has_begun.replace(true) {
            self.go();
        }
        self.settle();
    }

    /// Gives the turn to a family that is quiet.
    fn go(&self) {
        let now = self.world.clock_ns();
        self.page.now.store(now, SeqCst);
        self.clock.show_to(&self.page);
        for about in self.stirred.take() {
            self.page.poke(about);
        }
        self.page.end_due(now);
        while let Some(pid) = self.page.due_alarm(now) {
            self.signal(pid, Signal::SIGALRM);
        }
        if self.page.owner.load(SeqCst) == 0 {
            self.pass_turn();
        }
    }

    /// Sends a signal to one of its processes, which sees it at its next step.
    fn signal(&self, pid: u32, signal: Signal) {
        let _ = kill(Pid::from_raw(pid as i32), signal);
        self.page.signals.fetch_add(1, SeqCst);
        self.page.poke_process(pid);
    }

    /// Sends a signal to its first process, which looks at it now.
    pub fn take_signal(self: &Rc<Self>, signal: Signal) {
        if !self.is_over() {
            self.signal(self.group.as_raw() as u32, signal);
            self.step();
        }
    }

    fn pass_turn(&self) {
        if let Some(next) = self.page.pass_turn() {
            memory::wake(&self.page.slots[next].turn);
        }
    }

    /// Waits until the family is quiet, and takes what it said.
    fn settle(self: &Rc<Self>) {
        loop {
            if let Err(why) = self.await_quiet() {
                self.give_up();
                return (self.on_hindrance)(format!("{}: {why}", self.name));
            }
            let looked = self.page.looked.swap(0, SeqCst);
            self.page.now.fetch_add(looked, SeqCst);
            self.world.spend(Duration::from_nanos(looked));
            self.clock.hear_of(&self.page);
            if !self.take() {
                break;
            }
            // a thread may wait for the room that there is now
            self.page.poke(about::ANY);
            self.pass_turn();
        }
        self.look_for_end();
        self.schedule();
    }

    fn await_quiet(&self) -> Result<(), Hindrance> {
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
            let pid = match slot.pid.load(SeqCst) {
                0 => self.group.as_raw() as u32,
                pid => pid,
            };
            if activity(pid) == Activity::Ending {
                // one that ends in order has given its turn away before
                if self.page.owner.load(SeqCst) != owner {
                    continue;
                }
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
            number => Err(Hindrance::Refused(number - 1)),
        }
    }

    /// A process ended while it had the turn: a signal killed it.
    fn bury(&self, pid: u32) {
        memory::await_end(pid, ENDS);
        for slot in self.page.slots() {
            let is_own = slot.pid.load(SeqCst) == pid || slot.pid.load(SeqCst) == 0;
            if is_own && slot.state.load(SeqCst) != state::FREE {
                slot.state.store(state::FREE, SeqCst);
            }
        }
        self.page.signals.fetch_add(1, SeqCst);
        self.page.dirty.fetch_or(dirty::ALL, SeqCst);
        self.page.poke(about::ANY);
        self.pass_turn();
    }

    /// Notices that its first process has ended.
    fn look_for_end(self: &Rc<Self>) {
        let lives = |slot: &super::page::Slot| slot.state.load(SeqCst) != state::FREE;
        if self.is_over.get() || self.page.slots().iter().any(lives) {
            return;
        }
        let status = self.state.borrow_mut().child.as_mut().map(Child::try_wait);
        let how = match status {
            Some(Ok(Some(status))) => status.to_string(),
            _ => "it ended".to_owned(),
        };
        self.be_over(&how);
    }

    fn be_over(self: &Rc<Self>, how: &str) {
        self.is_over.set(true);
        *self.ended.borrow_mut() = Some(how.to_owned());
        self.state.borrow_mut().due = None;
        // what it said before
        let numbers: Vec<_> = self.state.borrow().ends.keys().copied().collect();
        for number in numbers {
            self.take_from(number, true);
        }
        self.close_all();
        if let Some(call) = self.on_end.borrow_mut().take() {
            call(how);
        }
    }

    fn close_all(&self) {
        loop {
            let next = self.state.borrow_mut().ends.pop_first();
            let Some((_, end)) = next else { return };
            if let Some(on_said) = end.on_said {
                on_said(FamilySaid::End);
            }
        }
    }

    /// Has the world come back when the next wait ends.
    fn schedule(self: &Rc<Self>) {
        if self.is_over.get() {
            return;
        }
        let at = self.page.next_deadline();
        let family = Rc::downgrade(self);
        let due = (at != NEVER).then(|| {
            let step = move || {
                if let Some(family) = family.upgrade() {
                    family.step();
                }
            };
            self.world.call_at(Duration::from_nanos(at), step)
        });
        let before = std::mem::replace(&mut self.state.borrow_mut().due, due);
        drop(before);
    }

    /// Stops it until [`Family::go_on`] was called as often.
    pub fn stop(&self) {
        self.stops.set(self.stops.get() + 1);
    }

    pub fn go_on(self: &Rc<Self>) {
        self.stops.set(self.stops.get().saturating_sub(1));
        if !self.is_stopped() {
            self.step();
        }
    }

    /// Kills all of it, at this moment. What it said before is still heard.
    pub fn kill(self: &Rc<Self>) {
        if self.is_over.get() {
            return;
        }
        self.end_processes();
        let how = self.state.borrow_mut().child.as_mut().map(Child::try_wait);
        let how = match how {
            Some(Ok(Some(status))) => status.to_string(),
            _ => "it was killed".to_owned(),
        };
        self.be_over(&how);
    }

    /// Ends the processes of one that cannot go on; nobody hears of it any more.
    fn give_up(&self) {
        self.is_over.set(true);
        self.end_processes();
        let mut state = self.state.borrow_mut();
        state.due = None;
        let ends = std::mem::take(&mut state.ends);
        drop(state);
        drop(ends);
    }

    fn end_processes(&self) {
        let _ = killpg(self.group, Signal::SIGKILL);
        let mut pids: Vec<u32> = self
            .page
            .processes
            .iter()
            .map(|process| process.pid.load(SeqCst))
            .collect();
        pids.push(self.group.as_raw() as u32);
        for pid in pids.into_iter().filter(|pid| *pid != 0) {
            if activity(pid) != Activity::Ending {
                // one that left the group
                let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
            }
            memory::await_end(pid, ENDS);
        }
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if !self.is_over.get() {
            self.end_processes();
        }
    }
}
