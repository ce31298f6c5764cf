//! A fake cluster for tests: keys and leases in memory, and faults on demand.

use std::cell::{RefCell, RefMut};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::client::{LockClient, SignalSink};
use crate::recipe::{Constructor, RecipeOptions};
use crate::session::SessionError;
use crate::session::etcd::{Created, EtcdKey, EtcdSession, EtcdWatch, Leader, Lease, Listing};
use crate::testing::{CallFaults, FakeStore, LEASE};

#[derive(Clone)]
pub(super) struct FakeEtcd(Rc<FakeCluster>);

struct FakeCluster {
    store: RefCell<Store>,
    faults: CallFaults,
    deletions: broadcast::Sender<String>,
}

#[derive(Default)]
struct Store {
    keys: BTreeMap<String, EtcdKey>,
    leases: BTreeMap<i64, (Instant, Duration)>,
    revision: i64,
}

impl FakeEtcd {
    pub(super) fn new() -> Self {
        FakeEtcd(Rc::new(FakeCluster {
            store: RefCell::default(),
            faults: CallFaults::default(),
            deletions: broadcast::channel(64).0,
        }))
    }

    fn store(&self) -> RefMut<'_, Store> {
        self.0.store.borrow_mut()
    }

    pub(super) fn keys(&self) -> Vec<String> {
        self.store().keys.keys().cloned().collect()
    }

    fn keys_that(&self, are: impl Fn(&EtcdKey) -> bool) -> Vec<EtcdKey> {
        let store = self.store();
        store.keys.values().filter(|key| are(key)).cloned().collect()
    }

    fn key(&self, name: &str) -> Option<EtcdKey> {
        self.store().keys.get(name).cloned()
    }

    /// Returns the number of leases.
    pub(super) fn leases(&self) -> usize {
        self.store().leases.len()
    }

    pub(super) fn remove(&self, key: &str) -> bool {
        let mut store = self.store();
        let removed = store.keys.remove(key).is_some();
        store.revision += i64::from(removed);
        drop(store);
        if removed {
            let _ = self.0.deletions.send(key.to_owned());
        }
        removed
    }

    /// Ends a lease as its server does.
    pub(super) fn end_lease(&self, lease: i64) -> bool {
        for key in self.keys_that(|key| key.lease == lease) {
            self.remove(&key.name);
        }
        self.store().leases.remove(&lease).is_some()
    }

    fn end_old_leases(&self) {
        let now = Instant::now();
        let over = |(lease, (since, ttl)): (&i64, &(Instant, Duration))| (*since + *ttl <= now).then_some(*lease);
        let over: Vec<_> = self.store().leases.iter().filter_map(over).collect();
        for lease in over {
            self.end_lease(lease);
        }
    }

    fn put(&self, name: &str, lease: i64) -> Created {
        let mut store = self.store();
        let created = !store.keys.contains_key(name);
        store.revision += i64::from(created);
        let revision = store.revision;
        let new = EtcdKey {
            name: name.into(),
            create_revision: revision,
            mod_revision: revision,
            lease,
            ..EtcdKey::default()
        };
        let key = store.keys.entry(name.to_owned()).or_insert(new).clone();
        Created { key, revision }
    }

    async fn call<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> Result<T, SessionError> {
        let arrives = || {
            self.end_old_leases();
            Ok(())
        };
        // another connection is there at once
        self.0.faults.call(name, arrives, async { work() }, || {}).await
    }
}

impl FakeStore for FakeEtcd {
    fn client(&self, options: RecipeOptions, signals: SignalSink) -> Box<dyn LockClient> {
        let Constructor::Etcd(make) = options.recipe.constructor else {
            panic!("not an etcd recipe")
        };
        options.build(make, Rc::new(self.clone()), signals, LEASE)
    }

    fn faults(&self) -> &CallFaults {
        &self.0.faults
    }
}

#[async_trait(?Send)]
impl EtcdSession for FakeEtcd {
    async fn grant_lease(&self, ttl: Duration) -> Result<Lease, SessionError> {
        let grant = || {
            let mut store = self.store();
            let id = 0xa0 + i64::try_from(store.leases.len()).unwrap() + store.revision * 16;
            store.leases.insert(id, (Instant::now(), ttl));
            Lease { id, ttl }
        };
        self.call("grant", grant).await
    }

    async fn keep_alive(&self, lease: i64) -> Result<Option<Duration>, SessionError> {
        let renew = || {
            let mut store = self.store();
            let lease = store.leases.get_mut(&lease)?;
            lease.0 = Instant::now();
            Some(lease.1)
        };
        self.call("keep-alive", renew).await
    }

    async fn revoke_lease(&self, lease: i64) -> Result<bool, SessionError> {
        self.call("revoke", || self.end_lease(lease)).await
    }

    async fn create(&self, key: &str, _value: &str, lease: i64) -> Result<Created, SessionError> {
        if !self.store().leases.contains_key(&lease) {
            return Err(SessionError::Definite("requested lease not found".into()));
        }
        self.call("create", || self.put(key, lease)).await
    }

    async fn get(&self, key: &str) -> Result<Option<EtcdKey>, SessionError> {
        self.call("get", || self.key(key)).await
    }

    async fn list(&self, prefix: &str) -> Result<Listing, SessionError> {
        let list = || {
            let mut keys = self.keys_that(|key| key.name.starts_with(prefix));
            keys.sort_by_key(|key| key.create_revision);
            let revision = self.store().revision;
            Listing { keys, revision }
        };
        self.call("list", list).await
    }

    async fn delete(&self, key: &str) -> Result<bool, SessionError> {
        self.call("delete", || self.remove(key)).await
    }

    async fn delete_owned(&self, key: &str, lease: i64) -> Result<bool, SessionError> {
        let owned = || self.key(key).is_some_and(|key| key.lease == lease);
        self.call("delete", || owned() && self.remove(key)).await
    }

    async fn watch(&self, key: &str, _from_revision: i64) -> Result<Box<dyn EtcdWatch>, SessionError> {
        Ok(Box::new(FakeEtcdWatch {
            key: key.to_owned(),
            gone: self.key(key).is_none(),
            deletions: self.0.deletions.subscribe(),
        }))
    }

    async fn lock(&self, name: &str, lease: i64, wait: Duration) -> Result<String, SessionError> {
        let key = format!("{name}/{lease:x}");
        self.put(&key, lease);
        // as older servers do, which grant to a waiter whose own key is gone: it is not looked at again
        let older = || self.keys_that(|other| *other.name != *key && other.name.starts_with(name));
        let end = Instant::now() + wait;
        while !older().is_empty() {
            if Instant::now() >= end {
                return Err(SessionError::Indefinite("lock: no answer".into()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.end_old_leases();
        }
        Ok(key)
    }

    async fn unlock(&self, key: &str) -> Result<(), SessionError> {
        self.call("unlock", || self.remove(key)).await.map(|_| ())
    }

    async fn campaign(&self, name: &str, _value: &str, lease: i64, wait: Duration) -> Result<Leader, SessionError> {
        let key = self.lock(name, lease, wait).await?;
        let revision = self.key(&key).map_or(0, |key| key.create_revision);
        Ok(Leader {
            name: name.to_owned(),
            key,
            revision,
            lease,
        })
    }

    async fn resign(&self, leader: &Leader) -> Result<(), SessionError> {
        self.call("resign", || self.remove(&leader.key)).await.map(|_| ())
    }
}

struct FakeEtcdWatch {
    key: String,
    gone: bool,
    deletions: broadcast::Receiver<String>,
}

#[async_trait(?Send)]
impl EtcdWatch for FakeEtcdWatch {
    async fn next(&mut self) -> Result<Vec<bool>, SessionError> {
        while !self.gone {
            let deleted = self.deletions.recv().await;
            self.gone = deleted.map_err(|error| SessionError::Lost(error.to_string()))? == self.key;
        }
        Ok(vec![true])
    }
}
