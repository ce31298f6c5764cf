//! A hold of the application: it reads the register, works, checks whether its process still executes, and writes.

use std::sync::Arc;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Kind};
use harness_workloads::IssuedBy;
use tokio::sync::watch;

use super::driver::{ClientDriver, GrantedLock};
use super::extending::{ExtendedLease, ExtendedLock};
use super::logical_client::{Health, Tenure};
use crate::process::Activity;
use crate::run::holders::GrantId;

/// The longest round of a longer piece of work; each is a read, a wait and a write.
const ROUND: Duration = Duration::from_millis(400);
/// The least work of a holder that has its lock again.
const MORE_WORK: Duration = Duration::from_millis(100);
/// The time between two checks whether a process that works lives.
const PROOF_OF_LIFE: Duration = Duration::from_millis(20);
/// The time between two checks whether a stopped process continues.
const STOPPED_POLL: Duration = Duration::from_millis(1);

impl ClientDriver {
    /// Ends the process in order in the middle of a hold, and starts another one. The hold ends before that request.
    pub(super) async fn close_holding(&mut self, lock: &str, grant: &GrantedLock) {
        self.note_release(lock, grant);
        // before the request: signals of its library during the close come after the hold
        self.died(Some(lock), Some(self.run.clock.by.now_ns()));
        self.process.leave().await;
        self.revive().await;
    }

    /// Records that the holder of a grant calls a release.
    pub(super) fn note_release(&self, lock: &str, grant: &GrantedLock) {
        if let Some(grant) = self.grant_id(grant) {
            self.run.holders.release(lock, grant);
        }
    }

    /// Returns the servers' name for a grant: its token, if it has one, since an owner may have had others before. A token that is the
    /// lock's own is unknown to the servers.
    pub(super) fn grant_id(&self, grant: &GrantedLock) -> Option<GrantId> {
        let is_own = self.run.terms.contract.token == Some(IssuedBy::Own);
        let by_owner = || grant.owner.clone().map(GrantId::Owner);
        grant.token.filter(|_| !is_own).map(GrantId::Token).or_else(by_owner)
    }

    /// Works until its work is done, the lock is lost, or the client died. `before` is its health before the acquire. With
    /// `lets_end` it extends its lease too late.
    pub(super) async fn hold(
        &mut self,
        (read, lets_end): (bool, bool),
        lock: &str,
        grant: &GrantedLock,
        before: Health,
        health: &mut watch::Receiver<Health>,
    ) -> Tenure {
        if health.has_changed().unwrap_or(true) {
            // the signal of the loss was read and recorded before the reply, whose grant it ends; the time is that of the loss
            let lost_at = health.borrow().lost_since(before);
            if lost_at.is_some() {
                let fields = Fields {
                    cause: Some("told with the reply"),
                    ..Fields::of(lock)
                };
                self.client.signal("lost", fields, lost_at, &self.run.recorder);
            }
            return Tenure::Lost;
        }
        let shared = self.run.terms.demand.is_shared(read);
        let mut lease = self.extended_lease(grant.asked, lets_end);
        let mut work = self.work();
        if lets_end {
            work = work.max(self.run.spec.config.lease);
        }
        let mut tenure = Tenure::Holds;
        let (run, me) = (Arc::clone(&self.run), self.client.number);
        run.holders.begin(me, lock, grant.token, work, shared);
        let mut until = Some(self.run.clock.now() + work);
        while let Some(end) = until {
            if !self.executes().await || health.has_changed().unwrap_or(true) || self.run.stopping.is_on() {
                break;
            }
            if let Some(lease) = &mut lease {
                let owner = grant.owner.as_deref();
                tenure = self.keep_lease(ExtendedLock { lock, read, owner }, lease).await;
                if matches!(tenure, Tenure::Lost | Tenure::Unknown) {
                    break;
                }
                if tenure == Tenure::HoldsAgain {
                    let more = end.saturating_sub(self.run.clock.now()).max(MORE_WORK);
                    run.holders.begin(me, lock, grant.token, more, shared);
                }
                if !self.executes().await || health.has_changed().unwrap_or(true) {
                    break;
                }
            }
            let value = self.read(lock, grant);
            let due = lease.as_ref().map_or(Duration::MAX, ExtendedLease::due);
            tokio::select! {
                biased;
                _ = health.changed() => break,
                () = self.run.stopping.until_on() => {}
                () = self.work_until(end.min(self.run.clock.now() + ROUND).min(due)) => {}
            }
            // an application that was stopped before its write makes it when it continues, whatever its library reports then
            if !self.executes().await {
                break;
            }
            if !shared {
                self.write(lock, grant, value + 1);
            }
            until = self.run.holders.works_until(self.client.number);
        }
        self.run.holders.abandon(self.client.number);
        tenure
    }

    /// Works until then, or until the process ends. The more often it is seen alive, the nearer is the end of a certain hold to
    /// the process's death. In virtual time a death is reported at once, and ends the work.
    async fn work_until(&self, until: Duration) {
        let clock = self.run.clock;
        if clock.by.is_virtual() {
            return clock.sleep_until(until).await;
        }
        while clock.now() < until && self.process.activity() != Activity::Ending {
            clock.sleep_until(until.min(clock.now() + PROOF_OF_LIFE)).await;
        }
    }

    /// Waits while the process is stopped, or may be ending: the application is in it, and does nothing in that time. Returns
    /// whether it executes, or `false` when it ends.
    pub(super) async fn executes(&self) -> bool {
        loop {
            match self.process.activity() {
                Activity::Running => return true,
                Activity::Ending => return false,
                Activity::Stopped | Activity::Doubtful => self.run.clock.sleep(STOPPED_POLL).await,
            }
        }
    }

    fn read(&self, lock: &str, grant: &GrantedLock) -> u64 {
        let fields = Fields {
            token: grant.token,
            ..Fields::of(lock)
        };
        self.record(Kind::Invoke, "read", fields.clone());
        let read = self.run.register.read(lock);
        let value = Some(read);
        self.record(Kind::Ok, "read", Fields { value, ..fields });
        read
    }

    fn write(&self, lock: &str, grant: &GrantedLock, value: u64) {
        let fields = Fields {
            token: grant.token,
            value: Some(value),
            ..Fields::of(lock)
        };
        self.record(Kind::Invoke, "write", fields.clone());
        let fenced = self.run.register.write(lock, value, grant.token);
        self.record(Kind::Ok, "write", Fields { fenced, ..fields });
    }
}
