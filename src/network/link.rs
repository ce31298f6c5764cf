//! A link: one listener in front of one server for one client, and the connections that run through it.
//!
//! Faults are layers on a link. Each is put on and lifted by its own guard, so windows that overlap heal one by one.
//! Accepting, dialling and carrying happen on the proxy's own thread; whoever puts a layer on never waits for them.
//! A link between servers has no listener of its own: its connections come through an [`Egress`](super::Egress).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
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
use super::lane::{Broken, Direction, Lane, Shared};
use super::stats::{Stats, count};
use crate::evidence::Counts;
use crate::limits::DIAL;

/// What the connections of a link obey.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub behaviour: Behaviour,
    upstream: SocketAddr,
    /// Connections from before the current epoch are reset.
    pub epoch: u64,
}

/// The name of a layer: the number of the fault window that put it on.
pub type Layer = u32;

/// One proxied way, from a client to a server or from a server to a server.
#[derive(Debug)]
pub struct Link {
    name: String,
    listen: SocketAddr,
    state: watch::Sender<State>,
    layers: Mutex<BTreeMap<Layer, Behaviour>>,
    stats: Arc<Stats>,
    /// Seeds of the connections to come, where they are handed to it.
    seeds: Mutex<ChaCha8Rng>,
    accepting: Option<JoinHandle<()>>,
}

impl Link {
    /// Listens on a free port of the address `listen` and carries to `upstream`, on the runtime `on`.
    /// `seed` decides jitter and cuts; the same seed gives the same draws in the same order of connections.
    pub fn open(name: String, listen: IpAddr, upstream: SocketAddr, seed: u64, on: &Handle) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((listen, 0))?;
        listener.set_nonblocking(true)?;
        let mut link = Self::behind(name, listener.local_addr()?, upstream, seed);
        let accepting = on.spawn(accept(
            listener,
            link.state.subscribe(),
            Arc::clone(&link.stats),
            ChaCha8Rng::seed_from_u64(seed),
        ));
        link.accepting = Some(accepting);
        Ok(link)
    }

    /// A link whose connections are accepted by somebody else, at `listen`.
    pub(super) fn behind(name: String, listen: SocketAddr, upstream: SocketAddr, seed: u64) -> Self {
        let state = State {
            behaviour: Behaviour::default(),
            upstream,
            epoch: 0,
        };
        Self {
            name,
            listen,
            state: watch::channel(state).0,
            layers: Mutex::default(),
            stats: Arc::default(),
            seeds: Mutex::new(ChaCha8Rng::seed_from_u64(seed)),
            accepting: None,
        }
    }

    /// The next connection of a link that does not accept its own.
    pub(super) fn connection(&self) -> Connection {
        let mut seeds = self.seeds.lock().expect("no one panics while drawing a seed");
        Connection::new(self.state.subscribe(), Arc::clone(&self.stats), seeds.random())
    }

    /// `c3->n1`, `n1->n2`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the client connects to.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    pub fn counts(&self) -> Counts {
        self.stats.read()
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
        });
    }

    /// Resets every connection there is, both ends. New ones are taken.
    pub fn reset_connections(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }

    /// Sends new connections to another address: a server that came back elsewhere.
    pub fn redirect(&self, upstream: SocketAddr) {
        self.state.send_modify(|state| state.upstream = upstream);
    }

    fn change(&self, with: impl FnOnce(&mut BTreeMap<Layer, Behaviour>, &mut State)) {
        let mut layers = self.layers.lock().expect("no one panics while holding a link's layers");
        self.state.send_modify(|state| {
            with(&mut layers, state);
            state.behaviour = layers
                .values()
                .fold(Behaviour::default(), |joined, layer| joined.join(*layer));
        });
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(accepting) = &self.accepting {
            accepting.abort();
        }
        self.reset_connections();
    }
}

async fn accept(
    listener: std::net::TcpListener,
    state: watch::Receiver<State>,
    stats: Arc<Stats>,
    mut seeds: ChaCha8Rng,
) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                let connection = Connection::new(state.clone(), Arc::clone(&stats), seeds.random());
                tokio::spawn(connection.run(client));
            }
            // out of file descriptors, or the peer is gone already: neither ends the link
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Why a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The link reset it while it waited.
    Reset,
    /// The server does not take it.
    Refused,
    /// Nobody answers there.
    Silent,
}

/// One connection through a link, from before it is made.
pub(super) struct Connection {
    state: watch::Receiver<State>,
    stats: Arc<Stats>,
    seed: u64,
    /// The epoch that it belongs to; in a later one it is reset.
    epoch: u64,
}

impl Connection {
    fn new(state: watch::Receiver<State>, stats: Arc<Stats>, seed: u64) -> Self {
        let epoch = state.borrow().epoch;
        Self {
            state,
            stats,
            seed,
            epoch,
        }
    }

    async fn run(mut self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        match self.connect().await {
            Ok(server) => self.pass(client, server).await,
            Err(_) => reset(&client),
        }
    }

    /// Carries a connection that was made, until it ends.
    pub(super) async fn pass(mut self, client: TcpStream, server: TcpStream) {
        let budget = AtomicU64::new(u64::MAX);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        self.carry(client, server, self.epoch, &budget, &mut rng).await;
    }

    /// Waits until a connect can get through, and makes it to where the link leads.
    async fn connect(&mut self) -> Result<TcpStream, NoWay> {
        self.open_way().await?;
        let upstream = self.state.borrow().upstream;
        self.dial(upstream).await
    }

    /// Waits until bytes can travel both ways.
    pub(super) async fn open_way(&mut self) -> Result<(), NoWay> {
        if self.state.borrow().behaviour.holds_connects() {
            count(&self.stats.held_connects, 1);
        }
        let epoch = self.epoch;
        let ready = |state: &State| state.epoch != epoch || !state.behaviour.holds_connects();
        match self.state.wait_for(ready).await {
            Ok(state) if state.epoch == epoch => Ok(()),
            _ => Err(NoWay::Reset),
        }
    }

    pub(super) async fn dial(&self, upstream: SocketAddr) -> Result<TcpStream, NoWay> {
        let no_way = match timeout(DIAL, TcpStream::connect(upstream)).await {
            Ok(Ok(server)) => {
                let _ = server.set_nodelay(true);
                // before anybody is told
                count(&self.stats.connections, 1);
                return Ok(server);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => NoWay::Refused,
            _ => NoWay::Silent,
        };
        count(&self.stats.refused, 1);
        Err(no_way)
    }

    /// Carries both directions until they end.
    async fn carry(
        &mut self,
        mut client: TcpStream,
        mut server: TcpStream,
        epoch: u64,
        budget: &AtomicU64,
        rng: &mut ChaCha8Rng,
    ) {
        let shared = Shared {
            stats: &self.stats,
            budget,
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
                () = cut(self.state.clone(), epoch, budget, rng) => Err(Broken::Cut),
            }
        };
        if matches!(ended, Err(Broken::Cut)) {
            // before the sockets close: who sees the reset finds it counted
            count(&self.stats.resets, 1);
        }
        if ended.is_err() {
            reset(&client);
            reset(&server);
        }
    }
}

/// Ends when the link resets this connection: a new epoch, or a cut that the seed drew.
async fn cut(mut state: watch::Receiver<State>, epoch: u64, budget: &AtomicU64, rng: &mut ChaCha8Rng) {
    let mut drawn = Cut::default();
    let mut at = None;
    loop {
        let now = *state.borrow_and_update();
        if now.epoch != epoch {
            return;
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
        let due = at.unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400));
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return },
            () = sleep_until(due) => return,
        }
    }
}

/// Makes the close of this socket a reset instead of an end of stream.
pub(super) fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
