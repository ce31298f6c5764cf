//! A process of a world ([`SimulatedProcess`]): its tasks, whether it is stopped, and the machine that it is for recipes.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::{RecipeHost, Task};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::Semaphore;

use super::looping::PollCount;
use super::task::{SimulatedTask, TaskId};
use super::{World, finish, nanoseconds, with_core};

/// The time of the wall clocks at the beginning: 2026-01-01, 00:00 UTC.
const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// All processes of a world, by number.
#[derive(Default)]
pub(crate) struct SimulatedProcesses {
    names: BTreeMap<String, usize>,
    states: Vec<SimulatedProcessState>,
}

struct SimulatedProcessState {
    name: Rc<str>,
    /// Number of faults that stop it now.
    stops: u32,
    /// Tasks that were woken while it was stopped.
    parked: Vec<TaskId>,
    /// Nanoseconds that its wall clock is ahead.
    wall_clock_offset: i64,
    /// Number of readings of it by recipes meanwhile.
    shifted_readings: u64,
    dice: ChaCha8Rng,
    lines: BTreeMap<String, Arc<Semaphore>>,
    /// Number of its kills.
    deaths: u32,
    polls: PollCount,
}

impl SimulatedProcesses {
    /// Puts a task of a stopped process aside; `false`: the process runs.
    pub fn park(&mut self, process: usize, task: TaskId) -> bool {
        let Some(state) = self.states.get_mut(process).filter(|state| state.stops > 0) else {
            return false;
        };
        state.parked.push(task);
        true
    }

    /// Counts a poll of a task of this process. Returns whether it loops.
    pub fn loops(&mut self, process: usize, now: u64) -> bool {
        let state = self.states.get_mut(process);
        state.is_some_and(|state| state.polls.is_one_too_many(now))
    }

    pub fn name(&self, process: usize) -> Option<&str> {
        self.states.get(process).map(|state| &*state.name)
    }

    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }
}

/// A handle of one process.
///
/// A stopped process executes nothing, and its clocks go on: timers that were due meanwhile fire when it goes on. What is sent to
/// it waits in its machine's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedProcess {
    world: World,
    number: usize,
}

impl SimulatedProcess {
    pub(crate) fn named(world: World, name: &str) -> Self {
        let number = world.with(|core| {
            let mut processes = core.processes.borrow_mut();
            let next = processes.states.len();
            let number = *processes.names.entry(name.to_owned()).or_insert(next);
            if number == next {
                core.pulse.name(name);
                processes.states.push(SimulatedProcessState {
                    name: name.into(),
                    stops: 0,
                    parked: Vec::new(),
                    wall_clock_offset: 0,
                    shifted_readings: 0,
                    dice: world.dice(&format!("process {name}")),
                    lines: BTreeMap::new(),
                    deaths: 0,
                    polls: PollCount::default(),
                });
            }
            number
        });
        SimulatedProcess { world, number }
    }

    fn with<T>(self, look: impl FnOnce(&mut SimulatedProcessState) -> T) -> T {
        self.world
            .with(|core| look(&mut core.processes.borrow_mut().states[self.number]))
    }

    /// Returns the world that it is in.
    pub fn world(&self) -> World {
        self.world
    }

    /// Stops it. Stops are counted: it goes on after as many [`SimulatedProcess::go_on`].
    pub fn stop(&self) {
        self.with(|state| state.stops += 1);
    }

    /// Takes one stop back; without one it does nothing.
    pub fn go_on(&self) {
        let ready = self.with(|state| {
            state.stops = state.stops.saturating_sub(1);
            let goes = state.stops == 0;
            if goes {
                std::mem::take(&mut state.parked)
            } else {
                Vec::new()
            }
        });
        self.world
            .with(|core| ready.into_iter().for_each(|task| core.make_ready(task)));
    }

    pub fn is_stopped(&self) -> bool {
        self.with(|state| state.stops > 0)
    }

    /// Ends its tasks where they are, stopped or not. Connections that they owned end as a kernel ends them: what was sent still
    /// arrives. The process is empty then, runs, and has fresh random numbers; what is spawned in it next is its next incarnation.
    pub fn kill(&self) {
        let name = self.with(|state| {
            state.stops = 0;
            state.parked.clear();
            state.lines.clear();
            state.deaths += 1;
            format!("process {} {}", state.name, state.deaths)
        });
        let dice = self.world.dice(&name);
        self.with(|state| state.dice = dice);
        let tasks = self.world.with(|core| core.tasks.borrow_mut().take_of(self.number));
        tasks.into_iter().for_each(finish);
    }

    /// Starts a task in it.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> SimulatedTask {
        self.world.with(|core| core.spawn(Some(self.number), Box::pin(future)))
    }

    /// Returns the machine that its recipes run on.
    pub fn host(&self) -> Rc<dyn RecipeHost> {
        Rc::new(SimulatedHost(*self))
    }

    /// Sets how far its wall clock is ahead of the others, in nanoseconds; below 0 it is behind.
    pub fn set_wall_clock_offset(&self, nanoseconds: i64) {
        self.with(|state| state.wall_clock_offset = nanoseconds);
    }

    pub fn wall_clock_offset(&self) -> i64 {
        self.with(|state| state.wall_clock_offset)
    }

    /// Returns how often recipes in it read its wall clock while that was not as the others.
    pub fn shifted_readings(&self) -> u64 {
        self.with(|state| state.shifted_readings)
    }

    /// Returns its wall clock, as the time since 1970.
    pub fn wall_clock(&self) -> Duration {
        let (clock, offset) = self.world.with(|core| {
            let processes = core.processes.borrow();
            (core.clock.get(), processes.states[self.number].wall_clock_offset)
        });
        let now = EPOCH + Duration::from_nanos(clock);
        let distance = Duration::from_nanos(offset.unsigned_abs());
        if offset < 0 {
            now.saturating_sub(distance)
        } else {
            now + distance
        }
    }

    /// Returns the time of the world's clock, in nanoseconds, at which its wall clock shows `time`, if it is not set until then.
    pub(crate) fn clock_at(&self, time: Duration) -> u64 {
        let now = self.wall_clock();
        self.world.clock_ns() + nanoseconds(time.saturating_sub(now))
    }
}

/// A process as a machine for recipes.
struct SimulatedHost(SimulatedProcess);

impl RecipeHost for SimulatedHost {
    fn now(&self) -> Duration {
        self.0.world.now()
    }

    fn wall_clock(&self) -> Duration {
        self.0
            .with(|state| state.shifted_readings += u64::from(state.wall_clock_offset != 0));
        self.0.wall_clock()
    }

    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(self.0.world.sleep(time))
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) -> Task {
        let world = self.0.world;
        let running = world.with(|core| core.spawn(Some(self.0.number), task)).into_id();
        Task::new(move || {
            with_core(world, |core| core.end_task(running));
        })
    }

    fn random(&self) -> u64 {
        self.0.with(|state| state.dice.next_u64())
    }

    fn line(&self, lock: &str) -> Arc<Semaphore> {
        self.0.with(|state| {
            let line = state.lines.entry(lock.to_owned());
            line.or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
        })
    }
}
