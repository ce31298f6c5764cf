//! The task of a client session ([`Engine`]), step by step as `Session` of the `zookeeper-client` crate 0.11.2 (`session/mod.rs`; lines are
//! of that file unless another one is named).
//!
//! Connected, it sends its requests, and a ping after three ticks without sending; after eight ticks without hearing anything the
//! connection is given up, and every call that was sent is answered with an error. It connects again, server after server in a drawn order,
//! until 7/5 of the session's time have passed since it last heard. Calls that come meanwhile wait, and are sent then although the caller
//! may have given up.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use harness_workloads::zk::{ConnectionState, ConnectionStatus};
use harness_workloads::{RecipeHost, within};
use tokio::sync::{oneshot, watch};

use super::calls::{CallError, CallResult, ClientRequest, ReadKind, SharedQueue, WaitingCall};
use super::ensemble::SimulatedZk;
use super::request::{ZkAnswer, ZkCall, ZkCode, ZkMessage, ZkRequest, ZkWatchKind};
use super::tick_timer::TickTimer;
use super::watches::ClientWatches;
use crate::mutants::is_mutant;
use crate::network::{ClientSide, SimulatedLink, keep_waker};
use crate::world::nanoseconds;

/// The time for a server, which is eight ticks, of the session's: `CONNECTION_SHARE`, workloads `zk/client_session.rs`.
const CONNECTION_SHARE: u32 = 4;
/// Ticks in the time for a server: line 389, `calc_tick_timeout`.
const TICKS: u32 = 8;
/// A ping is sent after this many ticks without sending: line 418, `reset_timeout`.
const PING_TICKS: u32 = 3;
/// A session that hears nothing is given up after this share of its time: line 421.
const EXPIRED: (u32, u32) = (7, 5);
/// Between rounds over all servers: `endpoint.rs:229`, `timeout`.
const ROUND_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(1000);

type ZkConnection = ClientSide<ZkRequest, ZkMessage>;

/// The reason for which a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServeEnd {
    Lost,
    Expired,
    Closed,
}

/// An input of the task.
enum Input {
    Message(ZkMessage),
    Ended,
    Request(ClientRequest),
    /// The session was closed.
    Close,
    /// The tick that was due at that time.
    Tick(Duration),
}

pub(super) struct Engine {
    zk: SimulatedZk,
    host: Rc<dyn RecipeHost>,
    links: Vec<SimulatedLink>,
    /// The order in which servers are tried, and the place in it.
    order: Vec<usize>,
    next: usize,
    start: usize,
    pub session: i64,
    pub timeout: Duration,
    tick: Duration,
    last_zxid: i64,
    last_recv: Duration,
    last_send: Duration,
    ping: Option<u64>,
    count: u64,
    /// Calls without an answer, by number; there are few.
    waiting: Vec<(u64, WaitingCall, oneshot::Sender<CallResult>)>,
    watches: ClientWatches,
    pub queue: Rc<RefCell<SharedQueue>>,
    pub status: watch::Sender<ConnectionStatus>,
    is_connected: bool,
}

impl Engine {
    pub fn new(zk: SimulatedZk, links: Vec<SimulatedLink>, host: Rc<dyn RecipeHost>, lease: Duration) -> Self {
        let now = host.now();
        let mut engine = Engine {
            zk,
            order: (0..links.len()).collect(),
            links,
            next: 0,
            start: 0,
            session: 0,
            timeout: lease,
            tick: Self::tick_of(lease),
            last_zxid: 0,
            last_recv: now,
            last_send: now,
            ping: None,
            count: 0,
            waiting: Vec::new(),
            watches: ClientWatches::default(),
            queue: Rc::default(),
            status: watch::channel(ConnectionStatus::default()).0,
            is_connected: false,
            host,
        };
        engine.shuffle();
        engine
    }

    fn tick_of(lease: Duration) -> Duration {
        (lease * CONNECTION_SHARE / 10 / TICKS).max(Duration::from_millis(1))
    }

    /// Shuffles the order of the servers: `endpoint.rs:203`, `reset`.
    fn shuffle(&mut self) {
        (self.next, self.start) = (0, 0);
        for place in (1..self.order.len()).rev() {
            let other = (self.host.random() % (place as u64 + 1)) as usize;
            self.order.swap(place, other);
        }
    }

    /// Runs until the session is over: line 208, `serve`.
    pub async fn serve(mut self, mut connection: ZkConnection) {
        self.shuffle();
        // the first announcement counts as a break: `follow`, workloads `zk/client_session.rs`
        self.status.send_modify(|status| status.breaks = 1);
        loop {
            let end = self.serve_connection(&connection).await;
            self.fail_calls();
            match end {
                ServeEnd::Lost => self.announce(ConnectionState::Disconnected),
                ServeEnd::Expired | ServeEnd::Closed => break,
            }
            drop(connection);
            match self.begin().await {
                Some(new) => connection = new,
                None => break,
            }
            self.shuffle();
        }
        self.end();
    }

    /// Ends the session: every call is answered so.
    fn end(&mut self) {
        self.watches.end();
        let left = {
            let mut queue = self.queue.borrow_mut();
            queue.is_over = true;
            std::mem::take(&mut queue.requests)
        };
        self.announce(ConnectionState::Expired);
        for request in left {
            if let ClientRequest::Call(_, answer) = request {
                let _ = answer.send(Err(CallError::Over));
            }
        }
    }

    fn announce(&mut self, state: ConnectionState) {
        let broke = self.is_connected || state == ConnectionState::Expired;
        self.is_connected = state == ConnectionState::Connected;
        self.status.send_if_modified(|status| {
            let changed = status.state != state;
            if changed {
                status.breaks += u64::from(broke);
                status.state = state;
            }
            changed
        });
    }

    /// Answers every call that was sent with an error: `depot.rs:75`, `error`.
    fn fail_calls(&mut self) {
        self.watches.disconnected();
        for (_, _, answer) in std::mem::take(&mut self.waiting) {
            let _ = answer.send(Err(CallError::ConnectionLoss));
        }
    }

    /// Connects, server after server, until the session's time is over: line 681, `start`. `None`: the session is over.
    pub async fn begin(&mut self) -> Option<ZkConnection> {
        self.start = self.next;
        let limit = if self.session == 0 {
            self.timeout
        } else {
            self.given_up_after()
        };
        let deadline = self.last_recv + limit;
        loop {
            let (server, pause) = self.next_server();
            let left = deadline.saturating_sub(self.host.now());
            if !pause.is_zero() {
                self.host.sleep(pause.min(left)).await;
            }
            match self.begin_with(server, deadline).await {
                Ok(connection) => return Some(connection),
                Err(ServeEnd::Expired | ServeEnd::Closed) => return None,
                Err(ServeEnd::Lost) => {}
            }
            if self.host.now() >= deadline {
                return None;
            }
        }
    }

    fn given_up_after(&self) -> Duration {
        if is_mutant("zk: a client believes without an end") {
            return self.timeout * 10;
        }
        self.timeout * EXPIRED.0 / EXPIRED.1
    }

    /// Returns the next server and the pause before it: `endpoint.rs:222`, `next_with_delay`.
    fn next_server(&mut self) -> (usize, Duration) {
        let size = self.order.len();
        let (round, place) = ((self.next - self.start) / size, (self.next - self.start) % size);
        self.next += 1;
        let jitter = |below: u64| Duration::from_millis(self.host.random() % below);
        let pause = if round == 0 {
            Duration::ZERO
        } else if place == 0 {
            let base = LONGEST_PAUSE.min(ROUND_PAUSE * size as u32);
            base.saturating_mul(2_u32.saturating_pow(round as u32 - 1)) + jitter(100)
        } else {
            ROUND_PAUSE * place as u32 / 2 + jitter(50)
        };
        (self.order[place], pause)
    }

    /// Line 634, `start_once`.
    async fn begin_with(&mut self, server: usize, deadline: Duration) -> Result<ZkConnection, ServeEnd> {
        let now = self.host.now();
        let limit = (self.tick * TICKS).min(deadline.saturating_sub(now));
        let link = self.links[server];
        let connecting = link.connect(self.zk.address_of(server));
        let connection = match within(&*self.host, limit, connecting).await {
            Some(Ok(connection)) => connection,
            Some(Err(_)) | None => return Err(ServeEnd::Lost),
        };
        let timeout = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let connect = ZkCall::Connect {
            session: self.session,
            timeout,
            last_zxid: self.last_zxid,
        };
        let opened = self.send(&connection, connect);
        let watches = self.watches.all();
        let last_zxid = self.last_zxid;
        let set = (!watches.is_empty()).then(|| self.send(&connection, ZkCall::SetWatches { last_zxid, watches }));
        let now = self.host.now();
        (self.last_send, self.last_recv, self.ping) = (now, now, None);
        self.handshake(&connection, opened, set).await?;
        Ok(connection)
    }

    /// Waits until the session is there and everything is answered: line 482, `serve_connecting`.
    async fn handshake(
        &mut self,
        connection: &ZkConnection,
        opened: u64,
        mut set: Option<u64>,
    ) -> Result<(), ServeEnd> {
        let mut next_tick = self.host.now() + self.tick;
        let mut timer = TickTimer::default();
        let mut is_open = false;
        while !(is_open && self.ping.is_none() && set.is_none()) {
            let tick = self.tick_from(next_tick, self.last_recv + self.tick * TICKS);
            match self.input(connection, (tick, &mut timer), false).await {
                Input::Message(ZkMessage::Reply { number, answer, .. }) if number == opened => {
                    let ZkAnswer::Connected { session, timeout } = answer else {
                        return Err(ServeEnd::Lost);
                    };
                    if session == 0 {
                        return Err(ServeEnd::Expired);
                    }
                    self.session = session;
                    self.timeout = Duration::from_millis(timeout);
                    self.announce(ConnectionState::Connected);
                    is_open = true;
                    self.send_ping(connection);
                }
                Input::Message(ZkMessage::Reply { number, .. }) if set == Some(number) => set = None,
                Input::Message(message) => self.take(connection, message)?,
                Input::Ended => return Err(ServeEnd::Lost),
                Input::Tick(at) => {
                    next_tick = at + self.tick;
                    if at >= self.last_recv + self.tick * TICKS {
                        return Err(ServeEnd::Lost);
                    }
                    continue;
                }
                Input::Request(_) | Input::Close => {}
            }
            self.last_recv = self.host.now();
        }
        Ok(())
    }

    /// Line 521, `serve_session`.
    async fn serve_connection(&mut self, connection: &ZkConnection) -> ServeEnd {
        let mut next_tick = self.host.now() + self.tick;
        let mut timer = TickTimer::default();
        let mut is_closing = false;
        loop {
            if is_closing && self.waiting.is_empty() && self.ping.is_none() {
                return ServeEnd::Closed;
            }
            let tick = self.tick_from(next_tick, self.due());
            match self.input(connection, (tick, &mut timer), !is_closing).await {
                Input::Message(message) => {
                    if let Err(end) = self.take(connection, message) {
                        return end;
                    }
                    self.last_recv = self.host.now();
                }
                Input::Ended => return ServeEnd::Lost,
                Input::Request(request) => self.request(connection, request),
                Input::Close => {
                    is_closing = true;
                    let (answer, _) = oneshot::channel();
                    self.call(connection, ZkCall::CloseSession, answer);
                }
                Input::Tick(at) => {
                    next_tick = at + self.tick;
                    if at >= self.last_recv + self.tick * TICKS {
                        return ServeEnd::Lost;
                    }
                    if self.ping.is_none() && at >= self.last_send + self.ping_after() {
                        self.send_ping(connection);
                    }
                }
            }
        }
    }

    fn ping_after(&self) -> Duration {
        if is_mutant("zk: a client does not ping") {
            return self.timeout * 10;
        }
        (self.tick * PING_TICKS).min(Duration::from_secs(10))
    }

    /// Returns the time at which a connected session has something to do that nobody asks for.
    fn due(&self) -> Duration {
        let silent = self.last_recv + self.tick * TICKS;
        match self.ping {
            Some(_) => silent,
            None => silent.min(self.last_send + self.ping_after()),
        }
    }

    /// Returns the first tick that is due by then, of those from `next` on: the ticks before it find nothing to do.
    fn tick_from(&self, next: Duration, due: Duration) -> Duration {
        let ticks = nanoseconds(due.saturating_sub(next)).div_ceil(nanoseconds(self.tick));
        next + self.tick * u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    async fn input(
        &self,
        connection: &ZkConnection,
        (tick, timer): (Duration, &mut TickTimer),
        takes_requests: bool,
    ) -> Input {
        poll_fn(|task| {
            if let Poll::Ready(received) = connection.poll_receive(task) {
                return Poll::Ready(received.map_or(Input::Ended, Input::Message));
            }
            if takes_requests {
                let mut queue = self.queue.borrow_mut();
                if let Some(request) = queue.requests.pop_front() {
                    return Poll::Ready(Input::Request(request));
                }
                if queue.is_closed {
                    return Poll::Ready(Input::Close);
                }
                keep_waker(&mut queue.waker, task);
            }
            timer.poll(tick, &*self.host, task).map(|()| Input::Tick(tick))
        })
        .await
    }

    fn send(&mut self, connection: &ZkConnection, call: ZkCall) -> u64 {
        self.count += 1;
        let number = self.count;
        connection.send(ZkRequest { number, call });
        self.last_send = self.host.now();
        number
    }

    fn send_ping(&mut self, connection: &ZkConnection) {
        self.ping = Some(self.send(connection, ZkCall::Ping));
    }

    fn request(&mut self, connection: &ZkConnection, request: ClientRequest) {
        match request {
            ClientRequest::Call(call, answer) => self.call(connection, call, answer),
            ClientRequest::RemoveWatch(path, id) => {
                if self.watches.remove(&path, id) {
                    self.unwatch(connection, path);
                }
            }
        }
    }

    fn call(&mut self, connection: &ZkConnection, call: ZkCall, answer: oneshot::Sender<CallResult>) {
        let waiting = WaitingCall::of(&call);
        if let Some(path) = &waiting.watched {
            self.watches.asks(path);
        }
        let number = self.send(connection, call);
        self.waiting.push((number, waiting, answer));
    }

    fn unwatch(&mut self, connection: &ZkConnection, path: String) {
        let (answer, _) = oneshot::channel();
        self.call(connection, ZkCall::RemoveWatches { path }, answer);
    }

    /// Line 349, `handle_reply`.
    fn take(&mut self, connection: &ZkConnection, message: ZkMessage) -> Result<(), ServeEnd> {
        let (number, zxid, answer) = match message {
            ZkMessage::Event { kind, path } => {
                if !self.watches.notify(&path, kind) {
                    self.unwatch(connection, path);
                }
                return Ok(());
            }
            ZkMessage::Reply {
                number, zxid, answer, ..
            } => (number, zxid, answer),
        };
        if answer == ZkAnswer::Failed(ZkCode::SessionExpired) {
            return Err(ServeEnd::Expired);
        }
        if self.ping == Some(number) {
            self.ping = None;
            return Ok(());
        }
        self.last_zxid = self.last_zxid.max(zxid);
        let Some(place) = self.waiting.iter().position(|(waits, ..)| *waits == number) else {
            return Ok(());
        };
        let (_, call, waiter) = self.waiting.remove(place);
        let kind = match (call.reads, &answer) {
            (Some(ReadKind::Exists), ZkAnswer::Failed(ZkCode::NoNode)) => Some(ZkWatchKind::Exist),
            (_, ZkAnswer::Failed(_)) => None,
            (Some(ReadKind::Exists), _) => Some(ZkWatchKind::Data),
            (Some(ReadKind::Children), _) => Some(ZkWatchKind::Child),
            (None, _) => None,
        };
        let mut watch = None;
        if let Some(path) = &call.watched {
            watch = kind.map(|kind| self.watches.add(path, kind));
            if self.watches.answered(path, watch.is_some()) {
                self.unwatch(connection, path.clone());
            }
        }
        let id = watch.as_ref().map(|(id, _)| *id);
        let result = match answer {
            ZkAnswer::Failed(code) if !(code == ZkCode::NoNode && call.reads == Some(ReadKind::Exists)) => {
                Err(CallError::Code(code))
            }
            answer => Ok((answer, watch)),
        };
        // a watch that nobody takes is taken back
        if waiter.send(result).is_err()
            && let Some((path, id)) = call.watched.zip(id)
        {
            self.queue
                .borrow_mut()
                .requests
                .push_back(ClientRequest::RemoveWatch(path, id));
        }
        Ok(())
    }
}
