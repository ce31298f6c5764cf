//! Bytes of real processes over simulated links: a [`Chunk`] is what a process wrote at once, and [`ByteHook`] has the taps of a link
//! read it, as the proxy has them read what comes over sockets.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::tap::Sender;
use harness_proxy::{LinkTap, TapStop};
use harness_simulation::World;
use harness_simulation::network::{LinkHook, MessageVerdict, PassingMessage, Port, WireMessage};

use crate::simulated::ConnectionTaps;

/// Bytes that were written at once.
pub struct Chunk {
    pub bytes: Vec<u8>,
}

/// Where a server is reached.
pub type BytePort = Port<Chunk, Chunk>;

impl WireMessage for Chunk {
    /// Its hook has read what is in it.
    fn passing(&self) -> PassingMessage<'_> {
        PassingMessage::Control
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// What reads the bytes of a link, and says what becomes of them.
pub struct ByteHook {
    world: World,
    taps: ConnectionTaps,
    /// What becomes of the chunk that enters the link next.
    verdict: Cell<MessageVerdict>,
}

impl ByteHook {
    /// `tap`: `None` between servers, where nobody reads what they say to each other.
    pub fn new(world: World, tap: Option<Arc<LinkTap>>) -> Rc<Self> {
        Rc::new(Self {
            world,
            taps: ConnectionTaps::new(world, tap),
            verdict: Cell::new(MessageVerdict::Pass),
        })
    }

    /// Has the tap read what one side of a connection wrote, and sends it on in one or two pieces.
    pub fn carry(&self, connection: u64, sender: Sender, bytes: &[u8], send: impl Fn(Chunk)) {
        let (world, tap) = (self.world, self.taps.of(connection));
        let send = |bytes: &[u8], verdict| {
            if !bytes.is_empty() {
                self.verdict.set(verdict);
                send(Chunk { bytes: bytes.to_vec() });
                self.verdict.set(MessageVerdict::Pass);
            }
        };
        let Some(tap) = tap else {
            return send(bytes, MessageVerdict::Pass);
        };
        let Some(TapStop { at, then }) = tap.observe(sender, bytes, || world.now_ns()) else {
            return send(bytes, MessageVerdict::Pass);
        };
        let (passing, rest) = bytes.split_at(at);
        send(passing, MessageVerdict::Pass);
        send(rest, self.taps.verdict(tap, then));
    }
}

impl LinkHook for ByteHook {
    fn passes(&self, _: u64, _: &dyn WireMessage) -> MessageVerdict {
        self.verdict.get()
    }

    fn refuses(&self) -> bool {
        self.taps.refuses()
    }

    fn holds(&self, delay: u64) -> bool {
        self.taps.holds(delay)
    }

    fn ended(&self, connection: u64) {
        self.taps.ended(connection);
    }
}

/// What a program takes to start, in the time of its world; about what a child process does.
pub const START: Duration = Duration::from_millis(20);
