//! Watches on real ZooKeeper servers for the observer ([`connecting`]): a persistent recursive watch, and the leader's list of
//! living sessions. These few requests use ZooKeeper's own protocol, over streams of any kind: the client library uses sockets
//! and timers of this machine, which a world does not have.
//!
//! Records: <https://github.com/apache/zookeeper/blob/branch-3.8/zookeeper-jute/src/main/resources/zookeeper.jute>

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use harness_workloads::Login;
use harness_workloads::zk::owner_name;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::ensemble::{ChangedNode, ConnectEnsemble, NodeChange, NodeOwner, NodeQueries, OpenedEnsemble};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::Unasked;
use crate::clock::{GroundClock, RunningTask};
use crate::cluster::{BoxFuture, ByteStream, EndpointsReceiver, ServerAccess, ServerTurns, first_answer};
use crate::limits::PROBE;

/// The node of proofs, which is written again and again: only a majority accepts a write, and the server that answers one has
/// reported all changes before it. A server that is cut off from the others would also answer a read.
const PROOF_PATH: &str = "/harness-observer";
/// The observer's session outlives any fault.
const SESSION: Duration = Duration::from_secs(30);
/// The time between two proofs.
const BEAT: Duration = Duration::from_millis(50);
/// The time between two proofs in virtual time: an election takes several times as long, and each is a write on every server.
const BEAT_VIRTUAL: Duration = Duration::from_millis(200);
/// The time of another server's list of sessions after that of a leader: a paused server sends none.
const OTHERS: Duration = Duration::from_millis(100);
/// The time of one server to begin a session in virtual time, where none is busy: one without a quorum never does.
const BEGIN_VIRTUAL: Duration = Duration::from_millis(400);

/// Numbers of requests and errors, `ZooDefs.java` and `KeeperException.java`.
pub(super) mod wire {
    pub const CREATE: i32 = 1;
    pub const EXISTS: i32 = 3;
    pub const GET_DATA: i32 = 4;
    pub const SET_DATA: i32 = 5;
    pub const GET_CHILDREN: i32 = 8;
    pub const SYNC: i32 = 9;
    pub const RECONFIGURE: i32 = 16;
    pub const AUTH: i32 = 100;
    pub const ADD_WATCH: i32 = 106;
    pub const NO_NODE: i32 = -101;
    pub const NO_AUTH: i32 = -102;
    pub const NODE_EXISTS: i32 = -110;
    /// The number of a message without a request.
    pub const NOTIFICATION: i32 = -1;
    /// A watch of a node and all nodes below it, until it is removed.
    pub const PERSISTENT_RECURSIVE: i32 = 1;
    pub const ALL_PERMISSIONS: i32 = 31;
    pub const ANY_VERSION: i32 = -1;
}

/// Connects to ZooKeeper servers with locks under these keys.
pub fn connecting(keys: &LockKeys) -> ConnectEnsemble {
    let proof = match &keys.mark {
        None => PROOF_PATH.to_owned(),
        // beside the locks, where all entries of the run are removed
        Some(_) => format!("{}observer", keys.pattern.before()),
    };
    let turns = ServerTurns::default();
    Box::new(move |endpoints, root| {
        let endpoints = endpoints.clone();
        let (root, proof) = (root.to_owned(), proof.clone());
        let servers = turns.in_turn(endpoints.borrow().accesses());
        let is_virtual = endpoints.borrow().clock().is_virtual();
        let begin = if is_virtual { BEGIN_VIRTUAL } else { PROBE };
        Box::pin(async move {
            let opening = |server| open_at(server, (&root, &proof));
            let (session, changes) = first_answer(servers, begin, opening).await?;
            Ok(OpenedEnsemble {
                queries: Arc::new(DialledQueries {
                    session,
                    endpoints,
                    proof,
                }),
                changes: changes.into(),
            })
        })
    })
}

/// An entry of ZooKeeper's access lists: a scheme and a user.
type NodeAccess = (&'static str, &'static str);

const EVERYONE: NodeAccess = ("world", "anyone");

async fn open_at(
    server: ServerAccess,
    (root, proof): (&str, &str),
) -> Result<(Arc<DialledSession>, mpsc::UnboundedReceiver<ChangedNode>), String> {
    let (session, changes) = DialledSession::begin(server.connect().await?, server.clock()).await?;
    let owner = match server.login() {
        None => EVERYONE,
        Some(login) => session.log_in(login).await?,
    };
    session.make(root, owner).await?;
    session.make(proof, owner).await?;
    let watched = WrittenRecord::default().text(root).int(wire::PERSISTENT_RECURSIVE);
    session.ask(wire::ADD_WATCH, watched).await?.accepted()?;
    Ok((session, changes))
}

struct DialledQueries {
    session: Arc<DialledSession>,
    endpoints: EndpointsReceiver,
    proof: String,
}

impl NodeQueries for DialledQueries {
    fn children(&self, path: &str) -> BoxFuture<'static, Option<Vec<String>>> {
        let (session, path) = (Arc::clone(&self.session), path.to_owned());
        Box::pin(async move {
            let answer = session.ask(wire::GET_CHILDREN, WrittenRecord::default().text(&path).flag(false));
            let mut answer = answer.await.ok()?;
            if answer.error != 0 {
                return Some(Vec::new());
            }
            let many = answer.int()?;
            (0..many).map(|_| answer.text()).collect::<Option<Vec<String>>>()
        })
    }

    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>> {
        let (session, path) = (Arc::clone(&self.session), path.to_owned());
        Box::pin(async move {
            let answer = session.ask(wire::EXISTS, WrittenRecord::default().text(&path).flag(false));
            let mut stat = answer.await.ok().filter(|answer| answer.error == 0)?;
            let czxid = stat.long()?;
            // mzxid, ctime and mtime, then three versions
            let (_, _, _) = (stat.long()?, stat.long()?, stat.long()?);
            let (_, _, _) = (stat.int()?, stat.int()?, stat.int()?);
            let session = stat.long()?;
            Some(NodeOwner { session, czxid })
        })
    }

    fn beat(&self) -> Duration {
        if self.endpoints.borrow().clock().is_virtual() {
            BEAT_VIRTUAL
        } else {
            BEAT
        }
    }

    fn proves(&self) -> BoxFuture<'static, bool> {
        let (session, proof) = (Arc::clone(&self.session), self.proof.clone());
        Box::pin(async move {
            let written = WrittenRecord::default().text(&proof).bytes(b"").int(wire::ANY_VERSION);
            let answer = session.ask(wire::SET_DATA, written).await;
            answer.is_ok_and(|answer| answer.error == 0)
        })
    }

    fn why(&self, session: &str) -> BoxFuture<'static, Unasked> {
        let known = self.endpoints.borrow().clone();
        Box::pin(why_over(known.accesses(), known.clock(), session.to_owned()))
    }
}

/// Returns the cause of the end of a session's node, by the lists of the servers that take themselves for the leader. One that was
/// paused or cut off still lists the sessions of its own time, until it learns of the election: where two lists differ, the cause
/// is not known.
async fn why_over(servers: Vec<ServerAccess>, clock: GroundClock, session: String) -> Unasked {
    // a node without a session ends by a request alone
    if session == owner_name(0) {
        return Unasked::Deleted;
    }
    let mut dumps = clock.tasks();
    for server in servers {
        dumps.spawn(async move { clock.within(PROBE, dump(&server)).await });
    }
    let mut known = None;
    loop {
        let wait = if known.is_some() { OTHERS } else { 2 * PROBE };
        let Some(dump) = clock.within_real(wait, dumps.next()).await.flatten() else {
            return known.unwrap_or(Unasked::Unknown);
        };
        let why = dump.and_then(|dump| session_is_over(&dump.ok()?, &session));
        if known.is_some() && why.is_some() && known != why {
            return Unasked::Unknown;
        }
        known = known.or(why);
    }
}

/// Returns the cause of the end of this session's node, by a server's list of sessions: only the leader has all of them.
fn session_is_over(dump: &str, session: &str) -> Option<Unasked> {
    let alive = || dump.lines().any(|line| line.trim() == session);
    let knows = dump.contains("Session Sets");
    knows.then(|| if alive() { Unasked::Deleted } else { Unasked::Expired })
}

/// Returns a leader's list of living sessions.
async fn dump(server: &ServerAccess) -> Result<String, String> {
    let mut stream = server.connect().await?;
    let failed = |error: std::io::Error| error.to_string();
    stream.write_all(b"dump").await.map_err(failed)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.map_err(failed)?;
    Ok(text)
}

/// A session over one connection. It ends with the connection.
pub(super) struct DialledSession {
    writing: tokio::sync::Mutex<WriteHalf<Box<dyn ByteStream>>>,
    asked: Arc<Mutex<OpenQuestions>>,
    next: AtomicI32,
    _reading: RunningTask,
}

/// The receivers of answers, by the number of the request; `None` after the connection ended.
type OpenQuestions = Option<BTreeMap<i32, oneshot::Sender<AnsweredRecord>>>;

fn lock(asked: &Mutex<OpenQuestions>) -> MutexGuard<'_, OpenQuestions> {
    asked.lock().expect("no one panics while looking for who asked")
}

impl DialledSession {
    pub(super) async fn begin(
        stream: Box<dyn ByteStream>,
        clock: GroundClock,
    ) -> Result<(Arc<Self>, mpsc::UnboundedReceiver<ChangedNode>), String> {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let session = WrittenRecord::default()
            .int(0)
            .long(0)
            .int(SESSION.as_millis() as i32)
            .long(0)
            .bytes(&[0; 16])
            .flag(false);
        let sent = writing.write_all(&session.framed()).await;
        sent.map_err(|error| error.to_string())?;
        let mut answer = frame(&mut reading).await.ok_or("it closed the connection")?;
        let granted = answer.int().and(answer.int()).unwrap_or_default();
        if granted <= 0 {
            return Err("it begins no session".to_owned());
        }
        let (changes, heard) = mpsc::unbounded_channel();
        let asked = Arc::new(Mutex::new(Some(BTreeMap::new())));
        let reading = clock.spawn(read(reading, Arc::clone(&asked), changes));
        let session = Self {
            writing: tokio::sync::Mutex::new(writing),
            asked,
            next: AtomicI32::new(1),
            _reading: reading,
        };
        Ok((Arc::new(session), heard))
    }

    /// Sends a request; the answer may have an error of the server.
    pub(super) async fn ask(&self, kind: i32, body: WrittenRecord) -> Result<AnsweredRecord, String> {
        const GONE: &str = "the connection is over";
        let number = self.next.fetch_add(1, Relaxed);
        let (answers, answer) = oneshot::channel();
        lock(&self.asked).as_mut().ok_or(GONE)?.insert(number, answers);
        let mut request = WrittenRecord::default().int(number).int(kind);
        request.0.extend(body.0);
        let sent = self.writing.lock().await.write_all(&request.framed()).await;
        sent.map_err(|error| error.to_string())?;
        answer.await.map_err(|_| GONE.to_owned())
    }

    /// Logs in; returns the access list of the nodes that it makes from then on.
    pub(super) async fn log_in(&self, login: &Login) -> Result<NodeAccess, String> {
        let digest = WrittenRecord::default().int(0).text("digest").text(&login.digest());
        self.ask(wire::AUTH, digest).await?.accepted()?;
        // the owner is the session's login
        Ok(("auth", ""))
    }

    /// Makes a node, and those of its parents that are missing: a login may have no rights above them.
    async fn make(&self, path: &str, (scheme, who): NodeAccess) -> Result<(), String> {
        let mut ends = vec![path.len()];
        while let Some(end) = ends.last().copied() {
            let node = WrittenRecord::default().text(&path[..end]).bytes(b"");
            let node = node.int(1).int(wire::ALL_PERMISSIONS).text(scheme).text(who).int(0);
            let answer = self.ask(wire::CREATE, node).await?;
            match (answer.error, path[..end].rfind('/')) {
                (wire::NO_NODE, Some(above @ 1..)) => {
                    ends.push(above);
                    continue;
                }
                (wire::NODE_EXISTS, _) => {}
                _ => answer.accepted()?,
            }
            ends.pop();
        }
        Ok(())
    }
}

/// Reads what the server sends, until the connection ends.
async fn read(
    mut stream: ReadHalf<Box<dyn ByteStream>>,
    asked: Arc<Mutex<OpenQuestions>>,
    changes: mpsc::UnboundedSender<ChangedNode>,
) {
    while let Some(mut answer) = frame(&mut stream).await {
        let (Some(number), Some(_), Some(error)) = (answer.int(), answer.long(), answer.int()) else {
            break;
        };
        answer.error = error;
        if number != wire::NOTIFICATION {
            let asked = lock(&asked).as_mut().and_then(|asked| asked.remove(&number));
            // the requester may have stopped waiting
            let _ = asked.map(|asked| asked.send(answer));
            continue;
        }
        let (Some(kind), Some(_), Some(path)) = (answer.int(), answer.int(), answer.text()) else {
            break;
        };
        let change = match kind {
            1 => NodeChange::Created,
            2 => NodeChange::Deleted,
            _ => NodeChange::Other,
        };
        let _ = changes.send((change, path));
    }
    lock(&asked).take();
}

/// Reads the next record after its length, or `None` if the connection is over.
async fn frame(stream: &mut ReadHalf<Box<dyn ByteStream>>) -> Option<AnsweredRecord> {
    let length = stream.read_i32().await.ok()?;
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(AnsweredRecord {
        bytes,
        read: 0,
        error: 0,
    })
}

/// A record to write.
#[derive(Default)]
pub(super) struct WrittenRecord(Vec<u8>);

impl WrittenRecord {
    pub(super) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut whole = self.int(bytes.len() as i32);
        whole.0.extend(bytes);
        whole
    }

    pub(super) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn framed(self) -> Vec<u8> {
        Self::default().bytes(&self.0).0
    }
}

/// A record to read.
pub(super) struct AnsweredRecord {
    bytes: Vec<u8>,
    read: usize,
    /// The error of the server, or 0.
    pub(super) error: i32,
}

impl AnsweredRecord {
    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let taken = self.bytes.get(self.read..self.read + length)?;
        self.read += length;
        Some(taken)
    }

    fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.int()?).ok()?;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    pub(super) fn accepted(self) -> Result<(), String> {
        match self.error {
            0 => Ok(()),
            wire::NO_AUTH => Err("not authorized".to_owned()),
            error => Err(format!("it answers with error {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use tokio::net::TcpListener;

    use super::*;
    use crate::cluster::Endpoints;

    /// Starts a server with this list of sessions.
    async fn server(dump: &'static str) -> SocketAddr {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                // a client that knows enough may be gone
                let _ = stream.read_exact(&mut [0; 4]).await;
                let _ = stream.write_all(dump.as_bytes()).await;
            }
        });
        address
    }

    #[tokio::test]
    async fn the_cause_of_an_end_is_not_known_where_two_leaders_list_other_sessions() {
        let follower = server("SessionTracker dump:\nephemeral nodes dump:\n").await;
        let old = server("SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at x:\n\t0x1\n").await;
        let new = server("SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at x:\n\t0x2\n").await;
        let why = async |servers: &[SocketAddr], session: &str| {
            let known = Endpoints::new(servers.to_vec(), None);
            why_over(known.accesses(), known.clock(), session.to_owned()).await
        };
        assert_eq!(why(&[follower, new], "0x2").await, Unasked::Deleted);
        assert_eq!(why(&[new, follower], "0x1").await, Unasked::Expired);
        assert_eq!(why(&[old, follower, new], "0x1").await, Unasked::Unknown);
        assert_eq!(why(&[new, follower, old], "0x2").await, Unasked::Unknown);
        assert_eq!(why(&[old, follower, new], "0x3").await, Unasked::Expired);
        assert_eq!(why(&[follower], "0x1").await, Unasked::Unknown);
        assert_eq!(why(&[new], "0x0").await, Unasked::Deleted, "no session has this node");
    }
}
