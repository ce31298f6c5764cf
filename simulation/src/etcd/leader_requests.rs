//! Requests of a member to the leader, for the calls that it serves: changes, reads and renewals, also when another leads by then.

use std::time::Duration;

use super::cluster::SimulatedEtcd;
use super::lessor::LeaseRenewal;
use super::request::{EtcdOutcome, EtcdStatus};
use super::store::StoreChange;
use super::work::{MemberWork, ProposedChange};
use crate::servers::SimulatedServers;
use crate::world::first_of;

/// A member gives a request up after this: `ReqTimeout`, `etcdserver/config.go:286` of 3.4.23.
const REQUEST_LIMIT: Duration = Duration::from_secs(7);
/// A read asks the leader again after this: `readIndexRetryTime`, `etcdserver/v3_server.go:44`.
const READ_AGAIN: Duration = Duration::from_millis(500);
/// A renewal that the leader did not take is tried again, as a loop of requests over loopback takes (`LeaseRenew`,
/// `etcdserver/v3_server.go:286`, which does not pause).
const RENEW_AGAIN: Duration = Duration::from_millis(1);

impl SimulatedEtcd {
    /// Puts a change into the log, and answers when this member has applied it: `raftRequest`. It may happen although its caller gives up,
    /// but not before there is a leader.
    pub(super) async fn propose(self, member: usize, change: StoreChange) -> EtcdOutcome {
        let etcd = self.0.get();
        let own = &etcd.members[member];
        let proposing = async {
            // most often it knows one, and nobody has to listen
            let known = own.view.borrow().leader;
            let leader = match known {
                Some(leader) => leader,
                None => {
                    let mut view = own.view.subscribe();
                    let known = view.wait_for(|view| view.leader.is_some()).await;
                    known.ok().and_then(|view| view.leader)?
                }
            };
            let number = self.new_request();
            let answer = own.proposals.borrow_mut().ask(number);
            let origin = Some((member, number));
            let proposal = MemberWork::Propose(ProposedChange { change, origin });
            self.tell(&etcd, member, leader, proposal);
            answer.await.ok()
        };
        let limit = self.0.world().sleep(REQUEST_LIMIT);
        let outcome = first_of(proposing, limit).await.flatten();
        outcome.unwrap_or(Err(EtcdStatus::Unavailable("request timed out")))
    }

    /// Waits until this member may answer a linearizable read: `linearizableReadLoop`.
    pub(super) async fn may_read(self, member: usize) -> Result<(), EtcdStatus> {
        let etcd = self.0.get();
        let (own, world) = (&etcd.members[member], self.0.world());
        let mut view = own.view.subscribe();
        let began = view.borrow_and_update().changes;
        let reading = async {
            let number = self.new_request();
            let mut answer = own.reads.borrow_mut().ask(number);
            loop {
                let leader = own.view.borrow().leader;
                if let Some(leader) = leader {
                    self.tell(&etcd, member, leader, MemberWork::ReadIndex(member, number));
                }
                let answered = async { (&mut answer).await.is_ok() };
                let changed = async { _ = view.wait_for(|view| view.changes != began).await };
                match first_of(first_of(answered, changed), world.sleep(READ_AGAIN)).await {
                    Some(Some(true)) => return Ok(()),
                    Some(Some(false)) => return Err(EtcdStatus::Unavailable("the server stopped")),
                    Some(None) => return Err(EtcdStatus::Unavailable("etcdserver: leader changed")),
                    None => {}
                }
            }
        };
        let timed_out = Err(EtcdStatus::Unavailable("etcdserver: request timed out"));
        first_of(reading, world.sleep(REQUEST_LIMIT)).await.unwrap_or(timed_out)
    }

    /// Renews a lease at the leader, also when another leads by then; in seconds, 0 for a lease that is gone: `LeaseRenew`.
    pub(super) async fn renew(self, member: usize, lease: i64) -> Result<i64, EtcdStatus> {
        let etcd = self.0.get();
        let (own, world) = (&etcd.members[member], self.0.world());
        let renewing = async {
            loop {
                let leader = own.view.borrow().leader;
                if let Some(leader) = leader.filter(|leader| self.is_running(*leader)) {
                    let number = self.new_request();
                    let answer = own.renewals.borrow_mut().ask(number);
                    self.tell(&etcd, member, leader, MemberWork::Renew(member, number, lease));
                    // the process of a leader that is killed ends its connections
                    let gone = async {
                        while self.is_running(leader) {
                            world.sleep(RENEW_AGAIN * 10).await;
                        }
                    };
                    match first_of(answer, gone).await {
                        Some(Ok(LeaseRenewal::Renewed(ttl))) => return ttl,
                        Some(Ok(LeaseRenewal::Missing)) => return 0,
                        Some(Ok(LeaseRenewal::RunOut | LeaseRenewal::NotLeader) | Err(_)) | None => {}
                    }
                }
                world.sleep(RENEW_AGAIN).await;
            }
        };
        let renewed = first_of(renewing, world.sleep(REQUEST_LIMIT)).await;
        renewed.ok_or(EtcdStatus::Unavailable("etcdserver: request timed out"))
    }
}
