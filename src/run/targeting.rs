//! Targeting: resolves the target of an injection when its window starts. Only then is it known which client holds a lock or
//! waits for one, and which server leads.

use std::time::Duration;

use super::holders::Holding;
use crate::cluster::NodeControl;
use crate::faults::{ResolvedTarget, Target};
use crate::limits::AIM;
use crate::plan::PlannedWindow;
use crate::run::context::RunContext;

/// What a target was resolved to.
pub struct Resolution {
    pub target: ResolvedTarget,
    /// The client that held a lock, when the target is the holder or the fault needs one.
    pub holder: Option<u32>,
    /// How long that client works from now on because of this window.
    pub holder_works: Duration,
    pub title: String,
}

/// Holders that were granted their lock after an injection was prepared.
pub struct GrantedSince {
    /// By the clock of the run.
    pub prepared: Duration,
    /// Keys that the servers had already.
    pub known_keys: Vec<String>,
}

/// Upper bound on one round trip: a request sent this long after an event is answered after it.
const ROUND_TRIP: Duration = Duration::from_millis(100);

impl GrantedSince {
    fn includes(&self, holding: &Holding) -> bool {
        let known = self.known_keys.iter().any(|key| key.contains(&holding.lock));
        holding.since > self.prepared + ROUND_TRIP && !known
    }
}

/// Resolves the target of a window to concrete clients or servers. Fails with what was missing, e.g. `nobody held a lock`.
/// A holder that is targeted goes on working for [`PlannedWindow::holder_works`].
pub async fn resolve(
    window: &PlannedWindow,
    since: Option<GrantedSince>,
    run: &RunContext,
    servers: &NodeControl,
) -> Result<Resolution, &'static str> {
    let mut targeted = None;
    let planned = &window.injection.title;
    let holder = async |connected_to: Option<u32>| {
        let fits = |client: u32, holding: &Holding| {
            // a client of which it is not known may be connected to this server, too
            let is_elsewhere = || {
                let server = format!("n{}", connected_to? + 1);
                Some(run.routes.node_of(client)? != server)
            };
            since.as_ref().is_none_or(|since| since.includes(holding)) && is_elsewhere() != Some(true)
        };
        let longest = run.terms.longest_hold(run.spec.config.lease);
        let holder = run.holders.target(window.holder_works, longest, fits);
        run.clock.within(AIM, holder).await.ok_or("nobody held a lock")
    };
    let (target, title) = match &window.injection.target {
        Target::Holder => {
            let (client, holding, works) = holder(None).await?;
            targeted = Some((client, works));
            let title = format!("c{client} (holder of {}): {planned}", holding.lock);
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Servers(servers) if window.injection.action.needs().held_lock => {
            let (client, holding, works) = holder(None).await?;
            targeted = Some((client, works));
            let title = format!("{planned}, while c{client} holds {}", holding.lock);
            (ResolvedTarget::Servers(servers.clone()), title)
        }
        Target::Waiter => {
            let (client, lock) = run
                .clock
                .within(AIM, run.holders.waiter(run.spec.config.per_process))
                .await
                .ok_or("nobody waited for a lock")?;
            let title = format!("c{client} (waiting for {lock}): {planned}");
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Leader | Target::Follower(_) | Target::NextUpgrade => {
            let (leader, old) = (servers.leader(AIM).await, not_upgraded(servers));
            let (server, role) = server_of(&window.injection.target, leader, run.spec.config.nodes, &old)?;
            let mut title = format!("n{} ({role}): {planned}", server + 1);
            if window.injection.action.needs().held_lock {
                // of the clients of one server few may hold a lock: without one the fault strikes all the same
                if let Ok((client, holding, works)) = holder(Some(server)).await {
                    targeted = Some((client, works));
                    title += &format!(", while c{client} holds {}", holding.lock);
                }
            }
            (ResolvedTarget::Servers(vec![server]), title)
        }
        Target::Clients(clients) => (ResolvedTarget::Clients(clients.clone()), planned.clone()),
        Target::Servers(servers) => (ResolvedTarget::Servers(servers.clone()), planned.clone()),
        Target::Everyone => (ResolvedTarget::Everyone, planned.clone()),
    };
    Ok(Resolution {
        target,
        holder: targeted.map(|(client, _)| client),
        holder_works: targeted.map_or(Duration::ZERO, |(_, works)| works),
        title,
    })
}

/// The servers that still are of the version with which the run began.
fn not_upgraded(servers: &NodeControl) -> Vec<u32> {
    let (endpoints, old) = (servers.endpoints(), servers.not_upgraded());
    old.into_iter().filter_map(|node| endpoints.server_of(node)).collect()
}

/// The server that has the role of a target, and that role. `old`: those that are not upgraded.
fn server_of(
    target: &Target,
    leader: Option<u32>,
    servers: u32,
    old: &[u32],
) -> Result<(u32, &'static str), &'static str> {
    if *target == Target::NextUpgrade && old.is_empty() {
        return Err("every server is upgraded already");
    }
    let leader = leader.ok_or("no server leads")?;
    match target {
        Target::Follower(place) => {
            let followers: Vec<u32> = (0..servers).filter(|server| *server != leader).collect();
            let chosen = followers.get(*place as usize % followers.len().max(1));
            Ok((*chosen.ok_or("no server follows")?, "follower"))
        }
        Target::NextUpgrade => {
            let follows = old.iter().find(|server| **server != leader);
            Ok(follows.map_or((leader, "leader"), |server| (*server, "follower")))
        }
        _ => Ok((leader, "leader")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_never_the_leader_and_each_place_is_one() {
        for leader in 0..3 {
            let chosen = [0, 1, 2].map(|place| server_of(&Target::Follower(place), Some(leader), 3, &[]).unwrap().0);
            assert!(!chosen.contains(&leader) && chosen[0] != chosen[1] && chosen[0] == chosen[2]);
            assert_eq!(server_of(&Target::Leader, Some(leader), 3, &[]), Ok((leader, "leader")));
        }
        assert!(server_of(&Target::Follower(0), Some(0), 1, &[]).is_err());
        assert!(server_of(&Target::Follower(0), None, 3, &[]).is_err());
    }

    #[test]
    fn followers_are_upgraded_first_and_the_server_that_leads_then_last() {
        let next = |leader, old: &[u32]| server_of(&Target::NextUpgrade, leader, 3, old);
        assert_eq!(next(Some(0), &[0, 1, 2]), Ok((1, "follower")));
        assert_eq!(next(Some(0), &[0, 2]), Ok((2, "follower")));
        assert_eq!(next(Some(0), &[0]), Ok((0, "leader")));
        // another one was elected meanwhile, which is upgraded
        assert_eq!(next(Some(2), &[0]), Ok((0, "follower")));
        assert!(next(Some(2), &[]).unwrap_err().contains("already"));
        assert!(next(None, &[]).unwrap_err().contains("already"));
        assert!(next(None, &[0]).unwrap_err().contains("no server leads"));
    }
}
