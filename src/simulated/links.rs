//! Simulated links for faults ([`FaultableLink`]), with the taps and message rules of real ones.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use harness_proxy::tap::MessageName;
use harness_proxy::{Behaviour, ConnectionTap, Layer, LinkControl, LinkCounts, LinkTap, MessageRule};
use harness_simulation::World;
use harness_simulation::network::{LinkHook, MessageVerdict, PassingMessage, SimulatedLink, WireMessage};

/// Redirects new connections to the server at an address.
pub type Redirect = Arc<dyn Fn(SocketAddr) + Send + Sync>;

/// A simulated link, with a tap if its messages are read.
pub struct FaultableLink {
    name: String,
    link: SimulatedLink,
    tap: Option<Arc<LinkTap>>,
    redirect: Option<Redirect>,
}

impl FaultableLink {
    /// Returns a link without a tap, which cannot be redirected.
    pub fn untapped(link: SimulatedLink) -> Arc<Self> {
        Arc::new(Self {
            name: link.name(),
            link,
            tap: None,
            redirect: None,
        })
    }

    /// Returns a link with a tap.
    pub fn tapped(world: World, link: SimulatedLink, tap: Arc<LinkTap>, redirect: Redirect) -> Arc<Self> {
        let hook = ConnectionTaps::new(world, Some(Arc::clone(&tap)));
        Self::hooked(link, tap, redirect, Rc::new(hook))
    }

    /// Returns a link with a tap, whose messages `hook` passes to it.
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

    fn reset_connections(&self) {
        self.link.reset_connections();
    }

    fn redirect(&self, upstream: SocketAddr) {
        if let Some(redirect) = &self.redirect {
            redirect(upstream);
        }
    }

    fn tap(&self) -> Option<&LinkTap> {
        self.tap.as_deref()
    }

    fn wake_connections(&self) {
        self.link.release();
    }
}

/// The taps of the connections of a link.
pub struct ConnectionTaps {
    world: World,
    /// `None` if no tap reads the link.
    link: Option<Arc<LinkTap>>,
    /// The taps by the numbers of their connections; a link has few.
    by_number: RefCell<Vec<(u64, Rc<ConnectionTap>)>>,
}

impl ConnectionTaps {
    pub fn new(world: World, link: Option<Arc<LinkTap>>) -> Self {
        Self {
            world,
            link,
            by_number: RefCell::default(),
        }
    }

    pub fn of(&self, connection: u64) -> Option<Rc<ConnectionTap>> {
        let link = self.link.as_ref()?;
        let mut taps = self.by_number.borrow_mut();
        if let Some((_, tap)) = taps.iter().find(|(number, _)| *number == connection) {
            return Some(Rc::clone(tap));
        }
        let tap = Rc::new(ConnectionTap::new(link));
        taps.push((connection, Rc::clone(&tap)));
        Some(tap)
    }

    /// Returns the fate of the message at which a rule stops a connection, and reports it to the rule.
    pub fn verdict(&self, tap: Rc<ConnectionTap>, rule: Arc<MessageRule>) -> MessageVerdict {
        let world = self.world;
        if rule.spec.action.ends() {
            tap.done(&rule, world.now_ns());
            return MessageVerdict::Drop;
        }
        let (time, held_by) = (rule.spec.action.delay(), Arc::clone(&rule));
        let passed = async move {
            world.sleep(time).await;
            tap.done(&rule, world.now_ns());
        };
        world.spawn(passed).detach();
        // a link lets go when any of its rules is lifted
        MessageVerdict::Delay(time, Box::new(move || !held_by.is_lifted()))
    }
}

/// Passes each message of a link's connections to their taps, and applies their decision.
impl LinkHook for ConnectionTaps {
    fn passes(&self, connection: u64, message: &dyn WireMessage) -> MessageVerdict {
        let now = self.world.now_ns();
        let passing = message.passing();
        let tap = match passing {
            PassingMessage::Control => None,
            _ => self.of(connection),
        };
        let Some(tap) = tap else { return MessageVerdict::Pass };
        let named = |name: &str| MessageName::new(name.as_bytes());
        let acts = match passing {
            PassingMessage::Request { number, name, digest } => tap.request(number, named(name), digest, now),
            PassingMessage::Reply { number, name, refuses } => tap.reply(number, named(name), refuses, now),
            PassingMessage::Notification { name, subject } => {
                tap.notification(named(name), subject, now);
                None
            }
            PassingMessage::Control => None,
        };
        acts.map_or(MessageVerdict::Pass, |rule| self.verdict(tap, rule))
    }

    /// Whether the link refuses a new connection now.
    fn refuses(&self) -> bool {
        let now = self.world.now_ns();
        self.link.as_ref().is_some_and(|tap| tap.refuses(now))
    }

    /// Removes an ended connection; a rule that waits for its reply learns that none comes.
    fn ended(&self, connection: u64) {
        let mut taps = self.by_number.borrow_mut();
        let place = taps.iter().position(|(number, _)| *number == connection);
        let ended = place.map(|place| taps.swap_remove(place));
        drop(taps);
        drop(ended);
    }
}
