//! The session of a client with a simulated ensemble ([`ZkRoutes`]), as `harness_workloads::zk::ZkServers` is one on the `zookeeper-client`
//! crate; the steps of the crate itself are in `engine`. Names are of workloads `zk/client_session.rs`.
//!
//! The lock that comes with the crate is not simulated: `zk-curator` runs on real servers only.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::zk::{
    CALL_SHARE, ConnectionState, ConnectionStatus, WatchEvent, ZkConnect, ZkFailure, ZkSession, ZkWatch, Znode,
};
use harness_workloads::{RecipeHost, SessionError};
use tokio::sync::{oneshot, watch};

use super::calls::{Answered, CallError, CallResult, ClientRequest, SharedQueue};
use super::engine::Engine;
use super::ensemble::SimulatedZk;
use super::request::{ZkAnswer, ZkCall, ZkCode, ZkStat};
use crate::network::SimulatedLink;
use crate::world::{SimulatedProcess, World, first_of};

/// The way of one client to all servers: one link to each.
pub struct ZkRoutes {
    zk: SimulatedZk,
    links: Vec<SimulatedLink>,
    host: Rc<dyn RecipeHost>,
    lease: Duration,
}

impl ZkRoutes {
    /// Makes the routes. `links` has one link for each server of `zk`, in their order; sessions run in `process`.
    pub fn new(zk: SimulatedZk, links: Vec<SimulatedLink>, process: SimulatedProcess, lease: Duration) -> Self {
        ZkRoutes {
            zk,
            links,
            host: process.host(),
            lease,
        }
    }
}

#[async_trait(?Send)]
impl ZkConnect for ZkRoutes {
    async fn connect(&self) -> Result<Rc<dyn ZkSession>, SessionError> {
        let mut engine = Engine::new(self.zk, self.links.clone(), self.host.clone(), self.lease);
        let world = self.zk.0.world();
        let connection = match first_of(engine.begin(), world.sleep(self.lease)).await {
            Some(Some(connection)) => connection,
            Some(None) => return Err(SessionError::Definite("no session: timed out".into())),
            None => {
                let ms = self.lease.as_millis();
                return Err(SessionError::Definite(format!("no session within {ms} ms")));
            }
        };
        let (id, timeout) = (engine.session, engine.timeout);
        let (queue, status) = (engine.queue.clone(), engine.status.subscribe());
        self.host.spawn(Box::pin(engine.serve(connection))).detach();
        Ok(Rc::new(EnsembleSession {
            id,
            timeout,
            queue,
            status,
            world,
        }))
    }
}

struct EnsembleSession {
    id: i64,
    timeout: Duration,
    queue: Rc<RefCell<SharedQueue>>,
    status: watch::Receiver<ConnectionStatus>,
    world: World,
}

impl Drop for EnsembleSession {
    /// The crate closes the session when its last client is dropped.
    fn drop(&mut self) {
        SharedQueue::close(&self.queue);
    }
}

/// Returns the failure of a call; see workloads `failure`.
fn failure(what: &str, error: CallError) -> ZkFailure {
    let code = match error {
        CallError::Over => return ZkFailure::Other(SessionError::Lost(format!("{what}: session expired"))),
        CallError::ConnectionLoss => {
            return ZkFailure::Other(SessionError::Indefinite(format!("{what}: connection loss")));
        }
        CallError::Code(code) => code,
    };
    let words = format!("{what}: {code:?}");
    match code {
        ZkCode::NoNode => ZkFailure::NoNode(words),
        ZkCode::NodeExists => ZkFailure::NodeExists(words),
        _ => ZkFailure::Other(SessionError::Definite(words)),
    }
}

impl EnsembleSession {
    /// Asks within the limit of one call. A caller that gives up leaves the request to be sent.
    async fn ask(&self, what: &str, work: impl Future<Output = CallResult>) -> Result<Answered, ZkFailure> {
        let limit = self.timeout * CALL_SHARE / 10;
        match first_of(work, self.world.sleep(limit)).await {
            Some(answer) => answer.map_err(|error| failure(what, error)),
            None => Err(ZkFailure::unanswered(what, limit)),
        }
    }

    /// Sends one request at once.
    async fn send(&self, call: ZkCall) -> CallResult {
        if self.queue.borrow().is_over || self.queue.borrow().is_closed {
            return Err(CallError::Over);
        }
        let (sender, answer) = oneshot::channel();
        SharedQueue::push(&self.queue, ClientRequest::Call(call, sender));
        answer.await.unwrap_or(Err(CallError::Over))
    }

    async fn make(&self, path: &str, ephemeral: bool, sequential: bool) -> CallResult {
        let path = path.to_owned();
        self.send(ZkCall::Create {
            path,
            ephemeral,
            sequential,
        })
        .await
    }

    /// Makes a node that stays, and those above it: `client/mod.rs:399` of the crate, `mkdir_internally`.
    async fn mkdir(&self, path: &str) -> CallResult {
        let mut end = path.len();
        loop {
            match self.make(&path[..end], false, false).await {
                Ok(_) | Err(CallError::Code(ZkCode::NodeExists)) if end >= path.len() => {
                    return Ok((ZkAnswer::Done, None));
                }
                Ok(_) | Err(CallError::Code(ZkCode::NodeExists)) => {
                    end = path[end + 1..].find('/').map_or(path.len(), |next| end + 1 + next);
                }
                Err(CallError::Code(ZkCode::NoNode)) => match path[..end].rfind('/') {
                    Some(place) if place > 0 => end = place,
                    _ => return Err(CallError::Code(ZkCode::NoNode)),
                },
                Err(error) => return Err(error),
            }
        }
    }

    fn as_watch(&self, path: &str, (id, event): (u64, oneshot::Receiver<WatchEvent>)) -> ZkWatch {
        let mut removal = WatchRemoval {
            queue: Rc::downgrade(&self.queue),
            watch: Some((path.to_owned(), id)),
        };
        Box::pin(async move {
            let event = event.await.unwrap_or(WatchEvent::SessionOver);
            // as a whole, so that it is moved in here
            removal.is_over();
            event
        })
    }
}

fn node(path: String, stat: ZkStat) -> Znode {
    Znode {
        path,
        czxid: stat.czxid,
        owner: stat.owner,
    }
}

/// Takes a watch back when its future is dropped before the event: `session/watch.rs:91` of the crate.
struct WatchRemoval {
    queue: Weak<RefCell<SharedQueue>>,
    watch: Option<(String, u64)>,
}

impl WatchRemoval {
    /// Notes that the event has come.
    fn is_over(&mut self) {
        self.watch = None;
    }
}

impl Drop for WatchRemoval {
    fn drop(&mut self) {
        if let Some((queue, (path, id))) = self.queue.upgrade().zip(self.watch.take()) {
            SharedQueue::push(&queue, ClientRequest::RemoveWatch(path, id));
        }
    }
}

#[async_trait(?Send)]
impl ZkSession for EnsembleSession {
    fn id(&self) -> i64 {
        self.id
    }

    fn timeout(&self) -> Duration {
        self.timeout
    }

    fn connection(&self) -> watch::Receiver<ConnectionStatus> {
        self.status.clone()
    }

    async fn create_one(&self, path: &str, sequential: bool) -> Result<Znode, ZkFailure> {
        match self.ask("create", self.make(path, true, sequential)).await? {
            (ZkAnswer::Created { path, stat }, _) => Ok(node(path, stat)),
            // the session ended at the same moment
            _ => Err(failure("create", CallError::Over)),
        }
    }

    async fn make_parents(&self, path: &str) -> Result<(), ZkFailure> {
        self.ask("mkdir", self.mkdir(path)).await?;
        Ok(())
    }

    async fn list(&self, path: &str, watches: bool) -> Result<(Vec<String>, Option<ZkWatch>), ZkFailure> {
        let call = self.send(ZkCall::GetChildren {
            path: path.to_owned(),
            watch: watches,
        });
        let (answer, watch) = self.ask("list", call).await?;
        let names = match answer {
            ZkAnswer::Children(names) => names,
            _ => Vec::new(),
        };
        Ok((names, watch.map(|watch| self.as_watch(path, watch))))
    }

    async fn stat(&self, path: &str, watches: bool) -> Result<(Option<Znode>, Option<ZkWatch>), ZkFailure> {
        let call = self.send(ZkCall::Exists {
            path: path.to_owned(),
            watch: watches,
        });
        let (answer, watch) = self.ask("exists", call).await?;
        let found = match answer {
            ZkAnswer::Stat(stat) => Some(node(path.to_owned(), stat)),
            _ => None,
        };
        Ok((found, watch.map(|watch| self.as_watch(path, watch))))
    }

    async fn remove(&self, path: &str) -> Result<(), ZkFailure> {
        let path = path.to_owned();
        self.ask("delete", self.send(ZkCall::Delete { path })).await?;
        Ok(())
    }

    async fn sync(&self, path: &str) -> Result<(), SessionError> {
        let path = path.to_owned();
        self.ask("sync", self.send(ZkCall::Sync { path })).await?;
        Ok(())
    }

    async fn library_lock(&self, _parent: &str, _wait: Duration) -> Result<Option<String>, SessionError> {
        Err(SessionError::Definite(
            "the lock of the zookeeper-client crate cannot be simulated: run zk-curator on real servers".into(),
        ))
    }

    async fn close(&self) {
        SharedQueue::close(&self.queue);
        let mut status = self.status.clone();
        let closed = status.wait_for(|status| status.state == ConnectionState::Expired);
        let _ = first_of(closed, self.world.sleep(self.timeout * CALL_SHARE / 10)).await;
    }
}
