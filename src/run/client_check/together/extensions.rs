//! Extensions of leases by the application, for `harness client-check`: of a held lock, a released one, and another client's.

use std::time::Duration;

use super::{Pair, SHORT, is_fail};
use crate::run::client_check::checked_client::TimedAnswer;

/// The percentage of a lease before its extension, and between the extension and another client's acquire.
const BEFORE_AND_AFTER: u32 = 60;

impl Pair<'_> {
    pub(super) async fn extensions(&mut self) {
        let contract = &self.terms.contract;
        if contract.extends != Some(true) || self.terms.demand.is_shared(false) || self.is_silent() {
            return;
        }
        let part = match contract.lease {
            Some(false) => Duration::ZERO,
            _ => self.lease() * BEFORE_AND_AFTER / 100,
        };
        let step = "an extension of a lock that is held";
        if !self.a.acquire("l2", self.lease() * 2, false).await.is_ok() {
            return;
        }
        self.clock().sleep(part).await;
        let extended = self.a.extend("l2").await;
        if self.judge_ok(step, &extended) {
            self.clock().sleep(part).await;
            self.is_kept().await;
        }
        if !self.a.release("l2").await.is_ok() {
            return;
        }
        let late = self.a.extend("l2").await;
        self.is_refused("an extension of a lock that was released", &late);
        if contract.lease != Some(false) {
            self.extension_of_anothers().await;
        }
    }

    /// Checks that the extended lock is still the first client's.
    async fn is_kept(&self) {
        let answer = self.b.acquire("l2", SHORT, false).await;
        let outcome = match answer.is_ok() {
            false => Ok("another client did not get the lock".to_owned()),
            true => Err(format!(
                "another client got the lock: {}; an extension that is answered `ok` gives a whole lease from its call on",
                answer.in_words()
            )),
        };
        self.remark("the lock after an extension", outcome);
        self.b.give_back(&answer, "l2").await;
    }

    /// Checks an extension by the first client of a lock that the second one has by then.
    async fn extension_of_anothers(&mut self) {
        if !self.a.acquire("l2", self.lease() * 2, false).await.is_ok() {
            return;
        }
        let taken = self.b.acquire("l2", self.lease() * 3, false).await;
        if self.a.ended().is_some() {
            self.b.give_back(&taken, "l2").await;
            return self.start_again().await;
        }
        if taken.is_ok() {
            let late = self.a.extend("l2").await;
            self.is_refused("an extension of what another client has by now", &late);
        }
        self.a.release("l2").await;
        self.b.give_back(&taken, "l2").await;
    }

    fn is_refused(&self, step: &str, answer: &TimedAnswer) {
        self.judge(is_fail(answer, "not held"), step, answer, "`fail` with `not held`");
    }
}
