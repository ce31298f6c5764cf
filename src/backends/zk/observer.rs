//! Observes ZooKeeper: a persistent recursive watch on the locks, the contenders' creation and session, and the
//! leader's list of living sessions where a contender went unasked.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use harness_workloads::KeyValue;
use harness_workloads::zk::{owner_name, sequence_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use zookeeper_client::{Acls, AddWatchMode, Client, CreateMode, EventType, PersistentWatcher, Stat, WatchedEvent};

use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, Unasked};
use crate::backends::owners::{Contender, OwnerQueues};
use crate::clock::monotonic_ns;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;

/// A node that is written again and again: only a majority accepts a write, and the server that answers one has reported all
/// changes before it. A read would also be answered by a server that is cut off from the others.
const PROOF_PATH: &str = "/harness-observer";
/// The source it hears, in the history: any server reports the changes of all.
const ENSEMBLE: &str = "ensemble";
/// The observer's session outlives any fault.
const SESSION: Duration = Duration::from_secs(30);
/// How often the server is asked whether it is there, and how long it may take for the answer.
const BEAT: Duration = Duration::from_millis(50);
/// How long a new connection may take before another one is tried.
const REOPEN: Duration = Duration::from_secs(2);
const SILENCE: Duration = Duration::from_millis(300);

pub struct ZkObserver {
    endpoints: EndpointsReceiver,
    nodes: LockNodes,
    client: Client,
    watcher: PersistentWatcher,
    /// Events that came while something else was waited for.
    ahead: VecDeque<WatchNotice>,
}

/// What the server told, and when it was heard. It is heard as it comes, whatever is asked meanwhile.
struct WatchNotice {
    at: u64,
    /// `None` is the end of the connection.
    event: Option<NodeChange>,
}

/// What happened to which node.
type NodeChange = (EventType, String);

/// The nodes of the locks: where they are, and whose contender a node is.
struct LockNodes {
    keys: LockKeys,
    /// The node below which all of them are.
    root: String,
    /// What follows a child of the root in the path of a lock's node.
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

    /// The lock that is below this child of the root, and its node.
    fn lock_under(&self, child: &str) -> Option<(String, String)> {
        let node = format!("{}/{child}{}", self.root, self.below);
        let (lock, rest) = self.keys.pattern.lock_of(&node)?;
        rest.is_empty().then(|| (lock.to_owned(), node.clone()))
    }

    /// The lock whose contender a node is.
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

impl ZkObserver {
    pub async fn connect(endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Box<dyn Observer>, String> {
        let nodes = LockNodes::of(keys);
        let (client, watcher) = open(&endpoints, &nodes.root)
            .await
            .map_err(|error| format!("the observer: {error}"))?;
        Ok(Box::new(Self {
            endpoints,
            nodes,
            client,
            watcher,
            ahead: VecDeque::new(),
        }))
    }

    async fn observe(mut self, log: ObservationLog) {
        let mut queues = OwnerQueues::default();
        loop {
            self.catch_up(&mut queues, &log).await;
            log.back(ENSEMBLE);
            let heard = self.watch(&mut queues, &log).await;
            log.lost(ENSEMBLE, heard);
            self.ahead.clear();
            (self.client, self.watcher) = loop {
                match timeout(REOPEN, open(&self.endpoints, &self.nodes.root)).await {
                    Ok(Ok(opened)) => break opened,
                    _ => log.pause().await,
                }
            };
        }
    }

    /// Records what happens until the connection is away for a moment. Events of that moment are never told, and a watch
    /// does not always survive it, so everything known is out of sight since the server was last heard: returns when that was.
    async fn watch(&mut self, queues: &mut OwnerQueues, log: &ObservationLog) -> u64 {
        let mut heard = monotonic_ns();
        let mut beat = Instant::now() + BEAT;
        loop {
            let there = tokio::select! {
                biased;
                () = sleep_until(beat) => {
                    let asked = monotonic_ns();
                    let proven = self.answers().await;
                    // nothing from before it was asked is still to come
                    heard = if proven { heard.max(asked) } else { heard };
                    beat = Instant::now() + BEAT;
                    proven
                }
                WatchNotice { at, event } = self.next() => match event {
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
        for (lock, contender) in queues.forget() {
            log.lost_sight(&lock, &contender, heard);
        }
        heard
    }

    async fn answers(&self) -> bool {
        let written = self.client.set_data(PROOF_PATH, b"", None);
        matches!(timeout(SILENCE, written).await, Ok(Ok(_)))
    }

    /// What the server told next.
    async fn next(&mut self) -> WatchNotice {
        match self.ahead.pop_front() {
            Some(told) => told,
            None => told(self.watcher.changed().await),
        }
    }

    /// Reads what is there, after a connection was made.
    async fn catch_up(&mut self, queues: &mut OwnerQueues, log: &ObservationLog) {
        let mut there = Vec::new();
        let below_root = self.client.list_children(&self.nodes.root).await.unwrap_or_default();
        let nodes: Vec<_> = below_root
            .iter()
            .filter_map(|child| self.nodes.lock_under(child))
            .collect();
        for (lock, path) in nodes {
            let mut paths = match self.nodes.keys.value {
                KeyValue::Node => match self.client.check_stat(&path).await {
                    Ok(Some(_)) => vec![path],
                    _ => Vec::new(),
                },
                _ => {
                    let names = self.client.list_children(&path).await.unwrap_or_default();
                    names.into_iter().map(|name| format!("{path}/{name}")).collect()
                }
            };
            // the first of them owns the lock
            paths.sort_by_key(|path| place(path));
            for path in paths {
                there.push((lock.clone(), place(&path)));
                self.came(&lock, &path, monotonic_ns(), queues, log).await;
            }
        }
        for (lock, place) in queues.places().into_iter().filter(|known| !there.contains(known)) {
            let changes = queues.remove(&lock, place);
            log.record(&lock, changes, monotonic_ns(), |_| async { Unasked::Unknown })
                .await;
        }
    }

    async fn saw(&mut self, kind: EventType, path: &str, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        let Some(lock) = self.nodes.lock_of_contender(path) else {
            return;
        };
        match kind {
            EventType::NodeCreated => {
                self.came(&lock, path, at, queues, log).await;
            }
            EventType::NodeDeleted => {
                let changes = queues.remove(&lock, place(path));
                let recording = log.record(&lock, changes, at, |contender| why(&self.endpoints, contender));
                listening(&mut self.watcher, &mut self.ahead, recording).await;
            }
            _ => {}
        }
    }

    /// A node came, and is asked for whose it is. The server tells of every change before it shows it in an answer: if it
    /// has told of the node's end by now, the answer may be of another node of that name, and the first stays unnamed.
    async fn came(&mut self, lock: &str, path: &str, at: u64, queues: &mut OwnerQueues, log: &ObservationLog) {
        if queues.contains(lock, place(path)) {
            return;
        }
        let asked = self.client.check_stat(path);
        let stat = listening(&mut self.watcher, &mut self.ahead, asked)
            .await
            .ok()
            .flatten();
        let mut told = self.ahead.iter().filter_map(|told| told.event.as_ref());
        let went = told.any(|(kind, of)| *kind == EventType::NodeDeleted && of == path);
        let stat = stat.filter(|_| !went);
        let changes = queues.add(lock, place(path), contender(stat));
        log.record(lock, changes, at, |_| async { Unasked::Unknown }).await;
    }
}

impl Observer for ZkObserver {
    fn run(self: Box<Self>, log: ObservationLog) -> BoxFuture<'static, ()> {
        Box::pin(self.observe(log))
    }
}

fn told(event: WatchedEvent) -> WatchNotice {
    let at = monotonic_ns();
    let event = match event.event_type {
        EventType::Session => None,
        kind => Some((kind, event.path)),
    };
    WatchNotice { at, event }
}

/// Waits for something, and hears what the server tells until it is there.
async fn listening<T>(
    watcher: &mut PersistentWatcher,
    ahead: &mut VecDeque<WatchNotice>,
    awaited: impl Future<Output = T>,
) -> T {
    let mut awaited = std::pin::pin!(awaited);
    loop {
        let there = ahead.back().is_none_or(|told| told.event.is_some());
        tokio::select! {
            biased;
            event = watcher.changed(), if there => ahead.push_back(told(event)),
            done = &mut awaited => return done,
        }
    }
}

/// Why a node went that its owner did not delete: its session is gone, or it is not.
async fn why(endpoints: &EndpointsReceiver, contender: Contender) -> Unasked {
    let Some(session) = contender.owner else {
        return Unasked::Unknown;
    };
    let servers = endpoints.borrow().servers();
    let mut asked: JoinSet<_> = servers
        .into_iter()
        .map(|address| timeout(PROBE, four_letters(address, "dump")))
        .collect();
    while let Some(answer) = asked.join_next().await {
        // only the leader knows every session
        if let Ok(Ok(Ok(dump))) = answer
            && dump.contains("Session Sets")
        {
            let alive = dump.lines().any(|line| line.trim() == session);
            return if alive { Unasked::Deleted } else { Unasked::Expired };
        }
    }
    Unasked::Unknown
}

async fn open(
    endpoints: &EndpointsReceiver,
    root: &str,
) -> Result<(Client, PersistentWatcher), zookeeper_client::Error> {
    let cluster: Vec<String> = endpoints.borrow().servers().iter().map(ToString::to_string).collect();
    let client = Client::connector()
        .with_session_timeout(SESSION)
        .with_connection_timeout(PROBE)
        .connect(&cluster.join(","))
        .await?;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.mkdir(root, &persistent).await?;
    client.mkdir(PROOF_PATH, &persistent).await?;
    let watcher = client.watch(root, AddWatchMode::PersistentRecursive).await?;
    Ok((client, watcher))
}

async fn four_letters(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// A contender's place in the queue. A node without a sequence is alone.
fn place(path: &str) -> u64 {
    sequence_of(path).map_or(0, |sequence| sequence as u64)
}

fn contender(stat: Option<Stat>) -> Contender {
    stat.map_or_else(Contender::default, |stat| Contender {
        owner: Some(owner_name(stat.ephemeral_owner)),
        token: Some(stat.czxid as u64),
    })
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

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
}
