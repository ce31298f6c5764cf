//! `partition`: links stall, both ways or one way, and resume: those between clients and servers, or those between
//! servers (see [`peer_partition`](super::peer_partition)).

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::link_injection::LinkInjection;
use super::{Fault, FaultDefinition, Injection, Shape, Target, peer_partition};
use crate::evidence::{HELD_BYTES, HELD_CONNECTS};
use harness_proxy::{Behaviour, Flow};

pub struct Partition;

/// The kinds between clients and servers, in the order in which a plan without an argument goes through them: the one
/// with the largest effect first.
const KINDS: [&str; 6] = ["holder", "client", "half", "to-server", "server", "to-client"];

impl Fault for Partition {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "partition",
            summary: "links stall, both ways or one way; new connections stay unanswered",
            argument: "holder | client | half | server | to-server | to-client (default: these, one after the other); between servers: \
         leader | leader-alone (its clients cut off, too) | leader-to-servers | servers-to-leader | minority | \
         servers-halves | ring | bridge | between-servers (these, one after the other)",
            verb: "cut off",
            counters: &[],
            trace: &[HELD_BYTES, HELD_CONNECTS],
            no_effect_hint: None,
        }
    }

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        peer_partition::applies(argument.unwrap_or_default(), shape)
    }

    fn plan(
        &self,
        argument: Option<&str>,
        number: u32,
        shape: &Shape,
        rng: &mut ChaCha8Rng,
    ) -> Result<Injection, String> {
        let turn = |kinds: &[&'static str]| kinds[number as usize % kinds.len()];
        let kind = match argument {
            None => turn(&KINDS),
            Some(peer_partition::EVERY_KIND) => turn(&peer_partition::kinds_for(shape)),
            Some(kind) => known().find(|known| *known == kind).ok_or_else(|| unknown(kind))?,
        };
        if peer_partition::KINDS.contains(&kind) {
            return Ok(peer_partition::plan(kind, shape, rng));
        }
        let both = Behaviour::STALL;
        let (target, behaviour, title) = match kind {
            "client" => {
                let client = rng.random_range(0..shape.clients);
                (Target::Clients(vec![client]), both, format!("c{client} | every server"))
            }
            "half" => half(shape, rng),
            "server" => {
                let server = rng.random_range(0..shape.servers);
                (
                    Target::Servers(vec![server]),
                    both,
                    format!("every client | n{}", server + 1),
                )
            }
            "to-server" => {
                let one_way = Behaviour {
                    to_server: Flow::STALL,
                    ..Behaviour::default()
                };
                (
                    Target::Holder,
                    one_way,
                    "holder cut off from every server, towards the servers only".into(),
                )
            }
            "to-client" => {
                let one_way = Behaviour {
                    to_client: Flow::STALL,
                    ..Behaviour::default()
                };
                (
                    Target::Holder,
                    one_way,
                    "holder cut off from every server, towards the client only".into(),
                )
            }
            _ => (Target::Holder, both, "holder | every server".into()),
        };
        let on_links = LinkInjection {
            behaviour,
            reset_first: false,
            reset_on_heal: rng.random_bool(0.5),
        };
        Ok(Injection::new(target, on_links, title))
    }
}

fn half(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Behaviour, String) {
    let all: Vec<u32> = (0..shape.clients).collect();
    let mut some: Vec<u32> = all.sample(rng, (shape.clients as usize).div_ceil(2)).copied().collect();
    some.sort_unstable();
    let names: Vec<String> = some.iter().map(|client| format!("c{client}")).collect();
    (
        Target::Clients(some),
        Behaviour::STALL,
        format!("{} | every server", names.join(" ")),
    )
}

fn known() -> impl Iterator<Item = &'static str> {
    KINDS
        .into_iter()
        .chain(peer_partition::KINDS)
        .chain([peer_partition::EVERY_KIND])
}

fn unknown(kind: &str) -> String {
    let known: Vec<&str> = known().collect();
    format!("partition has no kind `{kind}`; it takes one of {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn half_of_the_clients_is_half_of_them_and_each_once() {
        let shape = Shape {
            clients: 7,
            ..Shape::example()
        };
        for seed in 0..50 {
            let injection = Partition
                .plan(Some("half"), 0, &shape, &mut ChaCha8Rng::seed_from_u64(seed))
                .unwrap();
            let Target::Clients(mut clients) = injection.target else {
                panic!("half is of clients")
            };
            clients.dedup();
            assert_eq!(clients.len(), 4);
            assert!(clients.iter().all(|client| *client < 7));
        }
    }
}
