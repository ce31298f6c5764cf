//! Bytes of real processes over simulated links: a [`Chunk`] is what a process wrote at once, and [`ByteHook`] has the taps of a link
//! read it, as the proxy has them read what comes over sockets.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::tap::Sender;
use harness_proxy::{ConnectionTap, LinkTap, StopAction, TapStop};
use harness_simulation::World;
use harness_simulation::network::{LinkHook, MessageVerdict, PassingKind, PassingMessage, Port, WireMessage};

/// Bytes that were written at once.
pub struct Chunk {
    pub bytes: Vec<u8>,
    kind: PassingKind,
}

/// Where a server is reached.
pub type BytePort = Port<Chunk, Chunk>;

impl WireMessage for Chunk {
    fn kind(&self) -> PassingKind {
        self.kind
    }

    fn name(&self) -> &'static str {
        "bytes"
    }

    fn subject(&self) -> &str {
        ""
    }

    fn number(&self) -> u64 {
        0
    }

    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn digest(&self) -> u64 {
        0
    }
}

/// What reads the bytes of a link, and says what becomes of them.
pub struct ByteHook {
    world: World,
    /// `None` between servers: nobody reads what they say to each other.
    tap: Option<Arc<LinkTap>>,
    /// By number; a link has few.
    connections: RefCell<Vec<(u64, Rc<ConnectionTap>)>>,
    /// What becomes of the chunk that enters the link next.
    verdict: Cell<MessageVerdict>,
}

impl ByteHook {
    pub fn new(world: World, tap: Option<Arc<LinkTap>>) -> Rc<Self> {
        Rc::new(Self {
            world,
            tap,
            connections: RefCell::default(),
            verdict: Cell::new(MessageVerdict::Pass),
        })
    }

    fn tap_of(&self, connection: u64) -> Option<Rc<ConnectionTap>> {
        let link = self.tap.as_ref()?;
        let mut connections = self.connections.borrow_mut();
        if let Some((_, tap)) = connections.iter().find(|(number, _)| *number == connection) {
            return Some(Rc::clone(tap));
        }
        let tap = Rc::new(ConnectionTap::new(link));
        connections.push((connection, Rc::clone(&tap)));
        Some(tap)
    }

    /// Has the tap read what one side of a connection wrote, and sends it on in one or two pieces.
    pub fn carry(&self, connection: u64, sender: Sender, bytes: &[u8], send: impl Fn(Chunk)) {
        let (world, tap) = (self.world, self.tap_of(connection));
        let kind = match sender {
            Sender::Client => PassingKind::Request,
            Sender::Server => PassingKind::Reply,
        };
        let send = |bytes: &[u8], verdict| {
            if !bytes.is_empty() {
                self.verdict.set(verdict);
                let bytes = bytes.to_vec();
                send(Chunk { bytes, kind });
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
        match then {
            StopAction::End(rule) => {
                tap.done(&rule, world.now_ns());
                send(rest, MessageVerdict::Drop);
            }
            StopAction::Wait(rule, time) => {
                let passed = async move {
                    world.sleep(time).await;
                    tap.done(&rule, world.now_ns());
                };
                world.spawn(passed).detach();
                send(rest, MessageVerdict::Delay(time));
            }
        }
    }
}

impl LinkHook for ByteHook {
    fn passes(&self, _: &PassingMessage<'_>) -> MessageVerdict {
        self.verdict.get()
    }

    fn refuses(&self) -> bool {
        let now = self.world.now_ns();
        self.tap.as_ref().is_some_and(|tap| tap.refuses(now))
    }

    fn ended(&self, connection: u64) {
        let mut connections = self.connections.borrow_mut();
        let place = connections.iter().position(|(number, _)| *number == connection);
        let ended = place.map(|place| connections.swap_remove(place));
        drop(connections);
        // a rule that waits for its reply is told that none comes
        drop(ended);
    }
}

/// What a program takes to start, in the time of its world; about what a child process does.
pub const START: Duration = Duration::from_millis(20);
