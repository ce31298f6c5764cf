//! The client driver, one logical client's loop: acquire, work on the guarded register, release, again; and every call and
//! reply recorded.
//!
//! The driver is the application. It decides how long a lock is held, stops at once when the client's library says that the
//! lock is lost, and otherwise believes what an application would believe.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Kind, Process};
use harness_workloads::protocol::{AcquireRequest, ClientOp, Message};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use tokio::sync::watch;

use super::logical_client::{Health, LogicalClient};
use super::pool::ClientPool;
use super::process::{ClientProcess, ClientReply};
use super::rarely::Rarely;
use super::workload::Workload;
use crate::client_role::ClientRole;
use crate::process::Activity;
use crate::run::context::RunContext;

/// A longer piece of work is done in rounds of at most this long, each a read, a wait and a write.
const ROUND: Duration = Duration::from_millis(400);
/// How often a process that works is seen to be alive.
const PROOF_OF_LIFE: Duration = Duration::from_millis(20);
/// How often a stopped process is asked whether it continues.
const STOPPED_POLL: Duration = Duration::from_millis(1);
/// Pause after an acquire that failed at once, so that a client that is refused does not spin.
const AFTER_REFUSAL: Duration = Duration::from_millis(2);
/// Pause before a dead client is started again.
const AFTER_DEATH: Duration = Duration::from_millis(200);

/// What runs one client.
pub struct ClientDriver {
    pub client: Arc<LogicalClient>,
    pub process: Arc<ClientProcess>,
    pub pool: Arc<ClientPool>,
    pub run: Arc<RunContext>,
    pub workload: Arc<Workload>,
    pub long_holds: Rarely,
    pub rests: Rarely,
    /// How long it does nothing at first.
    pub begins_after: Duration,
    /// Whether it had its turn of the recovery, in a run that ends with its grants.
    pub had_its_last: bool,
    pub rng: ChaCha8Rng,
}

/// One acquire, as it is wanted.
struct LockRequest<'a> {
    lock: &'a str,
    /// For reading, together with other readers.
    read: bool,
    /// Of how many the lock has, for a semaphore.
    permits: Option<u32>,
    /// Not at all for a try.
    wait: Duration,
}

pub(super) struct GrantedLock {
    pub token: Option<u64>,
    pub owner: Option<String>,
}

impl ClientDriver {
    /// Goes on until the run stops, or every turn was had.
    pub async fn run(mut self) {
        let mut turns = 0;
        self.rest_before_recovery(self.begins_after).await;
        while !self.run.is_stopping() && self.workload.each.is_none_or(|each| turns < each) {
            if self.run.has_its_grants() && !self.run.is_to_acquire(self.had_its_last).await {
                continue;
            }
            let Some(late) = self.is_due().await else { continue };
            let lock = self.workload.locks.draw(&mut self.rng).to_owned();
            let is_last = self.run.recovers();
            if self.turn(&lock, late).await {
                turns += 1;
                self.had_its_last |= is_last;
            }
            if self.rests.is_due(self.run.clock.now(), &mut self.rng) {
                let rest = self.workload.rest.mul_f64(self.rng.random_range(0.0..1.0));
                self.rest(rest).await;
            }
            self.think().await;
        }
    }

    /// How long the next hold is to last.
    fn work(&mut self) -> Duration {
        let work = self.workload.hold.mul_f64(self.rng.random_range(0.5..1.5));
        if !self.long_holds.is_due(self.run.clock.now(), &mut self.rng) {
            return work;
        }
        work.max(self.workload.long_hold.mul_f64(self.rng.random_range(0.25..1.0)))
    }

    /// One acquire and what follows from it. Returns whether the lock was held.
    async fn turn(&mut self, lock: &str, late: Option<Duration>) -> bool {
        let request = self.request(lock);
        let mut health = self.client.health();
        let before = *health.borrow_and_update();
        if before.died_at.is_some() || !self.executes().await {
            self.bury(None).await;
            return false;
        }
        let Some(grant) = self.acquire(&request, late).await else {
            return false;
        };
        let holder = self.client.process();
        let again = self.workload.demand.nested && self.rng.random();
        let nested = again && !health.has_changed().unwrap_or(true) && self.acquire(&request, None).await.is_some();
        if self.client.process() != holder {
            self.give_up(lock, holder, &grant).await;
            return true;
        }
        self.hold(&request, &grant, before, &mut health).await;
        let executes = self.executes().await;
        let now = *health.borrow();
        if now.died_at.is_some() || !executes {
            self.bury(Some(lock)).await;
            return true;
        }
        if nested {
            self.release(lock).await;
            if self.client.process() != holder {
                self.give_up(lock, holder, &grant).await;
                return true;
            }
        }
        if now.losses == before.losses {
            self.run.note_release(lock, grant.token, grant.owner.as_deref());
        }
        self.release(lock).await;
        self.is(ClientRole::Idle);
        self.rest_after_hold().await;
        true
    }

    /// What the next acquire is for, drawn as the mix says.
    fn request<'a>(&mut self, lock: &'a str) -> LockRequest<'a> {
        let mut drawn = |percent: u32| self.rng.random_range(0..100) < percent;
        let (read, is_try) = (drawn(self.workload.demand.reads), drawn(self.workload.demand.tries));
        LockRequest {
            lock,
            read,
            permits: self.workload.demand.permits.map(|_| 1),
            wait: match is_try {
                true => Duration::ZERO,
                false => self.workload.draw_wait(self.run.recovers(), &mut self.rng),
            },
        }
    }

    /// `late` is how long before the call it was due.
    async fn acquire(&mut self, request: &LockRequest<'_>, late: Option<Duration>) -> Option<GrantedLock> {
        let lock = request.lock;
        let called = self.run.clock.now();
        let losses = self.client.health().borrow().losses;
        let wait_ms = request.wait.as_millis() as u64;
        let mode = request.read.then_some("read");
        self.call(
            "acquire",
            Fields {
                lock: Some(lock),
                wait_ms: Some(wait_ms),
                late_us: late.map(|late| u32::try_from(late.as_micros()).unwrap_or(u32::MAX)),
                mode,
                permits: request.permits,
                ..Fields::default()
            },
        );
        let op = ClientOp::Acquire(AcquireRequest {
            lock: lock.to_owned(),
            wait_ms,
            mode: mode.map(str::to_owned),
            permits: request.permits,
        });
        self.run.counters.waiting.fetch_add(1, Relaxed);
        self.run.holders.wait(self.client.number, lock);
        self.is(ClientRole::Waits);
        let answer = self.ask(op, request.wait + self.workload.patience).await;
        let granted = matches!(answer, ClientReply::Message(Message::Ok { .. }));
        self.is(if granted { ClientRole::Works } else { ClientRole::Idle });
        self.run.holders.waited(self.client.number);
        self.run.counters.waiting.fetch_sub(1, Relaxed);
        match answer {
            ClientReply::Message(Message::Ok { token, owner, .. }) => {
                let grant = GrantedLock { token, owner };
                let waited = self.run.clock.now() - called;
                if waited >= self.run.spec.config.lease && self.client.health().borrow().losses > losses {
                    self.over_before_it_was_told(lock, &grant).await;
                    return None;
                }
                self.granted(lock, &grant);
                self.run.acquired(waited + late.unwrap_or_default());
                Some(grant)
            }
            ClientReply::Message(Message::Fail { error, .. }) => {
                let error = error.to_string();
                self.run.counters.refused.fetch_add(1, Relaxed);
                self.run.counters.said(&error);
                self.reply(
                    Kind::Fail,
                    "acquire",
                    Fields {
                        lock: Some(lock),
                        error: Some(&error),
                        ..Fields::default()
                    },
                );
                self.run.clock.sleep(AFTER_REFUSAL).await;
                None
            }
            unknown => {
                self.unknown("acquire", lock, unknown).await;
                None
            }
        }
    }

    /// Records that the lock was granted.
    fn granted(&self, lock: &str, grant: &GrantedLock) {
        let fields = Fields {
            lock: Some(lock),
            token: grant.token,
            owner: grant.owner.as_deref(),
            node: self.run.routes.node_of(self.client.number),
            ..Fields::default()
        };
        self.reply(Kind::Ok, "acquire", fields);
        self.client.acquired.fetch_add(1, Relaxed);
    }

    /// Works while it may: until its work is done, the lock is lost, or the client died. `before` is how it was before the acquire.
    async fn hold(
        &mut self,
        request: &LockRequest<'_>,
        grant: &GrantedLock,
        before: Health,
        health: &mut watch::Receiver<Health>,
    ) {
        let lock = request.lock;
        if health.has_changed().unwrap_or(true) {
            // the signal of the loss was read and recorded before the reply, whose grant it ends; the time is that of the loss
            let now = *health.borrow();
            let lost_at = now.lost_at.filter(|_| now.losses > before.losses);
            let fields = Fields {
                lock: Some(lock),
                cause: Some("told with the reply"),
                ..Fields::default()
            };
            self.run.recorder.signal(
                Process::Client(self.client.process()),
                Some(self.client.number),
                "lost",
                fields,
                lost_at,
            );
            return;
        }
        let shared = self.workload.demand.is_shared(request.read);
        let work = self.work();
        self.run
            .holders
            .begin(self.client.number, lock, grant.token, work, shared);
        let mut until = Some(self.run.clock.now() + work);
        let mut stop = self.run.stopping();
        while let Some(end) = until {
            if !self.executes().await || health.has_changed().unwrap_or(true) || *stop.borrow() {
                break;
            }
            let value = self.read(lock, grant);
            tokio::select! {
                biased;
                _ = health.changed() => break,
                _ = stop.changed() => {}
                () = self.work_until(end.min(self.run.clock.now() + ROUND)) => {}
            }
            // an application that was stopped before its write makes it when it continues, whatever its library says then
            if !self.executes().await {
                break;
            }
            if !shared {
                self.write(lock, grant, value + 1);
            }
            until = self.run.holders.works_until(self.client.number);
        }
        self.run.holders.abandon(self.client.number);
    }

    /// Works until then, or until the process ends. The more often it is seen alive, the nearer is the end of a certain
    /// hold to the process's death. In virtual time a death is told at once, and ends the work.
    async fn work_until(&self, until: Duration) {
        let clock = self.run.clock;
        if clock.by.is_virtual() {
            return clock.sleep_until(until).await;
        }
        while clock.now() < until && self.process.activity() != Activity::Ending {
            clock.sleep_until(until.min(clock.now() + PROOF_OF_LIFE)).await;
        }
    }

    /// Waits while the process is stopped: the application is in it, and does nothing meanwhile. Returns whether it executes,
    /// or `false` when it ends.
    async fn executes(&self) -> bool {
        loop {
            match self.process.activity() {
                Activity::Running => return true,
                Activity::Ending => return false,
                Activity::Stopped => self.run.clock.sleep(STOPPED_POLL).await,
            }
        }
    }

    fn read(&self, lock: &str, grant: &GrantedLock) -> u64 {
        let fields = Fields {
            lock: Some(lock),
            token: grant.token,
            ..Fields::default()
        };
        self.call("read", fields.clone());
        let value = self.run.register.read(lock);
        self.reply(
            Kind::Ok,
            "read",
            Fields {
                value: Some(value),
                ..fields
            },
        );
        value
    }

    fn write(&self, lock: &str, grant: &GrantedLock, value: u64) {
        let fields = Fields {
            lock: Some(lock),
            token: grant.token,
            value: Some(value),
            ..Fields::default()
        };
        self.call("write", fields.clone());
        let fenced = self.run.register.write(lock, value, grant.token);
        self.reply(Kind::Ok, "write", Fields { fenced, ..fields });
    }

    /// Releases the lock, once.
    async fn release(&mut self, lock: &str) {
        self.is(ClientRole::Releases);
        self.call(
            "release",
            Fields {
                lock: Some(lock),
                wire: self.run.wire(),
                ..Fields::default()
            },
        );
        match self
            .ask(ClientOp::Release { lock: lock.to_owned() }, self.workload.patience)
            .await
        {
            ClientReply::Message(Message::Ok { .. }) => {
                self.reply(
                    Kind::Ok,
                    "release",
                    Fields {
                        lock: Some(lock),
                        ..Fields::default()
                    },
                );
            }
            ClientReply::Message(Message::Fail { error, .. }) => {
                let error = error.to_string();
                let fields = Fields {
                    lock: Some(lock),
                    error: Some(&error),
                    ..Fields::default()
                };
                self.reply(Kind::Fail, "release", fields);
            }
            unknown => self.unknown("release", lock, unknown).await,
        }
    }

    /// An operation was answered with an outcome that is not known, or not at all: its process number never acts again.
    async fn unknown(&mut self, f: &str, lock: &str, answer: ClientReply) {
        let error = match &answer {
            ClientReply::Message(Message::Info { error, .. }) => error.as_str(),
            ClientReply::Gone => "the client ended",
            _ => "the client did not answer",
        };
        self.outcome_unknown(f, lock, error);
        if matches!(answer, ClientReply::Message(_)) {
            self.pool.retire(&self.client);
            self.run.clock.sleep(AFTER_REFUSAL).await;
            return;
        }
        if matches!(answer, ClientReply::Silent) {
            self.process.kill();
        }
        self.bury(Some(lock)).await;
    }

    /// Records that the outcome of an operation is unknown.
    pub(super) fn outcome_unknown(&self, f: &str, lock: &str, error: &str) {
        self.run.counters.unknown.fetch_add(1, Relaxed);
        self.run.counters.said(error);
        let fields = Fields {
            lock: Some(lock),
            error: Some(error),
            ..Fields::default()
        };
        self.reply(Kind::Info, f, fields);
    }

    /// Records a death and brings the client back as another process.
    pub(super) async fn bury(&mut self, lock: Option<&str>) {
        let mut health = self.client.health();
        let died = health.wait_for(|health| health.died_at.is_some());
        let died = self.run.clock.within(self.workload.patience, died).await;
        let died_at = died.and_then(|health| health.ok()?.died_at);
        // a read or write in its name was recorded a moment after it was seen alive
        let died_at = died_at.map(|at| at.max(self.client.recorded_at.load(Relaxed)));
        let fields = Fields {
            lock,
            ..Fields::default()
        };
        self.run.recorder.signal(
            Process::Client(self.client.process()),
            Some(self.client.number),
            "died",
            fields,
            died_at,
        );
        self.pool.retire(&self.client);
        while !self.run.is_stopping() {
            self.run.clock.sleep(AFTER_DEATH).await;
            if self.process.revive(&self.run).await {
                return;
            }
        }
    }

    /// Asks for what the history has. In the recovery a client that does not answer is not given up: what faults left behind is
    /// judged there, and a process that is killed takes it along.
    async fn ask(&self, op: ClientOp, within: Duration) -> ClientReply {
        let mut answer = pin!(self.process.answer(&self.client, op, &self.run));
        match self.run.clock.within(within, answer.as_mut()).await {
            Some(answer) => answer,
            None if self.run.recovers() => answer.await,
            None => ClientReply::Silent,
        }
    }

    /// Sets what the client does from now on, for taps and faults that look at its messages.
    pub(super) fn is(&self, role: ClientRole) {
        self.run.exchange.labels.set(self.client.number, role.into());
    }

    fn call(&self, f: &str, fields: Fields<'_>) {
        self.record(Kind::Invoke, f, &fields);
    }

    fn reply(&self, kind: Kind, f: &str, fields: Fields<'_>) {
        self.record(kind, f, &fields);
    }

    fn record(&self, kind: Kind, f: &str, fields: &Fields<'_>) {
        let recorder = &self.run.recorder;
        recorder.operation(self.client.process(), self.client.number, kind, f, fields);
        self.client.recorded_at.store(self.run.clock.by.now_ns(), Relaxed);
    }
}
