//! A child process and the clients in it: how it is started and started again, and what is made of what it says by itself.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::{ClientOp, LockSignalKind, Message};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::child::{ChildCommand, ChildError, ChildEvent, ChildProcess, OnChildEvent};
use super::pool::LogicalClient;
use crate::event::ProgressEvent;
use crate::limits::{CLIENT_CLOSE, CLIENT_OPEN, MAX_RESTARTS};
use crate::run::context::RunContext;
use crate::wall_clock::WallClock;

/// A child process and the clients in it.
pub struct ClientProcess {
    start: ChildCommand,
    log: PathBuf,
    who: String,
    members: Vec<Arc<LogicalClient>>,
    child: RwLock<Option<Arc<ChildProcess>>>,
    /// How often it was started again; held while somebody does.
    restarts: AsyncMutex<u32>,
    generation: Mutex<Generation>,
    /// Whether a fault killed its child: that is not the child's own doing.
    was_struck: AtomicBool,
    wall_clock: Option<Arc<WallClock>>,
}

/// Which child is the process's, and whether it is over. A child that was replaced may tell of its end long after.
#[derive(Debug, Default)]
struct Generation {
    /// Counts the children.
    child: u64,
    over: bool,
}

impl ClientProcess {
    /// A process without a child yet. `who` names it in errors.
    pub fn new(
        who: String,
        start: ChildCommand,
        log: PathBuf,
        members: Vec<Arc<LogicalClient>>,
        wall_clock: Option<Arc<WallClock>>,
    ) -> Self {
        Self {
            start,
            log,
            who,
            members,
            child: RwLock::default(),
            restarts: AsyncMutex::new(0),
            generation: Mutex::default(),
            was_struck: AtomicBool::new(false),
            wall_clock,
        }
    }

    pub fn members(&self) -> &[Arc<LogicalClient>] {
        &self.members
    }

    /// The child to talk to now.
    pub fn child(&self) -> Option<Arc<ChildProcess>> {
        self.child
            .read()
            .expect("no one panics while holding a process's child")
            .clone()
    }

    /// The child to talk to now, unless it is over.
    pub fn living(&self) -> Option<Arc<ChildProcess>> {
        self.child().filter(|_| !self.generation().over)
    }

    pub fn clients(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.number).collect()
    }

    pub fn hosts(&self, client: u32) -> bool {
        self.members.iter().any(|member| member.number == client)
    }

    pub fn wall_clock(&self) -> Option<Arc<WallClock>> {
        self.wall_clock.clone()
    }

    /// A fault kills the child: its next start is not held against it.
    pub fn struck(&self) {
        self.was_struck.store(true, Relaxed);
    }

    /// Kills a child that does not answer any more.
    pub fn kill(&self) {
        if let Some(child) = self.child() {
            child.kill();
        }
    }

    /// Starts a child and opens its clients.
    pub async fn open(self: &Arc<Self>, run: &Arc<RunContext>) -> Result<(), String> {
        let number = self.begin_generation();
        let child = ChildProcess::start(&self.start, self.who.clone(), &self.log, self.on_event(number, run))
            .await
            .map_err(|error| error.to_string())?;
        *self
            .child
            .write()
            .expect("no one panics while holding a process's child") = Some(Arc::clone(&child));
        for member in &self.members {
            let could_not_open = |error: &str| format!("client c{} could not open its session: {error}", member.number);
            let asked = timeout(
                CLIENT_OPEN,
                child.ask(member.number, ClientOp::Open(member.open.clone())),
            )
            .await;
            match asked {
                Ok(Some(Message::Ok { .. })) => {}
                Ok(Some(Message::Fail { error, .. })) => return Err(could_not_open(&error.to_string())),
                Ok(Some(Message::Info { error, .. })) => return Err(could_not_open(&error)),
                Ok(Some(Message::Signal(_))) => unreachable!("a signal is never a reply"),
                Ok(None) => return Err(self.why_it_ended(member, run).await),
                Err(_) => {
                    return Err(format!(
                        "client c{} did not open within {}s",
                        member.number,
                        CLIENT_OPEN.as_secs()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Why a child ended while it was opening: its last words come a moment after its end.
    async fn why_it_ended(&self, member: &LogicalClient, run: &RunContext) -> String {
        let mut health = member.health();
        let _ = timeout(CLIENT_CLOSE * 2, health.wait_for(|health| health.died_at.is_some())).await;
        let said = run.failure().or_else(|| run.counters.last_error());
        said.unwrap_or_else(|| {
            format!(
                "{} ended while it was opening (its log: {})",
                self.who,
                self.log.display()
            )
        })
    }

    /// Starts a new child in place of one that is over, unless another client of this process already did. Returns whether
    /// there is a child to talk to; a client that is cut off from every server cannot open, and tries again.
    pub async fn revive(self: &Arc<Self>, run: &Arc<RunContext>) -> bool {
        let mut restarts = self.restarts.lock().await;
        if !self.generation().over {
            return true;
        }
        if let Err(error) = self.open(run).await {
            run.counters.said(&error);
            self.kill();
            self.generation().over = true;
            return false;
        }
        *restarts += u32::from(!self.was_struck.swap(false, Relaxed));
        if *restarts > MAX_RESTARTS {
            run.fail(format!(
                "{} ended {MAX_RESTARTS} times; see {}",
                self.who,
                self.log.display()
            ));
        }
        true
    }

    /// Closes the clients and ends their child.
    pub async fn close(&self) {
        let Some(child) = self.child() else { return };
        for member in &self.members {
            let _ = timeout(CLIENT_CLOSE, child.ask(member.number, ClientOp::Close)).await;
        }
        child.end().await;
    }

    fn generation(&self) -> MutexGuard<'_, Generation> {
        self.generation
            .lock()
            .expect("no one panics while holding a process's generation")
    }

    /// Another child takes the process, alive; returns its number.
    fn begin_generation(&self) -> u64 {
        let mut generation = self.generation();
        generation.child += 1;
        generation.over = false;
        for member in &self.members {
            member.health.send_modify(|health| health.died_at = None);
        }
        generation.child
    }

    /// Called for everything that a child says by itself, in its order. What one says that was replaced, its end among it,
    /// is of nobody who is there.
    fn on_event(self: &Arc<Self>, child: u64, run: &Arc<RunContext>) -> OnChildEvent {
        let (process, run) = (Arc::clone(self), Arc::clone(run));
        Arc::new(move |news| {
            let mut generation = process.generation();
            match news {
                _ if generation.child != child => {}
                ChildEvent::Signal(signal) => process.heard(&signal, &run),
                ChildEvent::Over { error, at } => {
                    generation.over = true;
                    process.is_over(&error, at, &run);
                }
            }
        })
    }

    fn heard(&self, signal: &harness_workloads::protocol::LockSignal, run: &RunContext) {
        let Some(client) = self.members.iter().find(|member| member.number == signal.client) else {
            return run.fail(format!(
                "{} raised a signal for client {}, which it does not host",
                self.who, signal.client
            ));
        };
        if !run.recorder.is_of_this_run(signal.at) {
            return run.fail(format!(
                "client c{} raised a signal at {}, which is no CLOCK_MONOTONIC of this run in nanoseconds",
                signal.client, signal.at
            ));
        }
        let f = match signal.f {
            LockSignalKind::Lost => "lost",
            LockSignalKind::Woken => "woken",
        };
        let cause = Some(signal.cause.as_str()).filter(|cause| !cause.is_empty());
        let fields = Fields {
            lock: Some(&signal.lock),
            cause,
            ..Fields::default()
        };
        run.recorder.signal(
            Process::Client(client.process()),
            Some(client.number),
            f,
            fields,
            Some(signal.at),
        );
        if signal.f == LockSignalKind::Lost {
            run.counters.lost.fetch_add(1, Relaxed);
            run.progress.send(ProgressEvent::Lost {
                client: client.number,
                cause: signal.cause.clone(),
            });
            client.health.send_modify(|health| health.losses += 1);
        }
    }

    fn is_over(&self, error: &ChildError, at: u64, run: &RunContext) {
        run.counters.said(&error.to_string());
        if error.is_lie() {
            self.kill();
            run.fail(error.to_string());
        }
        for member in &self.members {
            member.health.send_modify(|health| health.died_at = Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use harness_checkers::history::event::Header;
    use serde_json::json;

    use harness_workloads::protocol::OpenRequest;

    use super::*;
    use crate::config::Config;
    use crate::event::ProgressSender;
    use crate::run::clients::pool::{ClientPool, ClientPoolSpec};
    use crate::run::setup::routes::Routes;
    use crate::run::{recorder, setup};

    /// A process of two clients: its first child cannot open, any other one can.
    fn process_of_two(folder: &std::path::Path) -> (ClientPool, Arc<RunContext>) {
        let header: Header = serde_json::from_value(json!({ "format": "harness-history", "version": 1 })).unwrap();
        let (recorder, _closer) = recorder::start(&folder.join("history.jsonl"), &header).unwrap();
        let (exchange, _notices) = setup::exchange(&Config::example());
        let run = Arc::new(RunContext::new(
            recorder,
            ProgressSender::channel().0,
            exchange,
            Routes::default(),
        ));
        let script = r#"
            if mkdir tried 2>/dev/null; then
                read line; echo '{"type":"fail","id":1,"error":"no server"}'; exec sleep 60
            fi
            read line; echo '{"type":"ok","id":1}'; read line; echo '{"type":"ok","id":2}'; exec sleep 60
        "#;
        let script = format!("cd {}; {script}", folder.display());
        let open = OpenRequest {
            backend: "zk".into(),
            endpoints: Vec::new(),
            lease_ms: 1000,
        };
        let pool = ClientPool::new(ClientPoolSpec {
            start: ChildCommand {
                program: "sh".into(),
                args: vec!["-c".into(), script],
                env: Vec::new(),
            },
            per_process: 2,
            logs: folder.to_owned(),
            opens: vec![open.clone(), open],
            clocks: Vec::new(),
        });
        (pool, run)
    }

    #[tokio::test]
    async fn the_late_end_of_a_child_that_was_replaced_is_not_its_successors() {
        let folder = tempfile::tempdir().unwrap();
        let (pool, run) = process_of_two(folder.path());
        let process = &pool.processes[0];
        process.begin_generation();
        process.generation().over = true;
        assert!(!process.revive(&run).await, "the first child cannot open");
        assert!(process.revive(&run).await, "the second one can, at once");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(
            process.living().is_some(),
            "the end of the first child was taken for the second's"
        );
        for (_, client) in pool.clients() {
            assert_eq!(client.health().borrow().died_at, None);
        }
        process.kill();
        let mut health = pool.clients().next().unwrap().1.health();
        health.wait_for(|health| health.died_at.is_some()).await.unwrap();
        assert!(process.living().is_none(), "its own end is");
    }
}
