//! A link: one listener in front of one server for one client, and the connections that run through it.
//!
//! Faults are layers on a link. Each is put on and lifted by its own guard, so windows that overlap heal one by one.
//! Accepting, dialling and carrying happen on the proxy's own thread; the caller that puts a layer on never waits for them.
//! A link between servers does not take connections itself: they come through a [`PeerProxy`](super::PeerProxy).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness_tls::TlsServer;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::behaviour::Behaviour;
use super::blackhole::{Blackhole, Drops};
use super::bottleneck::Bottleneck;
use super::busy_poll::ProxyRuntime;
use super::byte_meter::MeterSide;
use super::connection::{Connection, LinkShared};
use super::counters::{LinkCounters, count};
use super::external::ExternalProxyDriver;
use super::link_state::{Disconnect, Layer, LinkState};
use super::link_tap::LinkTap;
use super::toxic::Toxic;
use crate::counts::LinkCounts;
use crate::limits::BLACKHOLE_READ;

/// A link as faults know it. [`Link`] carries bytes over sockets; a link of a simulated network carries messages.
pub trait LinkControl: std::fmt::Debug + Send + Sync {
    /// `c3->n1`, `n1->n2`.
    fn name(&self) -> &str;

    fn counts(&self) -> LinkCounts;

    /// Returns how many connections it carries to its server at this moment.
    fn live(&self) -> u64;

    /// Puts a layer on, in place of an earlier one of that name. Layers add up ([`Behaviour::join`]).
    fn apply(&self, layer: Layer, behaviour: Behaviour);

    /// Lifts a layer; without it the link does what the other layers say.
    fn heal(&self, layer: Layer);

    /// Resets every connection there is, both ends. New ones are taken.
    fn reset_connections(&self);

    /// Sends new connections to another address: a server that came back elsewhere.
    fn redirect(&self, upstream: SocketAddr);

    /// Returns its taps, where there are some.
    fn tap(&self) -> Option<&LinkTap>;

    /// Lets every connection look again at what it obeys, after a rule of its tap was lifted.
    fn wake_connections(&self);

    /// Returns the link of a proxy, if it is one: some faults need its sockets.
    fn as_link(&self) -> Option<&Link> {
        None
    }
}

/// A link of any kind. Clones are the same link.
#[derive(Debug, Clone)]
pub struct AnyLink(Arc<dyn LinkControl>);

impl<L: LinkControl + 'static> From<Arc<L>> for AnyLink {
    fn from(link: Arc<L>) -> Self {
        Self(link)
    }
}

impl Deref for AnyLink {
    type Target = dyn LinkControl;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// One proxied connection path, from a client to a server or from a server to a server.
#[derive(Debug)]
pub struct Link {
    name: String,
    state: watch::Sender<LinkState>,
    layers: Mutex<BTreeMap<Layer, Behaviour>>,
    shared: LinkShared,
    listener: Mutex<ListenerState>,
    on: ProxyRuntime,
    /// Carries out the behaviour that this link only counts.
    external: Option<ExternalProxy>,
}

/// The external side of a link: a proxy there, and the meter between it and the server.
#[derive(Debug)]
pub struct ExternalProxy {
    pub driver: Arc<dyn ExternalProxyDriver>,
    /// Its name on the external proxy.
    pub proxy: String,
    /// From the remote to the server.
    pub back: Arc<Link>,
}

impl ExternalProxy {
    /// Returns the bytes that are inside the external proxy or were lost there, by both meters, without those of connections that began in
    /// a partition. Only differences mean something.
    pub fn inside(&self, front: &LinkCounters) -> i64 {
        let at = |stats: &LinkCounters| {
            let read = |counter: &AtomicU64| counter.load(Relaxed) as i64;
            read(&stats.entered) - read(&stats.bytes) - read(&stats.unanswered)
        };
        at(front) + at(self.back.counters())
    }
}

/// The listener of a link.
#[derive(Debug)]
struct ListenerState {
    listen: SocketAddr,
    seeds: ChaCha8Rng,
    accepting: Option<JoinHandle<()>>,
}

impl Link {
    /// Makes a link to `upstream` (`host:port`) that takes no connections before it is opened, then on `listen` (a free port, where that
    /// is 0), on the thread `on`. `seed` decides jitter, cuts and toxicity; the same seed gives the same draws in the same order of
    /// connections. On a side of an external proxy it only counts.
    pub(super) fn closed(
        name: String,
        listen: SocketAddr,
        upstream: Arc<str>,
        seed: u64,
        side: MeterSide,
        on: &ProxyRuntime,
    ) -> Self {
        let state = LinkState {
            behaviour: Behaviour::default(),
            shadow: Behaviour::default(),
            bottlenecks: Arc::default(),
            toxics: Arc::new([]),
            upstream,
            epoch: 0,
            ending: Disconnect::Cut,
        };
        Self {
            name,
            state: watch::channel(state).0,
            layers: Mutex::default(),
            shared: LinkShared {
                counters: Arc::default(),
                side,
                tap: None,
                tls: None,
                busy_poll: Arc::clone(&on.busy_poll),
                refusal: Disconnect::Cut,
            },
            listener: Mutex::new(ListenerState {
                listen,
                seeds: ChaCha8Rng::seed_from_u64(seed),
                accepting: None,
            }),
            on: on.clone(),
            external: None,
        }
    }

    /// Takes connections. `tap` reads their protocol, and `tls` ends the TLS of clients.
    pub(super) fn opened(mut self, tap: Option<Arc<LinkTap>>, tls: Option<TlsServer>) -> io::Result<Self> {
        self.shared.tap = tap;
        self.shared.tls = tls;
        self.start_accepting()?;
        Ok(self)
    }

    /// Sets the end of a connection that the server does not take. A reset is nearest to a refused connect, and may come before the
    /// client's own connect returned.
    #[cfg(feature = "api")]
    pub(super) fn with_refusal(mut self, refusal: Disconnect) -> Self {
        self.shared.refusal = refusal;
        self
    }

    /// Lets `external` carry out the behaviour of this link.
    #[cfg(feature = "toxiproxy")]
    pub(super) fn with_external(mut self, external: ExternalProxy) -> Self {
        self.external = Some(external);
        self
    }

    pub(super) fn external(&self) -> Option<&ExternalProxy> {
        self.external.as_ref()
    }

    /// Refuses connections, and ends those that there are. The port is free when this returns.
    #[cfg(feature = "api")]
    pub(super) async fn stop_accepting(&self) {
        let accepting = self.listener().accepting.take();
        if let Some(task) = accepting {
            task.abort();
            let _ = task.await;
            self.end_connections(Disconnect::Closed);
        }
    }

    pub(super) fn start_accepting(&self) -> io::Result<()> {
        let mut state = self.listener();
        if state.accepting.is_some() {
            return Ok(());
        }
        let listener = std::net::TcpListener::bind(state.listen)?;
        listener.set_nonblocking(true)?;
        state.listen = listener.local_addr()?;
        let seeds = ChaCha8Rng::seed_from_u64(state.seeds.random());
        let task = accept(listener, self.state.subscribe(), self.shared.clone(), seeds);
        state.accepting = Some(self.on.runtime.spawn(task));
        Ok(())
    }

    /// Returns the next connection of a link that does not take connections itself.
    pub(super) fn connection(&self) -> Connection {
        let seed = self.listener().seeds.random();
        Connection::new(self.state.subscribe(), self.shared.clone(), seed)
    }

    /// Whether the link takes connections.
    pub fn is_open(&self) -> bool {
        self.listener().accepting.is_some()
    }

    #[cfg(feature = "api")]
    /// Sets the address at which the link listens from the next start on, and the server of new connections.
    pub(super) fn move_to(&self, listen: SocketAddr, upstream: Arc<str>) {
        self.listener().listen = listen;
        self.state.send_modify(|state| state.upstream = upstream);
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, ListenerState> {
        self.listener
            .lock()
            .expect("no one panics while holding a link's listener")
    }

    /// Returns the address that the client connects to.
    pub fn listen(&self) -> SocketAddr {
        self.listener().listen
    }

    /// Returns the server, as `host:port`.
    pub fn upstream(&self) -> Arc<str> {
        Arc::clone(&self.state.borrow().upstream)
    }

    pub(super) fn counters(&self) -> &LinkCounters {
        &self.shared.counters
    }

    /// Returns the toxics on it, in the order in which they came.
    pub fn toxics(&self) -> Arc<[Toxic]> {
        Arc::clone(&self.state.borrow().toxics)
    }

    #[cfg(feature = "api")]
    /// Replaces its toxics. Connections obey at once.
    pub(super) fn set_toxics(&self, toxics: Vec<Toxic>) {
        self.state.send_modify(|state| state.toxics = toxics.into());
    }

    /// Shares bandwidth with other links, as a layer: a bottleneck for each direction.
    pub(super) fn share(&self, layer: Layer, each_way: [Arc<Bottleneck>; 2]) {
        self.state.send_modify(|state| {
            Arc::make_mut(&mut state.bottlenecks).insert(layer, each_way);
        });
    }

    fn end_connections(&self, ending: Disconnect) {
        self.state.send_modify(|state| {
            state.epoch += 1;
            state.ending = ending;
        });
    }

    fn change(&self, with: impl FnOnce(&mut BTreeMap<Layer, Behaviour>, &mut LinkState)) {
        let mut layers = self.layers.lock().expect("no one panics while holding a link's layers");
        self.state.send_modify(|state| {
            with(&mut layers, state);
            let joined = layers
                .values()
                .fold(Behaviour::default(), |joined, layer| joined.join(*layer));
            match self.shared.side {
                MeterSide::Own => state.behaviour = joined,
                MeterSide::Front | MeterSide::Back => state.shadow = joined,
            }
        });
    }
}

impl LinkControl for Link {
    fn name(&self) -> &str {
        &self.name
    }

    fn counts(&self) -> LinkCounts {
        let own = self.shared.counters.read();
        let back = self.external.as_ref().map(|external| external.back.counts());
        own.plus(back.unwrap_or_default())
    }

    fn live(&self) -> u64 {
        match &self.external {
            None => self.shared.counters.live.load(Relaxed),
            Some(external) => external.back.live(),
        }
    }

    fn apply(&self, layer: Layer, behaviour: Behaviour) {
        self.change(|layers, _| {
            layers.insert(layer, behaviour);
        });
    }

    fn heal(&self, layer: Layer) {
        self.change(|layers, state| {
            layers.remove(&layer);
            Arc::make_mut(&mut state.bottlenecks).remove(&layer);
        });
    }

    fn reset_connections(&self) {
        self.end_connections(Disconnect::Cut);
    }

    fn redirect(&self, upstream: SocketAddr) {
        match &self.external {
            None => self
                .state
                .send_modify(|state| state.upstream = upstream.to_string().into()),
            // the external proxy dials the meter, which leads to the server
            Some(external) => external.back.redirect(upstream),
        }
    }

    fn tap(&self) -> Option<&LinkTap> {
        self.shared.tap.as_deref()
    }

    fn wake_connections(&self) {
        self.state.send_modify(|_| {});
    }

    fn as_link(&self) -> Option<&Link> {
        Some(self)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let listener = self
            .listener
            .get_mut()
            .expect("no one panics while holding a link's listener");
        if let Some(accepting) = listener.accepting.take() {
            accepting.abort();
            self.reset_connections();
        }
    }
}

async fn accept(
    listener: std::net::TcpListener,
    mut state: watch::Receiver<LinkState>,
    shared: LinkShared,
    mut seeds: ChaCha8Rng,
) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    let mut blackhole = None;
    loop {
        let holds_connects = state.borrow_and_update().behaviour.holds_connects();
        answer_connects(&listener, !holds_connects, &mut blackhole, &shared.counters);
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() { return },
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    // a connection inherits the filter of its listener
                    Blackhole::detach(&client);
                    let connection = Connection::new(state.clone(), shared.clone(), seeds.random());
                    tokio::spawn(connection.run(client));
                }
                // out of file descriptors, or the peer is gone already: neither ends the link
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            },
            () = tokio::time::sleep(BLACKHOLE_READ), if blackhole.is_some() => {}
        }
    }
}

/// Lets the kernel drop attempts to connect, or not, and counts those that it dropped.
fn answer_connects(listener: &TcpListener, answer: bool, blackhole: &mut Option<Blackhole>, counters: &LinkCounters) {
    if let Some(blackhole) = blackhole {
        count(&counters.held_connects, blackhole.dropped(listener));
    }
    match (answer, blackhole.is_some()) {
        (true, true) => {
            Blackhole::detach(listener);
            *blackhole = None;
        }
        (false, false) => *blackhole = Blackhole::attach(listener, Drops::Everything),
        _ => {}
    }
}
