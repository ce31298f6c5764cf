//! Simulated client processes: the recipes, requests and replies of real ones, without pipes; and their wall clocks.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use harness_simulation::{SimulatedProcess, World};
use harness_workloads::protocol::{ClientOp, Message};
use harness_workloads::{Contract, LockClient, SignalSink, perform, reply};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use crate::process::Activity;
use crate::run::{ChildError, ChildEvent, ClientChild, ClientSpawner, OnChildEvent, process_name};
use crate::wall_clock::WallClockControl;

/// The time of a process's start: about that of a child process.
const START: Duration = Duration::from_millis(20);

/// Makes the lock client of this number in a process, whose machine is passed with its signals.
pub type ClientMaker = Arc<dyn Fn(u32, SimulatedProcess, SignalSink) -> Box<dyn LockClient> + Send + Sync>;

/// Starts simulated processes.
pub struct SimulatedSpawner {
    pub world: World,
    pub make: ClientMaker,
    /// The answer of every client to `open`.
    pub contract: Contract,
    /// Whether the plan steps clocks.
    pub steps_clocks: bool,
}

impl SimulatedSpawner {
    /// Returns the process that hosts a client and those after it.
    fn process_of(&self, first: u32) -> SimulatedProcess {
        self.world.process(&format!("c{first}"))
    }
}

#[async_trait]
impl ClientSpawner for SimulatedSpawner {
    async fn start(&self, first: u32, _: &Path, on_event: OnChildEvent) -> Result<Arc<dyn ClientChild>, ChildError> {
        self.world.sleep(START).await;
        let child = SimulatedChild {
            process: self.process_of(first),
            who: process_name(first),
            make: Arc::clone(&self.make),
            contract: self.contract.clone(),
            clients: Mutex::default(),
            on_event,
            over: AtomicBool::new(false),
        };
        Ok(Arc::new(child) as Arc<dyn ClientChild>)
    }

    fn wall_clock(&self, first: u32) -> Option<Arc<dyn WallClockControl>> {
        let process = self.steps_clocks.then(|| self.process_of(first))?;
        Some(Arc::new(process))
    }
}

impl WallClockControl for SimulatedProcess {
    fn step(&self, nanoseconds: i64) -> io::Result<()> {
        self.set_wall_clock_offset(self.wall_clock_offset().saturating_add(nanoseconds));
        Ok(())
    }

    fn shifted_readings(&self) -> u64 {
        Self::shifted_readings(self)
    }
}

/// A request to a client.
struct AskedRequest {
    op: ClientOp,
    reply: oneshot::Sender<Message>,
}

/// One generation of a process.
struct SimulatedChild {
    process: SimulatedProcess,
    who: String,
    make: ClientMaker,
    contract: Contract,
    /// The inboxes of the clients that had a request.
    clients: Mutex<BTreeMap<u32, UnboundedSender<AskedRequest>>>,
    on_event: OnChildEvent,
    over: AtomicBool,
}

impl SimulatedChild {
    /// Makes a client in the process, which serves until the process is killed. The first request makes it.
    fn start_client(&self, client: u32) -> UnboundedSender<AskedRequest> {
        let (requests, inbox) = unbounded_channel();
        let (process, make, contract) = (self.process, Arc::clone(&self.make), self.contract.clone());
        let on_event = Arc::clone(&self.on_event);
        let serving = async move {
            let out = Rc::new(move |signal| on_event(ChildEvent::Signal(signal)));
            let lock = make(client, process, SignalSink::new(client, process.host(), out));
            serve_client(lock, contract, inbox).await;
        };
        self.process.spawn(serving).detach();
        requests
    }
}

#[async_trait]
impl ClientChild for SimulatedChild {
    async fn ask(&self, client: u32, op: ClientOp) -> Option<Message> {
        if self.over.load(Relaxed) {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        {
            let mut clients = self.clients.lock().expect("no one panics while sending a request");
            let requests = clients.entry(client).or_insert_with(|| self.start_client(client));
            let _ = requests.send(AskedRequest { op, reply });
        }
        answer.await.ok()
    }

    async fn end(&self) {
        // a later process of this name is another one
        if !self.over.swap(true, Relaxed) {
            self.process.kill();
        }
    }

    fn kill(&self) -> bool {
        if self.over.load(Relaxed) {
            return false;
        }
        // reported before pending requests fail
        let error = ChildError::Ended {
            who: self.who.clone(),
            how: "it was killed".to_owned(),
            said: None,
        };
        let at = self.process.world().now_ns();
        self.over.store(true, Relaxed);
        (self.on_event)(ChildEvent::Over { error, at });
        self.process.kill();
        true
    }

    fn stop(&self) -> bool {
        let there = !self.over.load(Relaxed);
        if there {
            self.process.stop();
        }
        there
    }

    fn go_on(&self) {
        if !self.over.load(Relaxed) {
            self.process.go_on();
        }
    }

    fn activity(&self) -> Activity {
        match self.over.load(Relaxed) {
            true => Activity::Ending,
            false if self.process.is_stopped() => Activity::Stopped,
            false => Activity::Running,
        }
    }
}

async fn serve_client(mut lock: Box<dyn LockClient>, contract: Contract, mut inbox: UnboundedReceiver<AskedRequest>) {
    while let Some(asked) = inbox.recv().await {
        let outcome = perform(&mut *lock, &asked.op).await;
        let promised = matches!(asked.op, ClientOp::Open(_)).then(|| contract.clone());
        // a request is identified by the receiver of its reply, which may be dropped
        let _ = asked.reply.send(reply(0, outcome, promised));
    }
}
