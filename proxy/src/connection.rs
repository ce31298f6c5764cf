//! One connection through a link: waits until it may be made, is dialled, carried both ways, and ended as the link says.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use harness_tls::{TlsServer, reset};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::behaviour::Cut;
use super::busy_poll::{BusyPoll, ReplyPredictor};
use super::byte_meter::{ByteMeter, MeterSide};
use super::counters::{LinkCounters, LiveConnection, count};
use super::direction::Direction;
use super::link_state::{Disconnect, LinkState};
use super::link_tap::{ConnectionTap, LinkTap};
use super::pump::{ConnectionContext, Pump};
use crate::clock::monotonic_ns;
use crate::limits::DIAL;

/// The reason for which a connection was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DialError {
    /// The link ended it while it waited.
    Reset,
    /// The server does not take it.
    Refused,
    /// Nothing answers there.
    Silent,
}

/// The state that all connections of a link share.
#[derive(Debug, Clone)]
pub(super) struct LinkShared {
    pub counters: Arc<LinkCounters>,
    pub side: MeterSide,
    pub tap: Option<Arc<LinkTap>>,
    /// Ends the TLS of clients. `None`: clients write plain text, or their bytes pass unchanged.
    pub tls: Option<TlsServer>,
    pub busy_poll: Arc<BusyPoll>,
    /// The end of a connection that the server does not take.
    pub refusal: Disconnect,
}

/// One connection through a link, from before it is made.
pub(super) struct Connection {
    state: watch::Receiver<LinkState>,
    shared: LinkShared,
    seed: u64,
    /// The epoch that it belongs to; in a later one it is over.
    epoch: u64,
}

impl Connection {
    pub(super) fn new(state: watch::Receiver<LinkState>, shared: LinkShared, seed: u64) -> Self {
        let epoch = state.borrow().epoch;
        Self {
            state,
            shared,
            seed,
            epoch,
        }
    }

    pub(super) async fn run(mut self, client: TcpStream) {
        let _ = client.set_nodelay(true);
        if self.shared.tap.as_ref().is_some_and(|tap| tap.refuses(monotonic_ns())) {
            count(&self.shared.counters.refused, 1);
            reset(&client);
            return;
        }
        let meter = self.meter();
        match self.connect().await {
            Ok(server) => {
                if let Ok(client) = self.plain(client).await {
                    self.pass(client, server, meter).await;
                }
            }
            Err(DialError::Refused | DialError::Silent) if self.shared.refusal == Disconnect::Closed => {}
            Err(_) => reset(&client),
        }
    }

    /// Ends the client's TLS, if the link does that. A handshake begins when the server has taken the connection, as without a link.
    async fn plain(&self, client: TcpStream) -> io::Result<TcpStream> {
        match &self.shared.tls {
            None => Ok(client),
            Some(tls) => tls.end(client).await,
        }
    }

    pub(super) fn meter(&self) -> ByteMeter {
        ByteMeter::begin(self.shared.side, &self.state.borrow().shadow, &self.shared.counters)
    }

    /// Waits until a connect can get through, and makes it to where the link leads.
    async fn connect(&mut self) -> Result<TcpStream, DialError> {
        self.wait_until_open().await?;
        let upstream = self.state.borrow().upstream.clone();
        self.dial(&upstream).await
    }

    /// Waits until bytes can travel both ways.
    pub(super) async fn wait_until_open(&mut self) -> Result<(), DialError> {
        if self.state.borrow().behaviour.holds_connects() {
            count(&self.shared.counters.held_connects, 1);
        }
        let epoch = self.epoch;
        let ready = |state: &LinkState| state.epoch != epoch || !state.behaviour.holds_connects();
        match self.state.wait_for(ready).await {
            Ok(state) if state.epoch == epoch => Ok(()),
            _ => Err(DialError::Reset),
        }
    }

    pub(super) async fn dial(&self, upstream: &str) -> Result<TcpStream, DialError> {
        let failed = match timeout(DIAL, TcpStream::connect(upstream)).await {
            Ok(Ok(server)) => {
                let _ = server.set_nodelay(true);
                // before the client learns of it
                if self.shared.side != MeterSide::Front {
                    count(&self.shared.counters.connections, 1);
                }
                return Ok(server);
            }
            Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => DialError::Refused,
            _ => DialError::Silent,
        };
        count(&self.shared.counters.refused, 1);
        Err(failed)
    }

    /// Carries both directions of a connection that was made until they end.
    pub(super) async fn pass(self, mut client: TcpStream, mut server: TcpStream, meter: ByteMeter) {
        let counters = &*self.shared.counters;
        let _live = LiveConnection::begin(counters);
        let budget = AtomicU64::new(u64::MAX);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let context = ConnectionContext {
            counters,
            predictor: ReplyPredictor::new(&self.shared.busy_poll),
            budget: &budget,
            tap: self.shared.tap.as_ref().map(ConnectionTap::new),
            seed: self.seed,
            epoch: self.epoch,
            meter,
        };
        let seeds = [rng.random(), rng.random()].map(ChaCha8Rng::seed_from_u64);
        let ended = {
            let (client_reads, client_writes) = client.split();
            let (server_reads, server_writes) = server.split();
            let pump = |halves, direction, rng| Pump::new(halves, direction, self.state.clone(), &context, rng).run();
            let [to_server, to_client] = seeds;
            let pumps = async {
                tokio::try_join!(
                    pump((client_reads, server_writes), Direction::ToServer, to_server),
                    pump((server_reads, client_writes), Direction::ToClient, to_client),
                )
                .map(|_| ())
            };
            tokio::select! {
                // `cut` has the only waker for changes of the link's state; both pumps are polled after it
                biased;
                broken = cut(self.state.clone(), &context, rng) => Err(broken),
                ended = pumps => ended,
            }
        };
        context.meter.ended(&self.state.borrow().shadow, counters);
        if matches!(ended, Err(Disconnect::Cut | Disconnect::Closed)) {
            // before the sockets close: a peer that sees the reset finds it counted
            count(&counters.resets, 1);
        }
        if matches!(ended, Err(Disconnect::Cut | Disconnect::Peer)) {
            reset(&client);
            reset(&server);
        }
    }
}

/// Ends when the link ends this connection: a new epoch, a toxic that resets, or a cut that the seed drew.
async fn cut(
    mut state: watch::Receiver<LinkState>,
    context: &ConnectionContext<'_>,
    mut rng: ChaCha8Rng,
) -> Disconnect {
    let mut drawn = Cut::default();
    let mut at = None;
    let mut reset_after = None;
    let mut reset_at = None;
    loop {
        let now = state.borrow_and_update().clone();
        if now.epoch != context.epoch {
            return now.ending;
        }
        if now.behaviour.cut != drawn {
            drawn = now.behaviour.cut;
            at = drawn
                .after
                .map(|after| Instant::now() + after.mul_f64(rng.random_range(0.5..1.5)));
            let bytes = drawn
                .after_bytes
                .map(|bytes| (f64::from(bytes) * rng.random_range(0.5..1.5)) as u64);
            context.budget.store(bytes.unwrap_or(u64::MAX), Relaxed);
        }
        let resets = Direction::BOTH.map(|direction| now.flow(direction, context.seed).reset_after);
        let soonest = resets.into_iter().flatten().min();
        if soonest != reset_after {
            reset_after = soonest;
            reset_at = soonest.map(|after| Instant::now() + after);
        }
        let due = at.into_iter().chain(reset_at).min();
        tokio::select! {
            changed = state.changed() => if changed.is_err() { return Disconnect::Cut },
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => return Disconnect::Cut,
        }
    }
}
