//! Targeting: resolves the target of an injection when its window starts. Only then are the holder, the waiters and the leader
//! known.

use std::time::Duration;

use harness_proxy::tap::MessageKind;
use harness_proxy::{ActiveRule, MatchedMessage, MessageAction, MessageRule, MessageRuleSpec};

use super::holders::{Holding, Targeted};
use crate::client_role::ANYONE;
use crate::cluster::Endpoints;
use crate::faults::{AtMessage, FaultEnv, MessageEnd, MessageMoment, ResolvedTarget, Target};
use crate::limits::AIM;
use crate::plan::PlannedWindow;
use crate::run::context::RunContext;

/// The result of targeting.
pub struct Resolution {
    pub target: ResolvedTarget,
    /// The client that held a lock, if the target is the holder or the fault needs one; and the time for which it works from now
    /// on because of this window.
    pub holder: Option<(u32, Duration)>,
    pub title: String,
}

/// Selects holders that were granted their lock after the preparation of an injection.
pub struct GrantedSince {
    /// The time of the preparation, by the clock of the run.
    pub prepared: Duration,
    /// Keys that the servers had at that time.
    pub known_keys: Vec<String>,
}

/// Upper bound on one round trip: a request sent this long after an event is answered after it.
const ROUND_TRIP: Duration = Duration::from_millis(100);

/// Time until the reply to an acquire reaches its client and the client reports it.
const BECOMES_HOLDER: Duration = Duration::from_millis(20);

impl GrantedSince {
    fn includes(&self, holding: &Holding) -> bool {
        holding.since > self.prepared + ROUND_TRIP && !self.is_known(&holding.lock)
    }

    /// Whether one of the known keys is of this lock. The key of `l10` has the name of `l1` in it, and is not of `l1`.
    fn is_known(&self, lock: &str) -> bool {
        let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_ascii_digit());
        let is_of_lock = |key: &String| {
            let mut ends = key.match_indices(lock).map(|(at, name)| at + name.len());
            ends.any(|end| !goes_on(&key[end..]))
        };
        self.known_keys.iter().any(is_of_lock)
    }
}

const NO_HOLDER: &str = "no client held a lock";

/// The conditions on the holder for a window.
struct HolderAim<'a> {
    window: &'a PlannedWindow,
    since: Option<GrantedSince>,
    run: &'a RunContext,
}

impl HolderAim<'_> {
    /// Returns a holder that continues to work because of this window: this client, or one that is connected to this server, if
    /// given. Returns `None` if there is none within this time.
    async fn holder(&self, client: Option<u32>, server: Option<u32>, within: Duration) -> Option<Targeted> {
        let fits = |holder: u32, holding: &Holding| {
            // a client without a known server may be connected to this one, too
            let is_elsewhere = || {
                let server = format!("n{}", server? + 1);
                Some(self.run.routes.node_of(holder)? != server)
            };
            client.is_none_or(|client| client == holder)
                && self.since.as_ref().is_none_or(|since| since.includes(holding))
                && is_elsewhere() != Some(true)
        };
        let longest = self.run.terms.longest_hold(self.run.spec.config.lease);
        let holder = self.run.holders.target(self.window.holder_works, longest, fits);
        self.run.clock.within(within, holder).await
    }
}

/// Resolves the target of a window to concrete clients or servers. Fails with the missing condition, such as `no client held a
/// lock`. A targeted holder continues to work for [`PlannedWindow::holder_works`].
pub async fn resolve(
    window: &PlannedWindow,
    since: Option<GrantedSince>,
    run: &RunContext,
    env: &FaultEnv,
) -> Result<Resolution, &'static str> {
    let servers = &env.servers;
    let mut holder = None;
    let planned = &window.injection.title;
    let aim = HolderAim { window, since, run };
    let (target, title) = match &window.injection.target {
        Target::Holder => {
            let (client, holding, works) = aim.holder(None, None, AIM).await.ok_or(NO_HOLDER)?;
            holder = Some((client, works));
            let title = format!("c{client} (holder of {}): {planned}", holding.lock);
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Servers(servers) if window.injection.action.needs().held_lock => {
            let (client, holding, works) = aim.holder(None, None, AIM).await.ok_or(NO_HOLDER)?;
            holder = Some((client, works));
            let title = format!("{planned}, while c{client} holds {}", holding.lock);
            (ResolvedTarget::Servers(servers.clone()), title)
        }
        Target::Waiter => {
            let waiter = run.holders.waiter(run.spec.config.per_process);
            let waiter = run.clock.within(AIM, waiter).await;
            let (client, lock) = waiter.ok_or("no client waited for a lock")?;
            let title = format!("c{client} (waiting for {lock}): {planned}");
            (ResolvedTarget::Clients(vec![client]), title)
        }
        Target::Leader | Target::Follower(_) | Target::NextUpgrade => {
            let (leader, old) = (servers.leader(AIM).await, servers.not_upgraded());
            let (target, all) = (&window.injection.target, run.spec.config.nodes);
            let (server, role) = server_of(target, leader, all, &old, &servers.endpoints())?;
            let mut title = format!("n{} ({role}): {planned}", server + 1);
            if window.injection.action.needs().held_lock {
                // of the clients of one server few may hold a lock: without one the fault strikes nevertheless
                if let Some((client, holding, works)) = aim.holder(None, Some(server), AIM).await {
                    holder = Some((client, works));
                    title += &format!(", while c{client} holds {}", holding.lock);
                }
            }
            (ResolvedTarget::Servers(vec![server]), title)
        }
        Target::AtMessage(message) => {
            let (found, client, server) = at_message(*message, window.number, env).await;
            let name = found.message;
            let mut title = format!("`{name}` of c{client}: {planned}");
            if message.moment == MessageMoment::Received {
                // that reply may have made it the holder
                if let Some((_, holding, works)) = aim.holder(Some(client), None, BECOMES_HOLDER).await {
                    holder = Some((client, works));
                    title = format!("`{name}` of c{client} (holder of {}): {planned}", holding.lock);
                }
            }
            let target = match message.end {
                MessageEnd::Client => ResolvedTarget::Clients(vec![client]),
                MessageEnd::Server => ResolvedTarget::Servers(vec![server]),
            };
            (target, title)
        }
        Target::Clients(clients) => (ResolvedTarget::Clients(clients.clone()), planned.clone()),
        Target::Servers(servers) => (ResolvedTarget::Servers(servers.clone()), planned.clone()),
        Target::Everyone => (ResolvedTarget::Everyone, planned.clone()),
    };
    Ok(Resolution { target, holder, title })
}

/// Waits for the moment of a message; returns that message, its client and its server.
async fn at_message(at: AtMessage, window: u32, env: &FaultEnv) -> (MatchedMessage, u32, u32) {
    let rule = MessageRule::new(MessageRuleSpec {
        message: MessageKind::any(),
        occurrence: at.number,
        whose: ANYONE,
        accepted: false,
        action: match at.moment {
            MessageMoment::Sent => MessageAction::DropRequest,
            MessageMoment::CarriedOut => MessageAction::DropReply,
            MessageMoment::Answered | MessageMoment::Received => MessageAction::DelayReply(Duration::ZERO),
        },
        refuse: None,
    });
    let armed = ActiveRule::apply(env.links.values().cloned().collect(), window, rule);
    let passes_ns = armed.rule().found().await;
    // a reply that another act makes late is on its way from then on
    if matches!(at.moment, MessageMoment::Answered | MessageMoment::Received) {
        env.clock.sleep_until(passes_ns).await;
    }
    let found = armed.rule().matched().expect("a message that was found is known");
    let (client, server) = env.ends_of(&found).expect("it passed on one of these links");
    (found, client, server)
}

/// Returns the server with the role of a target, and that role. `leader` and `old` are nodes: the one that leads, and those that
/// still have the version with which the run began.
fn server_of(
    target: &Target,
    leader: Option<u32>,
    servers: u32,
    old: &[u32],
    endpoints: &Endpoints,
) -> Result<(u32, &'static str), &'static str> {
    let old: Vec<u32> = old.iter().filter_map(|node| endpoints.server_of(*node)).collect();
    if *target == Target::NextUpgrade && old.is_empty() {
        return Err("every server is upgraded already");
    }
    let leader = leader.and_then(|node| endpoints.server_of(node));
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
    use std::net::SocketAddr;

    use super::*;

    fn endpoints(nodes: u16, primary: Option<usize>) -> Endpoints {
        let nodes = (1..=nodes).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Endpoints::new(nodes.collect(), primary)
    }

    #[test]
    fn a_known_key_is_of_its_own_lock_and_not_of_one_whose_name_begins_its_name() {
        let since = |keys: &[&str]| GrantedSince {
            prepared: Duration::ZERO,
            known_keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        };
        assert!(!since(&["harness:l10", "my-l12:owner"]).is_known("l1"));
        for key in ["l1", "harness:l1", "{l1}:owner", "l10 l1", "harness:l1:released"] {
            assert!(since(&[key]).is_known("l1"), "{key}");
        }
    }

    #[test]
    fn a_follower_is_never_the_leader_and_each_place_is_one() {
        let of = |target: Target, leader, servers: u32| {
            let endpoints = endpoints(servers as u16, None);
            server_of(&target, leader, servers, &[], &endpoints)
        };
        for leader in 0..3 {
            let chosen = [0, 1, 2].map(|place| of(Target::Follower(place), Some(leader), 3).unwrap().0);
            assert!(!chosen.contains(&leader) && chosen[0] != chosen[1] && chosen[0] == chosen[2]);
            assert_eq!(of(Target::Leader, Some(leader), 3), Ok((leader, "leader")));
        }
        assert!(of(Target::Follower(0), Some(0), 1).is_err());
        assert!(of(Target::Follower(0), None, 3).is_err());
    }

    #[test]
    fn the_master_of_a_replicated_store_is_the_one_server_that_clients_know_whichever_node_it_is() {
        for master in [0, 1] {
            let endpoints = endpoints(2, Some(master as usize));
            let of = |target: Target| server_of(&target, Some(master), 1, &[0, 1], &endpoints);
            assert_eq!(of(Target::Leader), Ok((0, "leader")));
            assert_eq!(of(Target::NextUpgrade), Ok((0, "leader")));
            assert!(of(Target::Follower(0)).is_err());
        }
    }

    #[test]
    fn followers_are_upgraded_first_and_the_server_that_leads_then_last() {
        let three = endpoints(3, None);
        let next = |leader, old: &[u32]| server_of(&Target::NextUpgrade, leader, 3, old, &three);
        assert_eq!(next(Some(0), &[0, 1, 2]), Ok((1, "follower")));
        assert_eq!(next(Some(0), &[0, 2]), Ok((2, "follower")));
        assert_eq!(next(Some(0), &[0]), Ok((0, "leader")));
        // another leader, which is upgraded, was elected in the meantime
        assert_eq!(next(Some(2), &[0]), Ok((0, "follower")));
        assert!(next(Some(2), &[]).unwrap_err().contains("already"));
        assert!(next(None, &[]).unwrap_err().contains("already"));
        assert!(next(None, &[0]).unwrap_err().contains("no server leads"));
    }
}
