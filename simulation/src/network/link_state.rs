//! The state of a link ([`SimulatedLinkState`]), as its connections see it: its behaviour, and the counts of what passed.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, Flow, Layer, LinkCounts};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::message::{LinkHook, MessageVerdict, WireMessage};
use crate::world::nanoseconds;

/// The time of a message from one end of a link to the other, drawn for each message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkLatency {
    pub least: Duration,
    pub most: Duration,
}

impl Default for LinkLatency {
    /// Returns the latency of real servers on loopback, the proxy included: 0.1 to 0.4 ms there and back.
    fn default() -> Self {
        LinkLatency {
            least: Duration::from_micros(50),
            most: Duration::from_micros(200),
        }
    }
}

/// A connection of a link, whatever it carries.
pub(super) trait LinkedConnection {
    /// Obeys the link's new behaviour, which was `before`.
    fn behaviour_changed(self: Rc<Self>, before: &Behaviour);
    /// Ends both sides at once; messages on their way are lost.
    fn reset(&self);
    /// Lets the messages go on that message rules held back, except those whose delays go on.
    fn open_gates(self: Rc<Self>);
    fn number(&self) -> u64;
}

pub(super) struct SimulatedLinkState {
    pub name: Box<str>,
    pub client: u32,
    pub latency: LinkLatency,
    pub dice: RefCell<ChaCha8Rng>,
    pub layers: RefCell<BTreeMap<Layer, Behaviour>>,
    pub behaviour: RefCell<Behaviour>,
    pub hook: RefCell<Option<Rc<dyn LinkHook>>>,
    pub counts: Cell<LinkCounts>,
    pub connections: RefCell<Vec<Rc<dyn LinkedConnection>>>,
}

impl SimulatedLinkState {
    /// Returns the behaviour. A message is hundreds of times smaller than it, so it is not copied.
    pub fn behaviour(&self) -> Ref<'_, Behaviour> {
        self.behaviour.borrow()
    }

    /// Asks the hook about a message.
    pub fn judge(&self, connection: u64, message: &dyn WireMessage) -> MessageVerdict {
        let hook = self.hook.borrow().clone();
        hook.map_or(MessageVerdict::Pass, |hook| hook.passes(connection, message))
    }

    pub fn count(&self, change: impl FnOnce(&mut LinkCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// Counts bytes that came while `flow` was on; as the counters of the real proxy do.
    pub fn count_obeyed(&self, flow: &Flow, bytes: usize) {
        self.count(|counts| {
            counts.dropped_packets += u64::from(flow.blackhole);
            if flow.stall || flow.freeze {
                counts.held_bytes += bytes as u64;
            } else if flow.delays() {
                counts.delayed_bytes += bytes as u64;
            }
        });
    }

    /// Draws how long a message is under way, in nanoseconds, and the number that decides the effect of a flow on it.
    pub fn draws(&self) -> (u64, u64) {
        let mut dice = self.dice.borrow_mut();
        let (least, most) = (nanoseconds(self.latency.least), nanoseconds(self.latency.most));
        let spread = most.saturating_sub(least) + 1;
        (least + dice.next_u64() % spread, dice.next_u64())
    }

    /// Removes a connection that is over.
    pub fn forget(&self, number: u64) {
        let mut connections = self.connections.borrow_mut();
        let place = connections.iter().position(|connection| connection.number() == number);
        let forgotten = place.map(|place| connections.remove(place));
        drop(connections);
        if forgotten.is_some() {
            let hook = self.hook.borrow().clone();
            if let Some(hook) = hook {
                hook.ended(number);
            }
        }
    }
}
