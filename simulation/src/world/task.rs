//! Tasks of a world ([`Tasks`]), and the handle that ends one ([`SimulatedTask`]). `world` polls them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use super::{World, with_core};

/// The number of a task, in the order in which they were spawned; [`MAIN`] is the future that the world was made for.
pub(crate) type TaskId = u64;
pub(crate) const MAIN: TaskId = 0;

pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct SpawnedTask {
    /// The future, and the waker with which it is polled; empty during a poll.
    pub future: Option<(TaskFuture, Waker)>,
    /// The same waker.
    pub waker: Arc<TaskWaker>,
    pub process: Option<usize>,
    /// Wakes the task that waits for its end.
    pub joined: Option<Waker>,
}

#[derive(Default)]
pub(crate) struct Tasks {
    /// By number, from 1; empty after its end. A world is short: a task that has ended keeps its place.
    spawned: Vec<Option<SpawnedTask>>,
}

impl Tasks {
    pub fn add(&mut self, world: World, process: Option<usize>, future: TaskFuture) -> Arc<TaskWaker> {
        let waker = TaskWaker::new(world, self.spawned.len() as TaskId + 1);
        self.spawned.push(Some(SpawnedTask {
            future: Some((future, Waker::from(waker.clone()))),
            waker: waker.clone(),
            process,
            joined: None,
        }));
        waker
    }

    pub fn get_mut(&mut self, id: TaskId) -> Option<&mut SpawnedTask> {
        self.spawned.get_mut((id as usize).checked_sub(1)?)?.as_mut()
    }

    pub fn remove(&mut self, id: TaskId) -> Option<SpawnedTask> {
        self.spawned.get_mut((id as usize).checked_sub(1)?)?.take()
    }

    /// Takes out all that have not ended.
    pub fn take_all(&mut self) -> Vec<SpawnedTask> {
        self.spawned.iter_mut().filter_map(Option::take).collect()
    }

    /// Takes out all tasks of a process.
    pub fn take_of(&mut self, process: usize) -> Vec<SpawnedTask> {
        let of = |task: &mut SpawnedTask| task.process == Some(process);
        self.spawned.iter_mut().filter_map(|task| task.take_if(of)).collect()
    }
}

/// Puts its task into the ready set of its world, once. A wake-up from another thread, or after the world has ended, is
/// ignored.
pub(crate) struct TaskWaker {
    world: World,
    pub task: TaskId,
    /// Whether it is in the ready set, or waits for its process to go on.
    pub queued: AtomicBool,
}

impl TaskWaker {
    pub fn new(world: World, task: TaskId) -> Arc<Self> {
        Arc::new(TaskWaker {
            world,
            task,
            queued: AtomicBool::new(false),
        })
    }

    /// Marks it as in the ready set; returns whether it was not before. For the thread of its world alone, so that this needs no locked
    /// instruction.
    pub fn mark_queued(&self) -> bool {
        let is_news = !self.queued.load(Relaxed);
        if is_news {
            self.queued.store(true, Relaxed);
        }
        is_news
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        with_core(self.world, |core| {
            if self.mark_queued() {
                core.make_ready(self.task);
            }
        });
    }
}

/// A running task of a world. Dropping it ends the task; awaiting it waits for the end of the task, whether that returned or was
/// ended with its process.
#[derive(Debug)]
#[must_use = "a dropped task is ended"]
pub struct SimulatedTask {
    world: World,
    task: Option<TaskId>,
}

impl SimulatedTask {
    pub(crate) fn new(world: World, task: TaskId) -> Self {
        SimulatedTask {
            world,
            task: Some(task),
        }
    }

    /// Lets the task run on without a handle, until it ends or its world does.
    pub fn detach(mut self) {
        self.task = None;
    }

    /// Lets the task run on for a holder that ends it by its number.
    pub(crate) fn into_id(mut self) -> TaskId {
        self.task.take().unwrap_or(MAIN)
    }
}

impl Future for SimulatedTask {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let Some(id) = self.task else {
            return Poll::Ready(());
        };
        let waits = with_core(self.world, |core| {
            let mut tasks = core.tasks.borrow_mut();
            let spawned = tasks.get_mut(id);
            spawned
                .map(|spawned| spawned.joined = Some(task.waker().clone()))
                .is_some()
        });
        match waits {
            Some(true) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for SimulatedTask {
    fn drop(&mut self) {
        if let Some(id) = self.task {
            with_core(self.world, |core| core.end_task(id));
        }
    }
}
