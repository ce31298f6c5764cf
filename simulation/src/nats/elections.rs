//! The leaders of the bucket and of the servers of a cluster: elections, and leaders without a majority. Lines are of `server/raft.go`.

use std::time::Duration;

use rand::Rng;

use super::cluster::SimulatedNats;
use super::server::{BUCKET, GroupLack, META, NatsServer, ServerWork};

/// The period in which leaders are looked after.
const TICK: Duration = Duration::from_millis(100);
/// The time without a leader after which a server wants to lead, and the most that each draws besides: `minElectionTimeoutDefault` and
/// `maxElectionTimeoutDefault`.
const ELECTION: u64 = 4_000_000_000;
const ELECTION_SPREAD: u64 = 5_000_000_000;
/// The time without a majority after which a leader gives up, when it looks next: `lostQuorumIntervalDefault` and
/// `lostQuorumCheckIntervalDefault`.
const LOST_QUORUM: u64 = 10_000_000_000;

impl SimulatedNats {
    /// Looks after the leaders.
    pub(super) async fn supervise(self) {
        let world = self.0.world();
        loop {
            world.sleep(TICK).await;
            [BUCKET, META].into_iter().for_each(|group| self.look_after(group));
        }
    }

    fn look_after(self, number: usize) {
        let nats = self.0.get();
        if number == BUCKET && !self.has_bucket() {
            return;
        }
        let group = &nats.groups[number];
        let leads = group.leader.get().is_some_and(|leader| nats.servers[leader].responds());
        let lack = match (leads, nats.has_majority()) {
            (true, true) => return group.lacks.set(None),
            (true, false) => GroupLack::Majority,
            (false, _) => GroupLack::Leader,
        };
        let now = self.clock();
        let known = group.lacks.get().filter(|(before, _)| *before == lack);
        let (_, at) = known.unwrap_or_else(|| (lack, now + self.patience(lack)));
        group.lacks.set((now < at).then_some((lack, at)));
        if now < at {
            return;
        }
        if lack == GroupLack::Leader && nats.has_majority() {
            return self.elect_any(number);
        }
        // a leader gives up, or nobody is voted for; one that is alone leads whenever it answers
        if nats.servers.len() == 1 || !nats.servers.iter().any(NatsServer::responds) {
            return;
        }
        group.leader.set(None);
        for (server, own) in nats.servers.iter().enumerate() {
            if own.is_running.get() {
                self.give(server, 0, ServerWork::Hear(number, now));
            }
        }
    }

    /// Draws the time until something follows from what a group lacks.
    fn patience(self, lack: GroupLack) -> u64 {
        let nats = self.0.get();
        let mut dice = nats.dice.borrow_mut();
        match lack {
            GroupLack::Majority => LOST_QUORUM + dice.next_u64() % LOST_QUORUM,
            GroupLack::Leader => {
                let responding = nats.servers.iter().filter(|server| server.responds());
                let timeouts = responding.map(|_| ELECTION + dice.next_u64() % ELECTION_SPREAD);
                timeouts.min().unwrap_or(ELECTION)
            }
        }
    }

    /// Makes one of the servers that answer and have most of the log the leader of a group; it has all of the log then.
    pub(super) fn elect_any(self, group: usize) {
        let nats = self.0.get();
        let responding = || (0..nats.servers.len()).filter(|server| nats.servers[*server].responds());
        let foremost = responding().map(|server| nats.servers[server].applied.get()).max();
        let able: Vec<usize> = responding()
            .filter(|server| Some(nats.servers[*server].applied.get()) == foremost)
            .collect();
        let draw = nats.dice.borrow_mut().next_u64() as usize % able.len().max(1);
        let Some(leader) = able.get(draw).copied() else {
            return;
        };
        if group == BUCKET {
            nats.committed.set(nats.proposed());
            // requests to an earlier leader are not answered
            nats.groups[BUCKET].leader.set(None);
            self.catch_up(leader, nats.proposed());
        }
        nats.groups[group].leader.set(Some(leader));
        if group == BUCKET {
            self.show(leader, true);
        }
        for (server, own) in nats.servers.iter().enumerate() {
            let after = if server == leader { 0 } else { self.latency() };
            if own.is_running.get() {
                self.give(server, after, ServerWork::Hear(group, self.clock() + after));
                self.give(server, after, ServerWork::Apply(nats.committed.get()));
            }
        }
    }
}
