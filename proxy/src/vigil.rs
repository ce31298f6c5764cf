//! Keeps the proxy's thread awake for a moment after it carried something.
//!
//! To be woken takes longer than to carry a chunk. So where a connection is used to a quick answer, or to a client that
//! asks again at once, the thread looks again instead of going to sleep, and offers the processor to everybody else before
//! each look. Where somebody else keeps it for long the machine is crowded, and whoever sleeps is served sooner than whoever
//! gives way: then there is no vigil for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::lane::Direction;
use crate::clock::monotonic_ns;
use crate::limits::{CROWDED, CROWDED_FOR, SOON, VIGIL};

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

/// What one connection is used to.
#[derive(Debug)]
pub(super) struct Habit<'a> {
    vigil: &'a Vigil,
    /// When the last chunk went through, and which way.
    last_ns: AtomicU64,
    last: AtomicUsize,
    /// For each direction: whether the next chunk of the connection came soon after the last one that went there.
    soon: [AtomicBool; 2],
}

impl<'a> Habit<'a> {
    pub fn new(vigil: &'a Vigil) -> Self {
        Self {
            vigil,
            last_ns: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            soon: [const { AtomicBool::new(false) }; 2],
        }
    }

    /// A chunk went through; if the next one is likely to come soon, the thread stays awake for it.
    pub fn carried(&self, direction: Direction) {
        self.carried_at(monotonic_ns(), direction);
    }

    fn carried_at(&self, now_ns: u64, direction: Direction) {
        let waited = now_ns - self.last_ns.swap(now_ns, Relaxed);
        let before = self.last.swap(direction as usize, Relaxed);
        self.soon[before].store(u128::from(waited) < SOON.as_nanos(), Relaxed);
        if self.soon[direction as usize].load(Relaxed) {
            self.vigil.begin();
        }
    }
}

/// Somebody else needs the processor.
struct Crowded;

#[derive(Debug, Default)]
pub(super) struct Vigil {
    /// It was begun, and has not looked since.
    begun: AtomicBool,
    wanted: Notify,
}

impl Vigil {
    /// More may come from now on.
    fn begin(&self) {
        self.begun.store(true, Relaxed);
        self.wanted.notify_one();
    }

    async fn keep(self: Arc<Self>) {
        let mut asleep_until = Instant::now();
        loop {
            self.wanted.notified().await;
            if Instant::now() >= asleep_until
                && let Err(Crowded) = self.watch().await
            {
                asleep_until = Instant::now() + CROWDED_FOR;
            }
        }
    }

    /// Looks until nobody wanted it for a moment.
    async fn watch(&self) -> Result<(), Crowded> {
        let mut now = Instant::now();
        let mut until = now;
        loop {
            if self.begun.swap(false, Relaxed) {
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
    async fn a_vigil_lasts_its_time_and_is_not_kept_for_nothing() {
        let vigil = Vigil::default();
        let began = Instant::now();
        vigil.begin();
        let kept = vigil.watch().await;
        assert!(began.elapsed() >= if kept.is_ok() { VIGIL } else { CROWDED });
        assert!(!vigil.begun.load(Relaxed));
        let mut again = std::pin::pin!(vigil.watch());
        let at_once = std::future::poll_fn(|task| std::task::Poll::Ready(again.as_mut().poll(task).is_ready())).await;
        assert!(at_once, "nobody wanted it since");
    }

    #[test]
    fn only_who_is_used_to_what_comes_soon_keeps_the_thread_awake() {
        use Direction::{ToClient, ToServer};
        let vigil = Vigil::default();
        let habit = Habit::new(&vigil);
        let (quick, slow) = (10_000, 1_000_000);
        let mut now_ns = 5_000_000_000;
        let mut begins = |wait_ns: u64, direction| {
            now_ns += wait_ns;
            habit.carried_at(now_ns, direction);
            vigil.begun.swap(false, Relaxed)
        };
        assert!(!begins(slow, ToServer), "nothing is known yet");
        assert!(!begins(quick, ToClient), "how soon this client asks is not known");
        assert!(begins(slow, ToServer), "this server answers soon");
        assert!(!begins(quick, ToClient), "this client takes its time");
        assert!(begins(quick, ToServer));
        assert!(begins(slow, ToClient), "it asked at once");
        assert!(!begins(quick, ToServer), "the server took its time");
    }

    #[tokio::test]
    async fn a_thread_that_carries_no_more_sleeps() {
        let carrier = Carrier::new(Handle::current());
        for _ in 0..10 {
            carrier.vigil.begin();
            tokio::task::yield_now().await;
        }
        let awake = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock"));
        let before = awake();
        let idle = Duration::from_millis(400);
        tokio::time::sleep(idle).await;
        assert!(awake() - before < idle / 2);
    }
}
