//! The faults of a hunt without `--fault`: those that a correct lock with a lease withstands, in all their kinds.

use harness_proxy::tap::Protocol;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::coverage::MessageCell;
use super::typed_fault::{ON_MESSAGES, name};
use crate::faults::{Shape, fault_named};

/// Faults on the network, the servers and the clients, with the arguments that make their kinds.
const AIMED: &[(&str, &str)] = &[
    (
        "partition",
        "holder client half server to-server to-client leader leader-alone leader-to-servers \
         servers-to-leader minority servers-halves ring bridge",
    ),
    ("latency", ""),
    ("bursts", ""),
    ("loss", ""),
    ("reset", ""),
    ("flaky", ""),
    ("forget-idle", ""),
    ("pause-waiter", ""),
    ("kill-holder", ""),
    ("kill", ""),
    ("clock", "waiter holder client"),
    ("server-pause", "one leader"),
    ("server-kill", "one leader majority"),
    ("server-restart", ""),
];

/// Faults that make one server unavailable for longer than the progress bound: if a lock is on a majority of independent servers,
/// the client alone decides whether the others suffice. A server that returns empty after a lease does no harm.
const MINORITY: &[&str] = &["partition=server", "server-pause=one", "server-kill=one"];
/// Minimum number of servers of which one is a minority.
const WITH_MINORITY: u32 = 3;

/// Faults under which a load still gets many acquires.
const MILD: &[&str] = &["latency", "bursts", "loss", "reset", "flaky"];

/// Senders of a message as arguments of a fault; most often any client.
const WHOSE: &[&str] = &["", "", ":waiter", ":holder", ":worker", ":releaser"];

/// Returns typical messages of locks, for experiments before the messages of this lock are known.
fn messages(protocol: Protocol) -> Vec<&'static str> {
    let names = match protocol {
        Protocol::Zk => "create delete getChildren exists getData ping",
        Protocol::Resp => "SET DEL EVAL GET EXPIRE GETSET HSET PTTL RPUSH PUBLISH",
        Protocol::Grpc => "Txn Range LeaseGrant LeaseKeepAlive DeleteRange Lock Unlock Campaign",
        Protocol::Postgres => "SELECT INSERT UPDATE BEGIN COMMIT ROLLBACK advisory_lock advisory_unlock",
        Protocol::Mysql => "SELECT INSERT UPDATE GET_LOCK RELEASE_LOCK BEGIN COMMIT",
        Protocol::Nats => "create update delete read put",
        Protocol::Opaque => "",
    };
    names.split_whitespace().collect()
}

/// The faults of a hunt by their use in experiments, each as an argument of `--fault`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HuntFaults {
    pub aimed: Vec<String>,
    /// The name of the message is a part of the fault; its number is drawn.
    pub on_messages: Vec<String>,
    /// Faults on messages that were seen; if there are any, they replace `on_messages`.
    pub cells: Vec<MessageCell>,
    pub mild: Vec<String>,
    /// Faults whose window must be longer than the progress bound.
    pub minority: Vec<String>,
}

impl HuntFaults {
    /// Returns all faults that apply to a cluster of this shape, and that a correct lock withstands there.
    pub fn withstood(shape: &Shape) -> Self {
        let aimed = AIMED.iter().filter(|(name, _)| withstood(name, shape));
        let kinds = aimed.flat_map(|(name, kinds)| match *kinds {
            "" => vec![(*name).to_owned()],
            kinds => kinds.split(' ').map(|kind| format!("{name}={kind}")).collect(),
        });
        // a fault without a message cycles through all that this lock sends, and is as frequent as those with one together
        let messages = messages(shape.protocol);
        let named = |fault: &'static str| {
            let of_each = |message: &'static str| WHOSE.iter().map(move |whose| format!("{fault}={message}{whose}"));
            let named: Vec<String> = messages.iter().copied().flat_map(of_each).collect();
            let every = vec![fault.to_owned(); named.len()];
            every.into_iter().chain(named)
        };
        let is_one_a_minority = shape.servers >= WITH_MINORITY && shape.has_independent_servers();
        let minority = if is_one_a_minority { MINORITY } else { &[] };
        let all = Self {
            aimed: kinds.collect(),
            on_messages: ON_MESSAGES.iter().flat_map(|fault| named(fault)).collect(),
            cells: Vec::new(),
            mild: MILD.iter().map(ToString::to_string).collect(),
            minority: minority.iter().map(ToString::to_string).collect(),
        };
        all.retain(|text| applies(text, shape))
    }

    /// Keeps the faults that `can` be planned.
    #[must_use]
    pub fn retain(mut self, can: impl Fn(&str) -> bool) -> Self {
        for faults in [
            &mut self.aimed,
            &mut self.on_messages,
            &mut self.mild,
            &mut self.minority,
        ] {
            faults.retain(|fault| can(fault));
        }
        self
    }

    /// Returns the typed faults, which replace all others.
    pub fn typed(faults: &[String]) -> Self {
        let on_message = |text: &&String| ON_MESSAGES.contains(&name(text));
        let mild = |text: &&String| MILD.contains(&name(text));
        Self {
            aimed: faults.iter().filter(|text| !on_message(text)).cloned().collect(),
            on_messages: faults.iter().filter(on_message).cloned().collect(),
            cells: Vec::new(),
            mild: faults.iter().filter(mild).cloned().collect(),
            minority: Vec::new(),
        }
    }
}

/// Whether a correct lock with a lease withstands it. Servers of a store without data on disk restart without their
/// locks, and no lock on a single such server survives that.
fn withstood(name: &str, shape: &Shape) -> bool {
    shape.backend.software.keeps_data || !["server-kill", "server-restart"].contains(&name)
}

fn applies(text: &str, shape: &Shape) -> bool {
    let (name, argument) = text
        .split_once('=')
        .map_or((text, None), |(name, argument)| (name, Some(argument)));
    // the argument is valid or invalid for any draw
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    fault_named(name)
        .is_some_and(|fault| fault.applies(argument, shape).is_ok() && fault.plan(argument, 0, shape, &mut rng).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hunt_has_no_fault_that_a_correct_lock_does_not_withstand() {
        let redis = HuntFaults::withstood(&Shape::one_redis());
        let zk = HuntFaults::withstood(&Shape::example());
        for fault in ["pause-holder", "pause", "failover"] {
            let mut aimed = redis.aimed.iter().chain(&zk.aimed);
            assert!(!aimed.any(|text| name(text) == fault), "{fault}");
        }
        let kills = |faults: &HuntFaults| faults.aimed.iter().filter(|text| name(text) == "server-kill").count();
        // a master without a disk loses its locks
        assert_eq!((kills(&redis), kills(&zk)), (0, 3));
    }

    #[test]
    fn what_does_not_apply_is_left_out_and_what_does_can_be_planned() {
        let redis = HuntFaults::withstood(&Shape::one_redis());
        assert!(!redis.aimed.contains(&"partition=ring".to_owned()));
        let waiters = "drop-reply=SET:waiter".to_owned();
        assert!(redis.on_messages.contains(&waiters), "{redis:?}");
        let zk = HuntFaults::withstood(&Shape::example());
        assert!(zk.aimed.contains(&"partition=ring".to_owned()));
        assert!(zk.on_messages.iter().all(|text| !text.contains("SET")));
        // taps know each of these messages by its name
        for (shape, names) in [
            (Shape::one_redis(), messages(Protocol::Resp)),
            (Shape::example(), messages(Protocol::Zk)),
        ] {
            for message in names {
                assert!(applies(&format!("drop-reply={message}"), &shape), "{message}");
            }
        }
        for message in messages(Protocol::Grpc) {
            assert!(Protocol::Grpc.spoken(message).is_some(), "{message}");
        }
    }

    #[test]
    fn a_minority_is_taken_away_for_long_where_the_servers_know_nothing_of_each_other() {
        let of = |servers, shape: Shape| HuntFaults::withstood(&Shape { servers, ..shape }).minority;
        assert_eq!(of(3, Shape::one_redis()), MINORITY);
        assert!(of(1, Shape::one_redis()).is_empty() && of(2, Shape::one_redis()).is_empty());
        // servers of ZooKeeper elect a leader
        assert!(of(3, Shape::example()).is_empty());
    }

    #[test]
    fn a_fault_that_is_named_is_used_whatever_it_breaks() {
        let typed = HuntFaults::typed(&["pause-holder".into(), "drop-reply=SET".into(), "latency=50ms".into()]);
        assert_eq!(typed.aimed, ["pause-holder", "latency=50ms"]);
        assert_eq!(typed.on_messages, ["drop-reply=SET"]);
        assert_eq!(typed.mild, ["latency=50ms"]);
    }
}
