//! `partition`: packets are dropped on links, both ways or one way: on those between clients and servers, or on those
//! between servers (see [`peer_partition`](super::peer_partition)).
//!
//! The kernel drops them before it acknowledges them, as `iptables -j DROP` does. So a TCP client that detects a dead peer
//! (`TCP_USER_TIMEOUT`, keepalive) detects this one, and after the heal a connection continues with a retransmission.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::{kind_of, some_of};
use super::link_injection::{LinkInjection, heal_word};
use super::points::{is_point, number_alone};
use super::target::{MessageMoment, client_at};
use super::{
    Acquires, Fault, FaultDefinition, FaultFamily, Injection, Pace, Planned, Shape, Target, acquires_without,
    peer_partition,
};
use crate::evidence::{DROPPED_PACKETS, HELD_BYTES, HELD_CONNECTS};
use harness_proxy::{Behaviour, Flow};

pub struct Partition;

/// The kinds between clients and servers, in the order of their turns in a plan without an argument: the one with the largest
/// effect first.
const KINDS: [&str; 6] = ["holder", "client", "half", "to-server", "server", "to-client"];
/// A client that waits for a lock, cut off from every server.
const WAITER: &str = "waiter";

impl Fault for Partition {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "partition",
            summary: "packets are dropped, both ways or one way: nothing is acknowledged, no connect is answered",
            argument: "holder | client | half | server | to-server | to-client (default: these, one after the other) | waiter | any:57 (the client of the \
         57th of all messages except pings, once it has the reply); between servers: \
         leader | leader-alone (its clients cut off, too) | leader-to-servers | servers-to-leader | minority | \
         servers-halves | ring | bridge | between-servers (these, one after the other)",
            family: FaultFamily::Cluster,
            pace: Pace::Varied,
            verb: "cut off",
            counters: &[],
            trace: &[DROPPED_PACKETS, HELD_BYTES, HELD_CONNECTS],
            no_effect_hint: None,
        }
    }

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        peer_partition::applies(argument.unwrap_or_default(), shape)
    }

    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let turn = |kinds: &[&'static str]| kinds[number as usize % kinds.len()];
        let kind = match argument {
            None => turn(&KINDS),
            Some(message) if is_point(message) => message,
            Some(peer_partition::EVERY_KIND) => turn(&peer_partition::kinds_for(shape)),
            Some(_) => kind_of("partition", argument, &known())?,
        };
        if peer_partition::KINDS.contains(&kind) {
            return Ok(peer_partition::plan(kind, shape, rng));
        }
        let reset_on_heal = rng.random_bool(0.5);
        let both = Behaviour::BLACKHOLE;
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
            "to-server" | "to-client" => one_way(kind),
            WAITER => (Target::Waiter, both, "waiter | every server".into()),
            message if is_point(message) => {
                let number = number_alone(message, shape)?;
                let title = format!("the client of message {number} | every server");
                (client_at(number, MessageMoment::Received), both, title)
            }
            _ => (Target::Holder, both, "holder | every server".into()),
        };
        let on_links = LinkInjection {
            behaviour,
            reset_first: false,
            reset_on_heal,
        };
        let acquires = match &target {
            Target::Servers(servers) => acquires_without(servers.len(), shape),
            // the only client is cut off
            _ if shape.clients == 1 => Acquires::Stop,
            _ => Acquires::GoOn,
        };
        let heal = heal_word(reset_on_heal);
        Ok(Injection::new(target, on_links, acquires, title, heal))
    }
}

/// Returns a partition of the holder in one direction: towards the servers, or towards itself.
fn one_way(kind: &str) -> (Target, Behaviour, String) {
    let mut behaviour = Behaviour::default();
    let (flow, towards) = match kind {
        "to-server" => (&mut behaviour.to_server, "servers"),
        _ => (&mut behaviour.to_client, "client"),
    };
    *flow = Flow::BLACKHOLE;
    let title = format!("holder cut off from every server, towards the {towards} only");
    (Target::Holder, behaviour, title)
}

fn half(shape: &Shape, rng: &mut ChaCha8Rng) -> (Target, Behaviour, String) {
    let some = some_of(shape.clients, (shape.clients as usize).div_ceil(2), rng);
    let names: Vec<String> = some.iter().map(|client| format!("c{client}")).collect();
    (
        Target::Clients(some),
        Behaviour::BLACKHOLE,
        format!("{} | every server", names.join(" ")),
    )
}

fn known() -> Vec<&'static str> {
    let of_clients = KINDS.into_iter().chain([WAITER]);
    let of_servers = peer_partition::KINDS.into_iter().chain([peer_partition::EVERY_KIND]);
    of_clients.chain(of_servers).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_stops_every_acquire_where_it_leaves_no_client_or_no_majority_of_servers() {
        let acquires = |kind, shape| {
            let planned = Partition.planned(Some(kind), 0, &shape, 1);
            planned.unwrap().acquires
        };
        let alone = Shape {
            clients: 1,
            ..Shape::example()
        };
        assert_eq!(acquires("server", Shape::one_redis()), Acquires::Stop);
        assert_eq!(acquires("server", Shape::example()), Acquires::GoOn);
        assert_eq!(acquires("holder", alone), Acquires::Stop);
        assert_eq!(acquires("holder", Shape::example()), Acquires::GoOn);
    }

    #[test]
    fn half_of_the_clients_is_half_of_them_and_each_once() {
        let shape = Shape {
            clients: 7,
            ..Shape::example()
        };
        for seed in 0..50 {
            let injection = Partition.planned(Some("half"), 0, &shape, seed).unwrap();
            let Target::Clients(mut clients) = injection.target else {
                panic!("half is of clients")
            };
            clients.sort_unstable();
            clients.dedup();
            assert_eq!(clients.len(), 4);
            assert!(clients.iter().all(|client| *client < 7));
        }
    }
}
