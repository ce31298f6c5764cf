//! The network between clients and servers: one [`Link`] for each of both, through one of two proxies. Where servers are to
//! be parted from each other, each dials through an [`Egress`], and there is a link for each ordered pair of them.
//!
//! What a link does is a [`Behaviour`], put on as a layer and lifted when the [`Hold`] on it ends. The built-in proxy obeys
//! in process, on a thread of its own that stays awake for a moment where a quick answer is usual. Its control plane never
//! waits for a data path: putting a layer on is a store that the connections notice. The other proxy is somebody else's, a
//! [`Remote`]: a Toxiproxy that is told in toxics.

#[cfg(feature = "api")]
pub mod api;
mod behaviour;
mod clock;
mod connection;
mod counts;
mod egress;
mod far;
mod hold;
mod label;
mod lane;
mod limits;
mod link;
mod meter;
mod rule;
mod socks;
mod stats;
pub mod tap;
mod toxic;
#[cfg(feature = "toxiproxy")]
mod toxiproxy;
mod translate;
mod vigil;
mod wire;

pub use behaviour::{Behaviour, Cut, Flow, Slice};
pub use counts::LinkCounts;
pub use egress::{Directory, Egress, Peer};
pub use far::{Remote, Reply};
pub use hold::Hold;
pub use label::{ClientLabels, Label, LabelScheme, LabelSet};
pub use link::{Layer, Link};
pub use rule::{ClientFilter, Fate, Meant, Rule, Struck};
pub use toxic::{Kind, Stream, Toxic};
#[cfg(feature = "toxiproxy")]
pub use toxiproxy::Toxiproxy;
pub use translate::{in_words, toxics_for};
pub use wire::{Exchange, Notice, Traffic, Wire};

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use meter::Side;
use tokio::sync::oneshot;
use vigil::Carrier;

/// The thread that carries bytes. Dropping it ends every connection.
#[derive(Debug)]
pub struct Proxy {
    on: Carrier,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let on = Carrier::new(runtime.handle().clone());
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
        Link::open(name, SocketAddr::new(listen, 0), upstream, seed, &self.on).map(Arc::new)
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
                let link = || Link::closed(format!("{name}->{peer}"), (listen, listen), seed, Side::Own, &self.on);
                (peer != name).then(|| Arc::new(link()))
            };
            names.into_iter().map(to).collect()
        };
        Egress::open(listen, Arc::clone(directory), links, &self.on.runtime)
    }

    /// Opens links through a Toxiproxy, each between two meters; `run` goes into their names there.
    #[cfg(feature = "toxiproxy")]
    pub async fn links_through(
        &self,
        toxiproxy: &Arc<Toxiproxy>,
        run: &str,
        wanted: &[(String, SocketAddr)],
    ) -> Result<Vec<Arc<Link>>, String> {
        use far::Far;
        let failed = |error: io::Error| format!("no meter beside {}: {error}", toxiproxy.name());
        let meter = |name: &str, ways, side| Link::meter(name.to_owned(), ways, side, &self.on).map_err(failed);
        let mut backs = Vec::new();
        for (name, upstream) in wanted {
            let listen = SocketAddr::new(toxiproxy.own(), 0);
            backs.push(Arc::new(meter(name, (listen, *upstream), Side::Back)?));
        }
        // a name goes into paths of URLs
        let there = |name: &str| format!("{run}-{}", name.replace("->", "-"));
        let proxies = wanted
            .iter()
            .zip(&backs)
            .map(|((name, _), back)| (there(name), back.listen()));
        let listens = toxiproxy.open(proxies.collect()).await?;
        let mut links = Vec::new();
        for (((name, _), back), through) in wanted.iter().zip(backs).zip(listens) {
            let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let far = Far {
                remote: Arc::clone(toxiproxy) as Arc<dyn Remote>,
                proxy: there(name),
                back,
            };
            links.push(Arc::new(meter(name, (here, through), Side::Front)?.with_far(far)));
        }
        Ok(links)
    }

    /// Opens a link with a tap on every connection of it.
    pub fn tapped(&self, name: String, upstream: SocketAddr, seed: u64, wire: Arc<Wire>) -> io::Result<Arc<Link>> {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Link::tapped(name, (anywhere, upstream), seed, wire, &self.on).map(Arc::new)
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
            if let Some(wire) = link.wire() {
                wire.arm(layer, Arc::clone(&rule));
            }
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
            if let Some(wire) = link.wire() {
                wire.disarm(self.layer);
            }
            // what the rule held back goes on
            link.look_again();
        }
    }
}
