//! Keeps the proxy's thread awake for a moment after it carried something.
//!
//! What is carried is mostly answered soon, and to be woken takes longer than to carry the answer. So the thread looks
//! again instead of going to sleep, and offers the processor to everybody else before each look. Where somebody else keeps
//! it for long the machine is crowded, and whoever sleeps is served sooner than whoever gives way: then there is no vigil
//! for a while.

use std::mem::replace;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::{CROWDED, CROWDED_FOR, VIGIL};

/// The runtime of the proxy's thread, for whoever has something carried there.
#[derive(Debug, Clone)]
pub(super) struct Carrier {
    pub runtime: Handle,
    pub vigil: Arc<Vigil>,
}

impl Carrier {
    /// Of a runtime of one thread, which keeps the vigil as long as it runs.
    pub fn new(runtime: Handle) -> Self {
        let vigil = Arc::<Vigil>::default();
        runtime.spawn(Arc::clone(&vigil).keep());
        Self { runtime, vigil }
    }
}

/// Somebody else needs the processor.
struct Crowded;

#[derive(Debug, Default)]
pub(super) struct Vigil {
    carried: AtomicU64,
    begin: Notify,
}

impl Vigil {
    /// Something was carried; more may come.
    pub fn carried(&self) {
        self.carried.fetch_add(1, Relaxed);
        self.begin.notify_one();
    }

    async fn keep(self: Arc<Self>) {
        let mut seen = 0;
        let mut asleep_until = Instant::now();
        loop {
            self.begin.notified().await;
            if Instant::now() >= asleep_until
                && let Err(Crowded) = self.watch(&mut seen).await
            {
                asleep_until = Instant::now() + CROWDED_FOR;
            }
        }
    }

    /// Looks until nothing was carried for a moment. `seen` is what was carried when it last looked.
    async fn watch(&self, seen: &mut u64) -> Result<(), Crowded> {
        let mut now = Instant::now();
        let mut until = now;
        loop {
            let carried = self.carried.load(Relaxed);
            if replace(seen, carried) != carried {
                until = now + VIGIL;
            } else if now >= until {
                return Ok(());
            }
            let offered = Instant::now();
            std::thread::yield_now();
            now = Instant::now();
            if now - offered > CROWDED {
                return Err(Crowded);
            }
            // before it goes on here, the runtime asks what has come
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    use super::*;

    #[tokio::test]
    async fn a_vigil_lasts_its_time_after_a_chunk_and_is_not_kept_without_one() {
        let vigil = Vigil::default();
        let mut seen = 0;
        let began = Instant::now();
        vigil.carried();
        let kept = vigil.watch(&mut seen).await;
        assert!(began.elapsed() >= if kept.is_ok() { VIGIL } else { CROWDED });
        assert_eq!(seen, 1);
        let mut again = std::pin::pin!(vigil.watch(&mut seen));
        let at_once = std::future::poll_fn(|task| std::task::Poll::Ready(again.as_mut().poll(task).is_ready())).await;
        assert!(at_once, "nothing was carried since");
    }

    #[tokio::test]
    async fn a_thread_that_carries_no_more_sleeps() {
        let carrier = Carrier::new(Handle::current());
        for _ in 0..10 {
            carrier.vigil.carried();
            tokio::task::yield_now().await;
        }
        let awake = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock"));
        let before = awake();
        let idle = Duration::from_millis(400);
        tokio::time::sleep(idle).await;
        assert!(awake() - before < idle / 2);
    }
}
