//! The clock of an experiment ([`GroundClock`]): readings, timers and tasks. Code of an experiment that waits, takes a timestamp
//! or starts a task uses this value, so that another clock can take its place.
//!
//! The real one is `CLOCK_MONOTONIC`, which all processes of a machine share: timestamps of a client process and of harness can
//! be compared. Wall-clock time is used for the names of runs and for locks whose value is a time of day, and for nothing else.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use harness_simulation::{SimulatedTask, World};
use nix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC exists on every supported system");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// A clock with its timers and tasks. Readings are nanoseconds since its zero.
#[derive(Debug, Clone, Copy, Default)]
pub enum GroundClock {
    /// `CLOCK_MONOTONIC`, under tokio.
    #[default]
    Real,
    /// The virtual time of a world, and its tasks.
    Virtual(World),
}

impl GroundClock {
    pub fn is_virtual(self) -> bool {
        matches!(self, Self::Virtual(_))
    }

    /// Returns a reading.
    pub fn now_ns(self) -> u64 {
        match self {
            Self::Real => monotonic_ns(),
            Self::Virtual(world) => world.now_ns(),
        }
    }

    /// Returns the time of day, since 1970.
    pub fn since_1970(self) -> Duration {
        match self {
            Self::Real => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            // the wall clock of a machine on which no fault acts
            Self::Virtual(world) => world.process("harness").wall_clock(),
        }
    }

    /// Returns the reading of this clock after `time`.
    pub fn after(self, time: Duration) -> u64 {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.now_ns().saturating_add(time)
    }

    pub async fn sleep(self, time: Duration) {
        match self {
            Self::Real => tokio::time::sleep(time).await,
            Self::Virtual(world) => world.sleep(time).await,
        }
    }

    /// Sleeps, and returns the lateness of the wake-up.
    pub async fn lateness_of(self, time: Duration) -> Duration {
        let set = self.now_ns();
        self.sleep(time).await;
        Duration::from_nanos(self.now_ns().saturating_sub(set)).saturating_sub(time)
    }

    /// Waits until the clock shows `reading`. Sets no timer if it does already, since the shortest one takes a millisecond.
    pub async fn sleep_until(self, reading: u64) {
        let left = reading.saturating_sub(self.now_ns());
        if left > 0 {
            self.sleep(Duration::from_nanos(left)).await;
        }
    }

    /// Returns the answer of `work` if it comes within `time`.
    pub async fn within<T>(self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::Real => tokio::time::timeout(time, work).await.ok(),
            Self::Virtual(world) => tokio::select! {
                biased;
                answer = work => Some(answer),
                () = world.sleep(time) => None,
            },
        }
    }

    /// Returns the answer of `work` if it comes within `time` of the real clock. In virtual time there is no limit: each timer is an
    /// event of the world.
    pub async fn within_real<T>(self, time: Duration, work: impl Future<Output = T>) -> Option<T> {
        match self {
            Self::Real => self.within(time, work).await,
            Self::Virtual(_) => Some(work.await),
        }
    }

    /// Returns the answer of a server. The error is a sentence, also if no answer comes within `time`.
    pub async fn answer_within<T>(
        self,
        time: Duration,
        asked: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let answered = self.within(time, asked).await;
        answered.unwrap_or_else(|| Err("it does not answer".to_owned()))
    }

    /// Returns the answer of `work` if it comes before the clock shows `reading`.
    pub async fn until<T>(self, reading: u64, work: impl Future<Output = T>) -> Option<T> {
        let left = Duration::from_nanos(reading.saturating_sub(self.now_ns()));
        self.within(left, work).await
    }

    /// Repeats `attempt`, with pauses in between, until it succeeds or the clock shows `deadline`. Returns its last result.
    pub async fn try_until<T, E, F>(self, deadline: u64, pause: Duration, attempt: impl Fn() -> F) -> Result<T, E>
    where
        F: Future<Output = Result<T, E>>,
    {
        loop {
            match attempt().await {
                Err(_) if self.now_ns() < deadline => self.sleep(pause).await,
                outcome => return outcome,
            }
        }
    }

    /// Starts a task, which ends when it is done or when the returned value is dropped.
    pub fn spawn(self, task: impl Future<Output = ()> + Send + 'static) -> RunningTask {
        RunningTask(match self {
            Self::Real => TaskHandle::Real(tokio::spawn(task)),
            Self::Virtual(world) => TaskHandle::Virtual(Some(world.spawn(task))),
        })
    }

    /// Returns an empty set of tasks.
    pub fn tasks<T: Send + 'static>(self) -> TaskSet<T> {
        match self {
            Self::Real => TaskSet::Real(JoinSet::new()),
            Self::Virtual(world) => {
                let (done, ended) = mpsc::unbounded_channel();
                TaskSet::Virtual(VirtualTasks {
                    world,
                    tasks: Vec::new(),
                    left: 0,
                    done,
                    ended,
                })
            }
        }
    }
}

/// A running task; dropping it ends the task.
#[must_use = "a dropped task is ended"]
#[derive(Debug)]
pub struct RunningTask(TaskHandle);

#[derive(Debug)]
enum TaskHandle {
    Real(JoinHandle<()>),
    /// `None` after it was ended.
    Virtual(Option<SimulatedTask>),
}

impl RunningTask {
    /// Ends the task, and waits for its end.
    pub async fn end(mut self) {
        match &mut self.0 {
            TaskHandle::Real(task) => {
                task.abort();
                let _ = task.await;
            }
            TaskHandle::Virtual(task) => drop(task.take()),
        }
    }
}

impl Drop for RunningTask {
    fn drop(&mut self) {
        match &self.0 {
            TaskHandle::Real(task) => task.abort(),
            // it ends when it is dropped with this
            TaskHandle::Virtual(_) => {}
        }
    }
}

/// Tasks whose ends can be waited for. Dropping it ends them all.
#[derive(Debug)]
pub enum TaskSet<T> {
    Real(JoinSet<T>),
    Virtual(VirtualTasks<T>),
}

/// Tasks of a world.
#[derive(Debug)]
pub struct VirtualTasks<T> {
    world: World,
    tasks: Vec<SimulatedTask>,
    /// The number of tasks that `next` has not returned.
    left: usize,
    done: mpsc::UnboundedSender<T>,
    ended: mpsc::UnboundedReceiver<T>,
}

impl<T: Send + 'static> TaskSet<T> {
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        match self {
            Self::Real(tasks) => drop(tasks.spawn(task)),
            Self::Virtual(set) => {
                let done = set.done.clone();
                // the set may be dropped, and then nothing waits
                let task = async move { drop(done.send(task.await)) };
                set.tasks.push(set.world.spawn(task));
                set.left += 1;
            }
        }
    }

    /// Returns the value of the next task that ends, or `None` if no task is left. Resumes the panic of a task, which is a bug of
    /// harness.
    pub async fn next(&mut self) -> Option<T> {
        match self {
            Self::Real(tasks) => match tasks.join_next().await? {
                Ok(returned) => Some(returned),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                // it was ended with the runtime
                Err(_) => None,
            },
            // a panic of one of them unwinds through its world
            Self::Virtual(set) => {
                set.left = set.left.checked_sub(1)?;
                set.ended.recv().await
            }
        }
    }

    /// Waits for every task.
    pub async fn all(mut self) {
        while self.next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_ends_when_its_handle_is_dropped() {
        let (alive, mut ended) = mpsc::channel::<()>(1);
        let task = GroundClock::Real.spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        drop(task);
        assert_eq!(ended.recv().await, None, "the task dropped what it held");
    }

    #[tokio::test]
    async fn every_task_of_a_set_is_waited_for() {
        let mut tasks = GroundClock::Real.tasks();
        for number in 0..3 {
            tasks.spawn(async move { number });
        }
        let mut returned = Vec::new();
        while let Some(number) = tasks.next().await {
            returned.push(number);
        }
        returned.sort_unstable();
        assert_eq!(returned, [0, 1, 2]);
    }

    #[tokio::test]
    async fn the_panic_of_a_task_goes_on_in_the_task_that_waits() {
        let mut tasks = GroundClock::Real.tasks::<()>();
        tasks.spawn(async { panic!("a bug") });
        let waiting = tokio::spawn(tasks.all());
        assert!(waiting.await.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn a_reading_is_waited_for_and_one_that_is_over_is_not() {
        let clock = GroundClock::Real;
        let (before, due) = (clock.now_ns(), clock.after(Duration::from_millis(5)));
        clock.sleep_until(due).await;
        assert!(clock.now_ns() >= due);
        assert_eq!(clock.until(before, std::future::pending::<()>()).await, None);
    }
}
