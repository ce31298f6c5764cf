//! Leases that the application extends (`extends` of the contract): when a holder asks for more time, and until when it believes that it
//! has the lock.
//!
//! It asks at each third of the lease, and does nothing else until it has the answer. It believes in the lease for [`BELIEVED`] percent
//! of its length, counted from the call that was answered ok last: the lease begins between the two. When that is over it gives the
//! lock up, as a library would that raises `lost`, and asks once more: it may have the lock again, where nobody else took it.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Kind};
use harness_workloads::protocol::{ClientOp, FailReason, Message};
use rand::RngExt;

use super::driver::ClientDriver;
use super::logical_client::Tenure;
use super::process::ClientReply;
use crate::event::ProgressEvent;

/// How much of a lease its holder believes in, in percent; the rest is for clocks that differ. HL010 asks for a little less.
const BELIEVED: u32 = 95;
/// How often a holder extends its lease while it lasts.
const EXTENSIONS_A_LEASE: u32 = 3;

/// The lease of a hold.
pub(super) struct ExtendedLease {
    length: Duration,
    /// When it is to be extended next, by the clock of the run.
    next: Duration,
    /// Until when the holder believes in it; for ever, where the lock has no lease.
    end: Duration,
    /// Whether it is left to end, and to be extended when it is too late.
    left_to_end: bool,
}

impl ExtendedLease {
    /// When its holder has something to do about it.
    pub(super) fn due(&self) -> Duration {
        self.next.min(self.end)
    }

    /// Begins with an acquire that was called at `asked` and is answered now. When a waiter was granted the lock is not known to it: it
    /// extends its lease at once, and believes in half of it until that is answered.
    fn begin(&mut self, asked: Duration, now: Duration) {
        self.counts_from(asked);
        if self.next <= now && self.end != Duration::MAX {
            self.end = now + self.length / 2;
        }
    }

    fn counts_from(&mut self, called: Duration) {
        self.next = called + self.length / EXTENSIONS_A_LEASE;
        if self.end != Duration::MAX {
            self.end = called + self.length * BELIEVED / 100;
        }
    }
}

/// What a holder has.
#[derive(Clone, Copy)]
pub(super) struct ExtendedLock<'a> {
    pub lock: &'a str,
    /// For reading.
    pub read: bool,
    /// The server's name for its owner.
    pub owner: Option<&'a str>,
}

/// The answer to an extension.
enum Extension {
    Extended,
    NotHeld,
    /// It was not extended, or nobody knows, and the lease lasts as long as it did.
    NotExtended,
    /// The same of a lock that may not have been held.
    Unknown,
    /// The lease ended before the answer came.
    TooLate,
}

impl ClientDriver {
    /// The lease of a hold that begins now, where the application extends it. `asked`: when its acquire was called.
    pub(super) fn extended_lease(&self, asked: Duration, left_to_end: bool) -> Option<ExtendedLease> {
        let contract = &self.run.terms.contract;
        let now = self.run.clock.now();
        (contract.extends == Some(true)).then(|| {
            let has_end = contract.lease != Some(false);
            let mut lease = ExtendedLease {
                length: self.run.spec.config.lease,
                next: now,
                end: if has_end { now } else { Duration::MAX },
                left_to_end,
            };
            lease.begin(asked, now);
            if left_to_end {
                lease.next = lease.end;
            }
            lease
        })
    }

    /// Extends a lease where that is due, and gives the lock up when the lease is over.
    pub(super) async fn keep_lease(&mut self, held: ExtendedLock<'_>, lease: &mut ExtendedLease) -> Tenure {
        let now = self.run.clock.now();
        if now < lease.due() {
            return Tenure::Holds;
        }
        if now < lease.end {
            match self.extend(held, Some(lease.end)).await {
                Extension::Extended => lease.counts_from(now),
                Extension::NotHeld => {
                    self.note_loss("told by `extend`");
                    return Tenure::Lost;
                }
                Extension::NotExtended | Extension::Unknown => lease.next = now + lease.length / EXTENSIONS_A_LEASE,
                Extension::TooLate => return self.ask_again(held, lease).await,
            }
            return Tenure::Holds;
        }
        self.lease_is_over(held.lock);
        if lease.left_to_end {
            let pause = lease.length.mul_f64(self.rng.random_range(0.2..1.0));
            self.rest(pause).await;
        }
        self.ask_again(held, lease).await
    }

    /// Extends the lease of a lock that is given up. A lock may say that it is held then: again, or still.
    async fn ask_again(&mut self, held: ExtendedLock<'_>, lease: &mut ExtendedLease) -> Tenure {
        if !self.workload.demand.odd.extends_late || self.run.is_stopping() || !self.executes().await {
            return Tenure::Lost;
        }
        let now = self.run.clock.now();
        match self.extend(held, None).await {
            Extension::Extended => {
                lease.left_to_end = false;
                lease.counts_from(now);
                match self.run.clock.now() < lease.end {
                    true => Tenure::HoldsAgain,
                    false => {
                        self.lease_is_over(held.lock);
                        Tenure::Lost
                    }
                }
            }
            Extension::Unknown => Tenure::Unknown,
            Extension::NotHeld | Extension::NotExtended | Extension::TooLate => Tenure::Lost,
        }
    }

    /// One call of `extend` and its answer. `end`: when the lease is over by the holder's own clock; none, where it is over.
    async fn extend(&mut self, held: ExtendedLock<'_>, end: Option<Duration>) -> Extension {
        let lock = held.lock;
        let mut fields = Fields {
            mode: held.read.then_some("read"),
            // a hold that begins with this call is under the grant of the one before, or under another of its name
            owner: held.owner.filter(|_| end.is_none()),
            ..Fields::of(lock)
        };
        self.call("extend", fields.clone());
        let op = ClientOp::Extend { lock: lock.to_owned() };
        let (answer, in_time) = {
            let mut answer = pin!(self.ask(op, self.workload.patience));
            let over = async {
                match end {
                    Some(end) if end != Duration::MAX => self.run.clock.sleep_until(end).await,
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = answer.as_mut() => (answer, true),
                () = over => {
                    self.lease_is_over(lock);
                    (answer.await, false)
                }
            }
        };
        let (kind, error, extension) = match answer {
            ClientReply::Message(Message::Ok { .. }) => (Kind::Ok, None, Extension::Extended),
            ClientReply::Message(Message::Fail { error, .. }) => {
                let extension = match error {
                    FailReason::NotHeld(_) => Extension::NotHeld,
                    _ => Extension::NotExtended,
                };
                (Kind::Fail, Some(error.to_string()), extension)
            }
            ClientReply::Message(Message::Info { error, .. }) => (Kind::Info, Some(error), Extension::Unknown),
            ClientReply::Silent => {
                self.process.kill();
                let error = "the client did not answer".to_owned();
                (Kind::Info, Some(error), Extension::Unknown)
            }
            _ => (Kind::Info, Some("the client ended".to_owned()), Extension::Unknown),
        };
        if let Some(error) = &error {
            self.run.counters.said(error);
        }
        fields.owner = None;
        fields.error = error.as_deref();
        self.reply(kind, "extend", fields);
        match extension {
            Extension::NotHeld => Extension::NotHeld,
            _ if !in_time => Extension::TooLate,
            extension => extension,
        }
    }

    /// The holder gives the lock up, since its lease is over by its own clock.
    fn lease_is_over(&self, lock: &str) {
        let cause = "its lease is over, and was not extended in time";
        let fields = Fields {
            cause: Some(cause),
            ..Fields::of(lock)
        };
        self.client.signal("lost", fields, None, &self.run.recorder);
        self.note_loss(cause);
    }

    fn note_loss(&self, cause: &str) {
        self.run.holders.abandon(self.client.number);
        self.run.counters.lost.fetch_add(1, Relaxed);
        self.run.progress().send(ProgressEvent::Lost {
            client: self.client.number,
            cause: cause.to_owned(),
        });
    }
}
