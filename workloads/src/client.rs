//! A lock client ([`LockClient`]): it acquires, releases, and raises signals in between ([`SignalSink`]).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use async_trait::async_trait;

use crate::host::RecipeHost;
use crate::protocol::{AcquireRequest, FailReason, LockSignal, LockSignalKind};

/// The end of an operation: `ok`, or one of the two other ways.
pub type LockResult<T> = Result<T, LockError>;

/// The two ways in which an operation ends without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockError {
    /// `fail`: it surely did not happen.
    Refused(FailReason),
    /// `info`: it may have happened or not, or happen later.
    Unknown(String),
}

impl LockError {
    pub const BUSY: Self = LockError::Refused(FailReason::Busy);
    pub const TIMEOUT: Self = LockError::Refused(FailReason::Timeout);
    pub const NOT_HELD: Self = LockError::Refused(FailReason::NotHeld(None));

    /// Makes a refusal for a reason that has no word in the protocol.
    pub(crate) fn refused(reason: impl Into<String>) -> Self {
        LockError::Refused(FailReason::Other(reason.into()))
    }

    /// Returns the answer to a release of a lock that is not held any more.
    pub(crate) fn no_longer_held(detail: impl Into<String>) -> Self {
        LockError::Refused(FailReason::NotHeld(Some(detail.into())))
    }

    /// Returns the answer to a release that found nothing to give back. `before`: the reason for which the try before it had no answer, if
    /// there was one; a lock that had not run out (`in_time`) was given back by that try.
    pub(crate) fn of_nothing_released(before: Option<String>, in_time: bool) -> LockResult<()> {
        match before {
            None => Err(Self::NOT_HELD),
            Some(_) if in_time => Ok(()),
            Some(reason) => Err(Self::Unknown(reason)),
        }
    }

    /// Returns the end of a wait without the lock: a try-lock found it taken, or the time of a waiter was over.
    pub(crate) fn wait_over(request: &AcquireRequest) -> Self {
        if request.wait_ms == 0 {
            Self::BUSY
        } else {
            Self::TIMEOUT
        }
    }
}

/// A grant: its fencing token and its owner, as far as the client knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockGrant {
    /// The fencing token, if the store gives one.
    pub token: Option<u64>,
    /// The server's name for the owner: a session, a lease, a random value.
    pub owner: Option<String>,
}

impl LockGrant {
    /// Makes a grant to the owner of this name.
    pub fn to(owner: impl Into<String>, token: Option<u64>) -> Self {
        LockGrant {
            token,
            owner: Some(owner.into()),
        }
    }
}

/// A client of one lock implementation. It has at most one operation open, and serves any number of locks by name.
///
/// After an operation that ended [`LockError::Unknown`] the same client is used again without a new `open`: it makes a new
/// connection or session when it next needs one, and first removes the leftovers of the unknown operation, as far as it
/// can find them.
#[async_trait(?Send)]
pub trait LockClient {
    /// Connects. Answers when ready to acquire, with the owner's name if it is known so early. Called again for a while if it
    /// fails.
    async fn open(&mut self) -> LockResult<LockGrant>;

    /// Takes the lock, waiting `wait_ms` at most and answering by about one lease later whatever happens.
    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant>;

    /// Releases the lock, answering within about one lease.
    async fn release(&mut self, lock: &str) -> LockResult<()>;

    /// Extends the lease of a held lock to its whole length, where the lock leaves that to its user.
    async fn extend(&mut self, _lock: &str) -> LockResult<()> {
        Err(LockError::refused("its user cannot extend its lease"))
    }

    /// Releases what is held, and disconnects.
    async fn close(&mut self);
}

/// The receiver of a client's signals, each stamped with the host's clock at the moment at which the client knew.
#[derive(Clone)]
pub struct SignalSink {
    client: u32,
    host: Rc<dyn RecipeHost>,
    out: Rc<dyn Fn(LockSignal)>,
    losses: Rc<RefCell<BTreeMap<String, u64>>>,
}

impl SignalSink {
    pub fn new(client: u32, host: Rc<dyn RecipeHost>, out: Rc<dyn Fn(LockSignal)>) -> Self {
        SignalSink {
            client,
            host,
            out,
            losses: Rc::default(),
        }
    }

    /// Raises `lost`: the client no longer believes that it holds the lock.
    pub fn lost(&self, lock: &str, cause: impl Into<String>) {
        self.raise(LockSignalKind::Lost, lock, cause.into());
        *self.losses.borrow_mut().entry(lock.to_owned()).or_default() += 1;
    }

    /// Raises `woken`: a notification of the server for this lock reached a waiter.
    pub fn woken(&self, lock: &str, cause: impl Into<String>) {
        self.raise(LockSignalKind::Woken, lock, cause.into());
    }

    /// Returns the machine that the client runs on.
    pub(crate) fn host(&self) -> &Rc<dyn RecipeHost> {
        &self.host
    }

    /// Returns how often `lost` was raised for this lock so far.
    pub(crate) fn losses(&self, lock: &str) -> u64 {
        self.losses.borrow().get(lock).copied().unwrap_or(0)
    }

    fn raise(&self, f: LockSignalKind, lock: &str, cause: String) {
        let at = u64::try_from(self.host.now().as_nanos()).expect("a monotonic clock stays below 584 years");
        (self.out)(LockSignal {
            client: self.client,
            f,
            lock: lock.to_owned(),
            at,
            cause,
        });
    }
}
