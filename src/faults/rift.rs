//! Rifts between servers: the kinds of `partition` that part servers from each other, and what each does to every link.
//!
//! A link between servers carries the connections that one of them opened, both ways. So what `n1` sends to `n2` runs
//! over two links: towards the server on `n1->n2`, and towards the client on `n2->n1`.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha8Rng;

use super::field::Field;
use super::strike::{Rift, Split, Target};
use super::{Means, Shape, Strike};
use crate::cluster::Peering;
use crate::network::{Behaviour, Flow, Link};

/// The kinds, in the order in which `between-servers` goes through them.
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

/// The kind that stands for all of these, one after the other.
pub const EVERY_KIND: &str = "between-servers";

const BOTH: Split = Split::Around {
    sends: true,
    hears: true,
};

/// Draws a rift of this kind, one of [`KINDS`].
pub fn plan(kind: &str, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
    refuse(kind, shape)?;
    let reset_on_heal = rng.random_bool(0.5);
    let (target, split, title) = match kind {
        "minority" => minority(shape, rng),
        "servers-halves" => halves(shape, rng),
        "ring" => ring(shape, rng),
        "bridge" => bridge(shape, rng),
        _ => of_leader(kind),
    };
    let rift = Rift {
        split,
        clients_too: kind == "leader-alone",
        reset_on_heal,
    };
    Ok(Strike::of(target, Means::Between(rift), title))
}

fn refuse(kind: &str, shape: &Shape) -> Result<(), String> {
    let product = shape.backend.product();
    match shape.backend.software.peering {
        Peering::Socks => {}
        Peering::Replication(_) => {
            return Err(format!(
                "partition={kind} parts servers that depend on each other, and {product} masters do not\nhint: --fault failover holds back what a master sends to its replica"
            ));
        }
        Peering::Direct => {
            return Err(format!(
                "partition={kind} needs a proxy between the servers, and the servers of {product} take none"
            ));
        }
    }
    let least = if ["minority", "ring", "bridge"].contains(&kind) {
        3
    } else {
        2
    };
    if shape.servers < least {
        let there_are = shape.servers;
        return Err(format!(
            "partition={kind} takes {least} servers or more, and there are {there_are}: --nodes 3"
        ));
    }
    Ok(())
}

fn of_leader(kind: &str) -> (Target, Split, String) {
    let (split, title) = match kind {
        "leader-to-servers" => (
            Split::Around {
                sends: true,
                hears: false,
            },
            "what it sends to the other servers is held back",
        ),
        "servers-to-leader" => (
            Split::Around {
                sends: false,
                hears: true,
            },
            "what the other servers send to it is held back",
        ),
        "leader-alone" => (BOTH, "cut off from the other servers and from every client"),
        _ => (BOTH, "cut off from the other servers; clients reach it"),
    };
    (Target::Leader, split, title.to_owned())
}

fn minority(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Split, String) {
    let size = rng.random_range(1..=(shape.servers as usize - 1) / 2);
    let some = some(shape, size, rng);
    let title = format!("{} | {}", names(&some), names(&others(shape, &some)));
    (Target::Servers(some), BOTH, title)
}

fn halves(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Split, String) {
    let some = some(shape, shape.servers as usize / 2, rng);
    let title = format!("{} | {}", names(&some), names(&others(shape, &some)));
    (Target::Servers(some), BOTH, title)
}

/// In a ring that the seed draws, each server hears the next ones, just so many that with itself they are a majority: no
/// two servers hear the same majority.
fn ring(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Split, String) {
    let mut ring: Vec<u32> = (0..shape.servers).collect();
    ring.shuffle(rng);
    let (all, majority) = (ring.len(), ring.len() / 2 + 1);
    let mut cut = Vec::new();
    let mut heard = Vec::new();
    for (place, server) in ring.iter().enumerate() {
        let next = |step: usize| ring[(place + step) % all];
        cut.extend((majority..all).map(|step| (next(step), *server)));
        let hears: Vec<u32> = (1..majority).map(next).collect();
        heard.push(format!("n{} hears {}", server + 1, names(&hears)));
    }
    (
        Target::Servers((0..shape.servers).collect()),
        Split::Pairs(cut),
        heard.join(", "),
    )
}

/// Two sides that cannot reach each other, and one server that reaches both.
fn bridge(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Split, String) {
    let mut all: Vec<u32> = (0..shape.servers).collect();
    all.shuffle(rng);
    let (bridge, sides) = (all[0], &all[1..]);
    let (one, other) = sides.split_at(sides.len() / 2);
    let both_ways = |(from, to): (u32, u32)| [(from, to), (to, from)];
    let pairs = one.iter().flat_map(|from| other.iter().map(|to| (*from, *to)));
    let title = format!("{} | {}, and n{} reaches both", names(one), names(other), bridge + 1);
    let struck = sides.to_vec();
    (
        Target::Servers(struck),
        Split::Pairs(pairs.flat_map(both_ways).collect()),
        title,
    )
}

fn some(shape: &Shape, size: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..shape.servers).collect();
    let mut some: Vec<u32> = all.sample(rng, size).copied().collect();
    some.sort_unstable();
    some
}

fn others(shape: &Shape, some: &[u32]) -> Vec<u32> {
    (0..shape.servers).filter(|server| !some.contains(server)).collect()
}

fn names(servers: &[u32]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("n{}", server + 1)).collect();
    names.join(" ")
}

/// What each link does while this rift is open around `target`.
pub fn layers(rift: &Rift, target: &[u32], field: &Field) -> Vec<(Arc<Link>, Behaviour)> {
    let stall = |cut: bool| if cut { Flow::STALL } else { Flow::default() };
    let mut found: BTreeMap<(u32, u32), Behaviour> = BTreeMap::new();
    for (dialler, dialled) in field.between.keys().copied() {
        let behaviour = Behaviour {
            to_server: stall(is_cut(&rift.split, target, dialler, dialled)),
            to_client: stall(is_cut(&rift.split, target, dialled, dialler)),
            ..Behaviour::default()
        };
        if behaviour.holds_connects() {
            found.insert((dialler, dialled), behaviour);
        }
    }
    let between = found
        .into_iter()
        .map(|(pair, behaviour)| (Arc::clone(&field.between[&pair]), behaviour));
    let clients = field
        .links
        .iter()
        .filter(|((_, server), _)| rift.clients_too && target.contains(server));
    let clients = clients.map(|(_, link)| (Arc::clone(link), Behaviour::STALL));
    between.chain(clients).collect()
}

/// Whether what `from` sends to `to` is held back.
fn is_cut(split: &Split, target: &[u32], from: u32, to: u32) -> bool {
    match split {
        Split::Pairs(pairs) => pairs.contains(&(from, to)),
        Split::Around { sends, hears } => {
            let (out, into) = (target.contains(&from), target.contains(&to));
            (out && !into && *sends) || (into && !out && *hears)
        }
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

    fn shape(servers: u32) -> Shape {
        Shape {
            backend: backends::of(BackendId::Zk),
            clients: 5,
            servers,
            lease: Duration::from_secs(2),
            protocol: Protocol::Zk,
        }
    }

    /// What is held back between servers, with server 0 as the leader.
    fn cut(kind: &str, servers: u32, seed: u64) -> Vec<(u32, u32)> {
        let strike = plan(kind, &shape(servers), &mut ChaCha8Rng::seed_from_u64(seed)).unwrap();
        let target = match strike.target {
            Target::Servers(servers) => servers,
            Target::Leader => vec![0],
            other => panic!("{other:?} is no target of a rift"),
        };
        let Means::Between(rift) = strike.means else {
            panic!("a rift is between servers")
        };
        let all = (0..servers).flat_map(|from| (0..servers).map(move |to| (from, to)));
        all.filter(|(from, to)| from != to && is_cut(&rift.split, &target, *from, *to))
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
    fn what_a_cluster_cannot_do_is_refused_with_the_reason() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let redis = Shape {
            backend: backends::of(BackendId::Redis),
            ..shape(1)
        };
        assert!(plan("leader", &redis, &mut rng).unwrap_err().contains("failover"));
        assert!(
            plan("ring", &shape(2), &mut rng)
                .unwrap_err()
                .contains("3 servers or more")
        );
        assert!(
            plan("leader", &shape(1), &mut rng)
                .unwrap_err()
                .contains("2 servers or more")
        );
    }
}
