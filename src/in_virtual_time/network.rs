//! The network of real processes: bytes over simulated links. A [`Chunk`] has bytes that a process wrote at once, and [`ByteHook`] has the
//! taps of a link read them, as the proxy does with the bytes of sockets.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::{Direction, LinkTap, TapStop};
use harness_simulation::World;
use harness_simulation::network::{LinkHook, MessageVerdict, PassingMessage, Port, WireMessage};

use crate::simulated::ConnectionTaps;

/// Bytes that were written at once, or a part of them.
pub struct Chunk {
    pub bytes: Vec<u8>,
}

/// The port of a server.
pub type BytePort = Port<Chunk, Chunk>;

impl WireMessage for Chunk {
    /// Returns `Control`: the hook has read the bytes.
    fn passing(&self) -> PassingMessage<'_> {
        PassingMessage::Control
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The hook of a link: its taps read the bytes, and it has their verdict.
pub struct ByteHook {
    world: World,
    taps: ConnectionTaps,
    /// The verdict on the chunk that enters the link next.
    verdict: Cell<MessageVerdict>,
}

impl ByteHook {
    /// Makes the hook of a link; `tap` is `None` between servers, whose bytes nothing reads.
    pub fn new(world: World, tap: Option<Arc<LinkTap>>) -> Rc<Self> {
        Rc::new(Self {
            world,
            taps: ConnectionTaps::new(world, tap),
            verdict: Cell::new(MessageVerdict::Pass),
        })
    }

    /// Gives a tap the bytes that one side of a connection wrote, and sends them on in one chunk, or more where rules stop it.
    pub fn carry(&self, connection: u64, direction: Direction, bytes: &[u8], send: impl Fn(Chunk)) {
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
        let mut stops = tap.observe(direction, bytes, || world.now_ns()).into_iter().peekable();
        let until = |next: Option<&TapStop>| next.map_or(bytes.len(), |stop| stop.at);
        send(&bytes[..until(stops.peek())], MessageVerdict::Pass);
        while let Some(TapStop { at, rule }) = stops.next() {
            let rest = &bytes[at..until(stops.peek())];
            send(rest, self.taps.verdict(Rc::clone(&tap), rule));
        }
    }
}

impl LinkHook for ByteHook {
    fn passes(&self, _: u64, _: &dyn WireMessage) -> MessageVerdict {
        self.verdict.replace(MessageVerdict::Pass)
    }

    fn refuses(&self) -> bool {
        self.taps.refuses()
    }

    fn ended(&self, connection: u64) {
        self.taps.ended(connection);
    }
}

/// The time that a program takes to start, in its world; about that of a child process.
pub const START: Duration = Duration::from_millis(20);
