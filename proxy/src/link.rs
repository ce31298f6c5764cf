//! A link: one listener in front of one server for one client, and the connections that run through it.
//!
//! Faults are layers on a link. Each is put on and lifted by its own guard, so windows that overlap heal one by one.
//! Accepting, dialling and carrying happen on the proxy's own thread; whoever puts a layer on never waits for them.
//! A link between servers does not take connections itself: they come through an [`Egress`](super::Egress).

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::behaviour::Behaviour;
use super::connection::Connection;
use super::far::Far;
use super::lane::Broken;
use super::meter::Side;
use super::stats::Stats;
use super::toxic::Toxic;
use super::vigil::{Carrier, Vigil};
use super::wire::Wire;
use crate::counts::LinkCounts;

/// What the connections of a link obey.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub behaviour: Behaviour,
    /// What somebody else's proxy beside this link does, to be counted and not obeyed.
    pub shadow: Behaviour,
    /// What the API put on.
    pub toxics: Arc<[Toxic]>,
    pub upstream: SocketAddr,
    /// Connections from before the current epoch end.
    pub epoch: u64,
    /// How they do.
    pub ending: Ending,
}

/// How the link ends connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Reset,
    /// As a peer would.
    Close,
}

impl Ending {
    pub fn broken(self) -> Broken {
        match self {
            Self::Reset => Broken::Cut,
            Self::Close => Broken::Closed,
        }
    }
}

/// The name of a layer: the number of the fault window that put it on.
pub type Layer = u32;

/// One proxied way, from a client to a server or from a server to a server.
#[derive(Debug)]
pub struct Link {
    name: String,
    side: Side,
    state: watch::Sender<State>,
    layers: Mutex<BTreeMap<Layer, Behaviour>>,
    stats: Arc<Stats>,
    wire: Option<Arc<Wire>>,
    door: Mutex<Door>,
    on: Carrier,
    /// Who does what this link only counts.
    far: Option<Far>,
}

/// Where a link takes connections, while it does.
#[derive(Debug)]
struct Door {
    listen: SocketAddr,
    seeds: ChaCha8Rng,
    accepting: Option<JoinHandle<()>>,
}

impl Link {
    /// Listens on `listen` (a free port, where that is 0) and carries to `upstream`, on the thread `on`.
    /// `seed` decides jitter, cuts and toxicity; the same seed gives the same draws in the same order of connections.
    pub(super) fn open(
        name: String,
        listen: SocketAddr,
        upstream: SocketAddr,
        seed: u64,
        on: &Carrier,
    ) -> io::Result<Self> {
        let link = Self::closed(name, (listen, upstream), seed, Side::Own, on);
        link.admit()?;
        Ok(link)
    }

    /// The same, and a tap reads along.
    pub(super) fn tapped(
        name: String,
        ways: (SocketAddr, SocketAddr),
        seed: u64,
        wire: Arc<Wire>,
        on: &Carrier,
    ) -> io::Result<Self> {
        let mut link = Self::closed(name, ways, seed, Side::Own, on);
        link.wire = Some(wire);
        link.admit()?;
        Ok(link)
    }

    /// A link on one side of somebody else's proxy: it counts what that does, and obeys nothing itself.
    #[cfg(feature = "toxiproxy")]
    pub(super) fn meter(name: String, ways: (SocketAddr, SocketAddr), side: Side, on: &Carrier) -> io::Result<Self> {
        let link = Self::closed(name, ways, 0, side, on);
        link.admit()?;
        Ok(link)
    }

    /// A link that takes no connections until it is told to.
    pub(super) fn closed(
        name: String,
        (listen, upstream): (SocketAddr, SocketAddr),
        seed: u64,
        side: Side,
        on: &Carrier,
    ) -> Self {
        let state = State {
            behaviour: Behaviour::default(),
            shadow: Behaviour::default(),
            toxics: Arc::new([]),
            upstream,
            epoch: 0,
            ending: Ending::Reset,
        };
        Self {
            name,
            side,
            state: watch::channel(state).0,
            layers: Mutex::default(),
            stats: Arc::default(),
            wire: None,
            door: Mutex::new(Door {
                listen,
                seeds: ChaCha8Rng::seed_from_u64(seed),
                accepting: None,
            }),
            on: on.clone(),
            far: None,
        }
    }

    /// What is put on this link is done by `far`.
    #[cfg(feature = "toxiproxy")]
    pub(super) fn with_far(mut self, far: Far) -> Self {
        self.far = Some(far);
        self
    }

    pub(super) fn far(&self) -> Option<&Far> {
        self.far.as_ref()
    }

    /// Refuses connections, and ends those that there are. The port is free when this returns.
    pub(super) async fn shut(&self) {
        let accepting = self.door().accepting.take();
        if let Some(accepting) = accepting {
            accepting.abort();
            let _ = accepting.await;
            self.end_connections(Ending::Close);
        }
    }

    /// Takes connections.
    pub(super) fn admit(&self) -> io::Result<()> {
        let mut door = self.door();
        if door.accepting.is_some() {
            return Ok(());
        }
        let listener = std::net::TcpListener::bind(door.listen)?;
        listener.set_nonblocking(true)?;
        door.listen = listener.local_addr()?;
        let seeds = ChaCha8Rng::seed_from_u64(door.seeds.random());
        let (state, stats) = (self.state.subscribe(), Arc::clone(&self.stats));
        let vigil = Arc::clone(&self.on.vigil);
        let accepting = accept(listener, state, (stats, self.side), (self.wire.clone(), vigil), seeds);
        door.accepting = Some(self.on.runtime.spawn(accepting));
        Ok(())
    }

    /// The next connection of a link that does not take its own.
    pub(super) fn connection(&self) -> Connection {
        let seed = self.door().seeds.random();
        let (stats, vigil) = (Arc::clone(&self.stats), Arc::clone(&self.on.vigil));
        Connection::new(self.state.subscribe(), stats, (None, vigil), seed, self.side)
    }

    /// Whether it takes connections.
    pub fn is_open(&self) -> bool {
        self.door().accepting.is_some()
    }

    /// Listens elsewhere from the next time that it takes connections.
    pub(super) fn move_to(&self, listen: SocketAddr) {
        self.door().listen = listen;
    }

    fn door(&self) -> std::sync::MutexGuard<'_, Door> {
        self.door.lock().expect("no one panics while holding a link's door")
    }

    /// `c3->n1`, `n1->n2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the client connects to.
    pub fn listen(&self) -> SocketAddr {
        self.door().listen
    }

    /// Where it carries to.
    pub fn upstream(&self) -> SocketAddr {
        self.state.borrow().upstream
    }

    pub fn counts(&self) -> LinkCounts {
        match &self.far {
            None => self.stats.read(),
            Some(far) => far.counts(self.stats.read()),
        }
    }

    /// How many connections it carries to its server at this moment.
    pub fn live(&self) -> u64 {
        match &self.far {
            None => self.stats.live.load(Relaxed),
            Some(far) => far.back.live(),
        }
    }

    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The toxics on it, in the order in which they came.
    pub fn toxics(&self) -> Arc<[Toxic]> {
        Arc::clone(&self.state.borrow().toxics)
    }

    /// Changes its toxics; connections obey at once.
    pub(super) fn poison(&self, toxics: Vec<Toxic>) {
        self.state.send_modify(|state| state.toxics = toxics.into());
    }

    /// Puts a layer on, in place of an earlier one of that name.
    pub fn put(&self, layer: Layer, behaviour: Behaviour) {
        self.change(|layers, _| {
            layers.insert(layer, behaviour);
        });
    }

    /// Lifts a layer; without it the link does what the other layers say.
    pub fn lift(&self, layer: Layer) {
        self.change(|layers, _| {
            layers.remove(&layer);
        });
    }

    /// Lifts a layer and resets every connection there is, at once: what was held back never gets through.
    pub fn lift_and_reset(&self, layer: Layer) {
        self.change(|layers, state| {
            layers.remove(&layer);
            state.epoch += 1;
            state.ending = Ending::Reset;
        });
    }

    /// The messages that pass, where there is a tap.
    pub fn wire(&self) -> Option<&Wire> {
        self.wire.as_deref()
    }

    /// Lets every connection look again at what it obeys.
    pub(super) fn look_again(&self) {
        self.state.send_modify(|_| {});
    }

    /// Resets every connection there is, both ends. New ones are taken.
    pub fn reset_connections(&self) {
        self.end_connections(Ending::Reset);
    }

    fn end_connections(&self, ending: Ending) {
        self.state.send_modify(|state| {
            state.epoch += 1;
            state.ending = ending;
        });
    }

    /// Sends new connections to another address: a server that came back elsewhere.
    pub fn redirect(&self, upstream: SocketAddr) {
        match &self.far {
            None => {
                self.state.send_modify(|state| state.upstream = upstream);
            }
            Some(far) => far.redirect(upstream),
        }
    }

    fn change(&self, with: impl FnOnce(&mut BTreeMap<Layer, Behaviour>, &mut State)) {
        let mut layers = self.layers.lock().expect("no one panics while holding a link's layers");
        self.state.send_modify(|state| {
            with(&mut layers, state);
            let joined = layers
                .values()
                .fold(Behaviour::default(), |joined, layer| joined.join(*layer));
            match self.side {
                Side::Own => state.behaviour = joined,
                Side::Front | Side::Back => state.shadow = joined,
            }
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let door = self.door.get_mut().expect("no one panics while holding a link's door");
        if let Some(accepting) = door.accepting.take() {
            accepting.abort();
        }
        self.reset_connections();
    }
}

async fn accept(
    listener: std::net::TcpListener,
    state: watch::Receiver<State>,
    (stats, side): (Arc<Stats>, Side),
    (wire, vigil): (Option<Arc<Wire>>, Arc<Vigil>),
    mut seeds: ChaCha8Rng,
) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let beside = (wire.clone(), Arc::clone(&vigil));
                let connection = Connection::new(state.clone(), Arc::clone(&stats), beside, seeds.random(), side);
                tokio::spawn(connection.run(client));
            }
            // out of file descriptors, or the peer is gone already: neither ends the link
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}
