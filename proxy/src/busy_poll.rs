//! Busy polling of the proxy's thread.
//!
//! Waking a sleeping thread costs more than forwarding a chunk, so after each chunk the thread polls for [`BUSY_POLL`] if the
//! peer usually replies within [`QUICK_REPLY`], and yields the processor before every poll. It polls only while the kernel
//! says that no task waits for a processor: where one waits, a thread that polls uses up the share that a thread that sleeps
//! has left when it is woken.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::direction::Direction;
use crate::clock::monotonic_ns;
use crate::limits::{BUSY_POLL, CROWDED, LOADAVG_READ, QUICK_REPLY};

/// The runtime of the proxy's thread.
#[derive(Debug, Clone)]
pub(super) struct ProxyRuntime {
    pub runtime: Handle,
    pub busy_poll: Arc<BusyPoll>,
}

impl ProxyRuntime {
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
    /// The time at which the last chunk was forwarded, and its direction.
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

    /// Returns the time since the last chunk was forwarded, either way; zero before the first one.
    pub fn idle_for(&self) -> Duration {
        match self.last_ns.load(Relaxed) {
            0 => Duration::ZERO,
            last_ns => Duration::from_nanos(monotonic_ns().saturating_sub(last_ns)),
        }
    }

    /// Whether tasks waited for a processor when the thread last wanted to poll.
    pub fn is_crowded(&self) -> bool {
        self.busy_poll.crowded.load(Relaxed)
    }

    /// Notes that a chunk was forwarded; if the next one is likely to come soon, the thread polls for it.
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

/// Watches whether there is a processor for every task that wants one.
#[derive(Debug)]
struct ProcessorWatch {
    processors: usize,
    /// `/proc/loadavg`. Without it no processor counts as free.
    loadavg: Option<File>,
    read_at: Option<Instant>,
    is_free: bool,
}

impl ProcessorWatch {
    /// Watches the processors that this process may use.
    fn new() -> Self {
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            loadavg: File::open("/proc/loadavg").ok(),
            read_at: None,
            is_free: false,
        }
    }

    /// Whether no task waits for a processor, as it was within the last [`LOADAVG_READ`], or [`CROWDED`] where one waited.
    fn is_free(&mut self, now: Instant) -> bool {
        let holds_for = if self.is_free { LOADAVG_READ } else { CROWDED };
        if self.read_at.is_none_or(|read_at| now - read_at >= holds_for) {
            self.read_at = Some(now);
            self.is_free = self.runnable().is_some_and(|runnable| runnable <= self.processors);
        }
        self.is_free
    }

    /// Returns how many tasks of this machine run or wait for a processor; the calling thread is one of them.
    fn runnable(&self) -> Option<usize> {
        let mut text = [0; 64];
        let length = self.loadavg.as_ref()?.read_at(&mut text, 0).ok()?;
        runnable_in(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Parses the tasks that are runnable, in a line such as `0.20 0.18 0.12 1/80 11206`
/// (<https://man7.org/linux/man-pages/man5/proc_loadavg.5.html>).
fn runnable_in(loadavg: &str) -> Option<usize> {
    let (runnable, _) = loadavg.split(' ').nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

#[derive(Debug, Default)]
pub(super) struct BusyPoll {
    /// A chunk was forwarded since the last look.
    begun: AtomicBool,
    /// At the last look a task waited for a processor.
    crowded: AtomicBool,
    wanted: Notify,
}

impl BusyPoll {
    fn begin(&self) {
        self.begun.store(true, Relaxed);
        self.wanted.notify_one();
    }

    async fn run(self: Arc<Self>) {
        let mut processors = ProcessorWatch::new();
        loop {
            self.wanted.notified().await;
            self.poll(&mut processors).await;
        }
    }

    /// Polls until nothing was forwarded for a moment, or until a task waits for a processor.
    async fn poll(&self, processors: &mut ProcessorWatch) {
        let mut now = Instant::now();
        let mut until = now;
        loop {
            let crowded = !processors.is_free(now);
            self.crowded.store(crowded, Relaxed);
            if crowded {
                return;
            }
            if self.begun.swap(false, Relaxed) {
                until = now + BUSY_POLL;
            } else if now >= until {
                return;
            }
            // the peer may have been woken on this processor
            std::thread::yield_now();
            // the runtime looks for input before it comes back here
            tokio::task::yield_now().await;
            now = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nix::time::{ClockId, clock_gettime};

    use super::*;

    /// Returns a machine on which this many tasks may run at once.
    fn machine(processors: usize) -> ProcessorWatch {
        ProcessorWatch {
            processors,
            ..ProcessorWatch::new()
        }
    }

    /// Whether polling ends without a wait.
    async fn ends_at_once(busy_poll: &BusyPoll, processors: &mut ProcessorWatch) -> bool {
        let mut polling = std::pin::pin!(busy_poll.poll(processors));
        std::future::poll_fn(|task| std::task::Poll::Ready(polling.as_mut().poll(task).is_ready())).await
    }

    #[tokio::test]
    async fn polling_lasts_its_time_and_ends_when_nothing_comes() {
        let busy_poll = BusyPoll::default();
        let began = Instant::now();
        busy_poll.begin();
        let mut idle = machine(usize::MAX);
        busy_poll.poll(&mut idle).await;
        assert!(began.elapsed() >= BUSY_POLL);
        assert!(!busy_poll.begun.load(Relaxed));
        assert!(ends_at_once(&busy_poll, &mut idle).await, "nothing was forwarded since");
    }

    #[tokio::test]
    async fn nothing_polls_where_tasks_wait_or_where_that_is_not_known() {
        let busy_poll = BusyPoll::default();
        busy_poll.begin();
        assert!(!ends_at_once(&busy_poll, &mut machine(usize::MAX)).await);
        busy_poll.begin();
        assert!(ends_at_once(&busy_poll, &mut machine(0)).await);
        let mut blind = machine(usize::MAX);
        blind.loadavg = None;
        assert!(ends_at_once(&busy_poll, &mut blind).await);
    }

    #[test]
    fn the_kernel_says_how_many_tasks_are_runnable() {
        assert!(ProcessorWatch::new().runnable() >= Some(1), "this thread runs");
        assert_eq!(runnable_in("0.20 0.18 0.12 13/80 11206\n"), Some(13));
        assert_eq!(runnable_in("0.20 0.18 0.12"), None);
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
}
