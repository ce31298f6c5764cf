//! The observer of ZooKeeper: the contenders of each lock, and the causes of their ends without a request.

use std::sync::Arc;
use std::time::Duration;

use harness_workloads::KeyValue;
use harness_workloads::zk::{owner_name, sequence_of};

use super::ensemble::{ConnectEnsemble, NodeChange, NodeOwner, OpenedEnsemble};
use crate::backends::arriving::ArrivedEvent;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, Unasked, observing};
use crate::backends::owners::{Contender, OwnerQueues};
use crate::cluster::EndpointsReceiver;

/// The name of its source in the history: any server reports the changes of all.
const ENSEMBLE: &str = "ensemble";
/// The time of a new connection before another one is tried.
const REOPEN: Duration = Duration::from_secs(2);
/// The time in which the existing nodes are read, of which each is a query: the server may be gone without a sign.
const CATCH_UP: Duration = Duration::from_secs(30);
/// The time of the server's answer about the owner of a node.
const OWNER: Duration = Duration::from_secs(2);
/// The time of the server's answer to a proof.
const SILENCE: Duration = Duration::from_millis(300);

struct ZkObserver {
    source: ConnectEnsemble,
    endpoints: EndpointsReceiver,
    nodes: LockNodes,
    ensemble: OpenedEnsemble,
}

/// The place of the locks' nodes, and the lock of each contender.
struct LockNodes {
    keys: LockKeys,
    /// The node above all of them.
    root: String,
    /// The rest of the path of a lock's node after a child of the root.
    below: String,
}

impl LockNodes {
    fn of(keys: LockKeys) -> Self {
        let (root, _) = keys.pattern.before().rsplit_once('/').unwrap_or_default();
        let after = keys.pattern.after();
        Self {
            root: root.to_owned(),
            below: after.find('/').map_or("", |slash| &after[slash..]).to_owned(),
            keys,
        }
    }

    /// Returns the lock below this child of the root, and its node.
    fn lock_under(&self, child: &str) -> Option<(String, String)> {
        let node = format!("{}/{child}{}", self.root, self.below);
        let lock = self.keys.lock_at(&node)?;
        Some((lock, node))
    }

    /// Returns the lock of a contender's node.
    fn lock_of_contender(&self, path: &str) -> Option<String> {
        let (lock, rest) = self.keys.pattern.lock_of(path)?;
        let is_contender = match self.keys.value {
            KeyValue::Node => rest.is_empty(),
            _ => rest
                .strip_prefix('/')
                .is_some_and(|name| !name.is_empty() && !name.contains('/')),
        };
        is_contender.then(|| lock.to_owned())
    }
}

/// Connects the observer of an ensemble that `source` connects to.
pub async fn observe(
    source: ConnectEnsemble,
    endpoints: EndpointsReceiver,
    keys: LockKeys,
) -> Result<Observer, String> {
    let nodes = LockNodes::of(keys);
    let ensemble = source(&endpoints, &nodes.root).await?;
    let observer = ZkObserver {
        source,
        endpoints,
        nodes,
        ensemble,
    };
    Ok(observing(move |log| observer.observe(log)))
}

impl ZkObserver {
    async fn observe(mut self, log: ObservationLog) {
        let mut queues = OwnerQueues::default();
        loop {
            let began = log.clock.now_ns();
            let caught_up = log.clock.within_real(CATCH_UP, self.catch_up(&mut queues, &log)).await;
            let (heard, unseen) = match caught_up.flatten() {
                Some(()) => {
                    log.back(ENSEMBLE);
                    let heard = self.watch(&mut queues, &log).await;
                    (heard, heard)
                }
                // the grants that it read came after its begin
                None => (began, log.clock.now_ns()),
            };
            for (lock, contender) in queues.forget() {
                log.lost_sight(&lock, &contender, unseen);
            }
            log.lost(ENSEMBLE, heard);
            self.ensemble = loop {
                let opening = (self.source)(&self.endpoints, &self.nodes.root);
                match log.clock.within(REOPEN, opening).await {
                    Some(Ok(opened)) => break opened,
                    _ => log.pause().await,
                }
            };
        }
    }

    /// Records events until the connection is lost for a moment. Events of that moment are never reported, and a watch does not
    /// always survive it, so all grants are out of sight since the last message of the server: returns its time.
    async fn watch(&mut self, queues: &mut OwnerQueues, log: &ObservationLog) -> u64 {
        let mut heard = log.clock.now_ns();
        let every = self.ensemble.queries.beat();
        let mut beat = log.clock.after(every);
        loop {
            let there = tokio::select! {
                biased;
                () = log.clock.sleep_until(beat) => {
                    let asked = log.clock.now_ns();
                    let proof = log.clock.within(SILENCE, self.ensemble.queries.proves());
                    let proven = self.ensemble.changes.during(proof, log.clock).await == Some(true);
                    // all events before the proof have arrived, but some may wait to be recorded
                    let waiting = self.ensemble.changes.ahead.front();
                    let recorded = waiting.map_or(asked, |next| next.at.min(asked));
                    heard = if proven { heard.max(recorded) } else { heard };
                    beat = log.clock.after(every);
                    proven
                }
                ArrivedEvent { at, event } = self.ensemble.changes.next(log.clock) => match event {
                    None => false,
                    Some((kind, path)) => {
                        self.saw(kind, &path, at, queues, log).await;
                        heard = heard.max(at);
                        true
                    }
                },
            };
            if !there {
                break;
            }
        }
        heard
    }

    /// Reads the existing nodes, after a connection was made; no contender is known then. Returns `None` if the server does not answer.
    async fn catch_up(&mut self, queues: &mut OwnerQueues, log: &ObservationLog) -> Option<()> {
        let queries = Arc::clone(&self.ensemble.queries);
        let below_root = queries.children(&self.nodes.root).await?;
        let nodes = below_root.iter().filter_map(|child| self.nodes.lock_under(child));
        let nodes: Vec<_> = nodes.collect();
        for (lock, path) in nodes {
            let mut paths = match self.nodes.keys.value {
                KeyValue::Node => match queries.owner(&path).await {
                    Some(_) => vec![path],
                    None => Vec::new(),
                },
                _ => {
                    let names = queries.children(&path).await?;
                    names.into_iter().map(|name| format!("{path}/{name}")).collect()
                }
            };
            // the first of them owns the lock
            paths.sort_by_key(|path| place(path));
            for path in paths {
                self.came(&lock, &path, log.clock.now_ns(), queues, log).await;
            }
        }
        Some(())
    }

    async fn saw(&mut self, kind: NodeChange, path: &str, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        let Some(lock) = self.nodes.lock_of_contender(path) else {
            return;
        };
        match kind {
            NodeChange::Created => {
                self.came(&lock, path, at, queues, log).await;
            }
            NodeChange::Deleted => {
                let changes = queues.remove(&lock, place(path));
                let queries = Arc::clone(&self.ensemble.queries);
                let recording = log.record(&lock, changes, at, |contender| {
                    let session = contender.owner;
                    let why = session.map(|session| queries.why(&session));
                    async move {
                        match why {
                            Some(why) => why.await,
                            None => Unasked::Unknown,
                        }
                    }
                });
                self.ensemble.changes.during(recording, log.clock).await;
            }
            NodeChange::Other => {}
        }
    }

    /// Handles a new node, and queries its owner. The server reports every change before an answer shows it: if it has reported
    /// the node's end by now, the answer may be about another node of that name, and the first one's owner stays unknown.
    async fn came(&mut self, lock: &str, path: &str, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        if queues.contains(lock, place(path)) {
            return;
        }
        // without an answer the next proof fails, too
        let asked = log.clock.within_real(OWNER, self.ensemble.queries.owner(path));
        let owner = self.ensemble.changes.during(asked, log.clock).await.flatten();
        let ahead = self.ensemble.changes.ahead.iter();
        let mut told = ahead.filter_map(|told| told.event.as_ref());
        let went = told.any(|(kind, of)| *kind == NodeChange::Deleted && of == path);
        let owner = owner.filter(|_| !went);
        let changes = queues.add(lock, place(path), contender(owner));
        log.record(lock, changes, at, |_| async { Unasked::Unknown }).await;
    }
}

/// Returns a contender's place in the queue. A node without a sequence is alone.
fn place(path: &str) -> u64 {
    sequence_of(path).map_or(0, |sequence| sequence as u64)
}

fn contender(owner: Option<NodeOwner>) -> Contender {
    owner.map_or_else(Contender::default, |owner| Contender {
        owner: Some(owner_name(owner.session)),
        token: Some(owner.czxid as u64),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use harness_workloads::BackendId;
    use tokio::sync::{mpsc, watch};

    use super::super::ensemble::{ChangedNode, NodeQueries};
    use super::*;
    use crate::backends;
    use crate::backends::arriving::ArrivingEvents;
    use crate::backends::observer::told::told_within;
    use crate::clock::GroundClock;
    use crate::cluster::{BoxFuture, Endpoints};

    fn nodes(pattern: &str, value: KeyValue) -> LockNodes {
        let mut keys = LockKeys::default_of(backends::of(BackendId::Zk));
        (keys.pattern, keys.value) = (pattern.parse().unwrap(), value);
        LockNodes::of(keys)
    }

    #[test]
    fn a_contender_is_a_child_of_its_locks_node() {
        let nodes = nodes("/harness/{lock}", KeyValue::Sequential);
        assert_eq!(nodes.root, "/harness");
        assert_eq!(nodes.lock_under("l0"), Some(("l0".into(), "/harness/l0".into())));
        assert_eq!(nodes.lock_under("other"), None);
        assert_eq!(
            nodes.lock_of_contender("/harness/l0/x-lock-0000000004"),
            Some("l0".into())
        );
        assert_eq!(nodes.lock_of_contender("/harness/l0"), None);
        assert_eq!(nodes.lock_of_contender("/harness/l0/leases/x"), None);
    }

    #[test]
    fn a_lock_may_be_one_node_or_lie_below_another() {
        let single = nodes("/apps/my-{lock}", KeyValue::Node);
        assert_eq!(single.lock_under("my-l2"), Some(("l2".into(), "/apps/my-l2".into())));
        assert_eq!(single.lock_of_contender("/apps/my-l2"), Some("l2".into()));
        assert_eq!(single.lock_of_contender("/apps/my-l2/x"), None);
        let below = nodes("/apps/{lock}/leases", KeyValue::Sequential);
        assert_eq!(below.root, "/apps");
        assert_eq!(below.lock_under("l2"), Some(("l2".into(), "/apps/l2/leases".into())));
        assert_eq!(below.lock_of_contender("/apps/l2/leases/x"), Some("l2".into()));
    }

    /// A server whose events the test determines, and which answers slowly.
    struct SlowServer {
        clock: GroundClock,
        /// Whether it answers the queries of children.
        reads: bool,
        /// The number of proofs that it still answers.
        proofs: AtomicU64,
    }

    /// Returns an observer that is connected to this server, and to no other one after it.
    fn observer(server: &Arc<SlowServer>, changes: ArrivingEvents<ChangedNode>) -> ZkObserver {
        ZkObserver {
            source: Box::new(|_, _| Box::pin(std::future::pending())),
            endpoints: watch::channel(Endpoints::new(vec![([127, 0, 0, 1], 1).into()], None)).1,
            nodes: nodes("/harness/{lock}", KeyValue::Sequential),
            ensemble: OpenedEnsemble {
                queries: Arc::clone(server) as Arc<dyn NodeQueries>,
                changes,
            },
        }
    }

    impl NodeQueries for SlowServer {
        fn children(&self, _: &str) -> BoxFuture<'static, Option<Vec<String>>> {
            Box::pin(std::future::ready(self.reads.then(Vec::new)))
        }

        fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>> {
            let (number, clock) = (place(path) as i64, self.clock);
            let late = Duration::from_millis(if number == 3 { 60 } else { 0 });
            Box::pin(async move {
                clock.sleep(late).await;
                Some(NodeOwner {
                    session: number,
                    czxid: number,
                })
            })
        }

        fn beat(&self) -> Duration {
            Duration::from_millis(10)
        }

        fn proves(&self) -> BoxFuture<'static, bool> {
            let answers = self
                .proofs
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            Box::pin(async move {
                if answers.is_err() {
                    std::future::pending::<()>().await;
                }
                true
            })
        }

        fn why(&self, _: &str) -> BoxFuture<'static, Unasked> {
            let clock = self.clock;
            Box::pin(async move {
                clock.sleep(Duration::from_millis(100)).await;
                Unasked::Unknown
            })
        }
    }

    #[test]
    fn an_observer_that_could_not_read_the_nodes_is_not_back() {
        let (_tell, told) = mpsc::unbounded_channel::<ChangedNode>();
        let lines = told_within(Duration::from_millis(100), |log| {
            let server = Arc::new(SlowServer {
                clock: log.clock,
                reads: false,
                proofs: AtomicU64::new(u64::MAX),
            });
            observer(&server, told.into()).observe(log)
        });
        assert_eq!(lines, ["lost at 0 ms"]);
    }

    #[test]
    fn what_was_told_and_not_recorded_before_the_connection_ended_is_out_of_hearing() {
        let told = told_within(Duration::from_secs(2), |log| async move {
            let clock = log.clock;
            let (tell, told) = mpsc::unbounded_channel();
            let server = Arc::new(SlowServer {
                clock,
                reads: true,
                proofs: AtomicU64::new(u64::MAX),
            });
            let observing = clock.spawn(observer(&server, told.into()).observe(log));
            let say = |kind, number: u32| tell.send((kind, format!("/harness/l0/x-lock-{number:010}"))).unwrap();
            say(NodeChange::Created, 1);
            say(NodeChange::Created, 2);
            clock.sleep(Duration::from_millis(50)).await;
            // during the query about the first one, it receives the events of the others
            say(NodeChange::Deleted, 1);
            clock.sleep(Duration::from_millis(20)).await;
            say(NodeChange::Created, 3);
            say(NodeChange::Deleted, 2);
            clock.sleep(Duration::from_millis(20)).await;
            // the one proof that is answered before the second is recorded is not about it
            server.proofs.store(1, Ordering::Relaxed);
            clock.sleep(Duration::from_secs(1)).await;
            observing.end().await;
        });
        let lost: Vec<&String> = told.iter().filter(|line| line.starts_with("lost")).collect();
        assert_eq!(lost, ["lost at 70 ms"], "{told:?}");
    }
}
