//! Ctrl-C: the first one is a wish, the second one an end.

use std::process::exit;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;

/// Turns `true` at the first Ctrl-C, SIGTERM or closed terminal; a second one ends the process at once.
pub fn interrupted() -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    tokio::spawn(async move {
        let handler = |kind| signal(kind).expect("a handler for a signal can be installed");
        let mut terminate = handler(SignalKind::terminate());
        let mut hang_up = handler(SignalKind::hangup());
        for wanted in 1.. {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            if wanted > 1 {
                eprintln!("killed; `harness doctor --clean` removes what may be left");
                exit(i32::from(Exit::Interrupted.code()));
            }
            eprintln!("interrupted: healing, stopping, and checking what there is; once more to kill");
            sender.send_replace(true);
        }
    });
    receiver
}
