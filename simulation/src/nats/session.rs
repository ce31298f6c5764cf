//! The way of a client to simulated servers ([`NatsRoutes`]): another dial for the session that the client of real servers has
//! (`session/nats/client_session.rs` of workloads), which gives up calls and turns to the next server in the same way.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use harness_workloads::nats::{KeyDial, KeyLine, KeyOutcome, KeyRequest, NatsError, NatsServers};

use super::cluster::SimulatedNats;
use super::request::{NatsCall, NatsMessage};
use crate::network::{ClientSide, ConnectionEnding, SimulatedLink};
use crate::world::SimulatedProcess;

/// One link to each server.
pub struct NatsRoutes {
    nats: SimulatedNats,
    links: Vec<SimulatedLink>,
    names: Vec<String>,
}

impl NatsRoutes {
    /// Makes the routes of a client in `process`. `links` has one link for each server of `nats`, in their order.
    pub fn to(
        nats: SimulatedNats,
        links: Vec<SimulatedLink>,
        process: SimulatedProcess,
        lease: Duration,
    ) -> NatsServers {
        let routes = NatsRoutes {
            nats,
            names: links.iter().map(SimulatedLink::name).collect(),
            links,
        };
        NatsServers::over(Box::new(routes), lease, process.host())
    }
}

#[async_trait(?Send)]
impl KeyDial for NatsRoutes {
    fn names(&self) -> &[String] {
        &self.names
    }

    async fn dial(&self, server: usize) -> Result<Box<dyn KeyLine>, String> {
        let socket = self.links[server].connect(self.nats.address_of(server)).await;
        let mut line = RoutedKeyLine {
            socket: socket.map_err(|_| "connection refused")?,
            calls: 0,
        };
        // a server speaks first
        line.socket.receive().await.map_err(ended)?;
        line.send(None);
        line.socket.receive().await.map_err(ended)?;
        Ok(Box::new(line))
    }
}

fn ended(how: ConnectionEnding) -> String {
    match how {
        ConnectionEnding::Closed => "the connection ended".to_owned(),
        ConnectionEnding::Reset => "the connection was reset".to_owned(),
    }
}

/// As [`NatsConnection`](harness_workloads::nats::NatsConnection), on messages in place of bytes.
struct RoutedKeyLine {
    socket: ClientSide<NatsCall, NatsMessage>,
    /// Calls so far, its greeting among them.
    calls: u64,
}

impl RoutedKeyLine {
    /// Sends a request; returns its number.
    fn send(&mut self, asks: Option<KeyRequest>) -> u64 {
        self.calls += 1;
        let number = self.calls;
        self.socket.send(NatsCall { number, asks });
        number
    }

    /// Reads the messages that have come, so that the end of a connection is known before something is sent over it.
    fn read_what_came(&self) -> Result<(), ConnectionEnding> {
        let mut nobody = Context::from_waker(Waker::noop());
        while let Poll::Ready(received) = self.socket.poll_receive(&mut nobody) {
            received?;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl KeyLine for RoutedKeyLine {
    async fn call(&mut self, request: &KeyRequest) -> Result<KeyOutcome, NatsError> {
        self.read_what_came().map_err(|how| NatsError::Unsent(ended(how)))?;
        let called = self.send(Some(request.clone()));
        loop {
            match self.socket.receive().await {
                Ok(NatsMessage::Reply { number, outcome, .. }) if number == called => return Ok(outcome),
                Ok(_) => {}
                Err(how) => return Err(NatsError::Unanswered(ended(how))),
            }
        }
    }
}
