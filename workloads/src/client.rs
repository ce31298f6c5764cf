//! What a lock client is: it acquires, releases, and signals what it learns in between.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;

use crate::host::Host;
use crate::protocol::{Acquire, Signal, SignalKind};

/// How an operation ended. The error says which of the two other ways it was.
pub type Outcome<T> = Result<T, NotOk>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotOk {
    /// It surely did not happen, with the reason: `busy`, `timeout`, `not held`, …
    Fail(String),
    /// Nobody can know whether it happened.
    Info(String),
}

impl NotOk {
    pub(crate) fn busy() -> Self {
        NotOk::Fail("busy".into())
    }

    pub(crate) fn timeout() -> Self {
        NotOk::Fail("timeout".into())
    }

    pub(crate) fn not_held() -> Self {
        NotOk::Fail("not held".into())
    }

    /// A wait that ended without the lock: a try-lock found it taken, a waiter lost patience.
    pub(crate) fn gave_up(request: &Acquire) -> Self {
        if request.wait_ms == 0 {
            Self::busy()
        } else {
            Self::timeout()
        }
    }
}

/// What comes with a held lock.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// The fencing token, if the store gives one.
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    pub owner: Option<String>,
}

/// A client of one lock implementation. It has at most one operation open, and serves any number of locks by name.
///
/// After an operation that ended [`NotOk::Info`] the same client is used again without a new `open`: it finds a new
/// connection or session by itself when it next needs one, and first cleans up what the unknown operation may have
/// left, as far as it can be found.
#[async_trait(?Send)]
pub trait LockClient {
    /// Connects. Answers when ready to acquire, with the owner's name if it is known so early.
    async fn open(&mut self) -> Outcome<Grant>;

    /// Takes the lock, waiting `wait_ms` at most and answering by about one lease later whatever happens.
    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant>;

    /// Gives the lock back, answering within about one lease.
    async fn release(&mut self, lock: &str) -> Outcome<()>;

    /// Gives back what is held, and disconnects.
    async fn close(&mut self);
}

/// Where a client's signals go, stamped with the host's clock at the moment of knowing.
#[derive(Clone)]
pub struct Signals {
    client: u32,
    host: Rc<dyn Host>,
    out: Rc<dyn Fn(Signal)>,
    losses: Rc<RefCell<BTreeMap<String, u64>>>,
}

impl Signals {
    pub fn new(client: u32, host: Rc<dyn Host>, out: Rc<dyn Fn(Signal)>) -> Self {
        Signals {
            client,
            host,
            out,
            losses: Rc::default(),
        }
    }

    /// The client no longer believes that it holds the lock.
    pub fn lost(&self, lock: &str, cause: impl Into<String>) {
        self.raise(SignalKind::Lost, lock, cause.into());
        *self.losses.borrow_mut().entry(lock.to_owned()).or_default() += 1;
    }

    /// A notification of the server for this lock reached a waiter.
    pub fn woken(&self, lock: &str, cause: impl Into<String>) {
        self.raise(SignalKind::Woken, lock, cause.into());
    }

    /// The machine that the client runs on.
    pub(crate) fn host(&self) -> &Rc<dyn Host> {
        &self.host
    }

    /// How often `lost` was raised for this lock so far.
    pub(crate) fn losses(&self, lock: &str) -> u64 {
        self.losses.borrow().get(lock).copied().unwrap_or(0)
    }

    fn raise(&self, f: SignalKind, lock: &str, cause: String) {
        let at = u64::try_from(self.host.now().as_nanos()).expect("a monotonic clock stays below 584 years");
        (self.out)(Signal {
            client: self.client,
            f,
            lock: lock.to_owned(),
            at,
            cause,
        });
    }
}
