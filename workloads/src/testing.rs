//! What the unit tests of recipes share: fake stores and their clients in virtual time, and a log of the clients' signals.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Deref;
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
use crate::recipe::{Policy, RecipeOptions};

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
        let thrown = self.dice.get().wrapping_mul(6364136223846793005);
        self.dice.set(thrown.wrapping_add(1442695040888963407));
        self.dice.get() >> 16
    }

    fn line(&self, lock: &str) -> Arc<Semaphore> {
        self.inner.line(lock)
    }
}

/// What happens to a call over a connection to a fake store.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum CallFault {
    /// It is done, and the answer is lost with the connection.
    LoseReply,
    /// It never arrives, and the connection is lost.
    LoseRequest,
    /// It is done now, and answered this much later.
    LateReply(Duration),
}

/// What is to happen to calls of a fake store, by their names.
pub(crate) struct CallFaults<F>(RefCell<VecDeque<(&'static str, F)>>);

// derived, it would ask for `F: Default`
impl<F> Default for CallFaults<F> {
    fn default() -> Self {
        CallFaults(RefCell::default())
    }
}

impl<F> CallFaults<F> {
    pub(crate) fn add(&self, call: &'static str, fault: F) {
        self.0.borrow_mut().push_back((call, fault));
    }

    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// What happens to a call of this name now.
    pub(crate) fn take(&self, name: &str) -> Option<F> {
        let mut faults = self.0.borrow_mut();
        let place = faults.iter().position(|(call, _)| *call == name)?;
        faults.remove(place).map(|(_, fault)| fault)
    }
}

/// A store that a test plays in memory.
pub(crate) trait FakeStore {
    /// A client of a recipe for stores of this kind.
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient>;
}

/// A fake store, and the host of its clients.
pub(crate) struct FakeRig<S> {
    store: S,
    host: Rc<dyn RecipeHost>,
}

impl<S> Deref for FakeRig<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

impl<S: FakeStore> FakeRig<S> {
    pub(crate) fn now(&self) -> Duration {
        self.host.now()
    }

    /// A client, and what it signals.
    pub(crate) fn client_with(&self, options: RecipeOptions) -> (Box<dyn LockClient>, SignalLog) {
        let log = SignalLog::default();
        let signals = log.0.clone();
        let out = Rc::new(move |signal| signals.borrow_mut().push(signal));
        (
            self.store.client(options, SignalSink::new(1, self.host.clone(), out)),
            log,
        )
    }

    pub(crate) fn client_of(&self, recipe: &str, policy: Policy) -> (Box<dyn LockClient>, SignalLog) {
        self.client_with(options(recipe, policy))
    }

    pub(crate) fn careful(&self, recipe: &str) -> (Box<dyn LockClient>, SignalLog) {
        self.client_of(recipe, Policy::Careful)
    }

    /// A client that holds the lock, and what it signals.
    pub(crate) async fn holder_of(&self, recipe: &str, policy: Policy) -> (Box<dyn LockClient>, SignalLog) {
        let (mut client, signals) = self.client_of(recipe, policy);
        client.acquire(&wait(0)).await.unwrap();
        (client, signals)
    }

    pub(crate) async fn holder(&self, recipe: &str) -> (Box<dyn LockClient>, SignalLog) {
        self.holder_of(recipe, Policy::Careful).await
    }

    /// So many clients that begin to wait for the lock, one after the other; what they signal.
    pub(crate) async fn waiters(&self, recipe: &str, count: usize) -> Vec<SignalLog> {
        let mut logs = Vec::new();
        for _ in 0..count {
            let (waiter, signals) = self.careful(recipe);
            drop(start(waiter, wait(60_000)));
            logs.push(signals);
            sleep(10).await;
        }
        logs
    }

    /// Whether each of two clients that try to take the lock at the same time gets it.
    pub(crate) async fn race(&self, recipe: &str) -> [bool; 2] {
        let clients = [self.careful(recipe).0, self.careful(recipe).0];
        let [one, two] = clients.map(|client| start(client, wait(0)));
        [one.await.unwrap().1.is_ok(), two.await.unwrap().1.is_ok()]
    }
}

/// Runs a test on a fake store in virtual time.
pub(crate) fn in_virtual_time<S: FakeStore>(store: S, test: impl AsyncFnOnce(FakeRig<S>)) {
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
        let host = Rc::new(host);
        test(FakeRig { store, host }).await;
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
        self.causes(LockSignalKind::Lost)
    }

    pub(crate) fn woken(&self) -> Vec<String> {
        self.causes(LockSignalKind::Woken)
    }

    fn causes(&self, kind: LockSignalKind) -> Vec<String> {
        self.of(kind).into_iter().map(|(_, cause)| cause).collect()
    }
}

/// The options of a recipe, with this policy.
pub(crate) fn options(recipe: &str, policy: Policy) -> RecipeOptions {
    RecipeOptions {
        policy,
        ..RecipeOptions::named(recipe).unwrap()
    }
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
