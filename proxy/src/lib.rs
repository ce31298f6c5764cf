//! The network between clients and servers: one [`Link`] for each client and server, through one of two proxies. For partitions between
//! servers each server dials through a [`PeerProxy`], with a link for each ordered pair of servers.
//!
//! The effect of a link is a [`Behaviour`], applied as a layer and lifted when the [`LinkFault`] on it ends. The built-in proxy obeys in
//! process, on one thread, which polls for a moment where a quick reply is usual. Its control plane never waits for a data path: applying a
//! layer is a store that the connections notice. The other proxy is an [`ExternalProxyDriver`]: a Toxiproxy, whose orders are toxics.

#[cfg(feature = "api")]
pub mod api;
mod behaviour;
mod blackhole;
mod bottleneck;
mod busy_poll;
mod byte_meter;
mod clock;
mod connection;
mod counters;
mod counts;
mod direction;
mod external;
mod label;
mod limits;
mod link;
mod link_fault;
mod link_state;
mod link_tap;
mod lost_replies;
mod message_rule;
mod message_state;
mod peer_proxy;
mod pump;
mod queue;
mod scheduling;
mod sessions;
mod socks;
pub mod tap;
mod tap_counts;
mod toxic;
#[cfg(feature = "toxiproxy")]
mod toxiproxy;
mod translate;

pub use behaviour::{Behaviour, Bursts, Cut, Flow, Loss, Slice};
pub use counts::LinkCounts;
pub use direction::Direction;
pub use external::{ExternalProxyDriver, PendingReply};
pub use label::{ClientLabels, Label, LabelScheme, LabelSet};
pub use link::{AnyLink, Link, LinkControl};
pub use link_fault::LinkFault;
pub use link_state::Layer;
pub use link_tap::{ConnectionTap, LinkTap, RequestState, TapHub, TapNotification, TapStop};
pub use lost_replies::LostReply;
pub use message_rule::{ClientFilter, MatchedMessage, MessageAction, MessageRule, MessageRuleSpec};
pub use peer_proxy::{PeerAddress, PeerDirectory, PeerProxy};
pub use sessions::SeenSession;
pub use tap_counts::TapCounts;
pub use toxic::{Toxic, ToxicKind};
#[cfg(feature = "toxiproxy")]
pub use toxiproxy::Toxiproxy;
pub use translate::{in_words, toxics_for};

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};

use busy_poll::ProxyRuntime;
use byte_meter::MeterSide;
use harness_tls::TlsServer;
use tokio::sync::oneshot;

/// The thread that carries bytes. Dropping it ends every connection.
#[derive(Debug)]
pub struct Proxy {
    on: ProxyRuntime,
    tls: Option<TlsServer>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    pub fn start() -> io::Result<Self> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (built, runtime) = mpsc::channel();
        // its thread builds the runtime: one that is dropped where there is no thread for it panics in a caller that is async
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || {
            match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Err(error) => drop(built.send(Err(error))),
                Ok(runtime) => {
                    let _ = built.send(Ok(runtime.handle().clone()));
                    scheduling::before_all_others();
                    let _ = runtime.block_on(stopped);
                }
            }
        })?;
        let handle = runtime.recv().map_err(io::Error::other)??;
        Ok(Self {
            on: ProxyRuntime::new(handle),
            tls: None,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Lets links for clients end their TLS from now on. Such links lead to a reader of plain text.
    pub fn end_tls(&mut self, tls: TlsServer) {
        self.tls = Some(tls);
    }

    /// Opens a link to `upstream` that listens on loopback.
    pub fn link(&self, name: String, upstream: SocketAddr, seed: u64) -> io::Result<Arc<Link>> {
        self.open(Ipv4Addr::LOCALHOST.into(), name, upstream, seed, None)
    }

    /// Opens a link with a tap on every connection of it.
    pub fn tapped(&self, name: String, upstream: SocketAddr, seed: u64, tap: Arc<LinkTap>) -> io::Result<Arc<Link>> {
        self.open(Ipv4Addr::LOCALHOST.into(), name, upstream, seed, Some(tap))
    }

    /// Opens a link that listens on this address of the machine, with a tap or without.
    pub fn open(
        &self,
        listen: IpAddr,
        name: String,
        upstream: SocketAddr,
        seed: u64,
        tap: Option<Arc<LinkTap>>,
    ) -> io::Result<Arc<Link>> {
        let link = self.closed(name, SocketAddr::new(listen, 0), upstream, seed, MeterSide::Own);
        link.opened(tap, self.tls.clone()).map(Arc::new)
    }

    /// Makes a link that takes no connections yet; see [`Link::closed`].
    fn closed(&self, name: String, listen: SocketAddr, upstream: SocketAddr, seed: u64, side: MeterSide) -> Link {
        Link::closed(name, listen, upstream.to_string().into(), seed, side, &self.on)
    }

    /// Opens the way out of the server `name` at the address `listen`. Returns it with its links to the peers of
    /// `directory`, in their order, none to itself; `seed` draws a seed for each.
    pub fn peer_proxy(
        &self,
        listen: IpAddr,
        name: &str,
        directory: &Arc<PeerDirectory>,
        mut seed: impl FnMut() -> u64,
    ) -> io::Result<(PeerProxy, Vec<Option<Arc<Link>>>)> {
        let names: Vec<String> = directory.names().map(str::to_owned).collect();
        let links = |listen| {
            let to = |peer: String| {
                let seed = seed();
                // each connection is dialled to the peer that it asked for
                let link = || self.closed(format!("{name}->{peer}"), listen, listen, seed, MeterSide::Own);
                (peer != name).then(|| Arc::new(link()))
            };
            names.into_iter().map(to).collect()
        };
        PeerProxy::open(listen, Arc::clone(directory), links, &self.on.runtime)
    }

    /// Opens links through a Toxiproxy, each between two meters; their names there begin with `prefix`.
    #[cfg(feature = "toxiproxy")]
    pub async fn links_through(
        &self,
        toxiproxy: &Arc<Toxiproxy>,
        prefix: &str,
        wanted: &[(String, SocketAddr)],
    ) -> Result<Vec<Arc<Link>>, String> {
        use link::ExternalProxy;
        let failed = |error: io::Error| format!("no meter next to {}: {error}", toxiproxy.name());
        let meter = |name: &str, listen, upstream, side| {
            let tls = self.tls.clone().filter(|_| side == MeterSide::Front);
            let link = self.closed(name.to_owned(), listen, upstream, 0, side);
            link.opened(None, tls).map_err(failed)
        };
        let mut backs = Vec::new();
        for (name, upstream) in wanted {
            let listen = SocketAddr::new(toxiproxy.own(), 0);
            backs.push(Arc::new(meter(name, listen, *upstream, MeterSide::Back)?));
        }
        // a name goes into paths of URLs
        let there = |name: &str| format!("{prefix}{}", name.replace("->", "-"));
        let proxies = wanted
            .iter()
            .zip(&backs)
            .map(|((name, _), back)| (there(name), back.listen()));
        let listens = toxiproxy.open(proxies.collect()).await?;
        let mut links = Vec::new();
        for (((name, _), back), through) in wanted.iter().zip(backs).zip(listens) {
            let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let external = ExternalProxy {
                driver: Arc::clone(toxiproxy) as Arc<dyn ExternalProxyDriver>,
                proxy: there(name),
                back,
            };
            links.push(Arc::new(
                meter(name, here, through, MeterSide::Front)?.with_external(external),
            ));
        }
        Ok(links)
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

/// A message rule that is active on some links. Dropping it lifts the rule.
#[derive(Debug)]
pub struct ActiveRule {
    links: Vec<AnyLink>,
    layer: Layer,
    rule: Arc<MessageRule>,
}

impl ActiveRule {
    /// Puts `rule` on every one of `links`, which all have taps.
    pub fn apply(links: Vec<impl Into<AnyLink>>, layer: Layer, rule: MessageRule) -> Self {
        let active = Self {
            links: links.into_iter().map(Into::into).collect(),
            layer,
            rule: Arc::new(rule),
        };
        active.arm();
        active
    }

    fn arm(&self) {
        for tap in self.links.iter().filter_map(|link| link.tap()) {
            tap.arm(self.layer, Arc::clone(&self.rule));
        }
    }

    /// Lifts the rule, and applies another one in its place.
    pub fn replace(&mut self, rule: MessageRule) {
        self.lift();
        self.rule = Arc::new(rule);
        self.arm();
    }

    fn lift(&self) {
        self.rule.lift();
        for link in &self.links {
            if let Some(tap) = link.tap() {
                tap.disarm(self.layer);
            }
            // bytes that the rule held back go on
            link.wake_connections();
        }
    }

    pub fn rule(&self) -> &MessageRule {
        &self.rule
    }
}

impl Drop for ActiveRule {
    fn drop(&mut self) {
        self.lift();
    }
}
