//! A lock that is one key of a bucket ([`KeyLock`]); its messages end when they are as old as the lease.
//!
//! 1. read the key; poll with jitter while it has a value;
//! 2. write it, if it has no message; the revision of that write is the fencing token. The owner is in the value;
//! 3. a write whose answer was lost is read back. What stays unknown is `info`, and is removed by its owner before the next
//!    acquire;
//! 4. write it again every third of the lease, if its last message is still the client's own. A careful client believes for
//!    [`VALIDITY`](crate::recipe::VALIDITY) percent of the lease, counted from before the last acknowledged write was sent;
//! 5. release: remove the last message, if it is the client's own.
//!
//! [`KeyTaking`] and [`KeyGiving`] are the differences of recipes.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;

use super::{KeyMessage, NatsSession, held_value, read_value};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::host::{Task, random_name};
use crate::protocol::AcquireRequest;
use crate::recipe::NatsContext;
use crate::session::{RETRY_PAUSE, SessionError};

use super::shared_connection::SharedConnection;

/// The write of a key that takes the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyTaking {
    /// If the message that was read is still the last one.
    Compared,
    /// Whatever is there.
    Blind,
}

/// The way in which a lock is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyGiving {
    /// The message of the last own revision is removed.
    Removed,
    /// A delete marker is written over it.
    Marked,
    /// The messages of the key are removed, whosever they are.
    Purged,
}

/// A client of a lock that is a key.
pub(super) struct KeyLock {
    context: NatsContext,
    takes: KeyTaking,
    gives: KeyGiving,
    connection: SharedConnection,
    held: ClientHolds<HeldKey>,
    /// Locks and owners of keys that an unknown operation may have left.
    leftovers: Vec<(String, String)>,
}

/// A key that was taken.
#[derive(Clone)]
struct HeldKey {
    owner: String,
    token: u64,
    last: Rc<Cell<KeyWrite>>,
}

/// An acknowledged write.
#[derive(Clone, Copy)]
struct KeyWrite {
    revision: u64,
    /// The time at which it was sent.
    asked: Duration,
}

impl HeldKey {
    fn revision(&self) -> u64 {
        self.last.get().revision
    }

    /// Whether a message is one of its own; if so, later writes are over this one.
    fn has(&self, message: &KeyMessage) -> bool {
        let own = is_of(message, &self.owner);
        if own {
            let asked = self.last.get().asked;
            let revision = message.revision;
            self.last.set(KeyWrite { revision, asked });
        }
        own
    }
}

fn is_of(message: &KeyMessage, owner: &str) -> bool {
    !message.deleted && read_value(&message.value).0 == owner
}

impl KeyLock {
    pub(super) fn new(context: NatsContext, takes: KeyTaking, gives: KeyGiving) -> Self {
        KeyLock {
            held: ClientHolds::new(&context.signals),
            connection: SharedConnection::new(&context),
            context,
            takes,
            gives,
            leftovers: Vec::new(),
        }
    }

    fn now(&self) -> Duration {
        self.context.host.now()
    }

    /// Tries until the key is taken or the wait is over.
    async fn take(&mut self, lock: &str, owner: &str, deadline: Duration) -> LockResult<Option<KeyWrite>> {
        loop {
            let began = self.now();
            let tried = self.try_to_take(lock, owner, deadline).await;
            if let Ok(Some(taken)) = tried {
                return Ok(Some(taken));
            }
            let left = deadline.saturating_sub(self.now());
            let pause = match tried {
                Err(SessionError::Indefinite(reason)) => {
                    return self.read_back(lock, owner, began, reason).await.map(Some);
                }
                // nothing was done
                Err(SessionError::Definite(reason) | SessionError::Lost(reason)) if left.is_zero() => {
                    return Err(LockError::refused(reason));
                }
                Err(_) => RETRY_PAUSE,
                Ok(_) if left.is_zero() => return Ok(None),
                Ok(_) => self.context.poll_pause(),
            };
            self.context.host.sleep(pause.min(left)).await;
        }
    }

    /// Tries once to take the key. [`SessionError::Indefinite`]: it may be taken.
    async fn try_to_take(&self, lock: &str, owner: &str, deadline: Duration) -> Result<Option<KeyWrite>, SessionError> {
        let session = self.connection.session(deadline).await?;
        let read = session.read(lock).await;
        let last = read.map_err(|error| SessionError::Definite(error.to_string()))?;
        let expected = match &last {
            Some(message) if !message.deleted => return Ok(None),
            _ if self.takes == KeyTaking::Blind => None,
            Some(marker) => Some(marker.revision),
            None => Some(0),
        };
        let asked = self.now();
        let revision = session.put(lock, owner, expected).await?;
        Ok(revision.map(|revision| KeyWrite { revision, asked }))
    }

    /// Settles a write that was sent after `asked`, and whose answer was lost for this reason, if it can be settled.
    async fn read_back(&mut self, lock: &str, owner: &str, asked: Duration, reason: String) -> LockResult<KeyWrite> {
        let limit = self.now() + self.context.lease / 4;
        let read = match self.connection.session(limit).await {
            Ok(session) => session.read(lock).await,
            Err(error) => Err(error),
        };
        match read {
            Ok(Some(message)) if is_of(&message, owner) => {
                let revision = message.revision;
                Ok(KeyWrite { revision, asked })
            }
            _ => {
                self.leftovers.push((lock.to_owned(), owner.to_owned()));
                Err(LockError::Unknown(reason))
            }
        }
    }

    fn hold(&mut self, lock: &str, owner: String, taken: KeyWrite) -> LockGrant {
        let held = HeldKey {
            owner: owner.clone(),
            token: taken.revision,
            last: Rc::new(Cell::new(taken)),
        };
        let watch = self.keep_renewing(lock, held.clone());
        self.held.begin(lock, held, Some(watch));
        LockGrant::to(owner, Some(taken.revision))
    }

    /// Renews until the task is dropped. When that fails, a careful client raises `lost`; a naive one does not.
    fn keep_renewing(&self, lock: &str, held: HeldKey) -> Task {
        let (context, connection, lock) = (self.context.clone(), self.connection.clone(), lock.to_owned());
        self.context.host.spawn(Box::pin(async move {
            let asked = held.last.get().asked;
            let renew = async |limit: Duration| renew_once(&context, &connection, &lock, &held, limit).await;
            let cause = context.renew_until_unsure(asked, RETRY_PAUSE, renew).await;
            if context.is_careful() {
                context.signals.lost(&lock, cause);
            }
        }))
    }

    /// Removes keys that unknown operations may have left.
    async fn sweep(&mut self, limit: Duration) -> Result<(), SessionError> {
        while let Some((lock, owner)) = self.leftovers.last() {
            let session = self.connection.session(limit).await?;
            match session.read(lock).await? {
                Some(message) if is_of(&message, owner) => {
                    // a leader that was cut off may show what was removed
                    if !session.remove(message.revision).await? {
                        return Err(SessionError::Definite("its key cannot be removed yet".to_owned()));
                    }
                }
                _ => drop(self.leftovers.pop()),
            }
        }
        Ok(())
    }

    async fn end(&self, session: &NatsSession, lock: &str, revision: u64) -> Result<bool, SessionError> {
        match self.gives {
            KeyGiving::Removed => session.remove(revision).await,
            KeyGiving::Marked => session.mark_deleted(lock, revision).await,
            KeyGiving::Purged => session.purge(lock).await,
        }
    }

    /// Gives a lock back; repeats that after an unknown answer, if it can do no harm.
    async fn give(&mut self, lock: &str, held: &HeldKey) -> LockResult<()> {
        let limit = self.now() + self.context.lease / 2;
        let mut unknown = None;
        loop {
            let error = match self.try_to_give(lock, held, limit).await {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    let in_time = self.now() < held.last.get().asked + self.context.lease;
                    return LockError::of_nothing_released(unknown, in_time);
                }
                Err(error) => error,
            };
            let is_unknown = matches!(error, SessionError::Indefinite(_));
            if self.gives == KeyGiving::Purged && is_unknown {
                return Err(error.on_release());
            }
            if self.now() >= limit {
                self.leftovers.push((lock.to_owned(), held.owner.clone()));
                return Err(LockError::Unknown(error.to_string()));
            }
            if is_unknown {
                unknown = Some(error.to_string());
            }
            self.context.host.sleep(RETRY_PAUSE).await;
        }
    }

    /// Tries once to give the key back. `false`: it has another message, or none.
    async fn try_to_give(&self, lock: &str, held: &HeldKey, limit: Duration) -> Result<bool, SessionError> {
        let session = self.connection.session(limit).await?;
        loop {
            let revision = held.revision();
            if self.end(&session, lock, revision).await? {
                return Ok(true);
            }
            let read = session.read(lock).await;
            let last = read.map_err(|error| SessionError::Definite(error.to_string()))?;
            // a renewal without an answer may have been done
            let renewed = last.is_some_and(|message| held.has(&message)) && held.revision() != revision;
            if !renewed {
                return Ok(false);
            }
        }
    }
}

/// Renews the key once.
async fn renew_once(
    context: &NatsContext,
    connection: &SharedConnection,
    lock: &str,
    held: &HeldKey,
    limit: Duration,
) -> Result<Result<Duration, &'static str>, SessionError> {
    let session = connection.session(limit).await?;
    let asked = context.host.now();
    let value = held_value(&held.owner, held.token);
    if let Some(revision) = session.put(lock, &value, Some(held.revision())).await? {
        held.last.set(KeyWrite { revision, asked });
        return Ok(Ok(asked));
    }
    let last = session.read(lock).await?;
    match last.is_some_and(|message| held.has(&message)) {
        // over the renewal before, whose answer was lost
        true => Err(SessionError::Definite("it was renewed without an answer".to_owned())),
        false => Ok(Err("renewal failed: another message")),
    }
}

#[async_trait(?Send)]
impl LockClient for KeyLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        let limit = self.now() + self.context.lease;
        let session = self.connection.session(limit).await?;
        session.make_bucket(self.context.lease).await?;
        Ok(LockGrant::default())
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let deadline = self.now() + Duration::from_millis(request.wait_ms);
        let lock = &request.lock;
        if let Some(held) = self.held.end_lost(lock) {
            self.leftovers.push((lock.clone(), held.owner));
        }
        self.sweep(deadline).await.map_err(SessionError::on_cleaning)?;
        let owner = random_name(&*self.context.host);
        let Some(taken) = self.take(lock, &owner, deadline).await? else {
            return Err(LockError::wait_over(request));
        };
        if !self.context.is_careful() || self.now() < self.context.valid_until(taken.asked) {
            return Ok(self.hold(lock, owner, taken));
        }
        // its time is over already
        self.leftovers.push((lock.clone(), owner));
        match self.sweep(self.now() + self.context.lease / 4).await {
            Ok(()) => Err(LockError::wait_over(request)),
            // it is there until its end
            Err(error) => Err(LockError::Unknown(error.to_string())),
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let is_over = self.gives == KeyGiving::Purged && self.held.is_lost(lock);
        let held = self.held.end_unless(is_over, lock)?;
        self.give(lock, &held).await
    }

    async fn close(&mut self) {
        for (lock, hold) in self.held.end_all() {
            // a key that stays ends with its lease
            let _ = self.give(&lock, &hold.known).await;
        }
        self.connection.close();
    }
}
