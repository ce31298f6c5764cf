//! One connection over a link ([`SimulatedConnection`]): its two directions, its two ends, and the effects of the link's behaviour.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use harness_proxy::{Behaviour, Cut, Direction};
use rand::Rng;

use super::keep_waker;
use super::link_state::{LinkedConnection, SimulatedLinkState};
use super::message::{MessageVerdict, WireMessage};
use super::transit::{ConnectionEnding, Transit, TransitDue};
use crate::world::events::{Event, EventKey, Timed};
use crate::world::{Kept, World, nanoseconds};

/// The number of the timer of a direction.
const TO_SERVER: usize = Direction::ToServer as usize;

/// An event at a server's port.
pub enum PortEvent<Q: WireMessage, R: WireMessage> {
    /// A client connected.
    Opened(ServerSide<Q, R>),
    /// A message came over the connection of this number.
    Message(u64, Q),
    /// The connection of this number is over: its client closed it, or it was reset.
    Over(u64),
}

/// The events of a listener that were not taken yet.
pub(super) struct PortQueue<Q: WireMessage, R: WireMessage> {
    pub events: RefCell<VecDeque<PortEvent<Q, R>>>,
    pub waker: RefCell<Option<Waker>>,
}

impl<Q: WireMessage, R: WireMessage> PortQueue<Q, R> {
    pub fn push(&self, event: PortEvent<Q, R>) {
        self.events.borrow_mut().push_back(event);
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

pub(super) struct SimulatedConnection<Q: WireMessage, R: WireMessage> {
    world: World,
    /// Used only to see whether its world still keeps it.
    kept_link: Kept<SimulatedLinkState>,
    link: Weak<SimulatedLinkState>,
    pub number: u64,
    to_server: RefCell<Transit<Q>>,
    to_client: RefCell<Transit<R>>,
    server: Weak<PortQueue<Q, R>>,
    client: RefCell<ClientInbox<R>>,
    /// The timers of the transits' heads.
    timers: [Cell<Option<EventKey>>; 2],
    cut: RefCell<DrawnCut>,
    /// Whether the server's end was dropped, so that nothing more is for it.
    server_gone: Cell<bool>,
    /// Whether the server was told that the connection is over.
    server_told: Cell<bool>,
    /// Directions that are delivered up to their end; both: the connection is over.
    delivered: Cell<u8>,
}

struct ClientInbox<R> {
    messages: VecDeque<R>,
    ending: Option<ConnectionEnding>,
    waker: Option<Waker>,
    /// Whether the client dropped its end.
    gone: bool,
}

/// The draws of the seed for a cut.
#[derive(Default)]
struct DrawnCut {
    cut: Cut,
    event: Option<EventKey>,
    /// Bytes that may still pass.
    budget: Option<u64>,
}

impl<Q: WireMessage, R: WireMessage> SimulatedConnection<Q, R> {
    pub fn open(link: Kept<SimulatedLinkState>, server: Weak<PortQueue<Q, R>>, number: u64) -> Rc<Self> {
        let world = link.world();
        let now = world.clock_ns();
        let connection = Rc::new(SimulatedConnection {
            world,
            kept_link: link,
            link: link.weak(),
            number,
            to_server: RefCell::new(Transit::new(now)),
            to_client: RefCell::new(Transit::new(now)),
            server,
            client: RefCell::new(ClientInbox {
                messages: VecDeque::new(),
                ending: None,
                waker: None,
                gone: false,
            }),
            timers: [Cell::new(None), Cell::new(None)],
            cut: RefCell::default(),
            server_gone: Cell::new(false),
            server_told: Cell::new(false),
            delivered: Cell::new(0),
        });
        connection.draw_cut();
        connection
    }

    /// Returns the link, whose world keeps it longer than tasks and events.
    fn link(&self) -> Rc<SimulatedLinkState> {
        self.link
            .upgrade()
            .expect("a connection is used while its link is there")
    }

    pub fn client(&self) -> u32 {
        self.link().client
    }

    pub fn send_to_server(self: &Rc<Self>, message: Q) {
        self.enter(Direction::ToServer, &self.to_server, message);
        self.pump_to_server();
    }

    pub fn send_to_client(self: &Rc<Self>, message: R) {
        self.enter(Direction::ToClient, &self.to_client, message);
        self.pump_to_client();
    }

    /// Puts a message into the link.
    fn enter<M: WireMessage>(&self, direction: Direction, transit: &RefCell<Transit<M>>, message: M) {
        if transit.borrow().is_ended() {
            return;
        }
        let link = self.link();
        let now = self.world.clock_ns();
        let bytes = message.bytes();
        let verdict = link.judge(self.number, &message);
        let is_forgotten = || transit.borrow().is_forgotten(now, direction.of(&link.behaviour()));
        if matches!(verdict, MessageVerdict::Reset) || is_forgotten() {
            link.count(|counts| counts.resets += 1);
            return self.reset();
        }
        let (latency, draw) = link.draws();
        let behaviour = link.behaviour();
        let flow = direction.of(&behaviour);
        link.count_obeyed(flow, bytes);
        let mut transit = transit.borrow_mut();
        match verdict {
            MessageVerdict::Drop => return transit.push_end(now + latency, ConnectionEnding::Reset),
            MessageVerdict::Delay(time, holds) => {
                link.count(|counts| counts.delayed_bytes += bytes as u64);
                transit.push_gate(now + nanoseconds(time), holds);
            }
            MessageVerdict::Pass | MessageVerdict::Reset => {}
        }
        if transit.push(now + latency, flow, draw, bytes, message) {
            link.count(|counts| counts.delayed_bytes += bytes as u64);
        }
    }

    fn pump_to_server(self: &Rc<Self>) {
        let deliver = |connection: &Self, message| {
            if let Some(server) = connection.server.upgrade().filter(|_| !connection.server_gone.get()) {
                server.push(PortEvent::Message(connection.number, message));
            }
        };
        let ending = self.pump(Direction::ToServer, &self.to_server, deliver);
        if ending.is_some() {
            self.tell_server();
            self.deliver_end();
        }
    }

    fn pump_to_client(self: &Rc<Self>) {
        let deliver = |connection: &Self, message| connection.tell_client(|inbox| inbox.messages.push_back(message));
        let ending = self.pump(Direction::ToClient, &self.to_client, deliver);
        if let Some(ending) = ending {
            self.tell_client(|inbox| _ = inbox.ending.get_or_insert(ending));
            self.deliver_end();
        }
    }

    /// Delivers the due messages of a transit. Returns how it ended, when its end has come; a reset has reset the connection by then.
    fn pump<M>(
        self: &Rc<Self>,
        direction: Direction,
        transit: &RefCell<Transit<M>>,
        deliver: fn(&Self, M),
    ) -> Option<ConnectionEnding> {
        let link = self.link();
        let (side, now) = (direction as usize, self.world.clock_ns());
        loop {
            let due = transit.borrow_mut().take_due(now, direction.of(&link.behaviour()));
            match due {
                TransitDue::Message(message, bytes) => {
                    link.count(|counts| counts.bytes += bytes as u64);
                    deliver(self, message);
                    if self.spend(bytes) {
                        link.count(|counts| counts.resets += 1);
                        self.reset();
                        return None;
                    }
                }
                TransitDue::End(ConnectionEnding::Reset) => {
                    link.count(|counts| counts.resets += 1);
                    self.reset();
                    return None;
                }
                TransitDue::End(ending) => return Some(ending),
                TransitDue::At(at) => {
                    self.set_timer(side, Some(at));
                    return None;
                }
                TransitDue::Nothing => {
                    self.set_timer(side, None);
                    return None;
                }
            }
        }
    }

    fn set_timer(self: &Rc<Self>, side: usize, at: Option<u64>) {
        let timer = &self.timers[side];
        if timer.get().map(|set| set.at) == at {
            return;
        }
        remove(self.world, timer.take());
        let Some(at) = at else { return };
        timer.set(Some(self.world.add_event(at, Event::Due(self.clone(), side))));
    }

    /// Charges bytes to a cut that the seed drew; returns whether it is used up.
    fn spend(&self, bytes: usize) -> bool {
        let mut cut = self.cut.borrow_mut();
        match &mut cut.budget {
            Some(budget) => {
                *budget = budget.saturating_sub(bytes as u64);
                *budget == 0
            }
            None => false,
        }
    }

    /// Draws when the link cuts this connection, if it does: between half and one and a half times of what is asked for.
    fn draw_cut(self: &Rc<Self>) {
        let link = self.link();
        let wanted = link.behaviour().cut;
        let mut drawn = self.cut.borrow_mut();
        if drawn.cut == wanted {
            return;
        }
        remove(self.world, drawn.event.take());
        let around = |mean: u64| mean / 2 + link.dice.borrow_mut().next_u64() % mean.max(1);
        drawn.budget = wanted.after_bytes.map(|bytes| around(u64::from(bytes)));
        drawn.event = wanted.after.map(|after| {
            let at = self.world.clock_ns() + around(nanoseconds(after));
            let connection = self.clone();
            self.world.at(at, move || {
                connection.cut.borrow_mut().event = None;
                connection.link().count(|counts| counts.resets += 1);
                connection.reset();
            })
        });
        drawn.cut = wanted;
    }

    fn tell_client(&self, change: impl FnOnce(&mut ClientInbox<R>)) {
        let mut inbox = self.client.borrow_mut();
        if inbox.gone {
            return;
        }
        change(&mut inbox);
        if let Some(waker) = &inbox.waker {
            waker.wake_by_ref();
        }
    }

    fn tell_server(&self) {
        if !self.server_told.replace(true)
            && !self.server_gone.get()
            && let Some(server) = self.server.upgrade()
        {
            server.push(PortEvent::Over(self.number));
        }
    }

    /// Delivers the end of a transit.
    fn deliver_end(&self) {
        self.delivered.set(self.delivered.get() + 1);
        if self.delivered.get() == 2 {
            self.forget();
        }
    }

    /// Ends the connection for the link, which does not carry it any more.
    fn forget(&self) {
        self.delivered.set(2);
        self.timers.iter().for_each(|timer| remove(self.world, timer.take()));
        let cut = self.cut.borrow_mut().event.take();
        remove(self.world, cut);
        if let Some(link) = self.kept_link.try_get() {
            link.forget(self.number);
        }
    }

    pub fn close_server(self: &Rc<Self>) {
        self.server_gone.set(true);
        if self.kept_link.try_get().is_some() {
            let now = self.world.clock_ns();
            self.to_client.borrow_mut().push_end(now, ConnectionEnding::Closed);
            self.pump_to_client();
        }
    }

    fn close_client(self: &Rc<Self>) {
        let unread = {
            let mut inbox = self.client.borrow_mut();
            inbox.gone = true;
            std::mem::take(&mut inbox.messages)
        };
        drop(unread);
        if self.kept_link.try_get().is_some() {
            let now = self.world.clock_ns();
            self.to_server.borrow_mut().push_end(now, ConnectionEnding::Closed);
            self.pump_to_server();
        }
    }
}

fn remove(world: World, event: Option<EventKey>) {
    if let Some(event) = event {
        world.remove_event(event);
    }
}

impl<Q: WireMessage, R: WireMessage> Timed for SimulatedConnection<Q, R> {
    /// Delivers the head of a transit, which is due.
    fn is_due(self: Rc<Self>, side: usize) {
        self.timers[side].set(None);
        match side {
            TO_SERVER => self.pump_to_server(),
            _ => self.pump_to_client(),
        }
    }
}

impl<Q: WireMessage, R: WireMessage> LinkedConnection for SimulatedConnection<Q, R> {
    fn behaviour_changed(self: Rc<Self>, before: &Behaviour) {
        let link = self.link();
        let (now, after) = (self.world.clock_ns(), *link.behaviour());
        let mut dropped = 0;
        if after.to_server != before.to_server {
            dropped += self.to_server.borrow_mut().flow_changed(now, &after.to_server);
        }
        if after.to_client != before.to_client {
            dropped += self.to_client.borrow_mut().flow_changed(now, &after.to_client);
        }
        link.count(|counts| counts.dropped_packets += dropped);
        self.draw_cut();
        self.pump_to_server();
        self.pump_to_client();
    }

    fn reset(&self) {
        if self.delivered.get() == 2 {
            return;
        }
        self.to_server.borrow_mut().clear();
        self.to_client.borrow_mut().clear();
        self.tell_client(|inbox| _ = inbox.ending.get_or_insert(ConnectionEnding::Reset));
        self.tell_server();
        self.forget();
    }

    fn open_gates(self: Rc<Self>) {
        self.to_server.borrow_mut().open_gates();
        self.to_client.borrow_mut().open_gates();
        self.pump_to_server();
        self.pump_to_client();
    }

    fn number(&self) -> u64 {
        self.number
    }
}

/// The client's end of a connection. Dropping it closes the connection: what was sent still arrives.
pub struct ClientSide<Q: WireMessage, R: WireMessage>(pub(super) Rc<SimulatedConnection<Q, R>>);

impl<Q: WireMessage, R: WireMessage> ClientSide<Q, R> {
    /// Returns the number of the connection, of those to the same port.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Sends to the server. It happens there although the caller gives up, unless the connection is reset before.
    pub fn send(&self, message: Q) {
        self.0.send_to_server(message);
    }

    /// Returns the next message of the server. The error says how the connection ended, after everything that arrived before.
    pub async fn receive(&self) -> Result<R, ConnectionEnding> {
        poll_fn(|task| self.poll_receive(task)).await
    }

    /// As [`Self::receive`], for a future that waits for more than this.
    pub fn poll_receive(&self, task: &mut Context<'_>) -> Poll<Result<R, ConnectionEnding>> {
        let mut inbox = self.0.client.borrow_mut();
        if let Some(message) = inbox.messages.pop_front() {
            return Poll::Ready(Ok(message));
        }
        if let Some(ending) = inbox.ending {
            return Poll::Ready(Err(ending));
        }
        keep_waker(&mut inbox.waker, task);
        Poll::Pending
    }
}

impl<Q: WireMessage, R: WireMessage> Drop for ClientSide<Q, R> {
    fn drop(&mut self) {
        self.0.close_client();
    }
}

/// The server's end of a connection. Dropping it closes the connection: what was sent still arrives.
pub struct ServerSide<Q: WireMessage, R: WireMessage>(pub(super) Rc<SimulatedConnection<Q, R>>);

impl<Q: WireMessage, R: WireMessage> ServerSide<Q, R> {
    /// Returns the number of the connection, of those to this port.
    pub fn number(&self) -> u64 {
        self.0.number
    }

    /// Returns the number of the client that is connected.
    pub fn client(&self) -> u32 {
        self.0.client()
    }

    /// Sends to the client.
    pub fn send(&self, message: R) {
        self.0.send_to_client(message);
    }
}

impl<Q: WireMessage, R: WireMessage> Drop for ServerSide<Q, R> {
    fn drop(&mut self) {
        self.0.close_server();
    }
}
