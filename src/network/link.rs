//! A link: one listener in front of one server for one client, and the connections that run through it.
//!
//! Faults are layers on a link. Each is put on and lifted by its own guard, so windows that overlap heal one by one.
//! Accepting, dialling and carrying happen on the proxy's own thread; whoever puts a layer on never waits for them.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use super::behaviour::{Behaviour, Cut};
use super::far::Far;
use super::lane::{Broken, Direction, Lane, Shared};
use super::meter::{Meter, Side};
use super::rule::Rule;
use super::stats::{Stats, count};
use super::toxic::Toxic;
use super::wire::{Ear, Wire};
use crate::evidence::Counts;
use crate::limits::DIAL;

/// What the connections of a link obey.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub behaviour: Behaviour,
    /// What somebody else's proxy beside this link does, to be counted and not obeyed.
    pub shadow: Behaviour,
    /// What the API put on.
    pub toxics: Arc<[Toxic]>,
    upstream: SocketAddr,
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

/// One proxied way from a client to a server.
#[derive(Debug)]
pub struct Link {
    name: String,
    side: Side,
    state: watch::Sender<State>,
    layers: Mutex<BTreeMap<Layer, Behaviour>>,
    stats: Arc<Stats>,
    /// The messages that pass, where there is a tap.
    wire: Option<Arc<Wire>>,
    door: Mutex<Door>,
    on: Handle,
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
    /// Listens on `listen` (a free port, where that is 0) and carries to `upstream`, on the runtime `on`.
    /// `seed` decides jitter, cuts and toxicity; the same seed gives the same draws in the same order of connections.
    pub fn open(name: String, listen: SocketAddr, upstream: SocketAddr, seed: u64, on: &Handle) -> io::Result<Self> {
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
        on: &Handle,
    ) -> io::Result<Self> {
        let mut link = Self::closed(name, ways, seed, Side::Own, on);
        link.wire = Some(wire);
        link.admit()?;
        Ok(link)
    }

    /// A link on one side of somebody else's proxy: it counts what that does, and obeys nothing itself.
    pub(super) fn meter(name: String, ways: (SocketAddr, SocketAddr), side: Side, on: &Handle) -> io::Result<Self> {
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
        on: &Handle,
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
        let accepting = accept(listener, state, (stats, self.side), self.wire.clone(), seeds);
        door.accepting = Some(self.on.spawn(accepting));
        Ok(())
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

    /// `c3->n1`.
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

    pub fn counts(&self) -> Counts {
        match &self.far {
            None => self.stats.read(),
            Some(far) => far.counts(self.stats.read()),
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

    /// Puts a rule on; on a link without a tap it never strikes.
    pub(super) fn arm(&self, layer: Layer, rule: &Arc<Rule>) {
        if let Some(wire) = &self.wire {
            wire.arm(layer, Arc::clone(rule));
        }
    }

    /// Takes a rule away; what it held back goes on.
    pub(super) fn disarm(&self, layer: Layer) {
        if let Some(wire) = &self.wire {
            wire.disarm(layer);
        }
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
    wire: Option<Arc<Wire>>,
    mut seeds: ChaCha8Rng,
) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let connection = Connection {
                    state: state.clone(),
                    stats: Arc::clone(&stats),
                    wire: wire.clone(),
                    seed: seeds.random(),
                    side,
                };
                tokio::spawn(connection.run(client));
            }
            // out of file descriptors, or the peer is gone already: neither ends the link
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

struct Connection {
    state: watch::Receiver<State>,
    stats: Arc<Stats>,
    wire: Option<Arc<Wire>>,
    seed: u64,
    side: Side,
}

impl Connection {
    async fn run(mut self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        if self.wire.as_ref().is_some_and(|wire| wire.refuses()) {
            count(&self.stats.refused, 1);
            reset(&client);
            return;
        }
        let (epoch, meter) = {
            let state = self.state.borrow();
            (state.epoch, Meter::begin(self.side, &state.shadow, &self.stats))
        };
        let Some(server) = self.connect(epoch).await else {
            reset(&client);
            return;
        };
        if self.side != Side::Front {
            count(&self.stats.connections, 1);
        }
        let budget = AtomicU64::new(u64::MAX);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        self.carry(client, server, (epoch, meter), &budget, &mut rng).await;
    }

    /// Waits until a connect can get through and makes it. `None`: refused by the server, or reset by the link meanwhile.
    async fn connect(&mut self, epoch: u64) -> Option<TcpStream> {
        if self.state.borrow().behaviour.holds_connects() {
            count(&self.stats.held_connects, 1);
        }
        let (now, upstream) = {
            let ready = |state: &State| state.epoch != epoch || !state.behaviour.holds_connects();
            let state = self.state.wait_for(ready).await.ok()?;
            (state.epoch, state.upstream)
        };
        if now != epoch {
            return None;
        }
        match timeout(DIAL, TcpStream::connect(upstream)).await {
            Ok(Ok(server)) => {
                let _ = server.set_nodelay(true);
                Some(server)
            }
            _ => {
                count(&self.stats.refused, 1);
                None
            }
        }
    }

    /// Carries both directions until they end.
    async fn carry(
        &mut self,
        mut client: TcpStream,
        mut server: TcpStream,
        (epoch, meter): (u64, Meter),
        budget: &AtomicU64,
        rng: &mut ChaCha8Rng,
    ) {
        let shared = Shared {
            stats: &self.stats,
            budget,
            ear: self.wire.as_ref().map(Ear::new),
            seed: self.seed,
            meter,
        };
        let seeds = [rng.random(), rng.random()];
        let ended = {
            let (client_reads, client_writes) = client.split();
            let (server_reads, server_writes) = server.split();
            let lane = |halves, direction, seed| {
                Lane::new(
                    halves,
                    direction,
                    (self.state.clone(), epoch),
                    &shared,
                    ChaCha8Rng::seed_from_u64(seed),
                )
                .run()
            };
            let lanes = async {
                tokio::try_join!(
                    lane((client_reads, server_writes), Direction::ToServer, seeds[0]),
                    lane((server_reads, client_writes), Direction::ToClient, seeds[1]),
                )
                .map(|_| ())
            };
            tokio::select! {
                biased;
                ended = lanes => ended,
                broken = cut(self.state.clone(), (epoch, self.seed), budget, rng) => Err(broken),
            }
        };
        shared.meter.ended(&self.state.borrow().shadow, &self.stats);
        if matches!(ended, Err(Broken::Cut | Broken::Closed)) {
            // before the sockets close: who sees the reset finds it counted
            count(&self.stats.resets, 1);
        }
        if matches!(ended, Err(Broken::Cut | Broken::Peer)) {
            reset(&client);
            reset(&server);
        }
    }
}

/// Ends when the link ends this connection: a new epoch, a toxic that resets, or a cut that the seed drew.
async fn cut(
    mut state: watch::Receiver<State>,
    (epoch, seed): (u64, u64),
    budget: &AtomicU64,
    rng: &mut ChaCha8Rng,
) -> Broken {
    let mut drawn = Cut::default();
    let mut at = None;
    let mut reset_after = None;
    let mut reset_at = None;
    loop {
        let now = state.borrow_and_update().clone();
        if now.epoch != epoch {
            return now.ending.broken();
        }
        if now.behaviour.cut != drawn {
            drawn = now.behaviour.cut;
            at = drawn
                .after
                .map(|after| Instant::now() + after.mul_f64(rng.random_range(0.5..1.5)));
            let bytes = drawn
                .after_bytes
                .map(|bytes| (f64::from(bytes) * rng.random_range(0.5..1.5)) as u64);
            budget.store(bytes.unwrap_or(u64::MAX), Relaxed);
        }
        let resets = [Direction::ToServer, Direction::ToClient].map(|direction| direction.flow(&now, seed).reset_after);
        let soonest = resets.into_iter().flatten().min();
        if soonest != reset_after {
            reset_after = soonest;
            reset_at = soonest.map(|after| Instant::now() + after);
        }
        let never = Instant::now() + Duration::from_secs(86_400);
        let due = at.into_iter().chain(reset_at).min().unwrap_or(never);
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return Broken::Cut },
            () = sleep_until(due) => return Broken::Cut,
        }
    }
}

/// Makes the close of this socket a reset instead of an end of stream.
fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
