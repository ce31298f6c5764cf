//! The points of a run: the messages that its clients send, and how often faults acted on them. A fault without an argument uses
//! all of them, those with the fewest acts first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use harness_proxy::tap::{MessageKind, MessageName, Protocol};
use harness_proxy::{Label, TapHub};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Shape;

/// The number of passages from which a message is likely to come again soon.
pub(super) const OFTEN: u64 = 50;

/// The name of any message. An act on the K-th message is an act at one moment of a run.
const ANY_MESSAGE: &str = "any";

/// Whether a fault on messages with this argument acts once in the whole run.
pub fn is_point(argument: &str) -> bool {
    argument.split(':').next() == Some(ANY_MESSAGE)
}

/// Parses the number of a message from an argument without other parts: 57 of `any:57`. The error describes a valid argument, or
/// has the reason for which there is none on this cluster.
pub fn number_alone(argument: &str, shape: &Shape) -> Result<u32, String> {
    if shape.protocol == Protocol::Opaque {
        let store = shape.backend;
        return Err(format!(
            "harness does not read the messages of {store}, so it cannot count them"
        ));
    }
    let number = argument.strip_prefix(ANY_MESSAGE);
    let number = number.and_then(|rest| rest.strip_prefix(':')?.parse().ok());
    let number = number.filter(|number| *number > 0);
    number.ok_or_else(|| format!("`{argument}` names no message; {ANY_MESSAGE}:57 is the 57th of all except pings"))
}

/// Returns the message of this name, if there is one.
pub fn spoken(protocol: Protocol, name: &str) -> Option<MessageKind> {
    match name {
        ANY_MESSAGE if protocol != Protocol::Opaque => Some(MessageKind::any()),
        name => protocol.spoken(name),
    }
}

/// A message, in one state of the client that sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessagePoint {
    pub name: MessageName,
    /// The client's role.
    pub label: Label,
    /// The number of passages so far.
    pub passed: u64,
    /// The number of earlier acts that were aimed at it.
    pub aimed: u32,
    /// Whether some requests of its name were accepted so far, and others refused.
    pub sometimes_refused: bool,
}

/// Chooses messages for the faults of one run.
#[derive(Debug)]
pub struct MessagePoints {
    taps: Arc<TapHub>,
    turns: Mutex<PointTurns>,
}

#[derive(Debug)]
struct PointTurns {
    /// Draws the order of two messages with the same number of acts, so that short runs with other seeds begin with other
    /// messages.
    rng: ChaCha8Rng,
    of: BTreeMap<(&'static str, MessageName, Label), PointTurn>,
}

/// The turns of one fault on one message.
#[derive(Debug, Clone, Copy)]
struct PointTurn {
    aimed: u32,
    rank: u32,
}

impl MessagePoints {
    pub fn new(taps: &Arc<TapHub>, seed: u64) -> Self {
        Self {
            taps: Arc::clone(taps),
            turns: Mutex::new(PointTurns {
                rng: ChaCha8Rng::seed_from_u64(seed),
                of: BTreeMap::new(),
            }),
        }
    }

    /// Returns the next message for `fault`, of those with `least` passages, and counts it: each once; then all equally often, but
    /// those less often that may never come again, and those first and twice as often whose replies decide something: some
    /// accept, others refuse.
    pub fn next(&self, fault: &'static str, least: u64) -> Option<MessagePoint> {
        let mut turns = self.turns.lock().expect("no one panics while choosing a message");
        let PointTurns { rng, of } = &mut *turns;
        let sent = self.taps.requests().into_iter();
        let sent = sent.filter(|(_, _, passed)| *passed >= least);
        let mut due = |(name, label, passed): &(MessageName, Label, u64)| {
            let turn = of.entry((fault, *name, *label)).or_insert_with(|| PointTurn {
                aimed: 0,
                rank: rng.random(),
            });
            let decides = *passed >= OFTEN && self.taps.is_sometimes_refused(*name);
            let turns = u64::from(turn.aimed) * (1 + OFTEN / (passed + 1));
            (turns / (1 + u64::from(decides)), !decides, turn.rank)
        };
        let (name, label, passed) = sent.min_by_key(&mut due)?;
        let turn = of.get_mut(&(fault, name, label))?;
        turn.aimed += 1;
        Some(MessagePoint {
            name,
            label,
            passed,
            aimed: turn.aimed - 1,
            sometimes_refused: self.taps.is_sometimes_refused(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tokio::sync::mpsc;

    use super::*;
    use crate::client_role::LABELS;
    use harness_proxy::LabelSet;
    use harness_proxy::tap::Protocol;

    #[test]
    fn each_message_has_its_turn_and_one_that_came_once_has_fewer() {
        let (notices, _receiver) = mpsc::channel(1);
        let taps = TapHub::new(Protocol::Resp, LABELS, 1, notices);
        let points = MessagePoints::new(&taps, 1);
        assert_eq!(points.next("drop-reply", 0), None, "no client has sent anything");
        let (idle, nobody) = (LABELS.labels[0], LabelSet::of(&[]));
        for (name, times) in [("SET", 900), ("EVALSHA", 800), ("SCRIPT", 1)] {
            for _ in 0..times {
                taps.count_request(MessageName::new(name.as_bytes()), idle, nobody);
            }
        }
        let next = |fault| points.next(fault, 0).unwrap().name.to_string();
        let turns: Vec<String> = (0..20).map(|_| next("drop-reply")).collect();
        let first: BTreeSet<&str> = turns[..3].iter().map(String::as_str).collect();
        assert_eq!(first, BTreeSet::from(["EVALSHA", "SCRIPT", "SET"]));
        let times = |name: &str| turns.iter().filter(|turn| *turn == name).count();
        assert!(times("SCRIPT") == 1 && times("SET") >= 9, "{turns:?}");
        let others: BTreeSet<String> = (0..3).map(|_| next("drop-request")).collect();
        assert_eq!(others.len(), 3, "the turns of each fault begin anew");
        let next_often = |_| points.next("kill-after", OFTEN).unwrap().name.to_string();
        let often: BTreeSet<String> = (0..20).map(next_often).collect();
        assert_eq!(often, BTreeSet::from(["EVALSHA".to_owned(), "SET".to_owned()]));
        let first_of = |seed| {
            let points = MessagePoints::new(&taps, seed);
            points.next("drop-reply", 0).unwrap().name.to_string()
        };
        assert_eq!((0..20).map(first_of).collect::<BTreeSet<_>>().len(), 3);
    }

    #[test]
    fn a_message_that_is_sometimes_refused_comes_first_and_twice_as_often() {
        let (notices, _receiver) = mpsc::channel(1);
        let taps = TapHub::new(Protocol::Resp, LABELS, 1, notices);
        let (set, idle, nobody) = (MessageName::new(b"SET"), LABELS.labels[0], LabelSet::of(&[]));
        for name in [set, MessageName::new(b"EVALSHA"), MessageName::new(b"HELLO")] {
            for _ in 0..900 {
                taps.count_request(name, idle, nobody);
            }
        }
        taps.count_reply(set, true);
        let aimed = |seed| MessagePoints::new(&taps, seed).next("drop-reply", 0).unwrap();
        assert!((0..20).any(|seed| aimed(seed).name != set), "all replies refused");
        taps.count_reply(set, false);
        assert!((0..20).all(|seed| aimed(seed).name == set && aimed(seed).sometimes_refused));
        let points = MessagePoints::new(&taps, 1);
        let turns: Vec<MessagePoint> = (0..40).map(|_| points.next("kill-after", 0).unwrap()).collect();
        let sets = turns.iter().filter(|point| point.name == set).count();
        assert!((19..=21).contains(&sets), "of three messages half the turns: {turns:?}");
    }
}
