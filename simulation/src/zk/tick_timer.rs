//! The timer of a client session ([`TickTimer`]): the session looks after itself at some of its ticks.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use harness_workloads::RecipeHost;

/// The timer of the next tick that matters. It is set again only for an earlier one: one that comes too early is put off.
#[derive(Default)]
pub(super) struct TickTimer {
    at: Duration,
    sleep: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl TickTimer {
    /// Ready at `tick`, by the host's clock.
    pub fn poll(&mut self, tick: Duration, host: &dyn RecipeHost, task: &mut Context<'_>) -> Poll<()> {
        loop {
            let sleep = match &mut self.sleep {
                Some(sleep) if self.at <= tick => sleep,
                sleep => {
                    self.at = tick;
                    sleep.insert(host.sleep(tick.saturating_sub(host.now())))
                }
            };
            if sleep.as_mut().poll(task).is_pending() {
                return Poll::Pending;
            }
            self.sleep = None;
            if self.at == tick {
                return Poll::Ready(());
            }
        }
    }
}
