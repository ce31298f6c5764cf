//! What the unit tests of recipes share: a host in virtual time, clients of fake stores, and a log of their signals.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::client::{LockClient, SignalSink};
use crate::host::{RecipeHost, Task, TokioHost};
use crate::protocol::{AcquireRequest, LockSignal, LockSignalKind};
use crate::recipe::{Policy, RecipeContext, RecipeOptions};

pub(crate) const LEASE: Duration = Duration::from_millis(2000);

/// Tokio's paused clock: it jumps to the next timer when nothing else is left to do.
struct VirtualHost {
    zero: Instant,
    dice: Cell<u64>,
    inner: TokioHost,
}

impl RecipeHost for VirtualHost {
    fn now(&self) -> Duration {
        self.zero.elapsed()
    }

    fn wall_clock(&self) -> Duration {
        Duration::from_secs(1_800_000_000) + self.zero.elapsed()
    }

    fn sleep(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()>>> {
        self.inner.sleep(time)
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()>>>) -> Task {
        self.inner.spawn(task)
    }

    fn random(&self) -> u64 {
        self.dice.set(
            self.dice
                .get()
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407),
        );
        self.dice.get() >> 16
    }

    fn line(&self, lock: &str) -> Arc<Semaphore> {
        self.inner.line(lock)
    }
}

/// Runs a test in virtual time.
pub(crate) fn in_virtual_time(test: impl AsyncFnOnce(Rc<dyn RecipeHost>)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    LocalSet::new().block_on(&runtime, async {
        let host = VirtualHost {
            zero: Instant::now(),
            dice: Cell::new(1),
            inner: TokioHost::default(),
        };
        test(Rc::new(host)).await;
    });
}

/// What a client signalled.
#[derive(Clone, Default)]
pub(crate) struct SignalLog(Rc<RefCell<Vec<LockSignal>>>);

impl SignalLog {
    pub(crate) fn of(&self, kind: LockSignalKind) -> Vec<(Duration, String)> {
        let signals = self.0.borrow();
        let of_kind = signals.iter().filter(|signal| signal.f == kind);
        of_kind
            .map(|signal| (Duration::from_nanos(signal.at), signal.cause.clone()))
            .collect()
    }

    pub(crate) fn lost(&self) -> Vec<String> {
        self.of(LockSignalKind::Lost)
            .into_iter()
            .map(|(_, cause)| cause)
            .collect()
    }

    pub(crate) fn woken(&self) -> Vec<String> {
        self.of(LockSignalKind::Woken)
            .into_iter()
            .map(|(_, cause)| cause)
            .collect()
    }
}

/// The options of a recipe, with this policy.
pub(crate) fn options(recipe: &str, policy: Policy) -> RecipeOptions {
    RecipeOptions {
        policy,
        ..RecipeOptions::named(recipe).unwrap()
    }
}

/// A client at a fake store, and what it signals.
pub(crate) fn client<C: ?Sized>(
    options: RecipeOptions,
    make: fn(RecipeContext<C>) -> Box<dyn LockClient>,
    store: Rc<C>,
    host: &Rc<dyn RecipeHost>,
) -> (Box<dyn LockClient>, SignalLog) {
    let log = SignalLog::default();
    let signals = log.0.clone();
    let out = Rc::new(move |signal| signals.borrow_mut().push(signal));
    (
        options.build(make, store, SignalSink::new(1, host.clone(), out), LEASE),
        log,
    )
}

pub(crate) fn wait(ms: u64) -> AcquireRequest {
    AcquireRequest {
        lock: "l".into(),
        wait_ms: ms,
        ..AcquireRequest::default()
    }
}

/// Starts an acquire in a task, as another client would.
pub(crate) fn start(
    mut client: Box<dyn LockClient>,
    request: AcquireRequest,
) -> tokio::task::JoinHandle<(Box<dyn LockClient>, crate::client::LockResult<crate::client::LockGrant>)> {
    tokio::task::spawn_local(async move {
        let outcome = client.acquire(&request).await;
        (client, outcome)
    })
}

pub(crate) async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
