//! Peer partitions: the kinds of `partition` that separate servers from each other, and the behaviour of each link.
//!
//! A link between servers carries the connections that one of them opened, in both directions. So the bytes from `n1` to `n2` use
//! two links: towards the server on `n1->n2`, and towards the client on `n2->n1`.

use async_trait::async_trait;
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::fault::{not_attached, not_simulated, server_names, some_of};
use super::link_injection::{heal_word, on_links};
use super::{
    FaultEnv, Inject, Injected, Injection, InjectionContext, Needs, NotInjected, Shape, Target, acquires_without,
};
use crate::cluster::Peering;
use harness_proxy::{AnyLink, Behaviour, Flow, LinkFault};

/// The kinds, in the order of their turns in `between-servers`.
pub const KINDS: [&str; 8] = [
    "leader",
    "minority",
    "leader-to-servers",
    "bridge",
    "servers-to-leader",
    "ring",
    "servers-halves",
    "leader-alone",
];

/// The argument for all of these in turn.
pub const EVERY_KIND: &str = "between-servers";

/// The traffic between servers that is dropped.
#[derive(Debug, Clone)]
struct PeerPartition {
    cut: CutBetween,
    /// Whether the target's clients are cut off from it, too.
    clients_too: bool,
    /// Whether connections are reset at the heal, instead of continuing.
    reset_on_heal: bool,
}

#[derive(Debug, Clone)]
enum CutBetween {
    /// From the target to the other servers, from them to the target, or both.
    TargetAndOthers { sends: bool, hears: bool },
    /// From the first of each pair to the second, by server from 0.
    Pairs(Vec<(u32, u32)>),
}

const BOTH: CutBetween = CutBetween::TargetAndOthers {
    sends: true,
    hears: true,
};

/// Returns the kinds for which a cluster of this shape has enough servers.
pub fn kinds_for(shape: &Shape) -> Vec<&'static str> {
    let fits = |kind: &&str| least_servers(kind) <= shape.servers;
    KINDS.into_iter().filter(fits).collect()
}

fn least_servers(kind: &str) -> u32 {
    if ["minority", "ring", "bridge"].contains(&kind) {
        3
    } else {
        2
    }
}

/// Checks whether a cluster can have this kind; a kind that is not in [`KINDS`] is not between servers.
pub fn applies(kind: &str, shape: &Shape) -> Result<(), String> {
    if !KINDS.contains(&kind) && kind != EVERY_KIND {
        return Ok(());
    }
    let fault = format!("partition={kind}");
    let why = "there are no links between simulated servers";
    let hint = "--fault partition, server-kill=leader or server-pause=leader; or --runtime local or docker";
    if !shape.virtual_time {
        not_simulated(&fault, why, hint, shape)?;
    }
    not_attached(&fault, "needs a proxy between the servers", shape)?;
    let product = shape.backend.product();
    let (least, there_are) = (least_servers(kind), shape.servers);
    let needed = match shape.backend.software.peering {
        Peering::Socks | Peering::Dialled { .. } if there_are >= least => return Ok(()),
        Peering::Socks | Peering::Dialled { .. } => {
            format!("{least} servers or more, and there are {there_are}: --nodes 3")
        }
        Peering::Replication(_) => format!(
            "servers that depend on each other, and {product} masters do not\nhint: --fault failover cuts a master off from its replica"
        ),
        Peering::Announced(_) => format!(
            "a link between each two servers; {product} servers that elect a master share one link to each\nhint: --fault failover cuts the master off from all others"
        ),
        Peering::Direct => format!(
            "a proxy between the servers, and servers of {product} cannot use one\nhint: --fault partition cuts clients off from servers, server-pause stops a server"
        ),
    };
    Err(format!("{fault} needs {needed}"))
}

/// Draws a partition of this kind, one of [`KINDS`], which applies.
pub fn plan(kind: &str, shape: &Shape, rng: &mut ChaCha8Rng) -> Injection {
    let reset_on_heal = rng.random_bool(0.5);
    let (target, cut, title) = match kind {
        "minority" => {
            let size = rng.random_range(1..=(shape.servers as usize - 1) / 2);
            apart(shape, size, rng)
        }
        "servers-halves" => apart(shape, shape.servers as usize / 2, rng),
        "ring" => ring(shape, rng),
        "bridge" => bridge(shape, rng),
        _ => of_leader(kind),
    };
    let gone = match &target {
        // between the servers of a ring or a bridge some majority can communicate
        _ if ["ring", "bridge"].contains(&kind) => 0,
        Target::Servers(some) => some.len(),
        _ => 1,
    };
    let partition = PeerPartition {
        cut,
        clients_too: kind == "leader-alone",
        reset_on_heal,
    };
    let acquires = acquires_without(gone, shape);
    Injection::new(target, partition, acquires, title, heal_word(reset_on_heal))
}

fn of_leader(kind: &str) -> (Target, CutBetween, String) {
    let (sends, hears, title) = match kind {
        "leader-to-servers" => (true, false, "what it sends to the other servers is held back"),
        "servers-to-leader" => (false, true, "what the other servers send to it is held back"),
        "leader-alone" => (true, true, "cut off from the other servers and from every client"),
        _ => (true, true, "cut off from the other servers; clients reach it"),
    };
    let cut = CutBetween::TargetAndOthers { sends, hears };
    (Target::Leader, cut, title.to_owned())
}

/// Separates `size` servers from the others.
fn apart(shape: &Shape, size: usize, rng: &mut ChaCha8Rng) -> (Target, CutBetween, String) {
    let some = some_of(shape.servers, size, rng);
    let others: Vec<u32> = (0..shape.servers).filter(|server| !some.contains(server)).collect();
    let title = format!("{} | {}", server_names(&some), server_names(&others));
    (Target::Servers(some), BOTH, title)
}

/// Draws a ring in which each server receives from the next ones, as many as make a majority with itself: no two servers have the
/// same majority.
fn ring(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, CutBetween, String) {
    let mut ring: Vec<u32> = (0..shape.servers).collect();
    ring.shuffle(rng);
    let (all, majority) = (ring.len(), ring.len() / 2 + 1);
    let mut cut = Vec::new();
    let mut heard = Vec::new();
    for (place, server) in ring.iter().enumerate() {
        let next = |step: usize| ring[(place + step) % all];
        cut.extend((majority..all).map(|step| (next(step), *server)));
        let hears: Vec<u32> = (1..majority).map(next).collect();
        heard.push(format!("n{} hears {}", server + 1, server_names(&hears)));
    }
    (
        Target::Servers((0..shape.servers).collect()),
        CutBetween::Pairs(cut),
        heard.join(", "),
    )
}

/// Draws two sides that cannot reach each other, and one server that reaches both.
fn bridge(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, CutBetween, String) {
    let mut all: Vec<u32> = (0..shape.servers).collect();
    all.shuffle(rng);
    let (bridge, sides) = (all[0], &all[1..]);
    let (one, other) = sides.split_at(sides.len() / 2);
    let both_ways = |(from, to): (u32, u32)| [(from, to), (to, from)];
    let pairs = one.iter().flat_map(|from| other.iter().map(|to| (*from, *to)));
    let title = format!(
        "{} | {}, and n{} reaches both",
        server_names(one),
        server_names(other),
        bridge + 1
    );
    (
        Target::Servers(sides.to_vec()),
        CutBetween::Pairs(pairs.flat_map(both_ways).collect()),
        title,
    )
}

#[async_trait]
impl Inject for PeerPartition {
    fn needs(&self) -> Needs {
        Needs {
            peer_proxy: true,
            ..Needs::default()
        }
    }

    fn toxics(&self) -> Result<Option<String>, String> {
        if self.clients_too {
            return Err("it holds back links of two kinds at once".into());
        }
        // the proxy between servers is the built-in one in any case
        Ok(None)
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let servers = context.target.servers();
        let behaviours = self.behaviours(&servers, context.env);
        let fault = LinkFault::apply_each(behaviours, context.number, self.reset_on_heal);
        Ok(on_links(fault, Vec::new(), servers))
    }
}

impl PeerPartition {
    /// Returns the behaviour of each link while `target` is cut off.
    fn behaviours(&self, target: &[u32], env: &FaultEnv) -> Vec<(AnyLink, Behaviour)> {
        let cut_off = |cut: bool| if cut { Flow::BLACKHOLE } else { Flow::default() };
        let between = env.peer_links.iter().map(|((dialler, dialled), link)| {
            let behaviour = Behaviour {
                to_server: cut_off(self.cut.holds_back(target, *dialler, *dialled)),
                to_client: cut_off(self.cut.holds_back(target, *dialled, *dialler)),
                ..Behaviour::default()
            };
            (link.clone(), behaviour)
        });
        let clients = env.links.iter();
        let clients = clients.filter(|((_, server), _)| self.clients_too && target.contains(server));
        let clients = clients.map(|(_, link)| (link.clone(), Behaviour::BLACKHOLE));
        let between = between.filter(|(_, behaviour)| behaviour.holds_connects());
        between.chain(clients).collect()
    }
}

impl CutBetween {
    /// Whether the traffic from `from` to `to` is dropped.
    fn holds_back(&self, target: &[u32], from: u32, to: u32) -> bool {
        match self {
            Self::Pairs(pairs) => pairs.contains(&(from, to)),
            Self::TargetAndOthers { sends, hears } => {
                let (out, into) = (target.contains(&from), target.contains(&to));
                (out && !into && *sends) || (into && !out && *hears)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;
    use harness_checkers::history::Acquires;

    /// Returns the traffic between servers that is dropped, with server 0 as the leader.
    fn cut(kind: &str, servers: u32, seed: u64) -> Vec<(u32, u32)> {
        let shape = Shape::of_servers(servers);
        let injection = plan(kind, &shape, &mut ChaCha8Rng::seed_from_u64(seed));
        let partition: &PeerPartition = injection.action_as();
        let target = match injection.target.clone() {
            Target::Servers(servers) => servers,
            Target::Leader => vec![0],
            other => panic!("{other:?} is no server"),
        };
        let all = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to && partition.cut.holds_back(&target, *from, *to))
            .collect()
    }

    #[test]
    fn an_isolated_leader_neither_sends_nor_hears_and_the_others_do() {
        for kind in ["leader", "leader-alone"] {
            assert_eq!(cut(kind, 3, 1), [(0, 1), (0, 2), (1, 0), (2, 0)]);
        }
        assert_eq!(cut("leader-to-servers", 3, 1), [(0, 1), (0, 2)]);
        assert_eq!(cut("servers-to-leader", 3, 1), [(1, 0), (2, 0)]);
    }

    #[test]
    fn a_minority_is_less_than_half_and_cut_off_both_ways() {
        for seed in 0..20 {
            let cut = cut("minority", 5, seed);
            assert!(
                [2 * 4, 2 * 6].contains(&cut.len()),
                "one against four, or two against three: {cut:?}"
            );
            assert!(cut.iter().all(|(from, to)| cut.contains(&(*to, *from))));
        }
    }

    #[test]
    fn halves_of_an_even_number_leave_no_majority() {
        assert_eq!(cut("servers-halves", 4, 3).len(), 2 * 4);
        let acquires = |kind, servers| {
            let shape = Shape::of_servers(servers);
            plan(kind, &shape, &mut ChaCha8Rng::seed_from_u64(3)).acquires
        };
        assert_eq!(acquires("servers-halves", 4), Acquires::Stop);
        for (kind, servers) in [("servers-halves", 3), ("leader", 3), ("bridge", 5), ("ring", 4)] {
            assert_eq!(acquires(kind, servers), Acquires::GoOn, "{kind} of {servers}");
        }
    }

    #[test]
    fn in_a_ring_everybody_hears_a_majority_and_no_two_the_same() {
        for servers in [3, 4, 5, 7] {
            let cut = cut("ring", servers, 3);
            let hears = |server| -> Vec<u32> { (0..servers).filter(|from| !cut.contains(&(*from, server))).collect() };
            let mut heard: Vec<Vec<u32>> = (0..servers).map(hears).collect();
            assert!(heard.iter().all(|majority| majority.len() as u32 == servers / 2 + 1));
            heard.sort();
            heard.dedup();
            assert_eq!(heard.len() as u32, servers);
        }
    }

    #[test]
    fn a_bridge_reaches_both_sides_and_they_do_not_reach_each_other() {
        let cut = cut("bridge", 5, 3);
        assert_eq!(cut.len(), 2 * 2 * 2);
        let untouched = (0..5).filter(|server| cut.iter().all(|(from, to)| from != server && to != server));
        assert_eq!(untouched.count(), 1);
    }

    #[test]
    fn two_servers_make_no_ring() {
        let shape = Shape::of_servers;
        assert!(!kinds_for(&shape(2)).contains(&"ring") && kinds_for(&shape(3)) == KINDS);
    }
}
