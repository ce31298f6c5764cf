//! One connection through a link: waits until it may be made, is dialled, carried both ways, and ended as the link says.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::behaviour::Cut;
use super::lane::{Broken, Direction, Lane, Shared};
use super::link::State;
use super::meter::{Meter, Side};
use super::stats::{Live, Stats, count};
use super::vigil::{Habit, Vigil};
use super::wire::{Ear, Wire};
use crate::limits::DIAL;

/// Why a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The link ended it while it waited.
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
    wire: Option<Arc<Wire>>,
    vigil: Arc<Vigil>,
    seed: u64,
    side: Side,
    /// The epoch that it belongs to; in a later one it is over.
    epoch: u64,
}

impl Connection {
    pub(super) fn new(
        state: watch::Receiver<State>,
        stats: Arc<Stats>,
        (wire, vigil): (Option<Arc<Wire>>, Arc<Vigil>),
        seed: u64,
        side: Side,
    ) -> Self {
        let epoch = state.borrow().epoch;
        Self {
            state,
            stats,
            wire,
            vigil,
            seed,
            side,
            epoch,
        }
    }

    pub(super) async fn run(mut self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        if self.wire.as_ref().is_some_and(|wire| wire.refuses()) {
            count(&self.stats.refused, 1);
            reset(&client);
            return;
        }
        let meter = self.meter();
        match self.connect().await {
            Ok(server) => self.pass(client, server, meter).await,
            Err(_) => reset(&client),
        }
    }

    pub(super) fn meter(&self) -> Meter {
        Meter::begin(self.side, &self.state.borrow().shadow, &self.stats)
    }

    /// Carries a connection that was made, until it ends.
    pub(super) async fn pass(mut self, client: TcpStream, server: TcpStream, meter: Meter) {
        let stats = Arc::clone(&self.stats);
        let _live = Live::begin(&stats);
        let budget = AtomicU64::new(u64::MAX);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        self.carry(client, server, (self.epoch, meter), &budget, &mut rng).await;
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
                if self.side != Side::Front {
                    count(&self.stats.connections, 1);
                }
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
        (epoch, meter): (u64, Meter),
        budget: &AtomicU64,
        rng: &mut ChaCha8Rng,
    ) {
        let shared = Shared {
            stats: &self.stats,
            habit: Habit::new(&self.vigil),
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
                // first whoever waits for changes: the lanes are polled after it, and find each that it was woken for
                biased;
                broken = cut(self.state.clone(), (epoch, self.seed), budget, rng) => Err(broken),
                ended = lanes => ended,
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
        let due = at.into_iter().chain(reset_at).min();
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return Broken::Cut },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Broken::Cut,
        }
    }
}

/// Makes the close of this socket a reset instead of an end of stream.
pub(super) fn reset(stream: &TcpStream) {
    let _ = socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
