//! Busy polling of the proxy's thread.
//!
//! Waking a sleeping thread costs more than forwarding a chunk, so after each chunk the thread polls for [`BUSY_POLL`] if the
//! peer usually replies within [`QUICK_REPLY`]. It yields the processor before every poll. A yield that takes longer than
//! [`CONTENDED`] means that another process needs the processor: then polling is off for [`BACKOFF`], which doubles each
//! time up to [`MAX_BACKOFF`] and starts again after a poll that was not contended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pump::Direction;
use crate::clock::monotonic_ns;
use crate::limits::{BACKOFF, BUSY_POLL, CONTENDED, MAX_BACKOFF, QUICK_REPLY};

/// The runtime of the proxy's thread.
#[derive(Debug, Clone)]
pub(super) struct ProxyRuntime {
    pub runtime: Handle,
    pub busy_poll: Arc<BusyPoll>,
}

impl ProxyRuntime {
    /// Of a runtime of one thread.
    pub fn new(runtime: Handle) -> Self {
        let busy_poll = Arc::<BusyPoll>::default();
        runtime.spawn(Arc::clone(&busy_poll).run());
        Self { runtime, busy_poll }
    }
}

/// Predicts from the last chunks of one connection whether the next one comes soon.
#[derive(Debug)]
pub(super) struct ReplyPredictor<'a> {
    busy_poll: &'a BusyPoll,
    /// When the last chunk was forwarded, and which way.
    last_ns: AtomicU64,
    last: AtomicUsize,
    /// For each direction: whether the next chunk of the connection came soon after the last one that went there.
    soon: [AtomicBool; 2],
}

impl<'a> ReplyPredictor<'a> {
    pub fn new(busy_poll: &'a BusyPoll) -> Self {
        Self {
            busy_poll,
            last_ns: AtomicU64::new(0),
            last: AtomicUsize::new(0),
            soon: [const { AtomicBool::new(false) }; 2],
        }
    }

    /// How long ago the last chunk was forwarded, either way; zero before the first one.
    pub fn idle_for(&self) -> Duration {
        match self.last_ns.load(Relaxed) {
            0 => Duration::ZERO,
            last_ns => Duration::from_nanos(monotonic_ns().saturating_sub(last_ns)),
        }
    }

    /// A chunk was forwarded; if the next one is likely to come soon, the thread polls for it.
    pub fn forwarded(&self, direction: Direction) {
        self.forwarded_at(monotonic_ns(), direction);
    }

    fn forwarded_at(&self, now_ns: u64, direction: Direction) {
        let waited = now_ns - self.last_ns.swap(now_ns, Relaxed);
        let before = self.last.swap(direction as usize, Relaxed);
        self.soon[before].store(u128::from(waited) < QUICK_REPLY.as_nanos(), Relaxed);
        if self.soon[direction as usize].load(Relaxed) {
            self.busy_poll.begin();
        }
    }
}

/// Another process needs the processor.
struct Contended;

#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// A chunk was forwarded since the last look.
    begun: AtomicBool,
    wanted: Notify,
}

impl BusyPoll {
    fn begin(&self) {
        self.begun.store(true, Relaxed);
        self.wanted.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut off_until = Instant::now();
        let mut backoff = BACKOFF;
        loop {
            self.wanted.notified().await;
            if Instant::now() < off_until {
                continue;
            }
            backoff = match self.poll().await {
                Ok(()) => BACKOFF,
                Err(Contended) => {
                    off_until = Instant::now() + backoff;
                    doubled(backoff)
                }
            };
        }
    }

    /// Polls until nothing was forwarded for a moment.
    async fn poll(&self) -> Result<(), Contended> {
        let mut now = Instant::now();
        let mut until = now;
        loop {
            if self.begun.swap(false, Relaxed) {
                until = now + BUSY_POLL;
            } else if now >= until {
                return Ok(());
            }
            let offered = Instant::now();
            std::thread::yield_now();
            now = Instant::now();
            if now - offered > CONTENDED {
                return Err(Contended);
            }
            // the runtime looks for input before it comes back here
            tokio::task::yield_now().await;
        }
    }
}

fn doubled(backoff: Duration) -> Duration {
    (backoff * 2).min(MAX_BACKOFF)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    use super::*;

    #[tokio::test]
    async fn polling_lasts_its_time_and_ends_when_nothing_comes() {
        let busy_poll = BusyPoll::default();
        let began = Instant::now();
        busy_poll.begin();
        let kept = busy_poll.poll().await;
        assert!(began.elapsed() >= if kept.is_ok() { BUSY_POLL } else { CONTENDED });
        assert!(!busy_poll.begun.load(Relaxed));
        let mut again = std::pin::pin!(busy_poll.poll());
        let at_once = std::future::poll_fn(|task| std::task::Poll::Ready(again.as_mut().poll(task).is_ready())).await;
        assert!(at_once, "nothing was forwarded since");
    }

    #[test]
    fn only_a_connection_with_quick_replies_keeps_the_thread_polling() {
        use Direction::{ToClient, ToServer};
        let busy_poll = BusyPoll::default();
        let predictor = ReplyPredictor::new(&busy_poll);
        let (quick, slow) = (10_000, 1_000_000);
        let mut now_ns = 5_000_000_000;
        let mut begins = |wait_ns: u64, direction| {
            now_ns += wait_ns;
            predictor.forwarded_at(now_ns, direction);
            busy_poll.begun.swap(false, Relaxed)
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
        let proxy_runtime = ProxyRuntime::new(Handle::current());
        for _ in 0..10 {
            proxy_runtime.busy_poll.begin();
            tokio::task::yield_now().await;
        }
        let awake = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock"));
        let before = awake();
        let idle = Duration::from_millis(400);
        tokio::time::sleep(idle).await;
        assert!(awake() - before < idle / 2);
    }

    #[test]
    fn polling_stays_off_twice_as_long_each_time_up_to_a_maximum() {
        let mut off = vec![BACKOFF];
        while off.last() != Some(&MAX_BACKOFF) {
            off.push(doubled(off[off.len() - 1]));
        }
        assert_eq!(off.len(), 9);
        assert_eq!(doubled(MAX_BACKOFF), MAX_BACKOFF);
    }
}
