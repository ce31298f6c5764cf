//! The data of ZooKeeper: all nodes are removed from servers that harness started, those of one run from others.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use zookeeper_client::{Acls, Client, Error};

use crate::backends::stored_data::{RunTraces, StoreSurvey, StoredData, named};
use crate::clock::GroundClock;
use crate::cluster::{BoxFuture, Endpoints, EndpointsReceiver};
use crate::limits::PROBE;
use harness_workloads::zk::connector;

/// The session for the removal of nodes; it owns nothing.
pub const SESSION: Duration = Duration::from_secs(10);
/// The only node that servers make themselves.
const SERVERS_OWN: &str = "zookeeper";
/// The most nodes outside of the locks' that are searched for a client's entries.
const LOOKED_AT: usize = 2000;

pub struct ZkData;

impl StoredData for ZkData {
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>> {
        Box::pin(within(async move {
            let client = connect(&endpoints, SESSION).await?;
            for name in top(&client).await? {
                remove(&client, format!("/{name}")).await?;
            }
            Ok(())
        }))
    }

    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>> {
        Box::pin(within(async move {
            let client = connect(&endpoints, lease).await?;
            let granted = client.session_timeout();
            if granted != lease {
                let ms = granted.as_millis();
                return Err(format!(
                    "these servers grant a session of {ms}ms when one of {}ms is asked for\nhint: --lease {ms}ms",
                    lease.as_millis()
                ));
            }
            let top = top(&client).await?;
            Ok(StoreSurvey {
                holds: named(&top, "node"),
                top,
                blind: None,
            })
        }))
    }

    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>> {
        Box::pin(within(async move {
            let client = connect(&endpoints, SESSION).await?;
            remove_traces(&client, &traces).await
        }))
    }
}

async fn within<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    GroundClock::Real.answer_within(SESSION, asked).await
}

/// Opens a session for the removal of nodes.
pub async fn connect(endpoints: &EndpointsReceiver, session: Duration) -> Result<Client, String> {
    let (servers, login) = {
        let endpoints = endpoints.borrow();
        (endpoints.servers(), endpoints.login())
    };
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let connector = connector(login.as_deref())
        .with_session_timeout(session)
        .with_connection_timeout(PROBE);
    let connected = connector.connect(&servers.join(",")).await;
    connected.map_err(|error| error.to_string())
}

/// Gives the root to the login of `servers`: nobody else can make a node, and each node below belongs to its maker.
pub async fn guard(servers: Endpoints) -> Result<(), String> {
    let (_sender, endpoints) = watch::channel(servers);
    within(async move {
        let client = connect(&endpoints, SESSION).await?;
        let given = client.set_acl("/", &Acls::creator_all(), None).await;
        given.map(drop).map_err(|error| error.to_string())
    })
    .await
}

/// Begins a session at a server, and ends it. For the first one a server loads most of its program, which takes up to a second on
/// a busy machine.
pub async fn first_session(server: SocketAddr) -> Result<(), String> {
    within(async move {
        let connector = connector(None)
            .with_session_timeout(SESSION)
            .with_connection_timeout(SESSION);
        let session = connector.connect(&server.to_string()).await;
        session.map(drop).map_err(|error| error.to_string())
    })
    .await
}

/// Returns the nodes below `/` without the servers' own.
async fn top(client: &Client) -> Result<Vec<String>, String> {
    let mut names = children(client, "/").await?;
    names.retain(|name| name != SERVERS_OWN);
    Ok(names)
}

/// Returns the children of a node; none if it does not exist.
async fn children(client: &Client, path: &str) -> Result<Vec<String>, String> {
    match client.list_children(path).await {
        Ok(names) => Ok(names),
        Err(Error::NoNode) => Ok(Vec::new()),
        Err(error) => Err(error.to_string()),
    }
}

/// Removes a node and all nodes below it. The end of a session may be faster.
fn remove(client: &Client, path: String) -> BoxFuture<'_, Result<u64, String>> {
    Box::pin(async move {
        let mut removed = 0;
        for name in children(client, &path).await? {
            removed += remove(client, format!("{path}/{name}")).await?;
        }
        match client.delete(&path, None).await {
            Ok(()) => Ok(removed + 1),
            Err(Error::NoNode) => Ok(removed),
            Err(error) => Err(format!("{path}: {error}")),
        }
    })
}

/// Removes the nodes with the run's mark in their names: first those of the locks, then those that a client made elsewhere.
/// Parents that did not exist before the run are removed if they are empty.
async fn remove_traces(client: &Client, traces: &RunTraces) -> Result<u64, String> {
    let (parent, _) = traces.pattern.before().rsplit_once('/').unwrap_or_default();
    let mut removed = 0;
    let mut queue = VecDeque::from([parent.to_owned(), String::new()]);
    let mut looked_at = 0;
    while let Some(path) = queue.pop_front().filter(|_| looked_at < LOOKED_AT) {
        looked_at += 1;
        let at = if path.is_empty() { "/" } else { &path };
        for name in children(client, at).await? {
            let child = format!("{path}/{name}");
            match () {
                () if traces.made(name.as_bytes()) => removed += remove(client, child).await?,
                () if child != parent && name != SERVERS_OWN => queue.push_back(child),
                () => {}
            }
        }
    }
    let mut parent = parent;
    let was_there = |path: &str| {
        path.split('/')
            .nth(1)
            .is_none_or(|name| traces.top.iter().any(|top| top == name))
    };
    while !parent.is_empty() && !was_there(parent) {
        match client.delete(parent, None).await {
            // another run may use it
            Ok(()) | Err(Error::NoNode | Error::NotEmpty) => {}
            Err(error) => return Err(format!("{parent}: {error}")),
        }
        parent = parent.rsplit_once('/').map_or("", |(above, _)| above);
    }
    Ok(removed)
}
