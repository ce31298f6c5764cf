//! Runs in the time of a world: each on a thread of its own ([`on_a_thread`]), since a world stays on the thread that it began on.

use std::time::Duration;

use harness_simulation::World;
use tokio::sync::{oneshot, watch};

use super::{RunError, RunSpec};
use crate::config::Config;
use crate::process::not_started;

/// The time between two checks for the user's interrupt, in virtual time. A world receives no events of other threads.
const INTERRUPT: Duration = Duration::from_millis(100);

/// Returns the seed of the world of a run.
pub fn world_seed(config: &Config) -> u64 {
    // far apart, so that no world of a seed is one of the next
    config.seed ^ u64::from(config.world).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Passes the user's interrupt to a run in its world.
pub fn hear_interrupt(world: World, spec: &mut RunSpec) {
    let (stop, interrupt) = watch::channel(false);
    let user = std::mem::replace(&mut spec.interrupt, interrupt);
    if spec.in_memory {
        // it is over before a user could wait for it
        world.keep(stop);
        return;
    }
    world.look_every(INTERRUPT, move || {
        let interrupted = *user.borrow();
        if interrupted {
            stop.send_replace(true);
        }
        interrupted
    });
}

/// Executes a run on a thread of its own. A panic of it, which is a bug, resumes here. The error is that of a missing thread.
pub async fn on_a_thread<T: Send + 'static>(make: impl FnOnce() -> T + Send + 'static) -> Result<T, RunError> {
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("world".into()).spawn(move || {
        // the waiting task may be dropped
        let _ = done.send(make());
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => {
            let why = format!("no thread for the world: {}", not_started(error));
            return Err(RunError::Clients(why));
        }
    };
    match outcome.await {
        Ok(outcome) => Ok(outcome),
        // it ended without an outcome
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that returned has sent its outcome"),
        },
    }
}
