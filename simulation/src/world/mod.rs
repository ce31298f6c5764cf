//! A world ([`World`]): its clock, its tasks in the order in which they are polled, and the values that are kept in it.
//!
//! One round polls every task that was ready when the round began, in the order in which they were spawned, whatever the order in
//! which they were woken: libraries wake waiters in an order that no seed decides (tokio's `watch` draws it from the
//! thread's own random numbers). Events that are due come before each poll. When nothing is ready, the clock goes on to the next event.
//!
//! Every poll and every reading of the clock takes [`STEP`], so that no two stamps are the same: a reply and the call
//! that follows it must not touch.

pub(crate) mod events;
mod looping;
mod outside;
mod process;
mod sleep;
pub(crate) mod task;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use crate::dice;
use events::{Event, EventKey, Events};
use looping::MOST_READINGS;
use process::SimulatedProcesses;
use task::{MAIN, SpawnedTask, TaskFuture, TaskId, TaskWaker, Tasks};

pub use looping::{Looping, WorldPulse};
pub use outside::ScheduledCall;
pub use process::SimulatedProcess;
pub use sleep::WorldSleep;
pub(crate) use sleep::first_of;
pub use task::SimulatedTask;

/// The time of one poll, and of one reading of the clock, in nanoseconds.
const STEP: u64 = 100;

thread_local! {
    /// The world that runs on this thread.
    static CURRENT: RefCell<Option<Rc<Core>>> = const { RefCell::new(None) };
}

/// The number of worlds that were begun in this process, on whatever thread, so that no two have the same number.
static WORLDS: AtomicU64 = AtomicU64::new(0);

/// A handle of a world that runs on this thread.
///
/// It is a number, and the state is with the thread: so futures that hold it can be `Send`, as those of the harness are. Each of its
/// methods panics on another thread and after [`World::run`] has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World(u64);

/// The state of a world.
pub(crate) struct Core {
    world: World,
    seed: u64,
    /// Nanoseconds since the beginning.
    clock: Cell<u64>,
    pub events: RefCell<Events>,
    pub tasks: RefCell<Tasks>,
    /// Tasks to poll in the next round, in no order.
    ready: RefCell<Vec<TaskId>>,
    /// Tasks to poll in this round, the last one first.
    round: RefCell<Vec<TaskId>>,
    main: Arc<TaskWaker>,
    /// The task that is polled, and the data of its waker.
    polled: Cell<(TaskId, *const ())>,
    /// Number of readings of the clock and of timers that were set in this poll.
    readings: Cell<u32>,
    pub processes: RefCell<SimulatedProcesses>,
    kept: RefCell<Vec<Rc<dyn Any>>>,
    pub pulse: Arc<WorldPulse>,
}

/// Calls `act` with the state of a world, if it runs on this thread.
pub(crate) fn with_core<T>(world: World, act: impl FnOnce(&Core) -> T) -> Option<T> {
    let acted = CURRENT.try_with(|current| {
        let current = current.borrow();
        current.as_deref().filter(|core| core.world == world).map(act)
    });
    acted.ok().flatten()
}

impl World {
    /// Makes a world, runs `main` in it until its future is done, and ends every task, process and event that is left.
    ///
    /// The same seed and the same `main` do the same, step by step.
    ///
    /// # Panics
    ///
    /// When another world runs on this thread, when nothing is left that could wake `main`, and when a process loops.
    pub fn run<T, F: Future<Output = T>>(seed: u64, main: impl FnOnce(World) -> F) -> T {
        Self::try_run(seed, main).unwrap_or_else(|looping| panic!("{looping}"))
    }

    /// As [`World::run`]; the error names a process that loops, which ends the world.
    ///
    /// # Panics
    ///
    /// When another world runs on this thread, and when nothing is left that could wake `main`.
    pub fn try_run<T, F: Future<Output = T>>(seed: u64, main: impl FnOnce(World) -> F) -> Result<T, Looping> {
        let world = World(WORLDS.fetch_add(1, Relaxed) + 1);
        let core = Rc::new(Core {
            world,
            seed,
            clock: Cell::new(0),
            events: RefCell::default(),
            tasks: RefCell::default(),
            ready: RefCell::default(),
            round: RefCell::default(),
            main: TaskWaker::new(world, MAIN),
            polled: Cell::new((MAIN, std::ptr::null())),
            readings: Cell::new(0),
            processes: RefCell::default(),
            kept: RefCell::default(),
            pulse: Arc::default(),
        });
        CURRENT.with_borrow_mut(|current| {
            assert!(
                current.is_none(),
                "a simulated world runs on this thread already: begin another one when it has ended, or on another thread"
            );
            *current = Some(core.clone());
        });
        let _ending = Ending(core.clone());
        let main = pin!(main(world));
        // nothing of this world is used after it
        catch_unwind(AssertUnwindSafe(|| core.run(main))).or_else(|panic| {
            panic
                .downcast()
                .map_or_else(|panic| resume_unwind(panic), |looping| Err(*looping))
        })
    }

    /// Calls `act` with its state.
    pub(crate) fn with<T>(self, act: impl FnOnce(&Core) -> T) -> T {
        with_core(self, act).unwrap_or_else(|| {
            panic!("this simulated world does not run on this thread (any more): use its handle within World::run")
        })
    }

    /// Returns the time since the beginning. Reading it takes 100 ns.
    pub fn now(self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// Returns the same in nanoseconds, for stamps: no two are the same.
    pub fn now_ns(self) -> u64 {
        self.with(Core::read_clock)
    }

    /// Ready after `time`.
    pub fn sleep(self, time: Duration) -> WorldSleep {
        self.with(Core::count_reading);
        WorldSleep::new(self, self.clock_ns().saturating_add(nanoseconds(time)))
    }

    /// Ready at this time since the beginning.
    pub fn sleep_until(self, time: Duration) -> WorldSleep {
        WorldSleep::new(self, nanoseconds(time))
    }

    /// Starts a task that belongs to no process.
    pub fn spawn(self, future: impl Future<Output = ()> + 'static) -> SimulatedTask {
        self.with(|core| core.spawn(None, Box::pin(future)))
    }

    /// Returns the stream of random numbers of this name, from its beginning: asked for twice, it gives the same numbers twice.
    pub fn dice(self, name: &str) -> ChaCha8Rng {
        dice::stream(self.with(|core| core.seed), name)
    }

    /// Returns the process of this name, which begins to run when it is first asked for.
    pub fn process(self, name: &str) -> SimulatedProcess {
        SimulatedProcess::named(self, name)
    }

    /// Calls `look` again and again with this time between, until it says that it has seen enough. This takes no time in the world: what
    /// happens in it is the same with it and without it.
    pub fn look_every(self, time: Duration, mut look: impl FnMut() -> bool + 'static) {
        let next = self.clock_ns().saturating_add(nanoseconds(time));
        self.at(next, move || {
            if !look() {
                self.look_every(time, look);
            }
        });
    }

    /// Calls `event` at this time, in nanoseconds; the key takes that back.
    pub(crate) fn at(self, at: u64, event: impl FnOnce() + 'static) -> EventKey {
        self.add_event(at, Event::Call(Box::new(event)))
    }

    pub(crate) fn add_event(self, at: u64, event: Event) -> EventKey {
        self.with(|core| core.events.borrow_mut().add(at, event))
    }

    /// Returns the task that is polled now. It is woken by [`World::wake`], or by an [`Event::Task`].
    pub(crate) fn polled_task(self) -> TaskId {
        self.with(|core| core.polled.get().0)
    }

    pub(crate) fn wake(self, task: TaskId) {
        self.with(|core| core.wake(task));
    }

    /// Removes an event, if it is there and the world is.
    pub(crate) fn remove_event(self, event: EventKey) {
        drop(with_core(self, |core| core.events.borrow_mut().remove(event)));
    }

    /// Returns the clock in nanoseconds. Unlike a stamp, it takes no time.
    pub fn clock_ns(self) -> u64 {
        self.with(|core| core.clock.get())
    }

    /// Keeps a value until this world ends, and gives a handle of it that is `Send`, whatever the value is.
    pub fn keep<T: 'static>(self, value: T) -> Kept<T> {
        let place = self.with(|core| {
            let mut kept = core.kept.borrow_mut();
            kept.push(Rc::new(value));
            kept.len() - 1
        });
        Kept {
            world: self,
            place,
            kind: PhantomData,
        }
    }
}

/// Converts a time to nanoseconds; 584 years at most.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    let seconds = time.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(time.subsec_nanos()))
}

impl Core {
    fn run<T>(&self, mut main: Pin<&mut impl Future<Output = T>>) -> T {
        let waker = Waker::from(self.main.clone());
        waker.wake_by_ref();
        loop {
            self.fire_events();
            match self.next_ready() {
                Some(MAIN) => {
                    self.main.queued.store(false, Relaxed);
                    self.polled.set((MAIN, waker.data()));
                    self.pass(STEP);
                    if let Poll::Ready(answer) = main.as_mut().poll(&mut Context::from_waker(&waker)) {
                        return answer;
                    }
                }
                Some(task) => self.poll_task(task),
                None => self.skip_to_next_event(),
            }
        }
    }

    fn fire_events(&self) {
        loop {
            let event = self.events.borrow_mut().take_due(self.clock.get());
            match event {
                Some(Event::Task(task)) => self.wake(task),
                Some(Event::Wake(waker)) => waker.wake(),
                Some(Event::Call(call)) => call(),
                Some(Event::Due(timed, side)) => timed.is_due(side),
                None => return,
            }
        }
    }

    fn next_ready(&self) -> Option<TaskId> {
        let mut round = self.round.borrow_mut();
        if round.is_empty() {
            let mut ready = self.ready.borrow_mut();
            // most often one task alone is ready
            if ready.len() <= 1 {
                return ready.pop();
            }
            std::mem::swap(&mut *round, &mut *ready);
            round.sort_unstable_by(|one, other| other.cmp(one));
        }
        round.pop()
    }

    fn poll_task(&self, id: TaskId) {
        let (polled, process) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(id) else { return };
            if let Some(process) = task.process {
                let mut processes = self.processes.borrow_mut();
                if processes.park(process, id) {
                    return;
                }
                if processes.loops(process, self.clock.get()) {
                    drop((processes, tasks));
                    self.end_looping(process);
                }
            }
            task.waker.queued.store(false, Relaxed);
            (task.future.take(), task.process)
        };
        let Some((mut future, waker)) = polled else { return };
        self.polled.set((id, waker.data()));
        self.readings.set(0);
        self.pass(STEP);
        let polled = self
            .pulse
            .during(process, || future.as_mut().poll(&mut Context::from_waker(&waker)));
        let mut tasks = self.tasks.borrow_mut();
        match (tasks.get_mut(id), polled) {
            (Some(task), Poll::Pending) => task.future = Some((future, waker)),
            (Some(_), Poll::Ready(())) => {
                let ended = tasks.remove(id);
                drop(tasks);
                ended.into_iter().for_each(finish);
            }
            // it was ended meanwhile
            (None, _) => drop(tasks),
        }
    }

    fn skip_to_next_event(&self) {
        let next = self.events.borrow_mut().nothing_before(self.clock.get());
        let at = next.unwrap_or_else(|| {
            panic!(
                "the simulated world stands still at {:?}: its main future waits, and no task or timer is left that could wake it \
                 (is a process stopped, or is it waited for another thread?)",
                Duration::from_nanos(self.clock.get())
            )
        });
        self.clock.set(self.clock.get().max(at));
    }

    /// Lets time pass.
    fn pass(&self, time: u64) {
        self.clock.set(self.clock.get() + time);
    }

    pub fn read_clock(&self) -> u64 {
        self.pass(STEP);
        self.count_reading();
        self.clock.get()
    }

    /// Counts a reading. A poll that reads the clock or sets timers without end does not return.
    fn count_reading(&self) {
        let readings = self.readings.get() + 1;
        self.readings.set(readings);
        if readings > MOST_READINGS {
            self.readings.set(0);
            let task = self.polled.get().0;
            let process = self.tasks.borrow_mut().get_mut(task).and_then(|task| task.process);
            if let Some(process) = process {
                self.end_looping(process);
            }
        }
    }

    /// Returns the event that wakes the task with this waker: most often the one that is polled, of which only the number has to be kept.
    pub fn waking(&self, waker: &Waker) -> Event {
        let (task, data) = self.polled.get();
        match waker.data() == data {
            true => Event::Task(task),
            false => Event::Wake(waker.clone()),
        }
    }

    fn wake(&self, task: TaskId) {
        if task == MAIN {
            return self.main.wake_by_ref();
        }
        let is_news = |task: &mut SpawnedTask| task.waker.mark_queued();
        if self.tasks.borrow_mut().get_mut(task).is_some_and(is_news) {
            self.make_ready(task);
        }
    }

    /// Makes the next round poll this task.
    pub fn make_ready(&self, task: TaskId) {
        self.ready.borrow_mut().push(task);
    }

    pub fn spawn(&self, process: Option<usize>, future: TaskFuture) -> SimulatedTask {
        let waker = self.tasks.borrow_mut().add(self.world, process, future);
        let task = waker.task;
        Waker::from(waker).wake();
        SimulatedTask::new(self.world, task)
    }

    pub fn end_task(&self, id: TaskId) {
        let ended = self.tasks.borrow_mut().remove(id);
        ended.into_iter().for_each(finish);
    }

    /// Drops everything in the world; dropping may do more, as a task does that ends others.
    fn drop_all(&self) {
        loop {
            let tasks = self.tasks.borrow_mut().take_all();
            let events = self.events.borrow_mut().take_all();
            let more = !tasks.is_empty() || !events.is_empty();
            drop((tasks, events));
            if more {
                continue;
            }
            // after the tasks, which use them when they are dropped
            let kept = std::mem::take(&mut *self.kept.borrow_mut());
            let processes = std::mem::take(&mut *self.processes.borrow_mut());
            if kept.is_empty() && processes.is_empty() {
                return;
            }
        }
    }
}

/// Drops a task that has ended, and wakes the task that waits for it.
pub(crate) fn finish(task: SpawnedTask) {
    drop(task.future);
    if let Some(waiter) = task.joined {
        waiter.wake();
    }
}

/// Ends a world, also when it panics.
struct Ending(Rc<Core>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.drop_all();
        CURRENT.with_borrow_mut(Option::take);
    }
}

/// A value that is kept in a world; the handle is a number.
pub struct Kept<T> {
    world: World,
    place: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Kept<T> {}

impl<T: 'static> Kept<T> {
    /// Returns the value.
    ///
    /// # Panics
    ///
    /// After its world has ended, and on another thread.
    pub fn get(self) -> Rc<T> {
        self.try_get()
            .expect("what is kept in a simulated world is used within World::run")
    }

    /// Returns the value, or `None` while its world ends, after it, and on another thread.
    pub fn try_get(self) -> Option<Rc<T>> {
        let value = with_core(self.world, |core| core.kept.borrow().get(self.place).cloned())??;
        value.downcast().ok()
    }

    /// Returns the value, for frequent reads of objects that are in the world themselves.
    pub(crate) fn weak(self) -> Weak<T> {
        Rc::downgrade(&self.get())
    }

    /// Returns the world that keeps it.
    pub fn world(self) -> World {
        self.world
    }
}
