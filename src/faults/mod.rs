//! Faults: each is planned from the cluster's shape and the seed alone, and heals when it is dropped.
//!
//! One file a fault. To add one, write its file ([`Fault`], [`Inject`], [`ActiveFault`]) and its lines here, `mod` and
//! [`FAULTS`]: the flag, the list, the help, the plan, the history and the reports follow from its definition. `FaultEnv` has the
//! parts that it may act on; the schedule and the targeting know no fault.

mod active;
mod env;
mod fault;
mod injection;
mod insistence;
mod link_injection;
mod peer_partition;
mod points;
mod shape;
mod target;

mod bottleneck;
mod client;
mod clock;
mod disk_full;
mod elected_failover;
mod every_link;
mod failover;
mod held_back;
mod message;
mod message_arguments;
mod message_words;
mod next_message;
mod partition;
mod pooler;
mod server;
mod server_replace;
mod server_upgrade;
mod slow_disk;

pub use active::{ActiveFault, Affected, HealOnDrop, Healed, Injected};
pub use clock::NO_CONCERN as NO_CLOCK_CONCERN;
pub use env::{ClientHosts, FaultEnv, Links, ProcessControl};
pub use fault::{Fault, FaultDefinition, FaultFamily, Pace};
pub use injection::{Inject, Injection, InjectionContext, Needs, NotInjected, Planned, Preparation, acquires_without};
pub use points::{MessagePoint, MessagePoints, is_point};
pub use shape::Shape;
pub use target::{AtMessage, MessageEnd, MessageMoment, ResolvedTarget, Target};

use crate::config::parse_duration;
use harness_checkers::history::Acquires;
pub use harness_proxy::tap::Protocol;

/// The faults, in the order of lists.
pub const FAULTS: &[&dyn Fault] = &[
    &partition::Partition,
    &every_link::OnEveryLink::Latency,
    &every_link::OnEveryLink::Bursts,
    &every_link::OnEveryLink::Loss,
    &every_link::OnEveryLink::Slow,
    &bottleneck::SharedLink,
    &every_link::OnEveryLink::ForgetIdle,
    &every_link::OnEveryLink::Reset,
    &every_link::OnEveryLink::Flaky,
    &message::OnMessage::DropRequest,
    &message::OnMessage::DropReply,
    &message::OnMessage::DelayRequest,
    &message::OnMessage::DelayReply,
    &message::OnMessage::KillAfter,
    &client::OnClient::PauseHolder,
    &client::OnClient::PauseWaiter,
    &client::OnClient::Pause,
    &client::OnClient::KillHolder,
    &client::OnClient::Kill,
    &server::OnServers::Kill,
    &server::OnServers::Pause,
    &server::OnServers::Restart,
    &server_replace::ServerReplace,
    &server_upgrade::ServerUpgrade,
    &slow_disk::SlowDisk,
    &disk_full::DiskFull,
    &failover::Failover,
    &pooler::Pooler,
    &clock::ClockFault,
];

pub fn fault_named(name: &str) -> Option<&'static dyn Fault> {
    FAULTS.iter().copied().find(|fault| fault.name() == name)
}

#[cfg(test)]
mod tests {
    use std::any::Any;

    use super::link_injection::LinkInjection;
    use super::*;
    use harness_proxy::Behaviour;

    /// Returns the shape of a cluster that can have this fault.
    fn shape_for(fault: &dyn Fault) -> Shape {
        let postgres = Shape {
            backend: crate::backends::of(harness_workloads::BackendId::Postgres),
            ..Shape::one_redis()
        };
        let mut shapes = [Shape::example(), Shape::one_redis(), postgres].into_iter();
        let fitting = shapes.find(|shape| fault.applies(needed(fault), shape).is_ok());
        fitting.expect("some cluster can have it")
    }

    /// Returns an argument for a fault that requires one.
    fn needed(fault: &dyn Fault) -> Option<&'static str> {
        (fault.name() == crate::config::upgrade::UPGRADE_FAULT).then_some("zookeeper:3.9")
    }

    fn planned(fault: &dyn Fault, argument: Option<&str>, number: u32, seed: u64) -> Planned {
        fault.planned(argument, number, &shape_for(fault), seed)
    }

    #[test]
    fn every_fault_plans_an_injection_that_does_something_and_the_same_seed_the_same() {
        for fault in FAULTS {
            for number in 0..8 {
                let injection = planned(*fault, needed(*fault), number, 3).unwrap();
                let again = planned(*fault, needed(*fault), number, 3).unwrap();
                assert_eq!(format!("{injection:?}"), format!("{again:?}"), "{}", fault.name());
                let action: &dyn Any = &*injection.action;
                if let Some(links) = action.downcast_ref::<LinkInjection>() {
                    let changes = links.reset_first || links.behaviour != Behaviour::default();
                    assert!(changes, "{}", fault.name());
                }
            }
        }
    }

    #[test]
    fn a_wrong_argument_is_refused_with_what_it_should_have_been() {
        for fault in FAULTS {
            let refused = planned(*fault, Some("nonsense"), 0, 1).unwrap_err();
            assert!(refused.contains("nonsense"), "{}: {refused}", fault.name());
        }
    }

    #[test]
    fn every_name_is_taken_once_and_a_verb_completes_its_sentence() {
        for (at, fault) in FAULTS.iter().enumerate() {
            let definition = fault.definition();
            assert!(!FAULTS[..at].iter().any(|other| other.name() == definition.name));
            assert!(!definition.verb.is_empty() && !definition.summary.is_empty());
        }
    }

    #[test]
    fn the_trace_of_a_fault_is_something_that_it_or_its_links_count() {
        for fault in FAULTS {
            let definition = fault.definition();
            assert!(!definition.trace.is_empty(), "{} could not be seen", definition.name);
            for counter in definition.trace {
                let counted = definition.counters.contains(counter) || crate::evidence::LINK_COUNTERS.contains(counter);
                assert!(counted, "{}: {}", definition.name, counter.key);
            }
        }
    }
}
