//! The ZooKeeper session for real servers, on the `zookeeper-client` crate.
//!
//! It closes two gaps of the crate. Its state watcher conflates, so every change of state counts as a break, also
//! one that ended connected. And there is no time limit while it reconnects: a call that takes longer
//! than [`CALL_SHARE`] of the session is answered as indefinite, although the crate may still send it later.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use zookeeper_client::{
    Acls, Client, Connector, CreateMode, CreateOptions, Error, EventType, LockOptions, LockPrefix, OneshotWatcher,
    SessionState, Stat, StateWatcher, WatchedEvent,
};

use crate::host::{RecipeHost, Task, within};
use crate::login::Login;
use crate::protocol::OpenRequest;
use crate::session::SessionError;
use crate::session::zk::{
    ConnectionState, ConnectionStatus, WatchEvent, ZkConnect, ZkFailure, ZkSession, ZkWatch, Znode,
};

/// The part of a session that one call may take, in tenths: more than it takes to notice a dead server and reach the next.
pub const CALL_SHARE: u32 = 6;
/// The part of a session that the attempt to reach one server may take, in tenths. Silence for as long breaks the connection.
const CONNECTION_SHARE: u32 = 4;

/// The number of looks whether the library has deleted its node, and the time between them.
const LOOKS: u32 = 20;
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Returns the access list of a client's nodes: for those with the same login where there is one, else for everyone.
fn access_list(login: Option<&Login>) -> Acls<'static> {
    login.map_or(Acls::anyone_all(), |_| Acls::creator_all())
}

/// Returns the connector of clients.
pub fn connector(login: Option<&Login>) -> Connector {
    let connector = Client::connector();
    match login {
        Some(login) => connector.with_auth("digest", login.digest().as_bytes()),
        None => connector,
    }
}

/// A real ensemble.
pub struct ZkServers {
    cluster: String,
    lease: Duration,
    login: Option<Login>,
    host: Rc<dyn RecipeHost>,
}

impl ZkServers {
    pub fn new(open: &OpenRequest, login: Option<&Login>, host: Rc<dyn RecipeHost>) -> Self {
        ZkServers {
            cluster: open.endpoints.join(","),
            lease: Duration::from_millis(open.lease_ms),
            login: login.cloned(),
            host,
        }
    }

    /// Returns a client of the crate.
    async fn client(&self) -> Result<Client, SessionError> {
        let connecting = connector(self.login.as_ref())
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
impl ZkConnect for ZkServers {
    async fn connect(&self) -> Result<Rc<dyn ZkSession>, SessionError> {
        let client = self.client().await?;
        let (sender, connection) = watch::channel(ConnectionStatus::default());
        let follower = self
            .host
            .spawn(Box::pin(follow(client.state_watcher(), client.state(), sender)));
        Ok(Rc::new(ZkClientSession {
            id: client.session_id().0,
            timeout: client.session_timeout(),
            acls: access_list(self.login.as_ref()),
            client: RefCell::new(Some(client)),
            connection,
            host: self.host.clone(),
            _follower: follower,
        }))
    }
}

struct ZkClientSession {
    id: i64,
    timeout: Duration,
    /// The access list of the nodes that it makes.
    acls: Acls<'static>,
    /// `None` once closed: the crate closes the session when its last client is dropped.
    client: RefCell<Option<Client>>,
    connection: watch::Receiver<ConnectionStatus>,
    host: Rc<dyn RecipeHost>,
    _follower: Task,
}

impl ZkClientSession {
    async fn call<T>(&self, what: &str, work: impl AsyncFnOnce(&Client) -> Result<T, Error>) -> Result<T, ZkFailure> {
        self.call_within(what, self.timeout * CALL_SHARE / 10, work).await
    }

    async fn call_within<T>(
        &self,
        what: &str,
        limit: Duration,
        work: impl AsyncFnOnce(&Client) -> Result<T, Error>,
    ) -> Result<T, ZkFailure> {
        let client = self.client.borrow().clone();
        let Some(client) = client else {
            return Err(failure(what, &Error::ClientClosed));
        };
        match within(&*self.host, limit, work(&client)).await {
            Some(answer) => answer.map_err(|error| failure(what, &error)),
            None => Err(ZkFailure::unanswered(what, limit)),
        }
    }

    /// Returns the options with which it makes the parents of its nodes.
    fn persistent(&self) -> CreateOptions<'static> {
        CreateMode::Persistent.with_acls(self.acls)
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
}

#[async_trait(?Send)]
impl ZkSession for ZkClientSession {
    fn id(&self) -> i64 {
        self.id
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connection(&self) -> watch::Receiver<ConnectionStatus> {
        self.connection.clone()
    }

    async fn create_one(&self, path: &str, sequential: bool) -> Result<Znode, ZkFailure> {
        let mode = match sequential {
            true => CreateMode::EphemeralSequential,
            false => CreateMode::Ephemeral,
        };
        let options = mode.with_acls(self.acls);
        let create = async |client: &Client| client.create(path, b"", &options).await;
        let (stat, sequence) = self.call("create", create).await?;
        let path = match sequential {
            true => format!("{path}{sequence}"),
            false => path.to_owned(),
        };
        Ok(node(path, &stat))
    }

    async fn make_parents(&self, path: &str) -> Result<(), ZkFailure> {
        self.call("mkdir", async |client| client.mkdir(path, &self.persistent()).await)
            .await
    }

    async fn list(&self, path: &str, watches: bool) -> Result<(Vec<String>, Option<ZkWatch>), ZkFailure> {
        let list = async |client: &Client| {
            if !watches {
                return Ok((client.list_children(path).await?, None));
            }
            let (names, watcher) = client.list_and_watch_children(path).await?;
            Ok((names, Some(as_watch(watcher))))
        };
        self.call("list", list).await
    }

    async fn stat(&self, path: &str, watches: bool) -> Result<(Option<Znode>, Option<ZkWatch>), ZkFailure> {
        let found = |stat: Option<Stat>| stat.map(|stat| node(path.to_owned(), &stat));
        let look = async |client: &Client| {
            if !watches {
                return Ok((found(client.check_stat(path).await?), None));
            }
            let (stat, watcher) = client.check_and_watch_stat(path).await?;
            Ok((found(stat), Some(as_watch(watcher))))
        };
        self.call("exists", look).await
    }

    async fn remove(&self, path: &str) -> Result<(), ZkFailure> {
        self.call("delete", async |client| client.delete(path, None).await)
            .await
    }

    async fn sync(&self, path: &str) -> Result<(), SessionError> {
        Ok(self.call("sync", async |client| client.sync(path).await).await?)
    }

    async fn library_lock(&self, parent: &str, wait: Duration) -> Result<Option<String>, SessionError> {
        let prefix = LockPrefix::new_curator(parent, "lock-")
            .map_err(|error| SessionError::Definite(format!("lock {parent}: {error}")))?;
        let options = LockOptions::new(self.acls).with_ancestor_options(self.persistent());
        let options = options.map_err(|error| SessionError::Definite(format!("lock {parent}: {error}")))?;
        let lock = async |client: &Client| {
            let held = client.lock(prefix, b"", options).await?;
            let path = held.lock_path().to_owned();
            // dropping it would release it, in the background
            std::mem::forget(held);
            Ok(path)
        };
        match self.call_within("lock", wait, lock).await {
            Err(ZkFailure::Unanswered(why)) if !self.is_gone(parent).await => Err(SessionError::Indefinite(why)),
            Err(ZkFailure::Unanswered(_)) => Ok(None),
            answer => Ok(Some(answer?)),
        }
    }

    async fn close(&self) {
        drop(self.client.take());
        let mut connection = self.connection.clone();
        let closed = connection.wait_for(|status| status.state == ConnectionState::Expired);
        let _ = within(&*self.host, self.timeout * CALL_SHARE / 10, closed).await;
    }
}

/// Returns the failure of a call of the crate.
fn failure(what: &str, error: &Error) -> ZkFailure {
    let words = format!("{what}: {error}");
    match error {
        Error::NoNode => ZkFailure::NoNode(words),
        Error::NodeExists => ZkFailure::NodeExists(words),
        Error::SessionExpired | Error::ClientClosed | Error::AuthFailed => ZkFailure::Other(SessionError::Lost(words)),
        Error::NoAuth
        | Error::NotEmpty
        | Error::InvalidAcl
        | Error::NoChildrenForEphemerals
        | Error::BadVersion
        | Error::NotReadOnly
        | Error::QuotaExceeded
        | Error::BadArguments(_)
        | Error::Throttled
        | Error::Unimplemented => ZkFailure::Other(SessionError::Definite(words)),
        // a connection reset under the request comes as `Custom`
        _ => ZkFailure::Other(SessionError::Indefinite(words)),
    }
}

fn node(path: String, stat: &Stat) -> Znode {
    Znode {
        path,
        czxid: stat.czxid,
        owner: stat.ephemeral_owner,
    }
}

fn as_watch(watcher: OneshotWatcher) -> ZkWatch {
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
async fn follow(mut states: StateWatcher, mut state: SessionState, sender: watch::Sender<ConnectionStatus>) {
    let mut connected = true;
    loop {
        let now = match state {
            SessionState::SyncConnected | SessionState::ConnectedReadOnly => ConnectionState::Connected,
            SessionState::Disconnected => ConnectionState::Disconnected,
            SessionState::Expired | SessionState::AuthFailed | SessionState::Closed => ConnectionState::Expired,
        };
        let broke = connected || now == ConnectionState::Expired;
        connected = now == ConnectionState::Connected;
        sender.send_modify(|status| {
            *status = ConnectionStatus {
                state: now,
                breaks: status.breaks + u64::from(broke),
            }
        });
        if now == ConnectionState::Expired {
            return;
        }
        state = states.changed().await;
    }
}
