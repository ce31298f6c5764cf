//! Real servers of Redis that replicate, in virtual time: a master with a replica that harness promotes, and those that elect their master.

use super::harness_on;
use crate::command::{Answer, Harness};

impl Harness {
    fn fails_over(&self, words: &str) -> Answer {
        let answer = self.virtual_time(&format!("{words} --windows 1 --grants 60 --seed 1"));
        assert_eq!(answer.window_sum("servers_promoted"), 1, "{}", answer.stderr);
        answer
    }
}

#[test]
fn a_lock_on_one_master_is_lost_in_a_failover_to_a_replica_that_lacks_it() {
    let Some(harness) = harness_on("redis") else { return };
    let held_back = harness.fails_over("--recipe redis-set-px-lua --lease 2s --time 20s --fault failover");
    held_back.assert_violates("HL001");
    // the replica missed something, and the old master follows
    held_back.assert_counted(&["held_bytes", "servers_back"]);
    harness.assert_replayed();
}

/// Of six servers: the master dies with its last grant. `None` without a Redis.
fn servers_elect_a_replica(topology: &str) -> Option<Harness> {
    let harness = harness_on("redis")?;
    let words = format!("--topology {topology} --window 6s --time 22s --fault failover --lease 5s");
    let held_back = harness.fails_over(&words);
    held_back.assert_violates("HL001");
    let phantom = held_back.finding("HL007");
    assert_ne!(phantom["verdict"], "violated", "{phantom:#}");
    assert_eq!(held_back.window_sum("servers_back"), 1, "the old master serves again");
    Some(harness)
}

#[test]
fn sentinels_elect_a_replica_that_lacks_the_last_grant_of_its_master() {
    servers_elect_a_replica("sentinel");
}

mod nightly {
    use super::*;

    #[test]
    fn an_election_is_the_same_again() {
        for topology in ["sentinel", "cluster"] {
            if let Some(harness) = servers_elect_a_replica(topology) {
                harness.assert_replayed();
            }
        }
    }

    #[test]
    fn a_lock_stands_a_failover_to_a_replica_that_has_it() {
        let Some(harness) = harness_on("redis") else { return };
        for servers in ["--recipe redis-set-px-lua", "--topology sentinel", "--topology cluster"] {
            let words = "--window 6s --time 22s --fault failover=clean --lease 1s";
            let clean = harness.fails_over(&format!("{servers} {words}"));
            clean.assert_exit(0);
            clean.assert_verdict("HL001", "holds");
        }
    }
}
