//! The session on the `zookeeper-client` crate.
//!
//! Two traps are closed here. The crate's state watcher conflates, so every change of state counts as a break, also
//! one that ended connected. And the crate has no time limit of its own while it reconnects: a call that takes longer
//! than [`CALL_SHARE`] of the session is answered as indefinite, although the crate may still send it later.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use zookeeper_client::{
    Acls, Client, CreateMode, CreateOptions, Error, EventType, LockOptions, LockPrefix, OneshotWatcher, SessionState,
    Stat, StateWatcher, WatchedEvent,
};

use super::session::{Link, LinkState, Node, Watch, WatchEvent, ZkConnect, ZkSession};
use crate::host::{Host, Task, within};
use crate::protocol::Open;
use crate::session::SessionError;

/// How much of a session one call may take, in tenths: more than it takes to notice a dead server and reach the next.
const CALL_SHARE: u32 = 6;
/// How much of a session the attempt to reach one server may take, in tenths. Silence for as long breaks the connection.
const CONNECTION_SHARE: u32 = 4;

/// How often a node's parents are made before it is told that they do not stay.
const PARENTS: usize = 10;
/// How often, and how long apart, one looks whether the library has deleted its node.
const LOOKS: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

const EPHEMERAL: CreateOptions<'static> = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
const EPHEMERAL_SEQUENTIAL: CreateOptions<'static> = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
const PERSISTENT: CreateOptions<'static> = CreateMode::Persistent.with_acls(Acls::anyone_all());

/// A real ensemble.
pub struct RealZk {
    cluster: String,
    lease: Duration,
    host: Rc<dyn Host>,
}

impl RealZk {
    pub fn new(open: &Open, host: Rc<dyn Host>) -> Self {
        RealZk {
            cluster: open.endpoints.join(","),
            lease: Duration::from_millis(open.lease_ms),
            host,
        }
    }

    /// A client of the crate, for the recipe that brings its own lock.
    pub(crate) async fn client(&self) -> Result<Client, SessionError> {
        let connecting = Client::connector()
            .with_session_timeout(self.lease)
            .with_connection_timeout(self.lease * CONNECTION_SHARE / 10)
            .connect(&self.cluster);
        match within(&*self.host, self.lease, connecting).await {
            Some(Ok(client)) => Ok(client),
            Some(Err(error)) => Err(SessionError::Definite(format!("no session: {error}"))),
            None => Err(SessionError::Definite(format!(
                "no session within {} ms",
                self.lease.as_millis()
            ))),
        }
    }
}

#[async_trait(?Send)]
impl ZkConnect for RealZk {
    async fn connect(&self) -> Result<Rc<dyn ZkSession>, SessionError> {
        let client = self.client().await?;
        let (link, linked) = watch::channel(Link::default());
        let follower = self
            .host
            .spawn(Box::pin(follow(client.state_watcher(), client.state(), link)));
        Ok(Rc::new(RealSession {
            id: client.session_id().0,
            timeout: client.session_timeout(),
            client: RefCell::new(Some(client)),
            link: linked,
            host: self.host.clone(),
            _follower: follower,
        }))
    }
}

struct RealSession {
    id: i64,
    timeout: Duration,
    /// `None` once closed: the crate closes the session when its last client is dropped.
    client: RefCell<Option<Client>>,
    link: watch::Receiver<Link>,
    host: Rc<dyn Host>,
    _follower: Task,
}

impl RealSession {
    async fn call<T>(&self, what: &str, work: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, Failed> {
        self.call_within(what, self.timeout * CALL_SHARE / 10, work).await
    }

    async fn call_within<T>(
        &self,
        what: &str,
        limit: Duration,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, Failed> {
        let client = self.client.borrow().clone();
        let Some(client) = client else {
            return Err(Failed {
                what: what.to_owned(),
                error: Some(Error::ClientClosed),
            });
        };
        match within(&*self.host, limit, work(&client)).await {
            Some(answer) => answer.map_err(|error| Failed {
                what: what.to_owned(),
                error: Some(error),
            }),
            None => Err(Failed {
                what: format!("{what}: no answer in {} ms", limit.as_millis()),
                error: None,
            }),
        }
    }

    /// Whether this session has no nodes under `parent`, or soon has none: the library deletes in the background.
    async fn is_gone(&self, parent: &str) -> bool {
        for _ in 0..LOOKS {
            match self
                .call("list", async |client| client.list_ephemerals(parent).await)
                .await
            {
                Ok(own) if own.is_empty() => return true,
                Ok(_) => self.host.sleep(LOOK_PAUSE).await,
                Err(_) => return false,
            }
        }
        false
    }

    /// Creates the node; and again where its parents had to be made first, since it surely was not created then. They may
    /// be gone by the next try: whoever removes locks that are out of use may find this one empty.
    async fn create_node(&self, path: &str, options: &CreateOptions<'_>) -> Result<(Stat, String), Failed> {
        let create = async |client: &Client| client.create(path, b"", options).await;
        let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
        let mut created = self.call("create", create).await;
        for _ in 0..PARENTS {
            let Err(Failed {
                error: Some(Error::NoNode),
                ..
            }) = created
            else {
                break;
            };
            self.call("mkdir", async |client| client.mkdir(parent, &PERSISTENT).await)
                .await?;
            created = self.call("create", create).await;
        }
        created.map(|(stat, sequence)| (stat, format!("{path}{sequence}")))
    }
}

#[async_trait(?Send)]
impl ZkSession for RealSession {
    fn id(&self) -> i64 {
        self.id
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.link.clone()
    }

    async fn create_sequential(&self, prefix: &str) -> Result<Node, SessionError> {
        let (stat, path) = self.create_node(prefix, &EPHEMERAL_SEQUENTIAL).await?;
        Ok(node(path, &stat))
    }

    async fn create(&self, path: &str) -> Result<Option<Node>, SessionError> {
        match self.create_node(path, &EPHEMERAL).await {
            Ok((stat, _)) => Ok(Some(node(path.to_owned(), &stat))),
            Err(Failed {
                error: Some(Error::NodeExists),
                ..
            }) => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    async fn children(&self, path: &str) -> Result<Vec<String>, SessionError> {
        match self.call("list", async |client| client.list_children(path).await).await {
            Err(Failed {
                error: Some(Error::NoNode),
                ..
            }) => Ok(Vec::new()),
            answer => Ok(answer?),
        }
    }

    async fn watch_children(&self, path: &str) -> Result<(Vec<String>, Watch), SessionError> {
        let (names, watcher) = self
            .call("list", async |client| client.list_and_watch_children(path).await)
            .await?;
        Ok((names, as_watch(watcher)))
    }

    async fn exists(&self, path: &str) -> Result<Option<Node>, SessionError> {
        let stat = self
            .call("exists", async |client| client.check_stat(path).await)
            .await?;
        Ok(stat.map(|stat| node(path.to_owned(), &stat)))
    }

    async fn watch_exists(&self, path: &str) -> Result<(Option<Node>, Watch), SessionError> {
        let (stat, watcher) = self
            .call("exists", async |client| client.check_and_watch_stat(path).await)
            .await?;
        Ok((stat.map(|stat| node(path.to_owned(), &stat)), as_watch(watcher)))
    }

    async fn delete(&self, path: &str) -> Result<bool, SessionError> {
        match self
            .call("delete", async |client| client.delete(path, None).await)
            .await
        {
            Ok(()) => Ok(true),
            Err(Failed {
                error: Some(Error::NoNode),
                ..
            }) => Ok(false),
            Err(failed) => Err(failed.into()),
        }
    }

    async fn library_lock(&self, parent: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        let prefix = LockPrefix::new_curator(parent, "lock-")
            .map_err(|error| SessionError::Definite(format!("lock {parent}: {error}")))?;
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(PERSISTENT.clone());
        let options = options.map_err(|error| SessionError::Definite(format!("lock {parent}: {error}")))?;
        let lock = async |client: &Client| {
            let held = client.lock(prefix, b"", options).await?;
            let path = held.lock_path().to_owned();
            // dropping it would release it, in the background
            std::mem::forget(held);
            Ok(path)
        };
        match self.call_within("lock", wait, lock).await {
            Err(Failed { error: None, what }) if !self.is_gone(parent).await => Err(SessionError::Indefinite(what)),
            Err(Failed { error: None, .. }) => Ok(None),
            answer => Ok(Some(answer?)),
        }
    }

    async fn close(&self) {
        drop(self.client.take());
        let mut link = self.link.clone();
        let closed = link.wait_for(|link| link.state == LinkState::Expired);
        let _ = within(&*self.host, self.timeout * CALL_SHARE / 10, closed).await;
    }
}

/// A call of the crate that did not succeed; without an error, it was not answered in time.
struct Failed {
    what: String,
    error: Option<Error>,
}

impl From<Failed> for SessionError {
    fn from(Failed { what, error }: Failed) -> Self {
        let Some(error) = error else {
            return SessionError::Indefinite(what);
        };
        let text = format!("{what}: {error}");
        match error {
            Error::SessionExpired | Error::ClientClosed | Error::AuthFailed => SessionError::Lost(text),
            Error::NoNode
            | Error::NoAuth
            | Error::NodeExists
            | Error::NotEmpty
            | Error::InvalidAcl
            | Error::NoChildrenForEphemerals
            | Error::BadVersion
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::BadArguments(_)
            | Error::Throttled
            | Error::Unimplemented => SessionError::Definite(text),
            // a connection reset under the request comes as `Custom`
            _ => SessionError::Indefinite(text),
        }
    }
}

fn node(path: String, stat: &Stat) -> Node {
    Node {
        path,
        czxid: stat.czxid,
        owner: stat.ephemeral_owner,
    }
}

fn as_watch(watcher: OneshotWatcher) -> Watch {
    Box::pin(async move {
        let WatchedEvent { event_type, path, .. } = watcher.changed().await;
        let kind = match event_type {
            EventType::NodeCreated => "NodeCreated",
            EventType::NodeDeleted => "NodeDeleted",
            EventType::NodeDataChanged => "NodeDataChanged",
            EventType::NodeChildrenChanged => "NodeChildrenChanged",
            EventType::Session => return WatchEvent::SessionOver,
        };
        WatchEvent::Fired { kind, path }
    })
}

/// Follows the crate's state. A state is only ever announced when it differs from the one before, so an announcement
/// while connected means that a disconnection went by unseen.
async fn follow(mut states: StateWatcher, mut state: SessionState, link: watch::Sender<Link>) {
    let mut connected = true;
    loop {
        let now = match state {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => LinkState::Connected,
            SessionState::Disconnected => LinkState::Disconnected,
            SessionState::Expired | SessionState::AuthFailed | SessionState::Closed => LinkState::Expired,
        };
        let broke = connected || now == LinkState::Expired;
        connected = now == LinkState::Connected;
        link.send_modify(|link| {
            *link = Link {
                state: now,
                breaks: link.breaks + u64::from(broke),
            }
        });
        if now == LinkState::Expired {
            return;
        }
        state = states.changed().await;
    }
}
