//! The ends of a hold without a release, for `harness client-check`: by its lease, by a close, with its process.

use harness_workloads::KeyValue;
use harness_workloads::protocol::LockSignalKind;

use super::{Pair, SHORT};
use crate::run::client_check::checked_client::CheckedClient;

/// The step of a process in place of an ended one.
const STARTED_AGAIN: &str = "open of a process that was started again";

impl Pair<'_> {
    /// Checks a hold of two leases.
    pub(super) async fn expiry(&mut self) {
        let (contract, check) = (&self.terms.contract, self.check);
        if contract.lease == Some(false) || self.terms.demand.is_shared(false) || self.is_silent() {
            return;
        }
        if !self.a.acquire("l1", self.lease() * 2, false).await.is_ok() {
            return;
        }
        self.clock().sleep(self.lease() * 2).await;
        let answer = self.b.acquire("l1", SHORT, false).await;
        let taken = self.clock().now_ns();
        let step = "a hold of two leases";
        if let Some(how) = self.a.ended().filter(|_| contract.renews != Some(true)) {
            let seen = format!("not renewed: the holder's process ended, and with it its hold ({how})");
            check.right(step, seen);
            self.b.give_back(&answer, "l1").await;
            return self.start_again().await;
        }
        let lost = self.a.signals().map(|signals| {
            let mut raised = signals.iter();
            raised.any(|signal| signal.f == LockSignalKind::Lost && signal.lock == "l1")
        });
        match (answer.is_ok(), contract.renews, lost) {
            (_, _, Err(why)) => check.wrong("the signals", why),
            (false, Some(false), Ok(false)) => {
                check.not_judged(step, "the holder kept it, although the contract says renews=false");
            }
            (false, _, Ok(false)) => check.right(step, "renewed: another client did not get it"),
            (_, Some(true), Ok(_)) => {
                let seen = format!("another client: {}", answer.in_words());
                check.wrong(step, format!("{seen}; the contract says renews=true"));
            }
            (_, _, Ok(true)) => check.right(step, "not renewed: the holder raised `lost` in time"),
            (true, _, Ok(false)) if contract.extends == Some(true) => {
                check.right(step, "not extended: another client got it");
            }
            (true, _, Ok(false)) => check.not_judged(
                step,
                "it expired, and the holder raised no `lost`: a run with a `--hold` longer than the lease violates HL001",
            ),
        }
        if answer.is_ok() {
            self.late_release(taken).await;
        } else {
            self.a.release("l1").await;
        }
        self.b.give_back(&answer, "l1").await;
    }

    /// Checks a late release by the first client of a lock that the second one has had since `taken`: it must still have it.
    async fn late_release(&self, taken: u64) {
        let step = "a release of what another client has by now";
        let late = self.a.release("l1").await;
        let again = self.a.acquire("l1", SHORT, false).await;
        let soon = self.clock().now_ns() - taken < (self.lease() / 4 * 3).as_nanos() as u64;
        match (again.is_ok(), soon) {
            (false, _) => {
                let seen = format!("{}, and the other client still has it", late.in_words());
                self.remark(step, Ok(seen));
            }
            (true, true) => {
                let seen = format!(
                    "{}, and then the lock was free; a late release must free nothing: compare the owner and delete in one atomic step",
                    late.in_words()
                );
                self.remark(step, Err(seen));
            }
            (true, false) => {
                let seen = "it took too long: the lease of the other client may be over";
                self.check.not_judged(step, seen);
            }
        }
        self.a.give_back(&again, "l1").await;
    }

    async fn client_in_its_place(&self) -> Result<CheckedClient, String> {
        CheckedClient::start(self.check, &self.ground.place, 0, self.ground.endpoints.clone()).await
    }

    /// Starts another process in place of the first client's, which ended.
    pub(super) async fn start_again(&mut self) {
        if let Ok(mut client) = self.client_in_its_place().await {
            let answer = client.open().await;
            self.judge_ok(STARTED_AGAIN, &answer);
            std::mem::replace(&mut self.a, client).end().await;
        }
    }

    /// Checks the close of a client that holds, and the end of input of a process that holds.
    pub(super) async fn closing(&mut self) {
        if self.is_silent() || !self.a.acquire("l0", self.lease() * 2, false).await.is_ok() {
            return;
        }
        let closed = self.a.close().await;
        self.judge_ok("close while it holds", &closed);
        self.is_free("the lock after a close").await;
        let left = self.a.end_input().await;
        let seen = match left {
            true => Ok("it left".into()),
            false => Err("it still runs; leave when the input ends".into()),
        };
        self.remark("the end of its input", seen);
    }

    /// Checks whether the second client gets `l0` at once, from a holder that closed.
    async fn is_free(&self, step: &str) {
        let answer = self.b.acquire("l0", self.lease() * 3, false).await;
        let soon = answer.is_ok() && answer.after < self.lease() / 2;
        let should = "`ok` at once: a close releases what is held";
        self.judge(soon, step, &answer, should);
        self.b.give_back(&answer, "l0").await;
    }

    /// Checks the kill of a process that holds, and the start of another one.
    pub(super) async fn killing(&mut self) {
        if self.is_silent() {
            return;
        }
        // unless it ended at the end of its input
        self.a.kill();
        let started = self.client_in_its_place().await;
        let Ok(mut client) = started else { return };
        let answer = client.open().await;
        if !self.judge_ok(STARTED_AGAIN, &answer) {
            return;
        }
        let elsewhere = self.terms.contract.value == Some(KeyValue::None);
        let held = client.acquire("l0", self.lease() * 2, false).await;
        client.kill();
        std::mem::replace(&mut self.a, client).end().await;
        if !held.is_ok() || self.terms.demand.is_shared(false) {
            return;
        }
        let wait = self.lease() * 3;
        let answer = self.b.acquire("l0", wait, false).await;
        let (step, check) = ("the lock of a process that was killed", self.check);
        match (answer.is_ok(), self.terms.contract.lease) {
            (true, Some(false)) if !elsewhere => {
                check.wrong(step, format!("{}; the contract says lease=false", answer.in_words()));
            }
            (false, Some(false)) => check.right(step, "it stays taken, as the contract says"),
            (false, None) => {
                check.not_judged(step, format!("{}; say lease=true or lease=false", answer.in_words()));
            }
            (taken, _) => _ = self.judge(taken, step, &answer, "`ok` after about a lease"),
        }
        self.b.give_back(&answer, "l0").await;
    }
}
