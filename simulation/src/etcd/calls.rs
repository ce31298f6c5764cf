//! The calls of clients on their member ([`CallPlace`]): each call is a task of its own, which its client can end.

use harness_workloads::etcd::{EtcdAnswer, EtcdCall};
use tokio::sync::oneshot;

use super::cluster::{ClusterState, SimulatedEtcd};
use super::member::Member;
use super::member_connection::{MemberConnection, ServedCall};
use super::request::{EtcdFrame, EtcdMessage, EtcdOutcome, EtcdRequest, EtcdStatus};
use super::services::ClientGone;
use super::store::StoreChange;
use crate::mutants::is_mutant;

/// A call, for the task that serves it.
#[derive(Clone, Copy)]
pub(super) struct CallPlace {
    pub etcd: SimulatedEtcd,
    pub member: usize,
    connection: u64,
    number: u64,
    name: &'static str,
}

impl SimulatedEtcd {
    /// Takes a message of a client.
    pub(super) fn take(self, etcd: &ClusterState, member: usize, connection: u64, request: EtcdRequest) {
        let own = &etcd.members[member];
        let EtcdRequest { number, frame } = request;
        match frame {
            EtcdFrame::Ping => {
                let now = self.clock();
                let too_many = own.with_connection(connection, |served| served.answer_ping(now));
                if too_many == Some(true) && !is_mutant("etcd: a server takes any number of pings") {
                    own.close(connection);
                }
            }
            EtcdFrame::Cancel => {
                let call = own.with_connection(connection, |served| served.calls.remove(&number));
                if let Some(call) = call.flatten() {
                    call.cancel();
                }
            }
            EtcdFrame::Call(call) => self.serve_call(own, (member, connection, number), call),
        }
    }

    fn serve_call(self, own: &Member, (member, connection, number): (usize, u64, u64), call: EtcdCall) {
        let name = call.name();
        let place = CallPlace {
            etcd: self,
            member,
            connection,
            number,
            name,
        };
        let needs_leader = matches!(call, EtcdCall::Watch { .. } | EtcdCall::LeaseKeepAlive { .. });
        if needs_leader && own.view.borrow().leader.is_none() {
            return place.reply(Err(EtcdStatus::Unavailable("etcdserver: no leader")));
        }
        // only calls that clean up hear that their client has gone
        let cleans_up = matches!(call, EtcdCall::Lock { .. } | EtcdCall::Campaign { .. });
        let (gone, told) = cleans_up.then(oneshot::channel).unzip();
        let served = ServedCall {
            task: own.process.spawn(place.serve(call, told)),
            gone,
            name,
            needs_leader,
            answered: false,
        };
        own.with_connection(connection, |connection| connection.calls.insert(number, served));
    }
}

impl Member {
    /// Calls `act` with a connection, if it is there. The caller drops what it takes out of the connection.
    fn with_connection<T>(&self, connection: u64, act: impl FnOnce(&mut MemberConnection) -> T) -> Option<T> {
        self.connections.borrow_mut().get_mut(&connection).map(act)
    }

    /// Closes a connection, and ends every call of it.
    pub fn close(&self, connection: u64) {
        let closed = self.connections.borrow_mut().remove(&connection);
        if let Some(closed) = closed {
            closed.calls.into_values().for_each(ServedCall::cancel);
        }
    }

    /// Ends the calls that need a leader: this member knows none for so long (`monitorLeader`, `etcdserver/api/v3rpc/interceptor.go:289`).
    pub fn end_leaderless_calls(&self) {
        let mut ended = Vec::new();
        for connection in self.connections.borrow_mut().values_mut() {
            let numbers = connection.calls.iter().filter(|(_, call)| call.needs_leader);
            let numbers: Vec<u64> = numbers.map(|(number, _)| *number).collect();
            for number in numbers {
                let Some(call) = connection.calls.remove(&number) else {
                    continue;
                };
                connection.send(match call.answered {
                    true => EtcdMessage::Ended { number },
                    false => EtcdMessage::Reply {
                        number,
                        name: call.name,
                        outcome: Err(EtcdStatus::Unavailable("etcdserver: no leader")),
                    },
                });
                ended.push(call);
            }
        }
        ended.into_iter().for_each(ServedCall::cancel);
    }
}

impl CallPlace {
    fn with_connection<T>(self, act: impl FnOnce(&mut MemberConnection) -> T) -> Option<T> {
        let etcd = self.etcd.0.get();
        etcd.members[self.member].with_connection(self.connection, act)
    }

    fn reply(self, outcome: EtcdOutcome) {
        let CallPlace { number, name, .. } = self;
        let reply = EtcdMessage::Reply { number, name, outcome };
        self.with_connection(|served| served.send(reply));
    }

    async fn serve(self, call: EtcdCall, gone: ClientGone) {
        if let EtcdCall::Watch { key, from_revision } = call {
            return self.serve_watch(key, from_revision).await;
        }
        let outcome = self.answer(call, gone).await;
        self.reply(outcome);
        drop(self.with_connection(|served| served.calls.remove(&self.number)));
    }

    async fn answer(self, call: EtcdCall, gone: ClientGone) -> EtcdOutcome {
        let (etcd, member) = (self.etcd, self.member);
        match call {
            EtcdCall::Range { key, is_prefix } => {
                etcd.may_read(member).await?;
                let state = etcd.0.get();
                let store = state.members[member].store.borrow();
                let keys = match is_prefix {
                    true => store.list(&key),
                    false => store.get(&key).cloned().into_iter().collect(),
                };
                let revision = store.revision();
                Ok(EtcdAnswer::Keys { keys, revision })
            }
            EtcdCall::Txn(txn) => etcd.propose(member, StoreChange::Txn(txn)).await,
            EtcdCall::DeleteRange { key } => etcd.propose(member, StoreChange::Delete { key }).await,
            EtcdCall::LeaseGrant { ttl } => {
                let lease = etcd.new_lease(member);
                etcd.propose(member, StoreChange::Grant { lease, ttl }).await
            }
            EtcdCall::LeaseKeepAlive { lease } => {
                let ttl = etcd.renew(member, lease).await?;
                Ok(EtcdAnswer::KeptAlive { ttl })
            }
            EtcdCall::LeaseRevoke { lease } => etcd.propose(member, StoreChange::Revoke { lease }).await,
            EtcdCall::Unlock { key } => etcd.unlock(member, key).await,
            // boxed, since a task of any call has room for the largest of them, and is moved when it is made
            EtcdCall::Lock { name, lease } => Box::pin(etcd.lock(member, &name, lease, gone)).await,
            EtcdCall::Campaign { name, value, lease } => {
                Box::pin(etcd.campaign(member, &name, &value, lease, gone)).await
            }
            EtcdCall::Resign(leader) => etcd.resign(member, leader).await,
            EtcdCall::Watch { .. } => Ok(EtcdAnswer::Watching),
        }
    }

    async fn serve_watch(self, key: String, from_revision: i64) {
        let watch = self.etcd.watch(self.member, &key, from_revision);
        self.reply(Ok(EtcdAnswer::Watching));
        self.with_connection(|served| {
            if let Some(call) = served.calls.get_mut(&self.number) {
                call.answered = true;
            }
        });
        let number = self.number;
        loop {
            let events = watch.watcher.next().await;
            let told = EtcdMessage::Events { number, events };
            self.with_connection(|served| served.send(told));
        }
    }
}
