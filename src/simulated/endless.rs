//! Endless clients on models, whose code never returns: it loops and reads no clock, so that its world cannot see it
//! (`looping.rs` of `simulation` finds the others).
//!
//! Such a poll cannot be ended, so the process of harness ends. A thread checks all worlds a few times a second, by the processor
//! time of their threads: on a busy machine a poll may last for long without progress.

use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use harness_simulation::{World, WorldPulse};
use nix::unistd::gettid;

use crate::exit::Exit;

/// The longest computation of a poll. Those of recipes take microseconds.
const LONGEST: Duration = Duration::from_secs(1);
/// The time between two checks.
const PAUSE: Duration = Duration::from_millis(200);

/// The worlds that are watched now.
static WATCHED: Mutex<Vec<WatchedWorld>> = Mutex::new(Vec::new());
static BEGIN: Once = Once::new();

/// A world and its thread.
struct WatchedWorld {
    pulse: Arc<WorldPulse>,
    thread: i32,
    /// The last poll, and the processor time of the thread at its first check.
    seen: Option<(u64, Duration)>,
}

/// The watch of a world. Dropping it ends the watch.
pub(super) struct WorldWatch(Arc<WorldPulse>);

impl WorldWatch {
    /// Watches the world that runs on this thread.
    pub(super) fn of(world: World) -> Self {
        BEGIN.call_once(|| {
            let watching = std::thread::Builder::new().name("watch".into()).spawn(watch);
            // without one more thread there is no watch
            drop(watching);
        });
        let pulse = world.pulse();
        worlds(|worlds| {
            worlds.push(WatchedWorld {
                pulse: pulse.clone(),
                thread: gettid().as_raw(),
                seen: None,
            });
        });
        Self(pulse)
    }
}

impl Drop for WorldWatch {
    fn drop(&mut self) {
        worlds(|worlds| worlds.retain(|world| !Arc::ptr_eq(&world.pulse, &self.0)));
    }
}

fn worlds<T>(act: impl FnOnce(&mut Vec<WatchedWorld>) -> T) -> T {
    act(&mut WATCHED.lock().unwrap_or_else(PoisonError::into_inner))
}

fn watch() {
    loop {
        std::thread::sleep(PAUSE);
        if let Some(process) = worlds(|worlds| worlds.iter_mut().find_map(WatchedWorld::loops)) {
            eprintln!("error: {process} loops without letting time pass, and harness cannot stop it");
            std::process::exit(Exit::Environment.code().into());
        }
    }
}

impl WatchedWorld {
    /// Returns the process whose poll does not return.
    fn loops(&mut self) -> Option<String> {
        let (poll, process) = self.pulse.poll()?;
        let now = processor_time(self.thread)?;
        match self.seen {
            Some((seen, since)) if seen == poll => (now.saturating_sub(since) > LONGEST).then_some(process),
            _ => {
                self.seen = Some((poll, now));
                None
            }
        }
    }
}

/// Returns the processor time of a thread of this process.
fn processor_time(thread: i32) -> Option<Duration> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
