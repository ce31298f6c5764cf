//! A family of processes ([`Family`]): a program in the time of a world, with the processes that it forks.
//!
//! A step gives the family the turn and waits, in real time, until it is quiet: every thread of it waits. Nothing else happens meanwhile,
//! in the world or in another family. The output of the step is sent at its end.

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
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::disk::ServerDisk;
use super::ends::{EndNumber, FamilyEnd, FamilySaid, OnSaid, close};
use super::page::{NEVER, about, connection};
use super::processes::FamilyProcesses;
use super::wall_clock::FamilyClock;

/// The longest wait of a program for a processor. Without it, of clients that receive messages at once the one with the shortest way to the
/// leader would always come first.
const AWAITED: Duration = Duration::from_millis(1);

/// Called when a family has dialled, or begun to listen.
pub type OnNetwork = Box<dyn Fn(&Rc<Family>)>;
/// Called with the end of a family, in words.
type OnEnd = Box<dyn FnOnce(&str)>;

/// A program in virtual time: its processes, and their progress.
pub struct Family {
    pub world: World,
    /// `client c0`, `server n1`.
    pub name: String,
    /// The prefix of the paths of its sockets and of its page.
    pub path: PathBuf,
    pub processes: FamilyProcesses,
    pub clock: Arc<FamilyClock>,
    pub disk: Option<Rc<ServerDisk>>,
    /// The seed of its random numbers after its startup; `None`: that is over, or there was none.
    pub startup: Cell<Option<u64>>,
    /// The default is that of a family that has made no step.
    pub progress: FamilyProgress,
    /// The source of its waits for a processor when a message arrives, as on a machine with other work; `None`: it does not wait.
    pub processor: Option<RefCell<ChaCha8Rng>>,
    /// Called when it has dialled, or begun to listen.
    pub on_network: OnNetwork,
    /// Called with a sentence when it blocks the world.
    pub on_hindrance: Box<dyn Fn(String)>,
}

/// The progress of a family since its start.
#[derive(Default)]
pub struct FamilyProgress {
    ends: RefCell<BTreeMap<EndNumber, FamilyEnd>>,
    next_end: Cell<EndNumber>,
    /// The call that makes a step at its next deadline.
    due: RefCell<Option<ScheduledCall>>,
    /// The call that wakes it for messages that have arrived.
    wakes: RefCell<Option<ScheduledCall>>,
    /// The number of faults that stop it now.
    stops: Cell<u32>,
    /// The events whose waits end at its next step, of `page::about`.
    stirred: RefCell<Vec<u64>>,
    has_begun: Cell<bool>,
    dialled: Cell<u32>,
    is_over: Cell<bool>,
    /// Its end in words, once it has ended.
    ended: RefCell<Option<String>>,
    on_end: RefCell<Option<OnEnd>>,
}

impl Family {
    /// Returns its processes, the first one first.
    pub fn pids(&self) -> Vec<u32> {
        self.processes.pids()
    }

    /// Adds an end, whose output is given to `on_said` after each step.
    pub fn add_end(&self, descriptor: OwnedFd, on_said: Option<OnSaid>, connection: Option<u16>) -> EndNumber {
        let number = self.progress.next_end.get();
        self.progress.next_end.set(number + 1);
        let end = FamilyEnd {
            descriptor,
            on_said,
            connection,
            unsent: Default::default(),
            is_closing: false,
        };
        self.progress.ends.borrow_mut().insert(number, end);
        number
    }

    /// Sets the function that is called with the end of the family, in words.
    pub fn on_end(&self, call: impl FnOnce(&str) + 'static) {
        *self.progress.on_end.borrow_mut() = Some(Box::new(call));
    }

    pub fn is_over(&self) -> bool {
        self.progress.is_over.get()
    }

    pub fn ended(&self) -> Option<String> {
        self.progress.ended.borrow().clone()
    }

    pub fn is_stopped(&self) -> bool {
        self.progress.stops.get() > 0
    }

    pub fn set_connection(&self, number: u16, became: u8) {
        self.processes.page.connections[usize::from(number)].store(became, SeqCst);
        self.stir(Some(number));
    }

    /// Wakes the threads that wait for a connection, or for the input of its first process, at its next step.
    fn stir(&self, connection: Option<u16>) {
        let about = connection.map_or(about::LOCAL, about::connection);
        let mut stirred = self.progress.stirred.borrow_mut();
        if !stirred.contains(&about) {
            stirred.push(about);
        }
    }

    /// Returns whether it has bound this port, at which it listens a moment later.
    pub fn listens(&self, port: u16) -> bool {
        self.path.with_extension(format!("{port:05}")).exists()
    }

    /// Returns the number of a new connection that harness dials.
    pub fn next_connection(&self) -> u16 {
        let number = self.processes.page.number_connection(connection::OPEN);
        // a thread that listens accepts it
        self.progress.stirred.borrow_mut().push(about::LISTENER);
        number
    }

    /// Writes to an end, which keeps bytes without room. The family does not look at it before its next step.
    pub fn write(&self, number: EndNumber, bytes: &[u8]) {
        if let Some(end) = self.progress.ends.borrow_mut().get_mut(&number) {
            end.unsent.extend(bytes);
            end.flush();
            self.stir(end.connection);
        }
    }

    /// Closes an end, after its unsent bytes unless it is reset; `became` is the state of a connection that the family sees.
    pub fn close(&self, number: EndNumber, became: u8) {
        let mut ends = self.progress.ends.borrow_mut();
        let (closed, said) = match ends.get_mut(&number) {
            Some(end) if !end.unsent.is_empty() && became == connection::CLOSED => {
                end.is_closing = true;
                (None, end.on_said.take())
            }
            Some(_) => (ends.remove(&number), None),
            None => return,
        };
        drop(ends);
        drop(said);
        let Some(closed) = closed else { return };
        close(closed.descriptor);
        match closed.connection {
            Some(number) => self.set_connection(number, became),
            None => self.stir(None),
        }
    }

    /// Makes a step for what has arrived, after a wait for a processor.
    pub fn wake(self: &Rc<Self>) {
        let Some(dice) = &self.processor else {
            return self.step();
        };
        if self.progress.wakes.borrow().is_some() {
            return;
        }
        let wait = dice.borrow_mut().next_u64() % AWAITED.as_nanos() as u64;
        let call = self.call_at(self.world.clock_ns() + wait, |family| {
            family.progress.wakes.take();
            family.step();
        });
        self.progress.wakes.replace(Some(call));
    }

    /// Schedules a call at this time of the world, if the family is there then.
    fn call_at(self: &Rc<Self>, at_ns: u64, call: impl FnOnce(&Rc<Self>) + 'static) -> ScheduledCall {
        let family = Rc::downgrade(self);
        self.world.call_at(Duration::from_nanos(at_ns), move || {
            if let Some(family) = family.upgrade() {
                call(&family);
            }
        })
    }

    /// Runs the threads whose events or deadlines have come, until all of them wait.
    pub fn step(self: &Rc<Self>) {
        if self.progress.is_over.get() || self.is_stopped() {
            return;
        }
        // before its first step it has the turn since its start
        if self.progress.has_begun.replace(true) {
            self.go();
        }
        self.settle();
    }

    /// Gives the turn to a thread of a quiet family.
    fn go(&self) {
        let now = self.world.clock_ns();
        self.processes.page.now.store(now, SeqCst);
        self.clock.show_to(&self.processes.page);
        if let Some(disk) = &self.disk {
            disk.show_to(&self.processes.page);
        }
        for about in self.progress.stirred.take() {
            self.processes.page.poke(about);
        }
        self.processes.page.end_due(now);
        while let Some(pid) = self.processes.page.due_alarm(now) {
            self.signal(pid, Signal::SIGALRM);
        }
        if self.processes.page.owner.load(SeqCst) == 0 {
            self.processes.pass_turn();
        }
    }

    /// Sends a signal to one of its processes, which sees it at its next step.
    fn signal(&self, pid: u32, signal: Signal) {
        let _ = kill(Pid::from_raw(pid as i32), signal);
        self.processes.page.signals.fetch_add(1, SeqCst);
        self.processes.page.poke_process(pid);
    }

    /// Sends a signal to its first process, and makes a step.
    pub fn take_signal(self: &Rc<Self>, signal: Signal) {
        if !self.is_over() {
            self.signal(self.processes.group.as_raw() as u32, signal);
            self.step();
        }
    }

    /// Waits until the family is quiet, and takes its output.
    fn settle(self: &Rc<Self>) {
        loop {
            if let Err(why) = self.processes.await_quiet() {
                self.give_up();
                return (self.on_hindrance)(format!("{}: {why}", self.name));
            }
            if let Some(seed) = self.startup.take() {
                self.end_startup(seed);
            }
            let looked = self.processes.page.looked.swap(0, SeqCst);
            self.processes.page.now.fetch_add(looked, SeqCst);
            self.world.spend(Duration::from_nanos(looked));
            self.clock.hear_of(&self.processes.page);
            if let Some(disk) = &self.disk {
                disk.hear_of(&self.processes.page);
            }
            if !self.take() {
                break;
            }
            // a thread may wait for the room that there is now
            self.processes.page.poke(about::ANY);
            self.processes.pass_turn();
        }
        self.look_for_end();
        self.schedule();
    }

    /// Ends the startup, at the first wait of the family: from now on its time and its random numbers are those of the run.
    fn end_startup(&self, seed: u64) {
        let (page, now) = (&self.processes.page, self.world.clock_ns());
        page.looked.store(0, SeqCst);
        page.paced_calls.store(page.calls.load(SeqCst), SeqCst);
        page.paced_at.store(now.max(1), SeqCst);
        page.seed.store(seed, SeqCst);
        page.postpone(now.saturating_sub(page.now.swap(now, SeqCst)));
        self.clock.show_to(page);
    }

    /// Ends the family if none of its threads lives any more.
    fn look_for_end(self: &Rc<Self>) {
        if !self.progress.is_over.get() && self.processes.page.living().next().is_none() {
            self.be_over("it ended");
        }
    }

    /// Ends the family, whose processes have ended: with the status of the first one, or in these words where that is not known.
    fn be_over(self: &Rc<Self>, otherwise: &str) {
        let how = self.processes.status().map(|status| status.to_string());
        let how = how.unwrap_or_else(|| otherwise.to_owned());
        self.progress.is_over.set(true);
        self.progress.ended.replace(Some(how.clone()));
        self.forget_calls();
        // the output before its end
        let numbers: Vec<_> = self.progress.ends.borrow().keys().copied().collect();
        for number in numbers {
            self.take_from(number, true);
        }
        self.close_all();
        if let Some(call) = self.progress.on_end.borrow_mut().take() {
            call(&how);
        }
    }

    fn forget_calls(&self) {
        self.progress.due.take();
        self.progress.wakes.take();
    }

    fn close_all(&self) {
        loop {
            let next = self.progress.ends.borrow_mut().pop_first();
            let Some((_, end)) = next else { return };
            if let Some(on_said) = end.on_said {
                on_said(FamilySaid::End);
            }
        }
    }

    /// Schedules a step at the next deadline of the family.
    fn schedule(self: &Rc<Self>) {
        if self.progress.is_over.get() {
            return;
        }
        let at = self.processes.page.next_deadline();
        let due = (at != NEVER).then(|| self.call_at(at, Self::step));
        self.progress.due.replace(due);
    }

    /// Stops it until [`Family::go_on`] was called as often.
    pub fn stop(&self) {
        self.progress.stops.set(self.progress.stops.get() + 1);
    }

    pub fn go_on(self: &Rc<Self>) {
        self.progress.stops.set(self.progress.stops.get().saturating_sub(1));
        if !self.is_stopped() {
            self.step();
        }
    }

    /// Kills all processes, at this moment. Their output before is still taken.
    pub fn kill(self: &Rc<Self>) {
        if self.progress.is_over.get() {
            return;
        }
        self.processes.end();
        self.be_over("it was killed");
    }

    /// Kills the processes of a family that blocks the world, without a call of `on_end` or an end of its output.
    fn give_up(&self) {
        self.progress.is_over.set(true);
        self.processes.end();
        self.forget_calls();
        self.progress.ends.take();
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if !self.progress.is_over.get() {
            self.processes.end();
        }
    }
}
