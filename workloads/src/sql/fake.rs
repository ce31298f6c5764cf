//! A fake SQL server for tests: locks of sessions and leases in memory, and faults on demand.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::SessionError;
use crate::session::sql::{LeaseForm, LockScope, SqlConnect, SqlSession};
use crate::testing::{CallFaults, FakeStore, LEASE};

/// One server.
#[derive(Clone, Default)]
pub(super) struct FakeSql(Rc<FakeSqlServer>);

#[derive(Default)]
struct FakeSqlServer {
    sessions: Cell<u32>,
    /// The session that has each lock.
    locks: RefCell<BTreeMap<String, u32>>,
    freed: Notify,
    leases: RefCell<BTreeMap<String, FakeLease>>,
    faults: CallFaults,
    /// The number of times that the server has ended all connections.
    restarts: Cell<u32>,
    ended: Notify,
}

struct FakeLease {
    owner: Option<String>,
    token: u64,
    ends: Instant,
}

impl FakeSql {
    /// Ends every connection, and the locks with them.
    pub(super) fn restart(&self) {
        self.0.restarts.set(self.0.restarts.get() + 1);
        self.0.locks.borrow_mut().clear();
        self.0.ended.notify_waiters();
        self.0.freed.notify_waiters();
    }

    /// Returns the owner of the lease of the lock `l`, if it has not run out.
    pub(super) fn owner(&self) -> Option<String> {
        let leases = self.0.leases.borrow();
        let lease = leases.get("l").filter(|lease| lease.ends > Instant::now())?;
        lease.owner.clone()
    }
}

impl FakeStore for FakeSql {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let (Constructor::Postgres(make) | Constructor::Mariadb(make)) = options.recipe.constructor else {
            panic!("not a recipe for an SQL server")
        };
        options.build(make, Rc::new(self.clone()), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.0.faults
    }
}

#[async_trait(?Send)]
impl SqlConnect for FakeSql {
    async fn connect(&self) -> Result<Rc<dyn SqlSession>, SessionError> {
        self.0.sessions.set(self.0.sessions.get() + 1);
        Ok(Rc::new(FakeSession {
            server: self.0.clone(),
            number: self.0.sessions.get(),
            of: self.0.restarts.get(),
            closed: Cell::new(false),
        }))
    }
}

struct FakeSession {
    server: Rc<FakeSqlServer>,
    number: u32,
    /// The number of restarts when this one was made.
    of: u32,
    closed: Cell<bool>,
}

impl FakeSession {
    async fn call<T>(&self, name: &'static str, work: impl Future<Output = T>) -> Result<T, SessionError> {
        let arrives = || match self.is_broken() {
            true => Err(SessionError::Lost("the connection ended".into())),
            false => Ok(()),
        };
        let answer = self.server.faults.call(name, arrives, work, || self.close()).await?;
        match self.is_broken() {
            true => Err(SessionError::Indefinite(format!("{name}: no answer"))),
            false => Ok(answer),
        }
    }

    fn close(&self) {
        self.closed.set(true);
        let mut locks = self.server.locks.borrow_mut();
        locks.retain(|_, session| *session != self.number);
        drop(locks);
        self.server.freed.notify_waiters();
        self.server.ended.notify_waiters();
    }

    fn try_lock(&self, lock: &str) -> bool {
        let mut locks = self.server.locks.borrow_mut();
        *locks.entry(lock.to_owned()).or_insert(self.number) == self.number
    }
}

impl Drop for FakeSession {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait(?Send)]
impl SqlSession for FakeSession {
    fn is_broken(&self) -> bool {
        self.closed.get() || self.of != self.server.restarts.get()
    }

    async fn broken(&self) {
        while !self.is_broken() {
            self.server.ended.notified().await;
        }
    }

    async fn make_tables(&self) -> Result<(), SessionError> {
        Ok(())
    }

    async fn lock(&self, scope: LockScope, lock: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        let taken = async {
            while !self.try_lock(lock) {
                self.server.freed.notified().await;
            }
        };
        let wait = if scope == LockScope::Row { Duration::ZERO } else { wait };
        let locked = self.call("lock", timeout(wait, taken)).await?;
        Ok(locked.ok().map(|()| self.number.to_string()))
    }

    async fn unlock(&self, _: LockScope, lock: &str) -> Result<bool, SessionError> {
        self.call("unlock", async {
            let mut locks = self.server.locks.borrow_mut();
            let had = locks.get(lock) == Some(&self.number) && locks.remove(lock).is_some();
            self.server.freed.notify_waiters();
            had
        })
        .await
    }

    async fn is_free(&self, lock: &str) -> Result<bool, SessionError> {
        self.call("is_free", async {
            let leases = self.server.leases.borrow();
            leases.get(lock).is_none_or(|lease| lease.ends < Instant::now())
        })
        .await
    }

    async fn take_lease(
        &self,
        form: LeaseForm,
        lock: &str,
        owner: &str,
        lease: Duration,
    ) -> Result<Option<u64>, SessionError> {
        self.call("take_lease", async {
            let mut leases = self.server.leases.borrow_mut();
            let known = leases.get(lock);
            if form == LeaseForm::Compared && known.is_some_and(|known| known.ends > Instant::now()) {
                return None;
            }
            let token = known.map_or(0, |known| known.token) + 1;
            let owner = Some(owner.to_owned());
            let ends = Instant::now() + lease;
            leases.insert(lock.to_owned(), FakeLease { owner, token, ends });
            Some(token)
        })
        .await
    }

    async fn end_lease(&self, form: LeaseForm, lock: &str, owner: &str) -> Result<bool, SessionError> {
        self.call("end_lease", async {
            let mut leases = self.server.leases.borrow_mut();
            let Some(known) = leases.get_mut(lock) else {
                return false;
            };
            let own = known.owner.as_deref() == Some(owner) && known.ends > Instant::now();
            let ended = own || form == LeaseForm::Blind;
            if ended {
                known.owner = None;
                known.ends = Instant::now() - Duration::from_millis(1);
            }
            ended
        })
        .await
    }
}
