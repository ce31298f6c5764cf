//! `server-kill`, `server-pause`, `server-restart`: servers are killed and started again on what they left on disk, or
//! stopped and continued. Roles are asked for when the window opens.

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::strike::{Means, ServerBlow};
use super::{Fault, Shape, Strike, Target, no_argument};

pub struct ServerKill;
pub struct ServerPause;
pub struct ServerRestart;

impl Fault for ServerKill {
    fn name(&self) -> &'static str {
        "server-kill"
    }

    fn summary(&self) -> &'static str {
        "servers are killed, and started again on their data"
    }

    fn argument(&self) -> &'static str {
        "one | leader | majority | all (default: one)"
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        let known = ["one", "leader", "majority", "all"];
        let (target, who) = target(self.name(), argument, &known, shape, rng)?;
        let means = Means::Servers(ServerBlow::Kill);
        Ok(Strike::of(target, means, format!("{who}killed, then started again")))
    }
}

impl Fault for ServerPause {
    fn name(&self) -> &'static str {
        "server-pause"
    }

    fn summary(&self) -> &'static str {
        "servers stand still, and go on"
    }

    fn argument(&self) -> &'static str {
        "one | leader | majority (default: one)"
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        let (target, who) = target(self.name(), argument, &["one", "leader", "majority"], shape, rng)?;
        let means = Means::Servers(ServerBlow::Pause);
        Ok(Strike::of(target, means, format!("{who}paused")))
    }
}

impl Fault for ServerRestart {
    fn name(&self) -> &'static str {
        "server-restart"
    }

    fn summary(&self) -> &'static str {
        "every server is killed and started again, one after the other"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        let target = Target::Servers((0..shape.servers).collect());
        let means = Means::Servers(ServerBlow::Restart);
        Ok(Strike::of(target, means, "every server, one by one".into()))
    }
}

/// Whom an argument means, and how the title begins; the title of a leader is completed when it is known.
fn target(
    fault: &str,
    argument: Option<&str>,
    known: &[&str],
    shape: &Shape,
    rng: &mut ChaCha8Rng,
) -> Result<(Target, String), String> {
    let kind = argument.unwrap_or("one");
    if !known.contains(&kind) {
        return Err(format!(
            "{fault} has no kind `{kind}`; it takes one of {}",
            known.join(", ")
        ));
    }
    let some: Vec<u32> = match kind {
        "leader" => return Ok((Target::Leader, String::new())),
        "one" => vec![rng.random_range(0..shape.servers)],
        "majority" => majority(shape, rng),
        _ => (0..shape.servers).collect(),
    };
    let names: Vec<String> = some.iter().map(|server| format!("n{}", server + 1)).collect();
    Ok((Target::Servers(some), format!("{}: ", names.join(" "))))
}

fn majority(shape: &Shape, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..shape.servers).collect();
    let mut some: Vec<u32> = all.sample(rng, shape.servers as usize / 2 + 1).copied().collect();
    some.sort_unstable();
    some
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;

    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

    fn struck(fault: &dyn Fault, kind: &str, servers: u32, seed: u64) -> Strike {
        let shape = Shape {
            backend: backends::of(BackendId::Zk),
            clients: 5,
            servers,
            lease: Duration::from_secs(2),
            protocol: crate::faults::Protocol::Zk,
        };
        fault
            .plan(Some(kind), 0, &shape, &mut ChaCha8Rng::seed_from_u64(seed))
            .unwrap()
    }

    #[test]
    fn a_majority_is_more_than_half_of_the_servers_and_each_once() {
        for (servers, more_than_half) in [(1, 1), (3, 2), (4, 3), (5, 3)] {
            for seed in 0..20 {
                let Target::Servers(mut some) = struck(&ServerKill, "majority", servers, seed).target else {
                    panic!("a majority is of servers")
                };
                some.dedup();
                assert_eq!(some.len(), more_than_half);
                assert!(some.iter().all(|server| *server < servers));
            }
        }
    }

    #[test]
    fn a_leader_is_known_when_the_window_opens() {
        assert_eq!(struck(&ServerPause, "leader", 3, 1).target, Target::Leader);
    }

    #[test]
    fn a_pause_of_all_servers_is_refused_since_nothing_would_be_left_to_see() {
        let shape = Shape {
            backend: backends::of(BackendId::Zk),
            clients: 5,
            servers: 3,
            lease: Duration::from_secs(2),
            protocol: crate::faults::Protocol::Zk,
        };
        let refused = ServerPause.plan(Some("all"), 0, &shape, &mut ChaCha8Rng::seed_from_u64(1));
        assert!(refused.unwrap_err().contains("one, leader, majority"));
    }
}
