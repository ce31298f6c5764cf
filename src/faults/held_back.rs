//! A link to replicas that is stalled while none of them has a lock: the next grant is unknown to all of them.

use std::time::Duration;

use super::{FaultEnv, Preparation};
use crate::limits::AIM;
use harness_proxy::{AnyLink, Behaviour, LinkFault};

/// The time between two tries to find the replicas without a lock.
const TRY: Duration = Duration::from_millis(7);

/// Stalls a link at a moment at which none of these replicas has a lock, if there is one soon; bytes that were on their way have
/// arrived after `in_flight`. Returns `None` if a replica does not answer.
pub async fn hold_back(
    link: &AnyLink,
    in_flight: Duration,
    replicas: &[u32],
    number: u32,
    env: &FaultEnv,
) -> Option<Preparation> {
    let mut preparation = Preparation::default();
    for _ in 0..AIM.as_millis() / TRY.as_millis() {
        // the previous one is healed first
        preparation.link_fault = None;
        env.clock.sleep(TRY).await;
        let stalled = LinkFault::apply(vec![link.clone()], number, Behaviour::STALL, false);
        preparation.link_fault = Some(stalled);
        env.clock.sleep(in_flight).await;
        preparation.known_keys.clear();
        for replica in replicas {
            preparation.known_keys.extend(env.servers.keys(*replica).await?);
        }
        if preparation.known_keys.is_empty() {
            break;
        }
    }
    Some(preparation)
}
