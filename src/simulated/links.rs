//! Simulated links as faults know them ([`FaultableLink`]), with the taps and message rules of real ones.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use harness_proxy::{Behaviour, ConnectionTap, Layer, LinkControl, LinkCounts, LinkTap, StopAction, Upstream};
use harness_simulation::World;
use harness_simulation::network::{LinkHook, MessageVerdict, PassingKind, PassingMessage, SimulatedLink};

/// Leads new connections to the server at an address.
pub type Redirect = Arc<dyn Fn(SocketAddr) + Send + Sync>;

/// A simulated link, with a tap where messages are read.
pub struct FaultableLink {
    name: String,
    link: SimulatedLink,
    tap: Option<Arc<LinkTap>>,
    redirect: Option<Redirect>,
}

impl FaultableLink {
    /// A link without a tap, which leads to one server for ever.
    pub fn untapped(link: SimulatedLink) -> Arc<Self> {
        Arc::new(Self {
            name: link.name(),
            link,
            tap: None,
            redirect: None,
        })
    }

    /// A link whose messages `tap` reads.
    pub fn tapped(world: World, link: SimulatedLink, tap: Arc<LinkTap>, redirect: Redirect) -> Arc<Self> {
        let hook = TapHook {
            world,
            tap: Arc::clone(&tap),
            connections: RefCell::default(),
        };
        Self::hooked(link, tap, redirect, Rc::new(hook))
    }

    /// A link whose messages `hook` has `tap` read.
    pub fn hooked(link: SimulatedLink, tap: Arc<LinkTap>, redirect: Redirect, hook: Rc<dyn LinkHook>) -> Arc<Self> {
        link.set_hook(Some(hook));
        Arc::new(Self {
            name: link.name(),
            link,
            tap: Some(tap),
            redirect: Some(redirect),
        })
    }
}

impl std::fmt::Debug for FaultableLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl LinkControl for FaultableLink {
    fn name(&self) -> &str {
        &self.name
    }

    fn counts(&self) -> LinkCounts {
        self.link.counts()
    }

    fn live(&self) -> u64 {
        self.link.live() as u64
    }

    fn apply(&self, layer: Layer, behaviour: Behaviour) {
        self.link.apply(layer, behaviour);
    }

    fn heal(&self, layer: Layer) {
        self.link.heal(layer);
    }

    fn heal_and_reset(&self, layer: Layer) {
        self.link.heal_and_reset(layer);
    }

    fn reset_connections(&self) {
        self.link.reset_connections();
    }

    fn redirect(&self, upstream: Upstream) {
        if let (Some(redirect), Upstream::Address(address)) = (&self.redirect, upstream) {
            redirect(address);
        }
    }

    fn tap(&self) -> Option<&LinkTap> {
        self.tap.as_deref()
    }

    fn wake_connections(&self) {
        self.link.release();
    }
}

/// Tells the taps of a link's connections of each message, and does what they say.
struct TapHook {
    world: World,
    tap: Arc<LinkTap>,
    /// By number; a link has one or two.
    connections: RefCell<Vec<(u64, Rc<ConnectionTap>)>>,
}

impl TapHook {
    fn tap_of(&self, connection: u64) -> Rc<ConnectionTap> {
        let mut connections = self.connections.borrow_mut();
        if let Some((_, tap)) = connections.iter().find(|(number, _)| *number == connection) {
            return Rc::clone(tap);
        }
        let tap = Rc::new(ConnectionTap::new(&self.tap));
        connections.push((connection, Rc::clone(&tap)));
        tap
    }
}

impl LinkHook for TapHook {
    fn passes(&self, passing: &PassingMessage<'_>) -> MessageVerdict {
        let (now, message) = (self.world.now_ns(), passing.message);
        if message.kind() == PassingKind::Control {
            return MessageVerdict::Pass;
        }
        let (name, tap) = (passing.name(), self.tap_of(passing.connection));
        let stop = match message.kind() {
            PassingKind::Request => tap.request(message.number(), name, message.digest(), now),
            PassingKind::Reply => tap.reply(message.number(), name, message.refuses(), now),
            PassingKind::Notification => {
                tap.notification(name, message.subject(), now);
                None
            }
            PassingKind::Control => None,
        };
        match stop {
            None => MessageVerdict::Pass,
            Some(StopAction::End(rule)) => {
                tap.done(&rule, now);
                MessageVerdict::Drop
            }
            Some(StopAction::Wait(rule, time)) => {
                let world = self.world;
                let passed = async move {
                    world.sleep(time).await;
                    tap.done(&rule, world.now_ns());
                };
                world.spawn(passed).detach();
                MessageVerdict::Delay(time)
            }
        }
    }

    fn refuses(&self) -> bool {
        self.tap.refuses(self.world.now_ns())
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
