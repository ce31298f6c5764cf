//! The built-in proxy: one [`Link`] for each client and server, on a thread of its own.
//!
//! What a link does is a [`Behaviour`], put on as a layer and lifted when the [`Hold`] on it is dropped. The control
//! plane never waits for a data path: putting a layer on is a store that the connections notice.

mod behaviour;
mod lane;
mod link;
mod role;
mod rule;
mod stats;
pub mod tap;
mod wire;

pub use behaviour::{Behaviour, Cut, Flow};
pub use link::{Layer, Link};
pub use role::{Role, Roles};
pub use rule::{Fate, Meant, Rule, Struck, Whose};
pub use wire::{Exchange, Notice, Traffic, Wire};

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::evidence::Counts;

/// The thread that carries bytes. Dropping it ends every connection.
#[derive(Debug)]
pub struct Proxy {
    on: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let on = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || {
            let _ = runtime.block_on(stopped);
        })?;
        Ok(Self {
            on,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Opens a link to `upstream`; see [`Link::open`].
    pub fn link(&self, name: String, upstream: SocketAddr, seed: u64) -> io::Result<Arc<Link>> {
        Link::open(name, Ipv4Addr::LOCALHOST, upstream, seed, None, &self.on).map(Arc::new)
    }

    /// The same, with a tap on every connection of it.
    pub fn tapped(&self, name: String, upstream: SocketAddr, seed: u64, wire: Arc<Wire>) -> io::Result<Arc<Link>> {
        Link::open(name, Ipv4Addr::LOCALHOST, upstream, seed, Some(wire), &self.on).map(Arc::new)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A layer that lies on some links, and is lifted when this is dropped.
#[derive(Debug)]
pub struct Hold {
    links: Vec<(Arc<Link>, Counts)>,
    layer: Layer,
    reset_on_heal: bool,
}

impl Hold {
    /// Puts `behaviour` on every one of `links`. With `reset_on_heal`, lifting it resets the connections as well.
    pub fn put(links: Vec<Arc<Link>>, layer: Layer, behaviour: Behaviour, reset_on_heal: bool) -> Self {
        let links: Vec<_> = links
            .into_iter()
            .map(|link| (Arc::clone(&link), link.counts()))
            .collect();
        for (link, _) in &links {
            link.put(layer, behaviour);
        }
        Self {
            links,
            layer,
            reset_on_heal,
        }
    }

    /// What the links counted since the layer was put on.
    pub fn counts(&self) -> Counts {
        self.links.iter().fold(Counts::default(), |sum, (link, before)| {
            sum.plus(link.counts().since(*before))
        })
    }

    /// The names of the links it lies on.
    pub fn names(&self) -> Vec<String> {
        self.links.iter().map(|(link, _)| link.name().to_owned()).collect()
    }

    /// Resets the connections that run through these links now.
    pub fn reset_connections(&self) {
        for (link, _) in &self.links {
            link.reset_connections();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        for (link, _) in &self.links {
            if self.reset_on_heal {
                link.lift_and_reset(self.layer);
            } else {
                link.lift(self.layer);
            }
        }
    }
}

/// A rule that lies on some links, and is lifted when this is dropped.
#[derive(Debug)]
pub struct Armed {
    links: Vec<Arc<Link>>,
    layer: Layer,
    rule: Arc<Rule>,
}

impl Armed {
    /// Puts `rule` on every one of `links`, which all have taps.
    pub fn put(links: Vec<Arc<Link>>, layer: Layer, rule: Rule) -> Self {
        let rule = Arc::new(rule);
        for link in &links {
            link.arm(layer, &rule);
        }
        Self { links, layer, rule }
    }

    pub fn rule(&self) -> &Rule {
        &self.rule
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.rule.lift();
        for link in &self.links {
            link.disarm(self.layer);
        }
    }
}
