//! `failover`: the replica of a Redis master is promoted, and clients are led to it, as a proxy in front of both would.
//!
//! Replication is asynchronous: a lock that was granted after the link to the replica was held back is unknown to the new
//! master, which grants it again. The old master is fenced off: it lives, and no client reaches it any more. With the
//! heal it becomes the replica of the new one and forgets what it granted.

use rand_chacha::ChaCha8Rng;

use crate::cluster::Peering;

use super::strike::{Demand, Means};
use super::{Fault, Shape, Strike, Target};

pub struct Failover;

const KINDS: [&str; 2] = ["held-back", "clean"];

impl Fault for Failover {
    fn name(&self) -> &'static str {
        "failover"
    }

    fn summary(&self) -> &'static str {
        "the replica of a Redis master is promoted without its last writes; a pass means that it missed"
    }

    fn argument(&self) -> &'static str {
        "held-back | clean, when it has them all (default: held-back)"
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        let kind = argument.unwrap_or(KINDS[0]);
        if !KINDS.contains(&kind) {
            return Err(format!(
                "failover has no kind `{kind}`; it takes one of {}",
                KINDS.join(", ")
            ));
        }
        if !matches!(shape.backend.software.peering, Peering::Replication(_)) {
            let hint = "hint: --fault server-kill=leader or --fault partition=leader";
            return Err(format!(
                "failover is of a master to its replica; servers of {} have none\n{hint}",
                shape.backend
            ));
        }
        if shape.servers != 1 {
            return Err("failover is of one master to its replica, and these masters have none: --nodes 1".into());
        }
        let held_back = kind == "held-back";
        let title = if held_back {
            "its master fails over to a replica that does not have the lock"
        } else {
            "its master fails over to a replica that has the lock"
        };
        let demand = held_back.then_some(Demand {
            stopped_for: None,
            breaks: "HL001",
        });
        let strike = Strike::of(Target::Holder, Means::Failover { held_back }, title.into());
        Ok(Strike { demand, ..strike })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;

    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;
    use crate::network::tap::Protocol;

    fn planned(backend: BackendId, servers: u32, kind: Option<&str>) -> Result<Strike, String> {
        let shape = Shape {
            backend: backends::of(backend),
            clients: 3,
            servers,
            lease: Duration::from_secs(2),
            protocol: Protocol::Resp,
        };
        Failover.plan(kind, 0, &shape, &mut ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn a_failover_without_the_last_writes_must_break_mutual_exclusion_and_a_clean_one_need_not() {
        let demand = planned(BackendId::Redis, 1, None).unwrap().demand;
        assert_eq!(demand.map(|demand| demand.breaks), Some("HL001"));
        assert_eq!(planned(BackendId::Redis, 1, Some("clean")).unwrap().demand, None);
    }

    #[test]
    fn only_a_single_redis_master_fails_over() {
        assert!(planned(BackendId::Zk, 3, None).unwrap_err().contains("zk"));
        assert!(planned(BackendId::Redis, 5, None).unwrap_err().contains("--nodes 1"));
    }
}
