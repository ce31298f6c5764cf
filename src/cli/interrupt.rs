//! Interrupts (Ctrl-C, SIGTERM, SIGHUP): the first signal ends the run in order, the second one ends the process.

use std::process::exit;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// Becomes `true` at the first signal; the second one exits at once.
pub fn interrupted() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    let handler = |kind| signal(kind).expect("a handler for a signal can be installed");
    // from here on, before the task begins, and also between two signals
    let mut interrupt = handler(SignalKind::interrupt());
    let mut terminate = handler(SignalKind::terminate());
    let mut hang_up = handler(SignalKind::hangup());
    tokio::spawn(async move {
        for wanted in 1.. {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            if wanted > 1 {
                eprintln!("exiting at once\nhint: `harness doctor --clean` removes leftovers");
                exit(i32::from(Exit::Interrupted.code()));
            }
            eprintln!("interrupted: ending what has begun, and cleaning up; Ctrl-C again to exit at once");
            sender.send_replace(true);
        }
    });
    receiver
}
