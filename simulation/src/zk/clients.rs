//! The requests of clients on a server of an ensemble: it answers reads, and sends writes to the leader.

use std::time::Duration;

use super::ensemble::{
    EnsembleState, LONGEST_SESSION, LOOK_AGAIN, SHORTEST_SESSION, ServedConnection, SimulatedZk, ZkServer,
};
use super::request::{ZkAnswer, ZkCall, ZkCode, ZkMessage, ZkRequest, ZkWatchKind};
use super::work::{Proposal, Work};
use crate::servers::RequestOrigin;
use crate::world::nanoseconds;

impl SimulatedZk {
    /// Takes a message of a client.
    pub(super) fn take(self, zk: &EnsembleState, server: usize, connection: u64, request: ZkRequest) {
        let heard = zk.servers[server].with_connection(connection, |served| {
            served.queue.push_back(request);
            served.session
        });
        let Some(session) = heard else { return };
        self.touch(zk, server, session);
        self.go_on(zk, server, connection);
    }

    /// Notes that the client of a session was heard.
    fn touch(self, zk: &EnsembleState, server: usize, session: i64) {
        if session == 0 {
            return;
        }
        if zk.leader.get() == Some(server) {
            return zk.expiry.borrow_mut().touch(self.clock(), session);
        }
        zk.servers[server].touched.borrow_mut().insert(session);
    }

    /// Reports to the leader, which asks every half tick, the sessions that its followers have heard.
    pub(super) fn report_touches(self) {
        let zk = self.0.get();
        for (number, server) in zk.servers.iter().enumerate() {
            if server.touched.borrow().is_empty() || !server.responds() {
                continue;
            }
            let sessions = server.touched.take();
            if let Some(leader) = zk.leader.get() {
                self.tell(&zk, number, leader, Work::Touch(sessions));
            }
        }
    }

    /// Executes what a connection has sent, up to its next write.
    pub(super) fn go_on(self, zk: &EnsembleState, server: usize, connection: u64) {
        loop {
            let next = zk.servers[server].with_connection(connection, |served| {
                let request = if served.waits { None } else { served.queue.pop_front() };
                Some((request?, served.session))
            });
            let Some((request, session)) = next.flatten() else {
                return;
            };
            let origin = RequestOrigin {
                server,
                connection,
                number: request.number,
                name: request.call.name(),
            };
            self.execute(zk, origin, session, request.call);
        }
    }

    fn execute(self, zk: &EnsembleState, origin: RequestOrigin, session: i64, call: ZkCall) {
        let own = &zk.servers[origin.server];
        let proposal = match call {
            ZkCall::Connect {
                session,
                timeout,
                last_zxid,
            } => return self.connect(zk, origin, session, timeout, last_zxid),
            ZkCall::Create {
                path,
                ephemeral,
                sequential,
            } => Proposal::Create {
                path,
                owner: if ephemeral { session } else { 0 },
                session,
                sequential,
            },
            ZkCall::Delete { path } => Proposal::Delete { path, session },
            ZkCall::CloseSession => Proposal::Close {
                session,
                expired: false,
            },
            ZkCall::Sync { .. } => return self.ask_leader(zk, origin, Work::Sync(origin)),
            read => {
                let answer = own.read(origin.connection, read);
                return own.answer(origin, own.tree.borrow().zxid(), answer);
            }
        };
        self.ask_leader(zk, origin, Work::Propose(Some(origin), proposal));
    }

    /// Sends the leader work for a request; later requests of the client wait.
    fn ask_leader(self, zk: &EnsembleState, origin: RequestOrigin, work: Work) {
        zk.servers[origin.server].with_connection(origin.connection, |served| served.waits = true);
        if let Some(leader) = zk.leader.get() {
            self.tell(zk, origin.server, leader, work);
        }
    }

    /// Answers a `sync`, as the leader: behind all that it sent to that server before (`Leader.processSync`).
    pub(super) fn sync(self, zk: &EnsembleState, server: usize, origin: RequestOrigin) {
        if zk.leader.get() != Some(server) {
            return;
        }
        let entries = zk.log.borrow().len();
        self.tell(zk, server, origin.server, Work::Synced(origin, entries));
    }

    /// Takes the leader's answer on the server that was asked to `sync`.
    pub(super) fn synced(self, zk: &EnsembleState, origin: RequestOrigin, entries: usize) {
        let own = &zk.servers[origin.server];
        if own.applied.get() < entries {
            return self.give(own, LOOK_AGAIN, Work::Synced(origin, entries));
        }
        own.answer(origin, own.tree.borrow().zxid(), ZkAnswer::Done);
        self.written(zk, origin);
    }

    /// Ends a write of a connection: later requests of its client are executed.
    pub(super) fn written(self, zk: &EnsembleState, origin: RequestOrigin) {
        zk.servers[origin.server].with_connection(origin.connection, |served| served.waits = false);
        self.go_on(zk, origin.server, origin.connection);
    }

    fn connect(self, zk: &EnsembleState, origin: RequestOrigin, session: i64, timeout: u64, last_zxid: i64) {
        let own = &zk.servers[origin.server];
        // a client must not go back in time
        if !own.serves.get() || last_zxid > own.tree.borrow().zxid() {
            return own.close(origin.connection);
        }
        let longest = (LONGEST_SESSION * zk.tick).max(nanoseconds(Duration::from_secs(60)));
        let timeout = (timeout * 1_000_000).clamp(SHORTEST_SESSION * zk.tick, longest);
        if session == 0 {
            return self.ask_leader(zk, origin, Work::Propose(Some(origin), Proposal::Open { timeout }));
        }
        // requests that the session's older connection here still carries are never read (`ZooKeeperServer.processConnectRequest`)
        own.close_session(session);
        self.ask_leader(zk, origin, Work::Validate(origin, session));
    }

    /// Takes the leader's answer whether a session may be taken up again.
    pub(super) fn reopen(self, zk: &EnsembleState, origin: RequestOrigin, session: i64, alive: bool) {
        let own = &zk.servers[origin.server];
        let timeout = zk.timeouts.borrow().get(&session).copied().unwrap_or(0) / 1_000_000;
        let answer = |session| ZkAnswer::Connected { session, timeout };
        let zxid = own.tree.borrow().zxid();
        if !alive {
            own.answer(origin, zxid, answer(0));
            return own.close(origin.connection);
        }
        own.with_connection(origin.connection, |served| {
            served.session = session;
            served.waits = false;
        });
        own.answer(origin, zxid, answer(session));
        self.touch(zk, origin.server, session);
        self.go_on(zk, origin.server, origin.connection);
    }
}

impl ZkServer {
    pub fn responds(&self) -> bool {
        self.is_running.get() && !self.process.is_stopped()
    }

    /// Answers a request from its own data.
    fn read(&self, connection: u64, call: ZkCall) -> ZkAnswer {
        let mut tree = self.tree.borrow_mut();
        match call {
            ZkCall::Exists { path, watch } => {
                if watch {
                    tree.watch(ZkWatchKind::Data, &path, connection);
                }
                let stat = tree.stat(&path);
                return stat.map_or(ZkAnswer::Failed(ZkCode::NoNode), ZkAnswer::Stat);
            }
            ZkCall::GetChildren { path, watch } => {
                let Some(names) = tree.children(&path) else {
                    return ZkAnswer::Failed(ZkCode::NoNode);
                };
                if watch {
                    tree.watch(ZkWatchKind::Child, &path, connection);
                }
                return ZkAnswer::Children(names);
            }
            ZkCall::RemoveWatches { path } => tree.unwatch(&path, connection),
            ZkCall::SetWatches { last_zxid, watches } => {
                for (kind, path) in watches {
                    // one that fires at once
                    if let Some(kind) = tree.watch_again(kind, &path, last_zxid, connection) {
                        self.send(connection, ZkMessage::Event { kind, path });
                    }
                }
            }
            _ => {}
        }
        ZkAnswer::Done
    }

    /// Calls `act` with a connection, if it is there.
    pub fn with_connection<T>(&self, connection: u64, act: impl FnOnce(&mut ServedConnection) -> T) -> Option<T> {
        self.connections.borrow_mut().get_mut(&connection).map(act)
    }

    pub fn send(&self, connection: u64, message: ZkMessage) {
        if let Some(served) = self.connections.borrow().get(&connection) {
            served.side.send(message);
        }
    }

    pub fn answer(&self, origin: RequestOrigin, zxid: i64, answer: ZkAnswer) {
        let RequestOrigin { number, name, .. } = origin;
        let reply = ZkMessage::Reply {
            number,
            name,
            zxid,
            answer,
        };
        self.send(origin.connection, reply);
    }

    pub fn close(&self, connection: u64) {
        let closed = self.connections.borrow_mut().remove(&connection);
        drop(closed);
        self.tree.borrow_mut().disconnected(connection);
    }

    pub fn close_all(&self) {
        drop(self.connections.take());
        self.tree.borrow_mut().forget_watches();
    }

    /// Ends the connection of a session that is over.
    pub fn close_session(&self, session: i64) {
        let connections = self.connections.borrow();
        let own = connections.iter().filter(|(_, served)| served.session == session);
        let own: Vec<u64> = own.map(|(number, _)| *number).collect();
        drop(connections);
        own.into_iter().for_each(|connection| self.close(connection));
    }
}
