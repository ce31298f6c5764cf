//! A client process: the clients that it hosts, its starts, and the handling of its unsolicited messages.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use harness_checkers::history::event::Fields;
use harness_workloads::Contract;
use harness_workloads::protocol::{AcquireRequest, ClientOp, LockSignal, LockSignalKind, Message};
use tokio::sync::{Mutex as AsyncMutex, SetOnce};

use super::child::{self, CLIENT_CLOSE, ChildError, ChildEvent, ClientChild, ClientSpawner, OnChildEvent};
use super::logical_client::LogicalClient;
use crate::clock::GroundClock;
use crate::config::Attach;
use crate::process::Activity;
use crate::run::context::RunContext;
use crate::run::locked::locked;
use crate::wall_clock::WallClockControl;

/// The number of times after which a client process that ends by itself makes the run give up.
const MAX_RESTARTS: u32 = 50;

/// A process with clients in it, through all its generations: each is one child of harness.
pub struct ClientProcess {
    spawner: Arc<dyn ClientSpawner>,
    clock: GroundClock,
    log: PathBuf,
    pub members: Vec<Arc<LogicalClient>>,
    child: Mutex<Option<Arc<dyn ClientChild>>>,
    /// The number of its later starts; locked during one.
    restarts: AsyncMutex<u32>,
    generation: Mutex<Generation>,
    /// Whether a fault or harness killed its child: that end is not counted as the client's own.
    killed: AtomicBool,
}

/// The number of the current child, and whether it has ended. A replaced child may report its end much later.
#[derive(Debug, Default)]
struct Generation {
    /// Its number among all children.
    number: u64,
    over: bool,
    /// The error with which it ended.
    error: Option<String>,
}

/// The answer to a request, or the reason for a missing one.
pub enum ClientReply {
    Message(Message),
    /// The child ended, or broke the protocol.
    Gone,
    /// It did not answer in time.
    Silent,
}

impl ClientProcess {
    /// Returns a process without a child yet.
    pub fn new(
        spawner: Arc<dyn ClientSpawner>,
        clock: GroundClock,
        log: PathBuf,
        members: Vec<Arc<LogicalClient>>,
    ) -> Self {
        Self {
            spawner,
            clock,
            log,
            members,
            child: Mutex::default(),
            restarts: AsyncMutex::new(0),
            generation: Mutex::default(),
            killed: AtomicBool::new(false),
        }
    }

    /// Returns its name in errors: that of its first client.
    fn name(&self) -> String {
        child::process_name(self.members[0].number)
    }

    fn child(&self) -> Option<Arc<dyn ClientChild>> {
        locked(&self.child).clone()
    }

    /// Returns the current child, unless it has ended.
    pub fn living(&self) -> Option<Arc<dyn ClientChild>> {
        self.child().filter(|_| !locked(&self.generation).over)
    }

    /// Returns the activity of the current child, or `Ending` if there is none.
    pub fn activity(&self) -> Activity {
        self.living().map_or(Activity::Ending, |child| child.activity())
    }

    /// Sends a client's request to the current child and waits `within` this time for the reply.
    pub async fn ask(&self, client: &LogicalClient, op: ClientOp, within: Duration, run: &RunContext) -> ClientReply {
        let answered = run.clock.within(within, self.answer(client, op, run)).await;
        answered.unwrap_or(ClientReply::Silent)
    }

    /// Returns the answer to a request, without a limit of time.
    pub async fn answer(&self, client: &LogicalClient, op: ClientOp, run: &RunContext) -> ClientReply {
        let Some(child) = self.child() else {
            return ClientReply::Gone;
        };
        let op = in_the_store(op, &run.spec.config.attach);
        let answer = child.ask(client.number, op).await;
        answer.map_or(ClientReply::Gone, ClientReply::Message)
    }

    pub fn clients(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.number).collect()
    }

    pub fn hosts(&self, client: u32) -> bool {
        self.members.iter().any(|member| member.number == client)
    }

    pub fn wall_clock(&self) -> Option<Arc<dyn WallClockControl>> {
        self.spawner.wall_clock(self.members[0].number)
    }

    /// Starts a child that hosts the clients, none of which is open.
    async fn start(&self, on_event: OnChildEvent) -> Result<Arc<dyn ClientChild>, String> {
        let started = self.spawner.start(self.members[0].number, &self.log, on_event);
        started.await.map_err(|error| error.to_string())
    }

    /// Marks the next end of the child as one of a fault or of harness: its restart is not counted.
    pub fn expect_kill(&self) {
        self.killed.store(true, Relaxed);
    }

    /// Kills the child.
    pub fn kill(&self) {
        if let Some(child) = self.child() {
            child.kill();
        }
    }

    /// Kills a child whose end is not reported, since another process has its output open, so that it can be replaced. Returns the last
    /// time at which it was known to live; `None` if it lives.
    pub fn give_up(&self) -> Option<u64> {
        // one that lives may be the next one, which another client of this process has started
        let child = self.child().filter(|child| child.activity() == Activity::Ending)?;
        child.kill();
        locked(&self.generation).over = true;
        child.alive_at()
    }

    /// Kills a child that does not answer. That end is not the client's own.
    pub fn kill_silent(&self) {
        self.expect_kill();
        self.kill();
    }

    /// Starts a child for a moment, before the run begins, and opens its first client for its contract. The history has none of
    /// it.
    pub async fn contract(&self, limit: Duration) -> Result<Option<Contract>, String> {
        let ended: Arc<SetOnce<ChildError>> = Arc::default();
        let over = Arc::clone(&ended);
        let on_event: OnChildEvent = Arc::new(move |event| {
            if let ChildEvent::Over { error, .. } = event {
                let _ = over.set(error);
            }
        });
        let child = self.start(on_event).await?;
        let member = &self.members[0];
        let asked = child.ask(member.number, ClientOp::Open(member.open.clone()));
        let answered = match self.clock.within(limit, asked).await {
            Some(Some(message)) => self.opened(member, ClientReply::Message(message), limit),
            None => self.opened(member, ClientReply::Silent, limit),
            Some(None) => match self.clock.within(CLIENT_CLOSE * 2, ended.wait()).await {
                Some(error) => Err(error.to_string()),
                None => self.opened(member, ClientReply::Gone, limit),
            },
        };
        if answered.is_ok() {
            // the end of the run shows whether it closes in time
            let closing = child.ask(member.number, ClientOp::Close);
            let _ = self.clock.within(CLIENT_CLOSE, closing).await;
        }
        child.end().await;
        answered
    }

    /// Returns the contract of the client that answered its `open`; the error has the reason for a failure.
    fn opened(&self, member: &LogicalClient, reply: ClientReply, limit: Duration) -> Result<Option<Contract>, String> {
        let why = match reply {
            ClientReply::Message(Message::Ok { contract, .. }) => return Ok(contract.map(|contract| *contract)),
            ClientReply::Message(Message::Fail { error, .. }) => format!("could not open its session: {error}"),
            ClientReply::Message(Message::Info { error, .. }) => format!("could not open its session: {error}"),
            ClientReply::Message(Message::Signal(_)) => unreachable!("a signal is never a reply"),
            ClientReply::Gone => "ended while it was opening".to_owned(),
            ClientReply::Silent => format!("did not open within {}s (--open-limit)", limit.as_secs_f32()),
        };
        let said = child::last_words(&self.log).unwrap_or_default();
        Err(format!("client c{} {why}{said}", member.number))
    }

    /// Starts a child and opens its clients.
    pub async fn open(self: &Arc<Self>, run: &Arc<RunContext>) -> Result<(), String> {
        let number = self.begin_generation();
        let child = self.start(self.on_event(number, run)).await?;
        *locked(&self.child) = Some(child);
        let limit = run.spec.config.open_limit;
        for member in &self.members {
            let opening = ClientOp::Open(member.open.clone());
            let reply = match self.ask(member, opening, limit, run).await {
                ClientReply::Gone => return Err(self.why_it_ended(member, run).await),
                reply => reply,
            };
            let contract = self.opened(member, reply, limit)?;
            if let Err(why) = run.terms.confirm(contract.as_ref()) {
                let why = format!("client c{} {why}", member.number);
                run.fail(why.clone());
                return Err(why);
            }
        }
        Ok(())
    }

    /// Returns the reason for which a child ended while it was opening. Its last line on stderr is known a moment after its end.
    async fn why_it_ended(&self, member: &LogicalClient, run: &RunContext) -> String {
        let mut health = member.health();
        let died = health.wait_for(|health| health.died_at.is_some());
        let _ = run.clock.within(CLIENT_CLOSE * 2, died).await;
        let own = locked(&self.generation).error.clone();
        let said = run.failure().or(own);
        let (name, log) = (self.name(), self.log.display());
        said.unwrap_or_else(|| format!("{name} ended while it was opening (its log: {log})"))
    }

    /// Starts a new child in place of one that ended, unless another client of this process did. Returns whether there is a child
    /// to talk to; a client that is cut off from every server cannot open, and tries again.
    pub async fn revive(self: &Arc<Self>, run: &Arc<RunContext>) -> bool {
        let mut restarts = self.restarts.lock().await;
        if !locked(&self.generation).over {
            return true;
        }
        if let Err(error) = self.open(run).await {
            run.counters.said(&error);
            self.kill();
            locked(&self.generation).over = true;
            return false;
        }
        *restarts += u32::from(!self.killed.swap(false, Relaxed));
        if *restarts > MAX_RESTARTS {
            let (name, log) = (self.name(), self.log.display());
            run.fail(format!("{name} ended {MAX_RESTARTS} times; see {log}"));
        }
        true
    }

    /// Closes the clients and ends their child, before another one takes its place. That end is not the client's own.
    pub async fn leave(&self) {
        self.expect_kill();
        self.close().await;
        locked(&self.generation).over = true;
    }

    /// Closes the clients and ends their child.
    pub async fn close(&self) {
        let Some(child) = self.child() else { return };
        // all at once: a process that does not answer has one limit, and not one for each of its clients
        let closing = self.members.iter();
        let closing = join_all(closing.map(|member| child.ask(member.number, ClientOp::Close)));
        let _ = self.clock.within(CLIENT_CLOSE, closing).await;
        child.end().await;
        // its handler of events holds this process, and the run
        let ended = locked(&self.child).take();
        drop(ended);
    }

    /// Begins the generation of another child, alive; returns its number.
    fn begin_generation(&self) -> u64 {
        let mut generation = locked(&self.generation);
        generation.number += 1;
        generation.over = false;
        generation.error = None;
        for member in &self.members {
            member.health.send_modify(|health| health.died_at = None);
        }
        generation.number
    }

    /// Handles unsolicited messages in order. Messages of a replaced child, including its end, are ignored.
    fn on_event(self: &Arc<Self>, number: u64, run: &Arc<RunContext>) -> OnChildEvent {
        let (process, run) = (Arc::clone(self), Arc::clone(run));
        Arc::new(move |event| {
            let mut generation = locked(&process.generation);
            match event {
                _ if generation.number != number => {}
                ChildEvent::Signal(signal) => process.heard(&signal, &run),
                ChildEvent::Over { error, at } => {
                    generation.over = true;
                    generation.error = Some(error.to_string());
                    process.is_over(&error, at, &run);
                }
            }
        })
    }

    fn heard(&self, signal: &LockSignal, run: &RunContext) {
        let (number, at) = (signal.client, signal.at);
        let Some(client) = self.members.iter().find(|member| member.number == number) else {
            let name = self.name();
            let why = format!("{name} raised a signal for client {number}, which it does not serve");
            return run.fail(why);
        };
        if !run.clock.is_of_this_run(at) {
            return run.fail(format!(
                "client c{number} raised a signal at {at}, which is not a CLOCK_MONOTONIC time of this run in nanoseconds"
            ));
        }
        let f = match signal.f {
            LockSignalKind::Lost => "lost",
            LockSignalKind::Woken => "woken",
        };
        let cause = Some(signal.cause.as_str()).filter(|cause| !cause.is_empty());
        let fields = Fields {
            cause,
            ..Fields::of(run.spec.config.attach.plain(&signal.lock))
        };
        client.signal(f, fields, Some(signal.at), &run.recorder);
        if signal.f == LockSignalKind::Lost {
            run.note_loss(client.number, &signal.cause);
            client.health.send_modify(|health| {
                health.losses += 1;
                health.lost_at = Some(signal.at);
            });
        }
    }

    fn is_over(&self, error: &ChildError, at: u64, run: &RunContext) {
        run.counters.said(&error.to_string());
        if error.breaks_protocol() {
            self.kill();
            run.fail(error.to_string());
        }
        for member in &self.members {
            member.health.send_modify(|health| health.died_at = Some(at));
        }
    }
}

/// Replaces the name of a lock by its name in the store.
fn in_the_store(mut op: ClientOp, attach: &Attach) -> ClientOp {
    use ClientOp::{Acquire, Extend, Release};
    if let Acquire(AcquireRequest { lock, .. }) | Release { lock } | Extend { lock } = &mut op {
        *lock = attach.stored(lock);
    }
    op
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use async_trait::async_trait;
    use harness_workloads::protocol::OpenRequest;

    use super::*;
    use crate::run::clients::access::ClientAccess;
    use crate::run::clients::child::{ChildCommand, ChildSpawner};
    use crate::run::clients::pool::ClientPool;
    use crate::run::testing::context_of;

    /// The first child cannot open, any other one can.
    const OPENS_LATER: &str = r#"
        if mkdir tried 2>/dev/null; then
            read line; echo '{"type":"fail","id":1,"error":"no server"}'; exec sleep 60
        fi
        read line; echo '{"type":"ok","id":1}'; read line; echo '{"type":"ok","id":2}'; exec sleep 60
    "#;

    /// Returns a process of two clients, whose children are shells in the folder.
    fn process_of_two(script: &str) -> (tempfile::TempDir, ClientPool, Arc<RunContext>) {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("cd {}; {script}", folder.path().display());
        let open = OpenRequest::plain("zk", Vec::new(), Duration::from_secs(1));
        let run = context_of(folder.path());
        let mut spec = (*run.spec).clone();
        spec.config.per_process = 2;
        std::fs::create_dir_all(spec.folder.clients()).unwrap();
        let spawner = ChildSpawner {
            command: ChildCommand::of_shell(script, ClientAccess::default()),
            clocks: Vec::new(),
        };
        let pool = ClientPool::new(&spec, Arc::new(spawner), GroundClock::Real, vec![open.clone(), open]);
        (folder, pool, run)
    }

    /// Waits until the first client knows that its child has ended.
    async fn has_died(pool: &ClientPool) {
        let mut health = pool.clients().next().unwrap().1.health();
        health.wait_for(|health| health.died_at.is_some()).await.unwrap();
    }

    /// A child that answers nothing; it counts its requests.
    #[derive(Default)]
    struct Hung(AtomicU32);

    #[async_trait]
    impl ClientChild for Hung {
        async fn ask(&self, _: u32, _: ClientOp) -> Option<Message> {
            self.0.fetch_add(1, Relaxed);
            std::future::pending().await
        }

        async fn end(&self) {}

        fn kill(&self) -> bool {
            true
        }

        fn stop(&self) -> bool {
            true
        }

        fn go_on(&self) {}

        fn activity(&self) -> Activity {
            Activity::Running
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_hangs_is_waited_for_once_however_many_clients_it_hosts() {
        let (_folder, pool, _run) = process_of_two(OPENS_LATER);
        let (process, child) = (&pool.processes[0], Arc::new(Hung::default()));
        *locked(&process.child) = Some(Arc::clone(&child) as _);
        let began = tokio::time::Instant::now();
        process.close().await;
        assert_eq!(child.0.load(Relaxed), 2, "each client was asked");
        assert!(began.elapsed() < CLIENT_CLOSE * 2);
    }

    #[tokio::test]
    async fn the_late_end_of_a_child_that_was_replaced_is_not_its_successors() {
        let (_folder, pool, run) = process_of_two(OPENS_LATER);
        let process = &pool.processes[0];
        process.begin_generation();
        locked(&process.generation).over = true;
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
        has_died(&pool).await;
        assert!(process.living().is_none(), "its own end is");
    }

    #[tokio::test]
    async fn a_child_whose_output_another_process_keeps_open_is_given_up_and_replaced() {
        // the second child lives
        let script = r#"
            read line; echo '{"type":"ok","id":1}'; read line; echo '{"type":"ok","id":2}'
            if mkdir tried 2>/dev/null; then sleep 60 & exit; fi
            exec sleep 60
        "#;
        let (_folder, pool, run) = process_of_two(script);
        let process = &pool.processes[0];
        process.open(&run).await.unwrap();
        while process.activity() != Activity::Ending {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let ended = run.clock.by.now_ns();
        assert!(process.living().is_some(), "its end is not reported");
        assert!(process.give_up().is_some_and(|alive_at| alive_at <= ended));
        assert!(process.living().is_none());
        assert!(process.revive(&run).await);
        // another client of the process had waited for the end of the first child, too
        assert_eq!(process.give_up(), None);
        assert!(process.living().is_some());
        process.kill();
    }

    #[tokio::test]
    async fn a_child_that_was_killed_since_it_did_not_answer_did_not_end_by_itself() {
        let script = r#"read line; echo '{"type":"ok","id":1}'; read line; echo '{"type":"ok","id":2}'; exec sleep 60"#;
        let (_folder, pool, run) = process_of_two(script);
        let process = &pool.processes[0];
        process.open(&run).await.unwrap();
        for counted in [0, 1] {
            match counted {
                0 => process.kill_silent(),
                _ => process.kill(),
            }
            has_died(&pool).await;
            assert!(process.revive(&run).await);
            assert_eq!(*process.restarts.lock().await, counted);
        }
        process.kill();
    }

    #[tokio::test]
    async fn the_end_of_a_child_that_opens_is_told_by_its_own_error_and_not_by_that_of_another_client() {
        let (_folder, pool, run) = process_of_two("read line; echo 'no such module' >&2; exit 3");
        let process = &pool.processes[0];
        let opened = process.open(&run).await;
        run.counters.said("client c9 was refused");
        let later = process.why_it_ended(&process.members[0], &run).await;
        for why in [opened.unwrap_err(), later] {
            for part in ["client c0 ended", "no such module"] {
                assert!(why.contains(part), "{why}");
            }
        }
    }
}
