//! The client driver, one logical client's loop: acquire, work on the guarded register, release, again; with every call and reply
//! recorded.
//!
//! The driver is the application. It decides how long a lock is held, stops at once when the client's library reports the loss of
//! the lock, and otherwise believes as an application would.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Kind};
use harness_workloads::protocol::{AcquireRequest, ClientOp, Message};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::arrivals::Arrivals;
use super::logical_client::{LogicalClient, Tenure};
use super::odd_turns::OddTurn;
use super::pool::ClientPool;
use super::process::{ClientProcess, ClientReply};
use super::rarely::Rarely;
use super::refusals::{RefusalPause, is_error};
use crate::client_role::ClientRole;
use crate::run::churn::Turns;
use crate::run::context::RunContext;

/// Pause before a dead client is started again.
const AFTER_DEATH: Duration = Duration::from_millis(200);

/// The driver of one client.
pub struct ClientDriver {
    pub client: Arc<LogicalClient>,
    pub process: Arc<ClientProcess>,
    pub pool: Arc<ClientPool>,
    pub run: Arc<RunContext>,
    pub locks: Arc<Turns>,
    /// The times at which acquires are due, whether a client is free or not; `None` if a client asks again when it is done.
    pub arrivals: Option<Arc<Arrivals>>,
    pub long_holds: Rarely,
    pub rests: Rarely,
    pub refusals: RefusalPause,
    /// The time for which it waits at first.
    pub begins_after: Duration,
    /// Whether it had its turn in the recovery of a run that ends with its grants.
    pub had_its_last: bool,
    pub rng: ChaCha8Rng,
}

/// The request of one acquire.
#[derive(Clone, Copy)]
struct LockRequest<'a> {
    lock: &'a str,
    /// Whether it is for reading, together with other readers.
    read: bool,
    /// The number of permits of a semaphore.
    permits: Option<u32>,
    /// The longest wait, zero for a try.
    wait: Duration,
}

pub(super) struct GrantedLock {
    /// The time of its acquire's call.
    pub asked: Duration,
    pub token: Option<u64>,
    pub owner: Option<String>,
}

impl ClientDriver {
    /// Continues until the run stops, or until it had all its turns.
    pub async fn run(mut self) {
        let mut turns = 0;
        self.rest_before_recovery(self.begins_after).await;
        while !self.run.stopping.is_on() && self.run.spec.config.each.is_none_or(|each| turns < each) {
            if self.run.granted.is_on() && !self.run.is_to_acquire(self.had_its_last).await {
                continue;
            }
            let Some(late) = self.is_due().await else { continue };
            let lock = self.locks.draw(&mut self.rng).to_owned();
            let is_last = self.run.recovery.is_on();
            if self.turn(&lock, late).await {
                turns += 1;
                self.had_its_last |= is_last;
            }
            if self.rests.is_due(self.run.clock.now(), &mut self.rng) {
                let rest = self.run.spec.config.lease.mul_f64(self.rng.random_range(0.0..1.0));
                self.rest(rest).await;
            }
            self.think().await;
        }
    }

    /// Draws the length of the next hold.
    pub(super) fn work(&mut self) -> Duration {
        let work = self.run.spec.config.hold.mul_f64(self.rng.random_range(0.5..1.5));
        if !self.long_holds.is_due(self.run.clock.now(), &mut self.rng) {
            return work;
        }
        let longest = self.run.terms.long_hold(self.run.spec.config.lease);
        work.max(longest.mul_f64(self.rng.random_range(0.25..1.0)))
    }

    /// Draws the wait of an acquire that is no try. Half of them are short if the load has short waits: such a client leaves the
    /// queue. In the recovery every client is to have its turn.
    fn draw_wait(&mut self) -> Duration {
        let config = &self.run.spec.config;
        if self.run.recovery.is_on() || !config.short_waits || self.rng.random_bool(0.5) {
            return config.wait;
        }
        let short = [config.lease / 4, config.lease];
        *short.choose(&mut self.rng).expect("there are some")
    }

    /// Returns the time of a client for any answer beyond its wait.
    pub(super) fn patience(&self) -> Duration {
        self.run.spec.config.patience()
    }

    /// Makes one acquire and a hold. Returns whether the lock was held.
    async fn turn(&mut self, lock: &str, late: Option<Duration>) -> bool {
        let request = self.request(lock);
        let mut health = self.client.health();
        let before = *health.borrow_and_update();
        if before.died_at.is_some() || !self.executes().await {
            self.restart_after_death(None).await;
            return false;
        }
        let Some(grant) = self.acquire(&request, late).await else {
            return false;
        };
        let holder = self.client.process();
        let odd = OddTurn::draw(&self.run.terms.demand, self.process.members.len() == 1, &mut self.rng);
        let again = match odd {
            Some(OddTurn::AsksAgain) => Some(LockRequest {
                wait: Duration::ZERO,
                ..request
            }),
            _ => Some(request).filter(|_| self.run.terms.demand.nested && self.rng.random()),
        };
        let nested = match again.filter(|_| !health.has_changed().unwrap_or(true)) {
            Some(again) => self.acquire(&again, None).await.is_some(),
            None => false,
        };
        self.is(ClientRole::Works);
        if self.client.process() != holder {
            self.give_up(lock, holder, &grant).await;
            return true;
        }
        let way = (request.read, odd == Some(OddTurn::ExtendsLate));
        let tenure = self.hold(way, lock, &grant, before, &mut health).await;
        let executes = self.executes().await;
        let now = *health.borrow();
        if now.died_at.is_some() || !executes {
            self.restart_after_death(Some(lock)).await;
            return true;
        }
        if tenure == Tenure::Unknown {
            self.pool.retire(&self.client);
            self.free(lock, &grant).await;
            return true;
        }
        if nested {
            self.release(lock).await;
            if self.client.process() != holder {
                self.give_up(lock, holder, &grant).await;
                return true;
            }
        }
        let is_lost = tenure == Tenure::Lost || now.losses != before.losses;
        match odd {
            Some(OddTurn::LeavesLosses) if is_lost => {}
            Some(OddTurn::ClosesHolding) if !is_lost => self.close_holding(lock, &grant).await,
            _ => {
                if !is_lost {
                    self.note_release(lock, &grant);
                }
                self.release(lock).await;
                if odd == Some(OddTurn::ReleasesTwice) && self.client.process() == holder {
                    self.release_again(lock).await;
                }
            }
        }
        self.is(ClientRole::Idle);
        self.rest_after_hold().await;
        true
    }

    /// Draws the request of the next acquire, by the mix of the demand.
    fn request<'a>(&mut self, lock: &'a str) -> LockRequest<'a> {
        let mut drawn = |percent: u32| self.rng.random_range(0..100) < percent;
        let demand = &self.run.terms.demand;
        let (read, is_try) = (drawn(demand.reads), drawn(demand.tries));
        LockRequest {
            lock,
            read,
            permits: demand.permits.map(|_| 1),
            wait: match is_try {
                true => Duration::ZERO,
                false => self.draw_wait(),
            },
        }
    }

    /// Acquires a lock. `late` is the time between the due time and the call.
    async fn acquire(&mut self, request: &LockRequest<'_>, late: Option<Duration>) -> Option<GrantedLock> {
        let lock = request.lock;
        let called = self.run.clock.now();
        let losses = self.client.health().borrow().losses;
        let wait_ms = request.wait.as_millis() as u64;
        let mode = request.read.then_some("read");
        let fields = Fields {
            wait_ms: Some(wait_ms),
            late_us: late.map(|late| u32::try_from(late.as_micros()).unwrap_or(u32::MAX)),
            mode,
            permits: request.permits,
            ..Fields::of(lock)
        };
        self.record(Kind::Invoke, "acquire", fields);
        let op = ClientOp::Acquire(AcquireRequest {
            lock: lock.to_owned(),
            wait_ms,
            mode: mode.map(str::to_owned),
            permits: request.permits,
        });
        self.run.counters.waiting.fetch_add(1, Relaxed);
        self.run.holders.wait(self.client.number, lock);
        self.is(ClientRole::Waits);
        let answer = self.ask(op, request.wait + self.patience()).await;
        let granted = matches!(answer, ClientReply::Message(Message::Ok { .. }));
        self.note_answer(&answer, self.run.clock.now() - called, request.wait);
        self.is(if granted { ClientRole::Works } else { ClientRole::Idle });
        self.run.holders.waited(self.client.number);
        self.run.counters.waiting.fetch_sub(1, Relaxed);
        match answer {
            ClientReply::Message(Message::Ok { token, owner, .. }) => {
                let grant = GrantedLock {
                    asked: called,
                    token,
                    owner,
                };
                let waited = self.run.clock.now() - called;
                if waited >= self.run.spec.config.lease && self.client.health().borrow().losses > losses {
                    self.lost_before_reply(lock, &grant).await;
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
                self.reply_error(Kind::Fail, "acquire", lock, &error);
                self.run.clock.sleep(self.refusals.pause()).await;
                None
            }
            unknown => {
                self.unknown("acquire", lock, unknown).await;
                None
            }
        }
    }

    /// Counts the answer to an acquire: a lock's, or an error.
    fn note_answer(&mut self, answer: &ClientReply, after: Duration, wait: Duration) {
        self.refusals.note(answer, after, wait);
        match answer {
            answer if is_error(answer, after, wait) => _ = self.client.failed.fetch_add(1, Relaxed),
            // a missing answer counts as neither
            ClientReply::Silent => {}
            _ => self.run.counters.answered.store(true, Relaxed),
        }
    }

    /// Records a grant.
    fn granted(&self, lock: &str, grant: &GrantedLock) {
        let fields = Fields {
            token: grant.token,
            owner: grant.owner.as_deref(),
            node: self.run.routes.node_of(self.client.number),
            ..Fields::of(lock)
        };
        let (recorder, me) = (&self.run.recorder, self.client.number);
        let at = recorder.operation(self.client.process(), me, Kind::Ok, "acquire", &fields);
        if let Some(grant) = self.grant_id(grant) {
            // a new reading would take time in a world
            let at_ns = self.run.clock.reading(Duration::from_nanos(at));
            self.run.holders.granted(lock, &grant, at_ns);
        }
        self.client.acquired.fetch_add(1, Relaxed);
    }

    /// Releases the lock, once.
    async fn release(&mut self, lock: &str) {
        self.is(ClientRole::Releases);
        let fields = Fields::of(lock);
        let wire = self.run.wire();
        self.record(Kind::Invoke, "release", Fields { wire, ..fields.clone() });
        let op = ClientOp::Release { lock: lock.to_owned() };
        match self.ask(op, self.patience()).await {
            ClientReply::Message(Message::Ok { .. }) => self.record(Kind::Ok, "release", fields),
            ClientReply::Message(Message::Fail { error, .. }) => {
                self.reply_error(Kind::Fail, "release", lock, &error.to_string());
            }
            unknown => self.unknown("release", lock, unknown).await,
        }
    }

    /// Handles an operation whose outcome is unknown: its process number never acts again.
    async fn unknown(&mut self, f: &str, lock: &str, answer: ClientReply) {
        let error = match &answer {
            ClientReply::Message(Message::Info { error, .. }) => error.as_str(),
            ClientReply::Gone => "the client ended",
            _ => "the client did not answer",
        };
        self.outcome_unknown(f, lock, error);
        if matches!(answer, ClientReply::Message(_)) {
            self.pool.retire(&self.client);
            self.run.clock.sleep(self.refusals.pause()).await;
            return;
        }
        if matches!(answer, ClientReply::Silent) {
            self.process.kill_silent();
        }
        self.restart_after_death(Some(lock)).await;
    }

    /// Records that the outcome of an operation is unknown.
    pub(super) fn outcome_unknown(&self, f: &str, lock: &str, error: &str) {
        self.run.counters.unknown.fetch_add(1, Relaxed);
        self.run.counters.said(error);
        self.reply_error(Kind::Info, f, lock, error);
    }

    /// Records a death, at the time at which the process was last known to live, and starts the client again as another process.
    pub(super) async fn restart_after_death(&mut self, lock: Option<&str>) {
        let died_at = self.died_at().await;
        self.died(lock, died_at);
        self.revive().await;
    }

    /// Records a death, and that this process number never acts again.
    pub(super) fn died(&self, lock: Option<&str>, at: Option<u64>) {
        let fields = Fields {
            lock,
            ..Fields::default()
        };
        self.client.signal("died", fields, at, &self.run.recorder);
        self.pool.retire(&self.client);
    }

    /// Starts the client again as another process.
    pub(super) async fn revive(&self) {
        while !self.run.stopping.is_on() {
            self.run.clock.sleep(AFTER_DEATH).await;
            if self.process.revive(&self.run).await {
                return;
            }
        }
    }

    async fn died_at(&self) -> Option<u64> {
        let mut health = self.client.health();
        let died = health.wait_for(|health| health.died_at.is_some());
        let died = self.run.clock.within(self.patience(), died).await;
        let at = died.and_then(|health| health.ok()?.died_at);
        // never the present time: the hold of a process that has ended is over
        at.or_else(|| self.process.give_up())
    }

    /// Sends a request that is in the history. In the recovery it waits for a client that does not answer: the leftovers of
    /// faults are judged there, and a kill of the process would remove them.
    pub(super) async fn ask(&self, op: ClientOp, within: Duration) -> ClientReply {
        let mut answer = pin!(self.process.answer(&self.client, op, &self.run));
        match self.run.clock.within(within, answer.as_mut()).await {
            Some(answer) => answer,
            None if self.run.recovery.is_on() => answer.await,
            None => ClientReply::Silent,
        }
    }

    /// Sets the client's role, for taps and faults on its messages.
    pub(super) fn is(&self, role: ClientRole) {
        self.run.exchange.labels.set(self.client.number, role.into());
    }

    fn reply_error(&self, kind: Kind, f: &str, lock: &str, error: &str) {
        let fields = Fields {
            error: Some(error),
            ..Fields::of(lock)
        };
        self.record(kind, f, fields);
    }

    /// Records a call or a reply.
    pub(super) fn record(&self, kind: Kind, f: &str, fields: Fields<'_>) {
        let recorder = &self.run.recorder;
        recorder.operation(self.client.process(), self.client.number, kind, f, &fields);
    }
}
