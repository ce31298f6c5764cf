//! Faults: each is planned purely from the cluster's shape and the seed, and heals when its guard is dropped.
//!
//! One file a fault. To add one, write its file and its line in [`FAULTS`]: the flag, the list, the help and the plan
//! follow from it. A strike acts on links, on one message, on the processes of clients or on servers: its [`Means`] say which and how.

mod clock;
mod failover;
mod field;
mod flaky;
mod kill;
mod latency;
mod message;
mod open;
mod partition;
mod pause;
mod promotion;
mod reset;
mod rift;
mod server;
mod servers;
mod slow;
mod strike;

pub use clock::Step;
pub use field::{ClientProcess, Field, Hosts, Links};
pub use open::Open;
pub use promotion::Prelude;
pub use strike::{ClientBlow, Demand, Means, OnLinks, Rift, ServerBlow, Split, Strike, Target};

use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use crate::backends::Backend;
use crate::config::parse_duration;
use crate::network::Behaviour;
pub use crate::network::tap::Protocol;

/// What can be struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub backend: &'static Backend,
    pub clients: u32,
    pub servers: u32,
    pub lease: Duration,
    /// What is spoken on the links between clients and servers.
    pub protocol: Protocol,
}

pub trait Fault: Sync {
    /// As it is typed.
    fn name(&self) -> &'static str;

    /// One line for lists and help.
    fn summary(&self) -> &'static str;

    /// What may stand behind `=`, for help; empty when nothing may.
    fn argument(&self) -> &'static str;

    /// Draws one strike. The same seed, shape and number give the same strike. `number` counts this fault's windows from
    /// 0, so that a fault can go through its kinds. The error says what the argument should have been.
    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String>;
}

/// Every fault, in the order in which lists show them.
pub const FAULTS: &[&dyn Fault] = &[
    &partition::Partition,
    &latency::Latency,
    &slow::Slow,
    &reset::Reset,
    &flaky::Flaky,
    &message::OnMessage::DropRequest,
    &message::OnMessage::DropReply,
    &message::OnMessage::DelayRequest,
    &message::OnMessage::DelayReply,
    &pause::PauseHolder,
    &pause::PauseWaiter,
    &pause::Pause,
    &kill::KillHolder,
    &kill::Kill,
    &server::ServerKill,
    &server::ServerPause,
    &server::ServerRestart,
    &failover::Failover,
    &clock::Clock,
];

pub fn fault_named(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}

/// Every client's every link, with one behaviour.
fn everywhere(behaviour: Behaviour, title: String) -> Strike {
    Strike::on_links(Target::Everyone, behaviour, title)
}

/// Refuses an argument where none is taken.
fn no_argument(fault: &str, argument: Option<&str>) -> Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("{fault}={argument}: {fault} takes no argument")),
    }
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;
    use rand::SeedableRng;

    const SHAPE: Shape = Shape {
        backend: backends::of(BackendId::Zk),
        clients: 5,
        servers: 3,
        lease: Duration::from_secs(2),
        protocol: Protocol::Zk,
    };

    /// A cluster that can have this fault.
    fn shape_for(fault: &dyn Fault) -> Shape {
        let (backend, servers) = match fault.name() {
            "failover" => (backends::of(BackendId::Redis), 1),
            _ => (backends::of(BackendId::Zk), 3),
        };
        Shape {
            backend,
            servers,
            ..SHAPE
        }
    }

    #[test]
    fn every_fault_plans_a_strike_that_does_something_and_the_same_seed_the_same() {
        for fault in FAULTS {
            for number in 0..8 {
                let shape = shape_for(*fault);
                let draw = |seed| {
                    fault
                        .plan(None, number, &shape, &mut ChaCha8Rng::seed_from_u64(seed))
                        .unwrap()
                };
                let strike = draw(3);
                assert_eq!(strike, draw(3), "{}", fault.name());
                if let Means::Links(links) = strike.means {
                    assert!(
                        links.reset_first || links.behaviour != Behaviour::default(),
                        "{}",
                        fault.name()
                    );
                }
            }
        }
    }

    #[test]
    fn a_wrong_argument_is_refused_with_what_it_should_have_been() {
        for fault in FAULTS {
            let refused = fault
                .plan(Some("nonsense"), 0, &SHAPE, &mut ChaCha8Rng::seed_from_u64(1))
                .unwrap_err();
            assert!(refused.contains("nonsense"), "{}: {refused}", fault.name());
        }
    }
}
