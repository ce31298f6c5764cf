//! Wall clocks of simulated processes that a fault can step, and the machine that counts who reads them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use harness_simulation::SimulatedProcess;
use harness_workloads::{RecipeHost, Task};
use tokio::sync::Semaphore;

use crate::wall_clock::WallClockControl;

/// The wall clock of a simulated process.
#[derive(Debug)]
pub struct ProcessWallClock {
    process: SimulatedProcess,
    shifted_readings: AtomicU64,
}

impl ProcessWallClock {
    pub fn of(process: SimulatedProcess) -> Arc<Self> {
        Arc::new(Self {
            process,
            shifted_readings: AtomicU64::new(0),
        })
    }

    /// The machine of the process, whose readings of this clock are counted.
    pub fn host(self: &Arc<Self>) -> Rc<dyn RecipeHost> {
        Rc::new(CountingHost {
            machine: self.process.host(),
            clock: Arc::clone(self),
        })
    }
}

impl WallClockControl for ProcessWallClock {
    fn step(&self, nanoseconds: i64) -> io::Result<()> {
        let offset = self.process.wall_clock_offset().saturating_add(nanoseconds);
        self.process.set_wall_clock_offset(offset);
        Ok(())
    }

    fn shifted_readings(&self) -> u64 {
        self.shifted_readings.load(Relaxed)
    }
}

/// A machine that counts how often its wall clock is read while it is not the true one.
struct CountingHost {
    machine: Rc<dyn RecipeHost>,
    clock: Arc<ProcessWallClock>,
}

impl RecipeHost for CountingHost {
    fn now(&self) -> Duration {
        self.machine.now()
    }

    fn wall_clock(&self) -> Duration {
        if self.clock.process.wall_clock_offset() != 0 {
            self.clock.shifted_readings.fetch_add(1, Relaxed);
        }
        self.machine.wall_clock()
    }

    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        self.machine.sleep(time)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) -> Task {
        self.machine.spawn(task)
    }

    fn random(&self) -> u64 {
        self.machine.random()
    }

    fn line(&self, lock: &str) -> Arc<Semaphore> {
        self.machine.line(lock)
    }
}
