//! Links ([`SimulatedLink`]): the way between one client and one server, and the faults on it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, Layer, LinkCounts};

use super::connection::{ClientSide, PortEvent, ServerSide, SimulatedConnection};
use super::link_state::{LinkLatency, SimulatedLinkState};
use super::message::{LinkHook, WireMessage};
use super::port::Port;
use crate::world::{Kept, World};

/// The time after which the kernel of a client repeats an attempt to connect that nobody answers (Linux, `TCP_TIMEOUT_INIT`); it doubles
/// each time.
const CONNECT_AGAIN: Duration = Duration::from_secs(1);

/// Nobody listens there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionRefused;

/// The way from one client to one server, and back. The handle is a number, and `Send`.
///
/// It behaves as a link of the real proxy ([`harness_proxy::Link`]): faults are layers on it which add up ([`Behaviour::join`]). It lacks
/// the parts that only toxics have: `discard`, `close_after_silence`, `reset_after` and `limit`.
#[derive(Clone, Copy)]
pub struct SimulatedLink(Kept<SimulatedLinkState>);

impl SimulatedLink {
    /// Makes a link named as in `c3->n1`, for the client of this number. Latency and the draws of faults come from the stream of that name.
    pub fn new(world: World, name: &str, client: u32, latency: LinkLatency) -> Self {
        SimulatedLink(world.keep(SimulatedLinkState {
            name: name.into(),
            client,
            latency,
            dice: RefCell::new(world.dice(&format!("link {name}"))),
            layers: RefCell::default(),
            behaviour: RefCell::default(),
            hook: RefCell::default(),
            counts: Cell::default(),
            connections: RefCell::default(),
        }))
    }

    /// Returns the links of the client of this number, one to each server.
    pub fn of_client(world: World, client: u32, servers: usize) -> Vec<Self> {
        let to = |server| Self::new(world, &format!("c{client}->n{server}"), client, LinkLatency::default());
        (1..=servers).map(to).collect()
    }

    pub fn name(&self) -> String {
        self.0.get().name.to_string()
    }

    /// Returns the effects of faults here, as the real proxy counts them. Bytes are those of the real protocol, of whole messages.
    pub fn counts(&self) -> LinkCounts {
        self.0.get().counts.get()
    }

    /// Returns how many connections it carries at this moment.
    pub fn live(&self) -> usize {
        self.0.get().connections.borrow().len()
    }

    /// Asks `hook` about every message from now on, in place of an earlier one.
    pub fn set_hook(&self, hook: Option<Rc<dyn LinkHook>>) {
        drop(self.0.get().hook.replace(hook));
    }

    /// Puts a layer on, in place of an earlier one of that name.
    ///
    /// # Panics
    ///
    /// When the behaviour has a part that only toxics have.
    pub fn apply(&self, layer: Layer, behaviour: Behaviour) {
        for flow in [behaviour.to_server, behaviour.to_client] {
            let toxic = flow.discard
                || flow.close_after_silence.is_some()
                || flow.reset_after.is_some()
                || flow.limit.is_some();
            assert!(
                !toxic,
                "a simulated link cannot do what {behaviour:?} asks for: use a real run for toxics"
            );
        }
        self.change(|layers| _ = layers.insert(layer, behaviour));
    }

    /// Lifts a layer; without it the link does what the other layers say.
    pub fn heal(&self, layer: Layer) {
        self.change(|layers| _ = layers.remove(&layer));
    }

    /// Resets every connection there is, both ends. New ones are taken.
    pub fn reset_connections(&self) {
        let state = self.0.get();
        let connections = state.connections.borrow().clone();
        state.count(|counts| counts.resets += connections.len() as u64);
        connections.iter().for_each(|connection| connection.reset());
    }

    /// Lets the messages go on that [`MessageVerdict::Delay`](super::MessageVerdict::Delay) holds back, unless their delays go on.
    pub fn release(&self) {
        let connections = self.0.get().connections.borrow().clone();
        for connection in connections {
            connection.open_gates();
        }
    }

    fn change(&self, with: impl FnOnce(&mut BTreeMap<Layer, Behaviour>)) {
        let state = self.0.get();
        let before = *state.behaviour();
        let joined = {
            let mut layers = state.layers.borrow_mut();
            with(&mut layers);
            let all = layers.values();
            all.fold(Behaviour::default(), |joined, layer| joined.join(*layer))
        };
        state.behaviour.replace(joined);
        let connections = state.connections.borrow().clone();
        for connection in connections {
            connection.behaviour_changed(&before);
        }
    }

    /// Connects to `port`. An attempt that a stall holds is not answered; the kernel repeats it after 1 s, 3 s, 7 s, and so
    /// on.
    pub async fn connect<Q: WireMessage, R: WireMessage>(
        &self,
        port: Port<Q, R>,
    ) -> Result<ClientSide<Q, R>, ConnectionRefused> {
        let world = self.0.world();
        let mut again = CONNECT_AGAIN;
        loop {
            // there and back
            let (there, back) = (self.0.get().draws().0, self.0.get().draws().0);
            world.sleep(Duration::from_nanos(there + back)).await;
            if !self.0.get().behaviour().holds_connects() {
                break;
            }
            self.0.get().count(|counts| counts.held_connects += 1);
            world.sleep(again).await;
            again *= 2;
        }
        let state = self.0.get();
        let refuses = state.hook.borrow().clone().is_some_and(|hook| hook.refuses());
        let Some((queue, number)) = port.dial().filter(|_| !refuses) else {
            state.count(|counts| counts.refused += 1);
            return Err(ConnectionRefused);
        };
        state.count(|counts| counts.connections += 1);
        let connection = SimulatedConnection::open(self.0, Rc::downgrade(&queue), number);
        state.connections.borrow_mut().push(connection.clone());
        queue.push(PortEvent::Opened(ServerSide(connection.clone())));
        Ok(ClientSide(connection))
    }
}
