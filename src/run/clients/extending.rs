//! Leases that the application extends (`extends` of the contract): the times of its extensions, and the time until which it
//! believes that it has the lock.
//!
//! It extends at each third of the lease, and does nothing else until the answer. It believes in the lease for [`BELIEVED`]
//! percent of its length, counted from the last call that was answered ok: the lease begins between the two. After that it gives
//! the lock up, as a library would that raises `lost`, and asks once more: it may have the lock again, if nobody else took it.

use std::pin::pin;
use std::time::Duration;

use harness_checkers::history::event::{Fields, Kind};
use harness_workloads::protocol::{ClientOp, FailReason, Message};
use rand::RngExt;

use super::driver::ClientDriver;
use super::logical_client::Tenure;
use super::process::ClientReply;
use crate::run::clock::RunClock;

/// The percentage of a lease in which its holder believes; the rest is for clocks that differ. HL010 demands a little less.
const BELIEVED: u32 = 95;
/// The number of extensions of a lease while it lasts.
const EXTENSIONS_A_LEASE: u32 = 3;

/// The lease of a hold.
pub(super) struct ExtendedLease {
    length: Duration,
    /// The time of the next extension, by the clock of the run.
    next: Duration,
    /// The time until which the holder believes in it; without an end if the lock has no lease.
    end: Duration,
    /// Whether it is left to end, and extended too late.
    left_to_end: bool,
}

impl ExtendedLease {
    /// Returns the time of the holder's next act for it.
    pub(super) fn due(&self) -> Duration {
        self.next.min(self.end)
    }

    /// Begins with an acquire that was called at `asked` and is answered now. A waiter does not know the time of its grant: it
    /// extends its lease at once, and believes in half of it until the answer.
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

/// The lock of a holder.
#[derive(Clone, Copy)]
pub(super) struct ExtendedLock<'a> {
    pub lock: &'a str,
    /// Whether it is held for reading.
    pub read: bool,
    /// The server's name for its owner.
    pub owner: Option<&'a str>,
}

/// The answer to an extension.
enum Extension {
    Extended,
    NotHeld,
    /// It was not extended, or that is unknown, and the lease lasts as long as before.
    NotExtended,
    /// The same of a lock that may not have been held.
    Unknown,
    /// The lease ended before the answer came.
    TooLate,
}

impl ClientDriver {
    /// Returns the lease of a hold that begins now, if the application extends it. `asked` is the time of its acquire's call.
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

    /// Extends a lease if that is due, and gives the lock up when the lease is over.
    pub(super) async fn keep_lease(&mut self, held: ExtendedLock<'_>, lease: &mut ExtendedLease) -> Tenure {
        let now = self.run.clock.now();
        if now < lease.due() {
            return Tenure::Holds;
        }
        if now < lease.end {
            match self.extend(held, Some(lease.end)).await {
                Extension::Extended => lease.counts_from(now),
                Extension::NotHeld => return Tenure::Lost,
                Extension::NotExtended | Extension::Unknown => lease.next = now + lease.length / EXTENSIONS_A_LEASE,
                Extension::TooLate => return self.ask_again(held, lease).await,
            }
            return Tenure::Holds;
        }
        self.lease_is_over(held.lock, None);
        if lease.left_to_end {
            let pause = lease.length.mul_f64(self.rng.random_range(0.2..1.0));
            self.rest(pause).await;
        }
        self.ask_again(held, lease).await
    }

    /// Extends the lease of a lock that is given up. The answer may be that it is held: again, or still.
    async fn ask_again(&mut self, held: ExtendedLock<'_>, lease: &mut ExtendedLease) -> Tenure {
        if !self.run.terms.demand.odd.extends_late || self.run.stopping.is_on() || !self.executes().await {
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
                        self.lease_is_over(held.lock, None);
                        Tenure::Lost
                    }
                }
            }
            Extension::Unknown => Tenure::Unknown,
            Extension::NotHeld | Extension::NotExtended | Extension::TooLate => Tenure::Lost,
        }
    }

    /// Makes one call of `extend`. `end` is the end of the lease by the holder's own clock; `None` if it is over.
    async fn extend(&mut self, held: ExtendedLock<'_>, end: Option<Duration>) -> Extension {
        let lock = held.lock;
        let mut fields = Fields {
            mode: held.read.then_some("read"),
            // a hold that begins with this call is under the previous grant, or under another of its name
            owner: held.owner.filter(|_| end.is_none()),
            ..Fields::of(lock)
        };
        let (recorder, me) = (&self.run.recorder, self.client.number);
        let called_ns = recorder.operation(self.client.process(), me, Kind::Invoke, "extend", &fields);
        let op = ClientOp::Extend { lock: lock.to_owned() };
        let (answer, in_time) = {
            let mut answer = pin!(self.ask(op, self.patience()));
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
                    // a call that was late itself comes before the loss
                    let called = Duration::from_nanos(called_ns + 1);
                    self.lease_is_over(lock, end.map(|end| end.max(called)));
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
                self.process.kill_silent();
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
        self.record(kind, "extend", fields);
        // the end of the lease was noted already, if it came before the answer
        if in_time && end.is_some() && matches!(extension, Extension::NotHeld) {
            self.note_loss("told by `extend`");
        }
        match extension {
            Extension::NotHeld => Extension::NotHeld,
            _ if !in_time => Extension::TooLate,
            extension => extension,
        }
    }

    /// Records that the holder gives the lock up, since its lease is over by its own clock. `end` is the end of the lease, if the holder
    /// has waited for it and does nothing from then on.
    fn lease_is_over(&self, lock: &str, end: Option<Duration>) {
        let cause = "its lease is over, and was not extended in time";
        let fields = Fields {
            cause: Some(cause),
            ..Fields::of(lock)
        };
        let at = end.and_then(|end| reading_of(end, self.run.clock));
        self.client.signal("lost", fields, at, &self.run.recorder);
        self.note_loss(cause);
    }

    fn note_loss(&self, cause: &str) {
        self.run.holders.abandon(self.client.number);
        self.run.note_loss(self.client.number, cause);
    }
}

/// Returns the reading at which a lease ended that a holder waited for: on a busy machine harness, in which that holder is, wakes up late,
/// by more than the rest of the lease. `None` is the present time, which is that end in virtual time.
fn reading_of(end: Duration, clock: RunClock) -> Option<u64> {
    (!clock.by.is_virtual()).then(|| clock.reading(end))
}

#[cfg(test)]
mod tests {
    use harness_simulation::World;

    use super::*;
    use crate::clock::GroundClock;

    #[test]
    fn a_holder_that_is_woken_late_has_lost_its_lock_at_the_end_of_its_lease() {
        let (clock, end) = (RunClock::start(GroundClock::Real), Duration::from_secs(7));
        assert_eq!(reading_of(end, clock).map(|at| clock.stamp_of(at)), Some(7_000_000_000));
        let of_world = |world| reading_of(end, RunClock::start(GroundClock::Virtual(world)));
        assert_eq!(World::run(7, |world| std::future::ready(of_world(world))), None);
    }
}
