//! The data of an etcd member as a pure state machine ([`EtcdStore`]): keys with their revisions, leases and their keys, and the events
//! that watches ask for. It applies the entries of one log.
//!
//! Not modelled: compaction (the past is there from the first revision on), nested transactions and comparisons of more than one key,
//! ranges other than a prefix, authentication, quotas, version 2.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::rc::Rc;

use harness_workloads::etcd::{EtcdAnswer, EtcdCompare, EtcdKey, EtcdOp, EtcdTxn};

use super::request::{EtcdOutcome, EtcdStatus, StoreEvent};
use crate::mutants::is_mutant;

/// The shortest lease in seconds, of servers with an election timeout of 1 s: 3/2 of it, in whole seconds
/// (`NewServer`, `etcdserver/server.go:550` of 3.4.23).
const SHORTEST_LEASE: i64 = 2;

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreChange {
    /// A leader's first entry.
    NewTerm,
    /// In seconds.
    Grant {
        lease: i64,
        ttl: i64,
    },
    Revoke {
        lease: i64,
    },
    Txn(Rc<EtcdTxn>),
    Delete {
        key: String,
    },
}

#[derive(Debug, Clone, Default)]
struct GrantedLease {
    /// In seconds.
    ttl: i64,
    keys: BTreeSet<Rc<str>>,
}

/// The data of one member.
#[derive(Debug, Clone)]
pub struct EtcdStore {
    /// By their texts, which those share that know them.
    keys: BTreeMap<Rc<str>, EtcdKey>,
    leases: BTreeMap<i64, GrantedLease>,
    revision: i64,
    /// All events, in their order.
    history: Vec<StoreEvent>,
    /// The number of events before the last entry.
    before: usize,
}

impl Default for EtcdStore {
    fn default() -> Self {
        EtcdStore {
            keys: BTreeMap::new(),
            leases: BTreeMap::new(),
            // an empty store has this one
            revision: 1,
            history: Vec::new(),
            before: 0,
        }
    }
}

impl EtcdStore {
    /// Returns the revision of the last change.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Returns its leases and their times in seconds.
    pub fn leases(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.leases.iter().map(|(lease, granted)| (*lease, granted.ttl))
    }

    pub fn has_lease(&self, lease: i64) -> bool {
        self.leases.contains_key(&lease)
    }

    /// Returns its time in seconds.
    pub fn ttl(&self, lease: i64) -> Option<i64> {
        self.leases.get(&lease).map(|granted| granted.ttl)
    }

    pub fn get(&self, key: &str) -> Option<&EtcdKey> {
        self.keys.get(key)
    }

    /// The keys with this prefix, in the order of their names.
    fn below(&self, prefix: &str) -> impl Iterator<Item = &EtcdKey> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        let below = self.keys.range::<str, _>(from);
        below
            .take_while(move |(key, _)| key.starts_with(prefix))
            .map(|(_, stored)| stored)
    }

    /// The key with this prefix that was created first.
    fn first(&self, prefix: &str) -> Option<&EtcdKey> {
        let mut below = self.below(prefix);
        if is_mutant("etcd: keys are listed by name") {
            return below.next();
        }
        below.min_by_key(|stored| stored.create_revision)
    }

    /// Returns the keys with this prefix, in the order of their creation.
    pub fn list(&self, prefix: &str) -> Vec<EtcdKey> {
        let mut keys: Vec<EtcdKey> = self.below(prefix).cloned().collect();
        if !is_mutant("etcd: keys are listed by name") {
            keys.sort_by_key(|stored| stored.create_revision);
        }
        keys
    }

    /// Returns the events of a key from a revision on, in their order.
    pub fn events_from(&self, key: &str, revision: i64) -> Vec<StoreEvent> {
        if is_mutant("etcd: a watch forgets the past") {
            return Vec::new();
        }
        let first = self.history.partition_point(|event| event.key.mod_revision < revision);
        let of_key = self.history[first..].iter().filter(|event| *event.key.name == *key);
        of_key.cloned().collect()
    }

    /// Returns the events of the entry that was applied last.
    pub fn last_events(&self) -> &[StoreEvent] {
        &self.history[self.before..]
    }

    /// Applies the next entry of the log; returns the answer.
    pub fn apply(&mut self, change: &StoreChange) -> EtcdOutcome {
        self.before = self.history.len();
        match change {
            StoreChange::NewTerm => Ok(EtcdAnswer::Done),
            StoreChange::Grant { lease, ttl } => {
                let ttl = (*ttl).max(SHORTEST_LEASE);
                let keys = BTreeSet::new();
                self.leases.insert(*lease, GrantedLease { ttl, keys });
                Ok(EtcdAnswer::Lease { id: *lease, ttl })
            }
            StoreChange::Revoke { lease } => self.revoke(*lease),
            StoreChange::Txn(txn) => self.txn(txn),
            StoreChange::Delete { key } => {
                let deleted = self.delete(key, self.revision + 1);
                self.end_change();
                Ok(EtcdAnswer::Deleted(deleted))
            }
        }
    }

    /// Ends a change: it has one revision, whatever it did, and none if it did nothing.
    fn end_change(&mut self) {
        self.revision += i64::from(!self.last_events().is_empty());
    }

    /// Ends a lease: its keys go in one change, in the order of their names (`lessor.Revoke`).
    fn revoke(&mut self, lease: i64) -> EtcdOutcome {
        let Some(granted) = self.leases.remove(&lease) else {
            return Err(EtcdStatus::LeaseNotFound);
        };
        let stay = is_mutant("etcd: keys outlive their lease");
        for key in granted.keys.iter().filter(|_| !stay) {
            self.delete(key, self.revision + 1);
        }
        self.end_change();
        Ok(EtcdAnswer::Done)
    }

    fn compares(&self, compare: &EtcdCompare) -> bool {
        match compare {
            EtcdCompare::Created { key, revision } => {
                let created = self.get(key).map_or(0, |stored| stored.create_revision);
                created == *revision || (*revision == 0 && is_mutant("etcd: a key is created that exists"))
            }
            EtcdCompare::Lease { key, lease } => {
                let owner = self.get(key).map_or(0, |stored| stored.lease);
                owner == *lease || is_mutant("etcd: the lease of a key is not compared")
            }
        }
    }

    fn txn(&mut self, txn: &EtcdTxn) -> EtcdOutcome {
        let succeeded = self.compares(&txn.compare);
        let ops = if succeeded { &txn.success } else { &txn.failure };
        // the operations that will be done are checked first, the others not (`checkRequests`, `etcdserver/apply.go`)
        let has_no_lease =
            |op: &EtcdOp| matches!(op, EtcdOp::Put { lease, .. } if *lease != 0 && !self.has_lease(*lease));
        if ops.iter().any(has_no_lease) && !is_mutant("etcd: a lease that is gone can be used") {
            return Err(EtcdStatus::LeaseNotFound);
        }
        let revision = self.revision + 1;
        let responses = ops.iter().map(|op| self.op(op, revision)).collect();
        self.end_change();
        Ok(EtcdAnswer::Txn {
            succeeded,
            responses,
            revision: self.revision,
        })
    }

    fn op(&mut self, op: &EtcdOp, revision: i64) -> Vec<EtcdKey> {
        match op {
            EtcdOp::Put { key, value, lease } => self.put(key, value, *lease, revision),
            EtcdOp::Get { key } => return self.get(key).cloned().into_iter().collect(),
            EtcdOp::First { prefix } => return self.first(prefix).cloned().into_iter().collect(),
            EtcdOp::Delete { key } => _ = self.delete(key, revision),
        }
        Vec::new()
    }

    fn put(&mut self, key: &str, value: &str, lease: i64, revision: i64) {
        let before = self.keys.get(key);
        let name: Rc<str> = before.map_or_else(|| key.into(), |before| before.name.clone());
        let stored = EtcdKey {
            name: name.clone(),
            value: value.into(),
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            lease,
        };
        let owner_before = before.map_or(0, |before| before.lease);
        if let Some(granted) = self.leases.get_mut(&owner_before) {
            granted.keys.remove(key);
        }
        if let Some(granted) = self.leases.get_mut(&lease) {
            granted.keys.insert(name.clone());
        }
        self.keys.insert(name, stored.clone());
        let deleted = false;
        self.history.push(StoreEvent { key: stored, deleted });
    }

    fn delete(&mut self, key: &str, revision: i64) -> bool {
        let Some(mut stored) = self.keys.remove(key) else {
            return false;
        };
        if let Some(granted) = self.leases.get_mut(&stored.lease) {
            granted.keys.remove(key);
        }
        stored.mod_revision = revision;
        self.history.push(StoreEvent {
            key: stored,
            deleted: true,
        });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(key: &str, lease: i64) -> StoreChange {
        StoreChange::Txn(Rc::new(EtcdTxn::create(key, "", lease)))
    }

    #[test]
    fn a_lease_takes_its_keys_with_it_in_one_revision() {
        let mut store = EtcdStore::default();
        let _ = store.apply(&StoreChange::Grant { lease: 7, ttl: 1 });
        assert_eq!(store.ttl(7), Some(2), "a lease is never shorter");
        let _ = store.apply(&create("b", 7));
        let _ = store.apply(&create("a", 7));
        assert_eq!(store.revision(), 3);
        let _ = store.apply(&StoreChange::Revoke { lease: 7 });
        let gone: Vec<_> = store
            .last_events()
            .iter()
            .map(|event| (&*event.key.name, event.key.mod_revision))
            .collect();
        assert_eq!(gone, [("a", 4), ("b", 4)]);
        assert_eq!(store.events_from("b", 2).len(), 2);
        assert_eq!(store.events_from("b", 3).len(), 1);
    }

    #[test]
    fn a_put_under_a_lease_that_is_gone_fails_and_a_get_beside_it_does_not() {
        let mut store = EtcdStore::default();
        let missing = Err(EtcdStatus::LeaseNotFound);
        assert_eq!(store.apply(&create("a", 7)), missing);
        let _ = store.apply(&create("a", 0));
        assert_eq!(store.last_events().len(), 1);
        let outcome = store.apply(&create("a", 7));
        assert!(
            matches!(
                outcome,
                Ok(EtcdAnswer::Txn {
                    succeeded: false,
                    revision: 2,
                    ..
                })
            ),
            "{outcome:?}"
        );
        assert!(store.last_events().is_empty());
    }
}
