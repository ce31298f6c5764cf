//! What an ensemble tells of nodes, and what it can be asked ([`NodeChanges`], [`NodeQueries`]); and how real servers are heard: a
//! persistent recursive watch, and the leader's list of living sessions.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::{AddWatchMode, Client, CreateMode, EventType, PersistentWatcher};

use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};
use crate::limits::PROBE;
use harness_workloads::zk::{access_list, connector, owner_name};

/// A node that is written again and again: only a majority accepts a write, and the server that answers one has reported all
/// changes before it. A read would also be answered by a server that is cut off from the others.
const PROOF_PATH: &str = "/harness-observer";
/// The observer's session outlives any fault.
pub const SESSION: Duration = Duration::from_secs(30);

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Created,
    Deleted,
    /// Something that no owner depends on.
    Other,
}

/// Whose node it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOwner {
    /// The session, 0 where the node is not ephemeral.
    pub session: i64,
    /// The transaction that created it.
    pub czxid: i64,
}

/// The changes of the nodes below the root, in the order in which they happened.
pub trait NodeChanges: Send + Sync {
    /// What the server told next: what happened to which node; `None` when the connection is over. What it told is not lost when
    /// the future is dropped.
    fn next(&mut self) -> BoxFuture<'_, Option<(NodeChange, String)>>;
}

/// What the server can be asked.
pub trait NodeQueries: Send + Sync {
    /// The names of a node's children; none if there is no such node, or no answer.
    fn children(&self, path: &str) -> BoxFuture<'static, Vec<String>>;

    /// Whose a node is; `None` if there is none, or no answer.
    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>>;

    /// How often it is to be asked whether a majority answers.
    fn beat(&self) -> Duration {
        Duration::from_millis(50)
    }

    /// Whether a majority answers: then every change before it was asked has been told.
    fn proves(&self) -> BoxFuture<'static, bool>;

    /// Why a node of this session went that its owner did not delete: the session is gone, or it is not.
    fn why(&self, session: &str) -> BoxFuture<'static, Unasked>;
}

/// A connection to an ensemble.
pub struct OpenedEnsemble {
    pub queries: Arc<dyn NodeQueries>,
    pub changes: Box<dyn NodeChanges>,
}

/// Connects to ensembles.
pub trait EnsembleSource: Send + Sync {
    /// Connects, and hears of all nodes below `root` from then on, which is made if it is not there.
    fn open(&self, endpoints: &EndpointsReceiver, root: &str) -> BoxFuture<'static, Result<OpenedEnsemble, String>>;
}

/// Connects to ZooKeeper servers.
pub struct ZkServerEnsemble {
    /// The path of the node that is written again and again.
    proof: String,
}

impl ZkServerEnsemble {
    /// With locks under these keys.
    pub fn of(keys: &LockKeys) -> Self {
        Self {
            proof: Self::proof_of(keys),
        }
    }

    /// The path of the node that is written again and again.
    pub fn proof_of(keys: &LockKeys) -> String {
        match &keys.mark {
            None => PROOF_PATH.to_owned(),
            // next to the locks, where all of the run is removed
            Some(_) => format!("{}observer", keys.pattern.before()),
        }
    }
}

impl EnsembleSource for ZkServerEnsemble {
    fn open(&self, endpoints: &EndpointsReceiver, root: &str) -> BoxFuture<'static, Result<OpenedEnsemble, String>> {
        let (endpoints, root, proof) = (endpoints.clone(), root.to_owned(), self.proof.clone());
        Box::pin(async move {
            let opened = open(&endpoints, &root, &proof).await;
            let (client, watcher) = opened.map_err(|error| error.to_string())?;
            Ok(OpenedEnsemble {
                queries: Arc::new(ServerQueriesOfZk {
                    client,
                    endpoints,
                    proof,
                }),
                changes: Box::new(WatchedNodes(watcher)),
            })
        })
    }
}

/// A session of the observer, or of what looks after the nodes.
pub async fn connect(endpoints: &EndpointsReceiver, session: Duration) -> Result<Client, zookeeper_client::Error> {
    let (servers, login) = {
        let endpoints = endpoints.borrow();
        (endpoints.servers(), endpoints.login())
    };
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    connector(login.as_deref())
        .with_session_timeout(session)
        .with_connection_timeout(PROBE)
        .connect(&servers.join(","))
        .await
}

async fn open(
    endpoints: &EndpointsReceiver,
    root: &str,
    proof: &str,
) -> Result<(Client, PersistentWatcher), zookeeper_client::Error> {
    let login = endpoints.borrow().login();
    let client = connect(endpoints, SESSION).await?;
    let persistent = CreateMode::Persistent.with_acls(access_list(login.as_deref()));
    client.mkdir(root, &persistent).await?;
    client.mkdir(proof, &persistent).await?;
    let watcher = client.watch(root, AddWatchMode::PersistentRecursive).await?;
    Ok((client, watcher))
}

struct WatchedNodes(PersistentWatcher);

impl NodeChanges for WatchedNodes {
    fn next(&mut self) -> BoxFuture<'_, Option<(NodeChange, String)>> {
        Box::pin(async {
            let event = self.0.changed().await;
            let change = match event.event_type {
                EventType::Session => return None,
                EventType::NodeCreated => NodeChange::Created,
                EventType::NodeDeleted => NodeChange::Deleted,
                _ => NodeChange::Other,
            };
            Some((change, event.path))
        })
    }
}

struct ServerQueriesOfZk {
    client: Client,
    endpoints: EndpointsReceiver,
    proof: String,
}

impl NodeQueries for ServerQueriesOfZk {
    fn children(&self, path: &str) -> BoxFuture<'static, Vec<String>> {
        let (client, path) = (self.client.clone(), path.to_owned());
        Box::pin(async move { client.list_children(&path).await.unwrap_or_default() })
    }

    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>> {
        let (client, path) = (self.client.clone(), path.to_owned());
        Box::pin(async move {
            let stat = client.check_stat(&path).await.ok().flatten()?;
            Some(NodeOwner {
                session: stat.ephemeral_owner,
                czxid: stat.czxid,
            })
        })
    }

    fn proves(&self) -> BoxFuture<'static, bool> {
        let (client, proof) = (self.client.clone(), self.proof.clone());
        Box::pin(async move { client.set_data(&proof, b"", None).await.is_ok() })
    }

    fn why(&self, session: &str) -> BoxFuture<'static, Unasked> {
        let (servers, session) = (self.endpoints.borrow().servers(), session.to_owned());
        Box::pin(why(servers, session))
    }
}

async fn why(servers: Vec<SocketAddr>, session: String) -> Unasked {
    let mut asked: JoinSet<_> = servers
        .into_iter()
        .map(|address| timeout(PROBE, four_letters(address, "dump")))
        .collect();
    while let Some(answer) = asked.join_next().await {
        if let Ok(Ok(Ok(dump))) = answer
            && let Some(why) = session_is_over(&dump, &session)
        {
            return why;
        }
    }
    Unasked::Unknown
}

/// Why a node of this session went, by what a server says of all sessions: only the leader knows every one.
pub fn session_is_over(dump: &str, session: &str) -> Option<Unasked> {
    let alive = || dump.lines().any(|line| line.trim() == session);
    let knows = dump.contains("Session Sets");
    knows.then(|| if alive() { Unasked::Deleted } else { Unasked::Expired })
}

async fn four_letters(address: SocketAddr, word: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(word.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

impl NodeOwner {
    /// The session as owners are named.
    pub fn name(self) -> String {
        owner_name(self.session)
    }
}
