//! Client processes in virtual time: unmodified programs behind the pipes that they have in real time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use async_trait::async_trait;
use harness_simulation::Kept;
use harness_workloads::protocol::{ClientOp, Message};

use super::ends::{EndNumber, FamilySaid, OnSaid};
use super::family::Family;
use super::fork_server::ClientProgram;
use super::machine::{FamilyPlace, KeptMachine, StartedFamily};
use super::network::{BytePort, START};
use super::page::connection;
use super::routes::{Router, address_of_client};
use super::wall_clock::FamilyClock;
use crate::clock::GroundClock;
use crate::process::Activity;
use crate::run::{
    CLIENT_CLOSE, ChildCommand, ChildError, ClientChild, ClientSpawner, OnChildEvent, OutputReader, PendingRequests,
    WordsOfRequest, process_name, request_words,
};
use crate::simulated::server_at;
use crate::wall_clock::WallClockControl;

/// Starts client processes as families.
pub struct FamilySpawner {
    pub machine: KeptMachine,
    pub command: ChildCommand,
    /// By server: the number and the port for clients.
    pub served: Vec<(u16, BytePort)>,
    /// By the first client of a process.
    pub clocks: BTreeMap<u32, Arc<FamilyClock>>,
    /// Whether the plan steps clocks.
    pub steps_clocks: bool,
    /// Whether a client has promised `forks`.
    pub forks: Arc<AtomicBool>,
}

#[async_trait]
impl ClientSpawner for FamilySpawner {
    async fn start(&self, first: u32, log: &Path, on_event: OnChildEvent) -> Result<Arc<dyn ClientChild>, ChildError> {
        self.machine.world().sleep(START).await;
        let machine = self.machine.get();
        let clock = Arc::clone(&self.clocks[&first]);
        let (routes, served) = (Rc::downgrade(&machine), self.served.clone());
        let router: Router = Rc::new(move |to| {
            let machine = routes.upgrade()?;
            let server = machine.routes.led_to(first, server_at(to.into())? as u32);
            let (number, port) = *served.get(server as usize)?;
            let route = machine.routes.get((first, server))?;
            (to.port() == number).then_some((route, port))
        });
        let (short, address) = (format!("c{first}"), address_of_client(first));
        let place = FamilyPlace::of_client(process_name(first), short, clock, address, router);
        let program = ClientProgram {
            command: &self.command,
            log,
            forks: self.forks.load(Relaxed),
        };
        let started = machine.begin_client(&program, place)?;
        let child = FamilyChild::of(self, started, log, on_event);
        Ok(Arc::new(child) as Arc<dyn ClientChild>)
    }

    fn wall_clock(&self, first: u32) -> Option<Arc<dyn WallClockControl>> {
        let clock = self.clocks.get(&first).filter(|_| self.steps_clocks)?;
        Some(Arc::clone(clock) as Arc<dyn WallClockControl>)
    }
}

/// The state of a child, which its world keeps.
struct ChildState {
    family: Rc<Family>,
    input: EndNumber,
}

/// One generation of a client process.
struct FamilyChild {
    state: Kept<ChildState>,
    pending: PendingRequests,
    next_id: AtomicU64,
    forks: Arc<AtomicBool>,
}

impl FamilyChild {
    fn of(spawner: &FamilySpawner, started: StartedFamily, log: &Path, on_event: OnChildEvent) -> Self {
        let (world, family) = (spawner.machine.world(), started.family);
        let pending = PendingRequests::default();
        let reader = Rc::new(OutputReader {
            who: family.name.clone(),
            pending: pending.clone(),
            on_event,
            log: log.to_owned(),
        });
        let input = started.input.expect("its input is a pipe");
        let input = family.add_end(input, None, None);
        let (reading, bytes) = (Rc::clone(&reader), RefCell::new(Vec::new()));
        let told = Rc::downgrade(&family);
        let on_said: OnSaid = Rc::new(move |said| {
            let FamilySaid::Bytes(read) = said else { return };
            let mut bytes = bytes.borrow_mut();
            bytes.extend(read);
            if let Err(error) = reading.take_lines(&mut bytes) {
                reading.over(error, world.now_ns());
                // a client whose output is invalid is killed, and not read any more
                if let Some(family) = told.upgrade() {
                    world.spawn(async move { family.kill() }).detach();
                }
            }
        });
        family.add_end(started.output.expect("its output is a pipe"), Some(on_said), None);
        family.on_end(move |how| {
            let error = reader.ended_with(how.to_owned());
            reader.over(error, world.now_ns());
        });
        family.step();
        Self {
            state: world.keep(ChildState { family, input }),
            pending,
            next_id: AtomicU64::new(1),
            forks: Arc::clone(&spawner.forks),
        }
    }

    fn living(&self) -> Option<Rc<Family>> {
        let family = Rc::clone(&self.state.try_get()?.family);
        (!family.is_over()).then_some(family)
    }
}

#[async_trait]
impl ClientChild for FamilyChild {
    async fn ask(&self, client: u32, op: ClientOp) -> Option<Message> {
        let reply = self.ask_in_words(request_words(client, op)).await;
        if let Some(Message::Ok {
            contract: Some(contract),
            ..
        }) = &reply
            && contract.forks == Some(true)
        {
            self.forks.store(true, Relaxed);
        }
        reply
    }

    async fn ask_in_words(&self, words: WordsOfRequest) -> Option<Message> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let reply = self.pending.add(id)?;
        self.write_line(words(id)).await?;
        reply.await.ok()
    }

    async fn write_line(&self, mut line: Vec<u8>) -> Option<()> {
        line.push(b'\n');
        let state = self.state.try_get()?;
        state.family.write(state.input, &line);
        state.family.step();
        Some(())
    }

    async fn close_input(&self) {
        if let Some(state) = self.state.try_get() {
            state.family.close(state.input, connection::CLOSED);
            state.family.step();
        }
    }

    async fn end(&self) {
        self.close_input().await;
        let clock = GroundClock::Virtual(self.state.world());
        let mut left = CLIENT_CLOSE;
        while !left.is_zero() && self.living().is_some() {
            clock.sleep(CLIENT_CLOSE / 20).await;
            left = left.saturating_sub(CLIENT_CLOSE / 20);
        }
        self.kill();
    }

    fn kill(&self) -> bool {
        let Some(family) = self.living() else { return false };
        family.kill();
        true
    }

    fn stop(&self) -> bool {
        let Some(family) = self.living() else { return false };
        family.stop();
        true
    }

    fn go_on(&self) {
        if let Some(family) = self.living() {
            family.go_on();
        }
    }

    fn activity(&self) -> Activity {
        match self.living() {
            None => Activity::Ending,
            Some(family) if family.is_stopped() => Activity::Stopped,
            Some(_) => Activity::Running,
        }
    }
}

impl Drop for FamilyChild {
    fn drop(&mut self) {
        self.kill();
    }
}
