//! `partition`: links stand still, both ways or one way, and come back: those between clients and servers, or those
//! between servers (see [`rift`](super::rift)).

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::{Fault, Means, OnLinks, Shape, Strike, Target, rift};
use crate::network::{Behaviour, Flow};

pub struct Partition;

/// The kinds between clients and servers, in the order in which a plan without an argument goes through them: the one
/// that bites hardest first.
const KINDS: [&str; 6] = ["holder", "client", "half", "to-server", "server", "to-client"];

impl Fault for Partition {
    fn name(&self) -> &'static str {
        "partition"
    }

    fn summary(&self) -> &'static str {
        "links stall, both ways or one way; new connections stay unanswered"
    }

    fn argument(&self) -> &'static str {
        "holder | client | half | server | to-server | to-client (default: these, one after the other); between servers: \
         leader | leader-alone (its clients cut off, too) | leader-to-servers | servers-to-leader | minority | \
         servers-halves | ring | bridge | between-servers (these, one after the other)"
    }

    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        let turn = |kinds: &[&'static str]| kinds[number as usize % kinds.len()];
        let kind = match argument {
            None => turn(&KINDS),
            Some(rift::EVERY_KIND) => turn(&rift::KINDS),
            Some(kind) => known().find(|known| *known == kind).ok_or_else(|| unknown(kind))?,
        };
        if rift::KINDS.contains(&kind) {
            return rift::plan(kind, shape, rng);
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
                (Target::Server(server), both, format!("every client | n{}", server + 1))
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
        let on_links = OnLinks {
            behaviour,
            reset_first: false,
            reset_on_heal: rng.random_bool(0.5),
        };
        Ok(Strike::of(target, Means::Links(on_links), title))
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
    KINDS.into_iter().chain(rift::KINDS).chain([rift::EVERY_KIND])
}

fn unknown(kind: &str) -> String {
    let known: Vec<&str> = known().collect();
    format!("partition has no kind `{kind}`; it takes one of {}", known.join(", "))
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;
    use rand::SeedableRng;
    use std::time::Duration;

    #[test]
    fn half_of_the_clients_is_half_of_them_and_each_once() {
        let shape = Shape {
            backend: backends::of(BackendId::Zk),
            clients: 7,
            servers: 3,
            lease: Duration::from_secs(2),
            protocol: crate::faults::Protocol::Zk,
        };
        for seed in 0..50 {
            let strike = Partition
                .plan(Some("half"), 0, &shape, &mut ChaCha8Rng::seed_from_u64(seed))
                .unwrap();
            let Target::Clients(mut clients) = strike.target else {
                panic!("half strikes clients")
            };
            clients.dedup();
            assert_eq!(clients.len(), 4);
            assert!(clients.iter().all(|client| *client < 7));
        }
    }
}
