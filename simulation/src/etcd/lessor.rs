//! The end of leases by the leader ([`LessorClock`]), as `lessor` of etcd 3.4.23 does it (`lease/lessor.go`; lines are of that file).

use std::collections::BTreeMap;

use crate::mutants::is_mutant;

/// The period in which the leader looks for leases that have run out: line 613, `runLoop`.
pub(super) const LOOK_NS: u64 = 500_000_000;
/// A lease that was to be revoked and is still there is looked at again after this, `ReqTimeout` of the server: `etcdserver/server.go:562`.
const LOOK_AGAIN_NS: u64 = 7_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct LeaseClock {
    ttl_ns: u64,
    expiry: u64,
    /// The time at which it is revoked, if it is not renewed.
    due: u64,
}

/// The result of a renewal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseRenewal {
    /// It has all of its time again, in seconds.
    Renewed(i64),
    Missing,
    /// It has run out and is not revoked yet: a renewal waits for that.
    RunOut,
    /// This is no leader, or not yet.
    NotLeader,
}

/// The leases as their leader counts them. Times are nanoseconds.
#[derive(Debug, Default)]
pub struct LessorClock {
    leases: BTreeMap<i64, LeaseClock>,
    leads: bool,
}

impl LessorClock {
    /// Adds a lease that was granted; its time is in seconds.
    pub fn grant(&mut self, now: u64, lease: i64, ttl: i64) {
        let seconds = if is_mutant("etcd: leases live twice as long") {
            2 * ttl
        } else {
            ttl
        };
        let ttl_ns = u64::try_from(seconds).unwrap_or(0) * SECOND_NS;
        let expiry = now + ttl_ns;
        let due = expiry;
        self.leases.insert(lease, LeaseClock { ttl_ns, expiry, due });
    }

    pub fn forget(&mut self, lease: i64) {
        self.leases.remove(&lease);
    }

    /// Renews a lease: line 393, `Renew`.
    pub fn renew(&mut self, now: u64, lease: i64) -> LeaseRenewal {
        if !self.leads {
            return LeaseRenewal::NotLeader;
        }
        let Some(clock) = self.leases.get_mut(&lease) else {
            return LeaseRenewal::Missing;
        };
        if clock.expiry <= now {
            return LeaseRenewal::RunOut;
        }
        if !is_mutant("etcd: a renewal changes nothing") {
            clock.expiry = now + clock.ttl_ns;
            clock.due = clock.expiry;
        }
        LeaseRenewal::Renewed(i64::try_from(clock.ttl_ns / SECOND_NS).unwrap_or(i64::MAX))
    }

    /// Stops counting, under another leader: that one counts when it has applied all that was decided before it.
    pub fn demote(&mut self) {
        self.leads = false;
    }

    /// Begins to count, as the leader: every lease has all of its time again, and `extend`: line 467, `Promote`.
    pub fn promote(&mut self, now: u64, extend: u64, leases: impl Iterator<Item = (i64, i64)>) {
        self.leases.clear();
        for (lease, ttl) in leases {
            self.grant(now + extend, lease, ttl);
        }
        self.leads = true;
    }

    /// Takes out the leases that are to be revoked by now: line 687, `expireExists`.
    pub fn take_due(&mut self, now: u64) -> Vec<i64> {
        if !self.leads {
            return Vec::new();
        }
        let due = self.leases.iter_mut().filter(|(_, clock)| clock.due <= now);
        due.map(|(lease, clock)| {
            clock.due = now + LOOK_AGAIN_NS;
            *lease
        })
        .collect()
    }

    /// Returns the time at which the next lease is to be revoked.
    pub fn next_due(&self) -> Option<u64> {
        let due = self.leases.values().map(|clock| clock.due);
        due.min().filter(|_| self.leads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_leader_gives_every_lease_its_time_again_and_an_election_timeout() {
        let mut lessor = LessorClock::default();
        lessor.promote(0, 0, std::iter::empty());
        lessor.grant(0, 7, 2);
        assert_eq!(lessor.renew(SECOND_NS, 7), LeaseRenewal::Renewed(2));
        lessor.demote();
        assert_eq!(lessor.renew(SECOND_NS, 7), LeaseRenewal::NotLeader);
        assert!(lessor.take_due(60 * SECOND_NS).is_empty(), "only a leader ends leases");
        lessor.promote(5 * SECOND_NS, SECOND_NS, [(7, 2)].into_iter());
        assert_eq!(lessor.next_due(), Some(8 * SECOND_NS));
        assert_eq!(lessor.take_due(8 * SECOND_NS), [7]);
        assert_eq!(lessor.renew(8 * SECOND_NS, 7), LeaseRenewal::RunOut);
        assert_eq!(lessor.next_due(), Some(15 * SECOND_NS), "a revocation may be lost");
    }
}
