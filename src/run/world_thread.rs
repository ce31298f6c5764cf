//! Runs in the time of a world: each on a thread of its own ([`on_a_thread`]), since a world stays on the thread that it began on.

use tokio::sync::oneshot;

use super::{RunError, RunOutcome};
use crate::process::not_started;

/// Makes a run on a thread of its own. A panic of it, which is a bug, goes on in the one who waits.
pub async fn on_a_thread(make: impl FnOnce() -> RunOutcome + Send + 'static) -> RunOutcome {
    let (done, outcome) = oneshot::channel();
    let thread = std::thread::Builder::new().name("world".into()).spawn(move || {
        // the one who waits may be gone
        let _ = done.send(make());
    });
    let thread = match thread {
        Ok(thread) => thread,
        Err(error) => {
            let why = format!("no thread for the world: {}", not_started(error));
            return RunOutcome {
                error: Some(RunError::Clients(why)),
                ..RunOutcome::default()
            };
        }
    };
    match outcome.await {
        Ok(outcome) => outcome,
        // it ended without an outcome
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => unreachable!("a thread that returned has sent its outcome"),
        },
    }
}
