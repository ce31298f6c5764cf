//! The observer of etcd: the contenders of each lock, and the leases of those that disappear without their owners.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use harness_workloads::etcd::owner_name;

use super::key_changes::{EtcdKeyChange, OpenedStore, WatchStore};
use crate::backends::arriving::ArrivedEvent;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, Unasked, observing};
use crate::backends::owners::{Contender, OwnerQueues};
use crate::cluster::EndpointsReceiver;

/// The name of its source in the history.
const SOURCE: &str = "cluster";
/// The longest silence of a watch before its end: two pings, or three times the election timeout of a member without a leader.
const SILENT: Duration = Duration::from_secs(5);

struct EtcdObserver {
    source: WatchStore,
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    store: OpenedStore,
    /// The first revision that is not seen yet.
    next_revision: i64,
    /// The lock and the lease of each contender's key, and its place in its queue.
    contenders: BTreeMap<Vec<u8>, (String, i64, u64)>,
}

/// Connects the observer of a store that `source` watches.
pub async fn observe(source: WatchStore, endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Observer, String> {
    // changes by earlier runs on these servers are not of this one
    let store = source(&endpoints, keys.pattern.before(), None).await?;
    let observer = EtcdObserver {
        next_revision: store.from_revision,
        source,
        endpoints,
        keys,
        store,
        contenders: BTreeMap::new(),
    };
    Ok(observing(move |log| observer.observe(log)))
}

impl EtcdObserver {
    async fn observe(mut self, log: ObservationLog) {
        let mut queues = OwnerQueues::default();
        let mut heard = log.clock.now_ns();
        loop {
            let mut compacted = false;
            while let ArrivedEvent {
                at,
                event: Some(changes),
            } = self.store.changes.next(log.clock).await
            {
                let Some(changes) = changes else {
                    compacted = true;
                    break;
                };
                heard = at;
                for change in changes {
                    self.saw(change, at, &mut queues, &log).await;
                }
            }
            // the next watch begins with the changes since then, which arrive late
            let silent = log.clock.now_ns().saturating_sub(SILENT.as_nanos() as u64);
            log.lost(SOURCE, if compacted { heard } else { heard.max(silent) });
            if compacted {
                self.contenders.clear();
                for (lock, contender) in queues.forget() {
                    log.lost_sight(&lock, &contender, log.clock.now_ns());
                }
            }
            let from = (!compacted).then_some(self.next_revision);
            self.store = loop {
                log.pause().await;
                if let Ok(store) = (self.source)(&self.endpoints, self.keys.pattern.before(), from).await {
                    break store;
                }
            };
            if compacted {
                self.next_revision = self.store.from_revision;
                let mut present = std::mem::take(&mut self.store.present);
                // the first of them owns the lock
                present.sort_unstable_by_key(|put| put.create_revision);
                for put in present {
                    self.came(put, log.clock.now_ns(), &mut queues, &log).await;
                }
            }
            log.back(SOURCE);
        }
    }

    async fn saw(&mut self, change: EtcdKeyChange, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        // a member that lags may begin with old changes: <https://github.com/etcd-io/etcd/issues/20221>. One revision may have several
        if change.mod_revision + 1 < self.next_revision {
            return;
        }
        self.next_revision = change.mod_revision + 1;
        if !change.deleted {
            if change.create_revision == change.mod_revision {
                self.came(change, at, queues, log).await;
            } else if let Some((_, lease, _)) = self.contenders.get_mut(&change.key) {
                // a key that is put again keeps its place
                *lease = change.lease;
            }
            return;
        }
        let Some((lock, lease, place)) = self.contenders.remove(&change.key) else {
            return;
        };
        let changes = queues.remove(&lock, place);
        let why = Arc::clone(&self.store.why);
        let recording = log.record(&lock, changes, at, |_| why(lease));
        self.store.changes.during(recording, log.clock).await;
    }

    /// Adds the contender whose key was put.
    async fn came(&mut self, put: EtcdKeyChange, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        let Some(lock) = lock_of(&self.keys, &put.key) else {
            return;
        };
        let place = put.create_revision as u64;
        let contender = Contender {
            owner: Some(owner_name(put.lease)),
            token: Some(place),
        };
        let changes = queues.add(&lock, place, contender);
        log.record(&lock, changes, at, |_| async { Unasked::Unknown }).await;
        self.contenders.insert(put.key, (lock, put.lease, place));
    }
}

/// Returns the lock of a key: it is the lock's key, or a contender's below it.
fn lock_of(keys: &LockKeys, key: &[u8]) -> Option<String> {
    let (lock, rest) = keys.pattern.lock_of(std::str::from_utf8(key).ok()?)?;
    let below = rest.is_empty() || rest.starts_with('/') || keys.pattern.after().ends_with('/');
    below.then(|| lock.to_owned())
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::stream::{self, StreamExt};
    use harness_workloads::BackendId;
    use tokio::sync::watch;

    use super::super::key_changes::KeyChangeStream;
    use super::*;
    use crate::backends;
    use crate::backends::observer::told::told_within;
    use crate::cluster::Endpoints;

    /// Returns a watch with these updates.
    fn store(present: Vec<EtcdKeyChange>, updates: Vec<Option<Vec<EtcdKeyChange>>>) -> OpenedStore {
        OpenedStore {
            from_revision: 1,
            present,
            changes: KeyChangeStream::new(stream::iter(updates).chain(stream::pending()).boxed()),
            why: Arc::new(|_| Box::pin(ready(Unasked::Deleted))),
        }
    }

    /// Returns the lines of an observer about updates of the watch.
    fn told_of(updates: Vec<Vec<EtcdKeyChange>>) -> Vec<String> {
        let updates = updates.into_iter().map(Some).collect();
        told_by(store(Vec::new(), updates), Box::new(|_, _, _| Box::pin(pending())))
    }

    /// Returns the lines of an observer with this first watch, and the next ones by `source`.
    fn told_by(store: OpenedStore, source: WatchStore) -> Vec<String> {
        let (_endpoints, endpoints) = watch::channel(Endpoints::new(vec![([127, 0, 0, 1], 1).into()], None));
        let observer = EtcdObserver {
            source,
            endpoints,
            keys: LockKeys::default_of(backends::of(BackendId::Etcd)),
            next_revision: store.from_revision,
            store,
            contenders: BTreeMap::new(),
        };
        told_within(Duration::from_secs(1), |log| observer.observe(log))
    }

    fn change(key: &str, create_revision: i64, mod_revision: i64) -> EtcdKeyChange {
        EtcdKeyChange {
            key: key.into(),
            deleted: create_revision == 0,
            create_revision,
            mod_revision,
            lease: 7,
        }
    }

    #[test]
    fn changes_that_a_member_reports_again_are_no_new_grants() {
        let old = vec![change("harness/l0/a", 10, 10), change("harness/l0/a", 0, 12)];
        let new = vec![change("harness/l0/b", 13, 13)];
        let told = told_of(vec![old.clone(), old, new.clone(), new]);
        assert_eq!(
            told,
            ["granted l0 0x7 10", "revoked l0 0x7 10 deleted", "granted l0 0x7 13"]
        );
    }

    #[test]
    fn changes_of_one_revision_may_come_one_by_one() {
        let told = told_of(vec![
            vec![change("harness/l0/a", 10, 10)],
            vec![change("harness/l1/a", 10, 10)],
        ]);
        assert_eq!(told, ["granted l0 0x7 10", "granted l1 0x7 10"]);
    }

    #[test]
    fn a_key_that_is_put_again_ends_with_its_new_lease() {
        let without_a_lease = EtcdKeyChange {
            lease: 0,
            ..change("harness/l0/a", 10, 10)
        };
        let updates = vec![
            without_a_lease,
            change("harness/l0/a", 10, 11),
            change("harness/l0/a", 0, 12),
        ];
        let why = |lease: i64| match lease {
            7 => Unasked::Expired,
            _ => Unasked::Deleted,
        };
        let store = OpenedStore {
            why: Arc::new(move |lease| Box::pin(ready(why(lease)))),
            ..store(Vec::new(), vec![Some(updates)])
        };
        let told = told_by(store, Box::new(|_, _, _| Box::pin(pending())));
        assert_eq!(told, ["granted l0 0x0 10", "revoked l0 0x0 10 expired"]);
    }

    #[test]
    fn after_a_compaction_the_existing_keys_are_the_contenders() {
        let first = vec![change("harness/l0/a", 10, 10), change("harness/l0/b", 11, 11)];
        let source: WatchStore = Box::new(|_, _, from| {
            assert_eq!(from, None);
            // in the order of their names; the second owns the lock, and was put again
            let present = vec![change("harness/l0/a", 15, 15), change("harness/l0/b", 11, 18)];
            let next = vec![change("harness/l0/b", 0, 21)];
            Box::pin(ready(Ok(store(present, vec![Some(next)]))))
        });
        let told = told_by(store(Vec::new(), vec![Some(first), None]), source);
        let lines = [
            "granted l0 0x7 10",
            "lost at 0 ms",
            "revoked l0 0x7 10 out of sight",
            "granted l0 0x7 11",
            "back",
            "revoked l0 0x7 11 deleted",
            "granted l0 0x7 15",
        ];
        assert_eq!(told, lines);
    }

    #[test]
    fn what_the_next_watch_reports_late_is_out_of_sight_and_known_at_last() {
        let first = OpenedStore {
            changes: KeyChangeStream::new(stream::iter([Some(vec![change("harness/l0/a", 10, 10)])]).boxed()),
            ..store(Vec::new(), Vec::new())
        };
        let source: WatchStore = Box::new(|_, _, from| {
            assert_eq!(from, Some(11));
            let next = vec![change("harness/l0/a", 0, 12)];
            Box::pin(ready(Ok(store(Vec::new(), vec![Some(next)]))))
        });
        let lines = ["granted l0 0x7 10", "lost at 0 ms", "back", "revoked l0 0x7 10 deleted"];
        assert_eq!(told_by(first, source), lines);
    }

    #[test]
    fn a_contender_is_a_key_at_or_below_its_locks() {
        let mut keys = LockKeys::default_of(backends::of(BackendId::Etcd));
        assert_eq!(lock_of(&keys, b"harness/l0/694d"), Some("l0".into()));
        assert_eq!(lock_of(&keys, b"harness/l0"), Some("l0".into()));
        assert_eq!(lock_of(&keys, b"harness/l0-waiters"), None);
        assert_eq!(lock_of(&keys, b"other"), None);
        keys.pattern = "/locks/{lock}.d/".parse().unwrap();
        assert_eq!(lock_of(&keys, b"/locks/l3.d/694d"), Some("l3".into()));
        assert_eq!(lock_of(&keys, b"/locks/l3/694d"), None);
    }
}
