//! The fake stores of the recipes' unit tests, their clients in virtual time, and a log of the clients' signals.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, pending};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::backend_id::BackendId;
use crate::client::{LockClient, LockError, SignalSink};
use crate::host::{RecipeHost, Task, TokioHost};
use crate::protocol::{AcquireRequest, LockSignal, LockSignalKind};
use crate::recipe::{Policy, RecipeOptions};
use crate::session::SessionError;

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

/// The fault of a call over a connection to a fake store.
#[derive(Clone)]
pub(crate) enum CallFault {
    /// It is done, and the answer is lost with the connection.
    LoseReply,
    /// It never arrives, and the connection is lost.
    LoseRequest,
    /// It is done now, and answered this much later.
    LateReply(Duration),
    /// No server takes it.
    Refuse,
    /// It is never answered.
    Silence,
    /// The session is over, and its connection does not know yet.
    Over,
    /// Another does this first.
    First(Rc<dyn Fn()>),
}

/// The faults of the next calls of a fake store, by the names of the calls.
#[derive(Default)]
pub(crate) struct CallFaults(RefCell<VecDeque<(&'static str, CallFault)>>);

impl CallFaults {
    pub(crate) fn add(&self, call: &'static str, fault: CallFault) {
        self.0.borrow_mut().push_back((call, fault));
    }

    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }

    /// Takes out the fault of a call of this name, if it is next.
    fn take(&self, name: &str) -> Option<CallFault> {
        let mut faults = self.0.borrow_mut();
        let place = faults.iter().position(|(call, _)| *call == name)?;
        faults.remove(place).map(|(_, fault)| fault)
    }

    /// Makes a call, which is `work` in the store. `arrives`: the error if the call does not get there; `lose` ends the connection.
    pub(crate) async fn call<T>(
        &self,
        name: &'static str,
        arrives: impl FnOnce() -> Result<(), SessionError>,
        work: impl Future<Output = T>,
        lose: impl Fn(),
    ) -> Result<T, SessionError> {
        sleep(1).await;
        arrives()?;
        let unanswered = || {
            lose();
            Err(SessionError::Indefinite(format!("{name}: no answer")))
        };
        match self.take(name) {
            None => Ok(work.await),
            Some(CallFault::LoseReply) => {
                work.await;
                unanswered()
            }
            Some(CallFault::LoseRequest) => unanswered(),
            Some(CallFault::LateReply(late)) => {
                let answer = work.await;
                tokio::time::sleep(late).await;
                Ok(answer)
            }
            Some(CallFault::Refuse) => Err(SessionError::Definite(format!("{name}: not sent"))),
            Some(CallFault::Silence) => pending().await,
            Some(CallFault::Over) => Err(SessionError::Lost("the session is over".into())),
            Some(CallFault::First(other)) => {
                other();
                Ok(work.await)
            }
        }
    }
}

/// A store in memory, for tests.
pub(crate) trait FakeStore {
    /// Returns a client of a recipe for stores of this kind.
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient>;

    /// Returns the faults of its next calls.
    fn faults(&self) -> &CallFaults;
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

    /// Puts a fault on the next call of this name that has none.
    pub(crate) fn fail(&self, call: &'static str, fault: CallFault) {
        self.store.faults().add(call, fault);
    }

    /// Puts a fault on so many calls of this name.
    pub(crate) fn fail_times(&self, times: usize, call: &'static str, fault: &CallFault) {
        (0..times).for_each(|_| self.fail(call, fault.clone()));
    }

    /// Ends all faults.
    pub(crate) fn mend(&self) {
        self.store.faults().clear();
    }

    /// Returns a client, and the log of its signals.
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

    /// Returns a client that holds the lock, and the log of its signals.
    pub(crate) async fn holder_of(&self, recipe: &str, policy: Policy) -> (Box<dyn LockClient>, SignalLog) {
        let (mut client, signals) = self.client_of(recipe, policy);
        client.acquire(&wait(0)).await.unwrap();
        (client, signals)
    }

    pub(crate) async fn holder(&self, recipe: &str) -> (Box<dyn LockClient>, SignalLog) {
        self.holder_of(recipe, Policy::Careful).await
    }

    /// Starts so many clients that wait for the lock, one after the other; returns the logs of their signals.
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

    /// Returns whether each of two clients that try to take the lock at the same time gets it.
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

/// Checks that every recipe for these stores excludes and hands over, with tokens that grow if it has some.
pub(crate) fn all_exclude_and_hand_over<S: FakeStore>(store: impl Fn() -> S, backends: &[BackendId]) {
    for recipe in backends.iter().flat_map(|backend| backend.recipes()) {
        let name = recipe.name;
        in_virtual_time(store(), async |store| {
            let (mut one, signals) = store.careful(name);
            let (mut two, _) = store.careful(name);
            one.open().await.unwrap();
            let first = one.acquire(&wait(0)).await.unwrap();
            assert_eq!(two.acquire(&wait(0)).await, Err(LockError::BUSY), "{name}");
            assert_eq!(two.acquire(&wait(50)).await, Err(LockError::TIMEOUT), "{name}");
            let waiting = start(two, wait(1_000));
            sleep(100).await;
            one.release("l").await.unwrap();
            let (_two, second) = waiting.await.unwrap();
            let second = second.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert!(
                !recipe.tokens || first.token < second.token,
                "{name}: {first:?} {second:?}"
            );
            assert!(signals.lost().is_empty() && signals.woken().is_empty());
            assert_eq!(one.release("l").await, Err(LockError::NOT_HELD), "{name}");
        });
    }
}

/// Checks that a careful holder whose lease is not renewed raises `lost` for this cause before the lease ends, and that a naive one does
/// not. `cut` keeps it from renewals, or lets them pass again.
pub(crate) fn only_careful_holders_doubt<S: FakeStore>(
    store: impl Fn() -> S,
    recipe: &str,
    cause: &str,
    cut: impl Fn(&FakeRig<S>, bool),
) {
    for (policy, told) in [(Policy::Careful, 1), (Policy::Naive, 0)] {
        in_virtual_time(store(), async |store| {
            let (mut lock, signals) = store.holder_of(recipe, policy).await;
            if options(recipe, policy).recipe.renews {
                sleep(3_000).await;
                assert!(signals.lost().is_empty(), "{recipe} {policy}: it is renewed");
            }
            let begun = store.now();
            cut(&store, true);
            sleep(10_000).await;
            let lost = signals.of(LockSignalKind::Lost);
            assert_eq!(lost.len(), told, "{recipe} {policy}");
            let in_time = |at: Duration| at <= begun + LEASE * 9 / 10;
            let all = lost.iter().all(|(at, why)| in_time(*at) && why == cause);
            assert!(all, "{recipe}: {lost:?}");
            cut(&store, false);
            let released = lock.release("l").await.unwrap_err();
            let not_held = [LockError::NOT_HELD, LockError::no_longer_held("own key is gone")];
            assert!(not_held.contains(&released), "{recipe} {policy}: {released:?}");
            lock.acquire(&wait(0)).await.unwrap();
        });
    }
}

/// Checks that a grant whose answer comes after the validity of its lease is none, and that nothing of it is left; where it could not be
/// removed, the acquire is unknown. The calls are those that take the lease and remove it.
pub(crate) fn late_grants_are_none<S: FakeStore>(
    store: S,
    recipe: &str,
    [call, removal]: [&'static str; 2],
    is_free: impl Fn(&S) -> bool,
) {
    in_virtual_time(store, async |store| {
        let (mut lock, signals) = store.careful(recipe);
        store.fail(call, CallFault::LateReply(LEASE * 95 / 100));
        assert_eq!(lock.acquire(&wait(0)).await, Err(LockError::BUSY));
        assert!(is_free(&store.store), "{recipe}: it was not given back");
        store.fail(call, CallFault::LateReply(LEASE * 95 / 100));
        store.fail(removal, CallFault::Refuse);
        assert!(matches!(lock.acquire(&wait(0)).await, Err(LockError::Unknown(_))));
        assert!(signals.lost().is_empty());
    });
}

/// Checks that a release that is refused at once is repeated, each time after this pause.
pub(crate) fn refused_releases_are_repeated<S: FakeStore>(store: S, recipe: &str, call: &'static str, pause: Duration) {
    in_virtual_time(store, async |store| {
        let (mut lock, _) = store.holder(recipe).await;
        store.fail_times(3, call, &CallFault::Refuse);
        let asked = store.now();
        assert_eq!(lock.release("l").await, Ok(()));
        assert!(store.now() - asked >= 3 * pause, "it was asked in a loop");
    });
}

/// The signals of a client.
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

/// Returns the options of a recipe, with this policy.
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
