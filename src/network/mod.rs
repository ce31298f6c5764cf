//! The built-in proxy: one [`Link`] for each client and server, on a thread of its own. Where servers are to be parted
//! from each other, each dials through an [`Egress`], and there is a link for each ordered pair of them.
//!
//! What a link does is a [`Behaviour`], put on as a layer and lifted when the [`Hold`] on it is dropped. The control
//! plane never waits for a data path: putting a layer on is a store that the connections notice.

mod behaviour;
mod egress;
mod lane;
mod link;
mod socks;
mod stats;

pub use behaviour::{Behaviour, Cut, Flow};
pub use egress::{Directory, Egress, Peer};
pub use link::{Layer, Link};

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
        self.link_at(Ipv4Addr::LOCALHOST.into(), name, upstream, seed)
    }

    /// The same, on another address of this machine.
    pub fn link_at(&self, listen: IpAddr, name: String, upstream: SocketAddr, seed: u64) -> io::Result<Arc<Link>> {
        Link::open(name, listen, upstream, seed, &self.on).map(Arc::new)
    }

    /// Opens the way out of the server `name` at the address `listen`. Returns it with its links to the peers of
    /// `directory`, in their order, none to itself; `seed` draws a seed for each.
    pub fn egress(
        &self,
        listen: IpAddr,
        name: &str,
        directory: &Arc<Directory>,
        mut seed: impl FnMut() -> u64,
    ) -> io::Result<(Egress, Vec<Option<Arc<Link>>>)> {
        let names: Vec<String> = directory.names().map(str::to_owned).collect();
        let links = |listen| {
            let to = |peer: String| {
                let seed = seed();
                (peer != name).then(|| Arc::new(Link::behind(format!("{name}->{peer}"), listen, listen, seed)))
            };
            names.into_iter().map(to).collect()
        };
        Egress::open(listen, Arc::clone(directory), links, &self.on)
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

/// A layer that lies on some links, not necessarily with the same behaviour, and is lifted when this is dropped.
#[derive(Debug)]
pub struct Hold {
    links: Vec<(Arc<Link>, Counts)>,
    layer: Layer,
    reset_on_heal: bool,
}

impl Hold {
    /// Puts `behaviour` on every one of `links`. With `reset_on_heal`, lifting it resets the connections as well.
    pub fn put(links: Vec<Arc<Link>>, layer: Layer, behaviour: Behaviour, reset_on_heal: bool) -> Self {
        let links = links.into_iter().map(|link| (link, behaviour)).collect();
        Self::put_each(links, layer, reset_on_heal)
    }

    /// Puts a behaviour of its own on every one of `links`.
    pub fn put_each(links: Vec<(Arc<Link>, Behaviour)>, layer: Layer, reset_on_heal: bool) -> Self {
        let before: Vec<Counts> = links.iter().map(|(link, _)| link.counts()).collect();
        for (link, behaviour) in &links {
            link.put(layer, *behaviour);
        }
        let links = links.into_iter().map(|(link, _)| link).zip(before).collect();
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
