//! The machine that a recipe runs on ([`RecipeHost`]): the time, timers, tasks and random numbers.
//!
//! Recipes use nothing else of the kind, so that a simulation can supply its own clock and its own random numbers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;

use crate::stepped_clock::SteppedClock;

/// A machine with a clock, timers, tasks and random numbers.
pub trait RecipeHost {
    /// Returns the monotonic clock, as the time since its zero. On a real host it is `CLOCK_MONOTONIC`.
    fn now(&self) -> Duration;

    /// Returns the wall clock, as the time since 1970. It may jump, and differ from machine to machine.
    fn wall_clock(&self) -> Duration;

    /// Ready after `time`, by the monotonic clock.
    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Starts a task, which ends when it is done or when its handle is dropped.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) -> Task;

    /// Returns a uniformly distributed random number.
    fn random(&self) -> u64;

    /// Returns the queue of the clients of this process that want the same lock, for recipes that queue inside the process: one
    /// permit, first come first served.
    fn line(&self, lock: &str) -> Arc<Semaphore>;
}

/// A running task; dropping it ends the task.
#[must_use = "a dropped task is ended"]
pub struct Task(Option<Box<dyn FnOnce()>>);

impl Task {
    pub fn new(abort: impl FnOnce() + 'static) -> Self {
        Task(Some(Box::new(abort)))
    }

    /// Lets the task run on without a handle.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(abort) = self.0.take() {
            abort();
        }
    }
}

/// Returns the answer of `work` if it comes within `time`; drops `work` otherwise.
pub async fn within<T>(host: &dyn RecipeHost, time: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = work => Some(answer),
        () = host.sleep(time) => None,
    }
}

/// Returns a name that nobody else has: 32 random hexadecimal digits.
pub(crate) fn random_name(host: &dyn RecipeHost) -> String {
    let mut name = String::with_capacity(33);
    for word in [host.random(), host.random()] {
        push_hexadecimal(&mut name, word, 16);
    }
    name
}

/// Appends a number in hexadecimal digits, at least so many: names are made for each acquire, and formatting takes five times as long.
pub(crate) fn push_hexadecimal(text: &mut String, number: u64, at_least: usize) {
    let mut digits = [0; 16];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place) & 0xf) as usize];
    }
    let needed = digits.len() - number.leading_zeros() as usize / 4;
    let shown = &digits[digits.len() - needed.max(at_least)..];
    text.push_str(std::str::from_utf8(shown).expect("digits are ASCII"));
}

/// The real machine, under a current-thread tokio runtime with a `LocalSet`.
pub struct TokioHost {
    wall_clock: Option<SteppedClock>,
    lines: RefCell<BTreeMap<String, Arc<Semaphore>>>,
}

impl Default for TokioHost {
    fn default() -> Self {
        Self {
            wall_clock: SteppedClock::of_static_process(),
            lines: RefCell::default(),
        }
    }
}

impl TokioHost {
    /// Returns one host for all clients of a process.
    pub fn shared() -> Rc<dyn RecipeHost> {
        Rc::new(TokioHost::default())
    }
}

impl RecipeHost for TokioHost {
    fn now(&self) -> Duration {
        clock_gettime(ClockId::CLOCK_MONOTONIC)
            .expect("every Linux has CLOCK_MONOTONIC")
            .into()
    }

    fn wall_clock(&self) -> Duration {
        let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("every Linux has CLOCK_REALTIME");
        let clock = self.wall_clock.as_ref();
        clock.map_or(time.into(), |clock| clock.shown(time.into()))
    }

    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(tokio::time::sleep(time))
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) -> Task {
        let running = tokio::task::spawn_local(task);
        Task::new(move || running.abort())
    }

    fn random(&self) -> u64 {
        rand::random()
    }

    fn line(&self, lock: &str) -> Arc<Semaphore> {
        let mut lines = self.lines.borrow_mut();
        let new_line = || Arc::new(Semaphore::new(1));
        lines.entry(lock.to_owned()).or_insert_with(new_line).clone()
    }
}
