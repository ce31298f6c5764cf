//! The herd by the taps' lines, to compare with the clients' `woken` signals.
//!
//! A notification counts if an acquire of its client was pending. An acquire that gave up may leave its watch, as in libraries of
//! ZooKeeper: for each such acquire of a client, one of its notifications counts only if it got the lock.
//!
//! Messages are counted on all links and for all locks together, since a message does not name its hand-over.

use super::traffic::{Wake, in_order};
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::FastMap;
use crate::history::{F, Mode};

/// The allowed difference between signals and notifications: this number of wakes, or this share of them in percent. A notification passes
/// a link a moment before its client signals it, and the end of a run may come in between.
const ALIKE: u64 = 2;
const ALIKE_PERCENT: u64 = 10;

/// The numbers of wakes by the clients' signals and on their links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeCounts {
    pub signals: u64,
    pub wire: u64,
}

impl WakeCounts {
    /// Returns whether the two numbers differ by more than is allowed.
    pub(crate) fn disagree(self) -> bool {
        let most = self.signals.max(self.wire);
        self.signals.abs_diff(self.wire) > ALIKE.max(most * ALIKE_PERCENT / 100)
    }
}

/// Messages on the links for each hand-over, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PerHandOver {
    pub messages: f64,
    pub requests: f64,
    pub retries: f64,
}

impl PerHandOver {
    /// Returns `None` without counts of taps, or with fewer than two releases.
    pub(super) fn of(context: &Context<'_>) -> Option<Self> {
        let readings = &context.history.wire;
        let ((_, first), (_, last)) = (readings.first()?, readings.last()?);
        let hand_overs = readings.len().checked_sub(1).filter(|count| *count > 0)? as f64;
        let each = |column: usize| last[column].saturating_sub(first[column]) as f64 / hand_overs;
        Some(Self {
            messages: each(0) + each(1) + each(2),
            requests: each(0),
            retries: each(3),
        })
    }

    pub(crate) fn figures(self) -> [(&'static str, f64); 3] {
        [
            ("messages_per_hand_over", self.messages),
            ("requests_per_hand_over", self.requests),
            ("retries_per_hand_over", self.retries),
        ]
    }
}

/// Returns the number of connections on which a tap lost its place.
pub(super) fn lost(context: &Context<'_>) -> u64 {
    context.history.tap_totals().map(|taps| taps.lost).sum()
}

/// An acquire with its times and its outcome.
struct AcquireAttempt {
    lock: usize,
    called: u64,
    answered: u64,
    got: bool,
    reader: bool,
    /// Acquires of the lock by this client that had failed before this call.
    gave_up_before: u64,
    /// The place, among the lock's, of the last notification during the call.
    last: Option<usize>,
}

/// Returns the wakes of each lock by the notifications in the taps' lines.
pub(super) fn notified(context: &Context<'_>) -> Vec<Vec<Wake>> {
    let history = context.history;
    let mut wakes: Vec<Vec<Wake>> = vec![Vec::new(); history.locks.len()];
    let mut attempts = attempts(context);
    // by client and lock, the notifications that may belong to watches of earlier acquires
    let mut leftovers: FastMap<(u32, usize), u64> = FastMap::default();
    let notifications = |f, _| f == F::Notified;
    history.each_of_locks(notifications, |lock, position, event| {
        let client = history.client_of(event.process);
        let Some(attempts) = attempts.get_mut(&client) else {
            return;
        };
        let place = attempts.partition_point(|attempt| attempt.called <= event.time);
        let attempt = place.checked_sub(1).and_then(|place| attempts.get_mut(place));
        let Some(attempt) = attempt.filter(|attempt| attempt.lock == lock) else {
            return;
        };
        let waits = event.time <= attempt.answered;
        let gave_up = attempt.gave_up_before + u64::from(!waits && !attempt.got);
        let seen = leftovers.entry((client, lock)).or_default();
        let leftover = *seen < gave_up;
        *seen += u64::from(leftover);
        if !waits {
            return;
        }
        attempt.last = Some(wakes[lock].len());
        wakes[lock].push(Wake {
            ns: event.time,
            position,
            client,
            useful: false,
            reader: attempt.reader,
            leftover,
        });
    });
    for attempt in attempts.values().flatten().filter(|attempt| attempt.got) {
        if let Some(wake) = attempt.last.and_then(|last| wakes[attempt.lock].get_mut(last)) {
            wake.useful = true;
        }
    }
    in_order(wakes)
}

/// Returns every acquire by its client, in the order of the calls.
fn attempts(context: &Context<'_>) -> FastMap<u32, Vec<AcquireAttempt>> {
    let history = context.history;
    let mut attempts: FastMap<u32, Vec<AcquireAttempt>> = FastMap::default();
    history.each_ask(|lock, _, event| {
        let reply = history.reply(event);
        let own = attempts.entry(history.client_of(event.process)).or_default();
        own.push(AcquireAttempt {
            lock,
            called: event.time,
            answered: reply.map_or(u64::MAX, |reply| reply.time),
            got: reply.is_some_and(|reply| reply.kind == Kind::Ok),
            reader: event.mode == Mode::Read,
            gave_up_before: 0,
            last: None,
        });
    });
    for attempts in attempts.values_mut() {
        attempts.sort_by_key(|attempt| attempt.called);
        let mut gave_up: FastMap<usize, u64> = FastMap::default();
        for attempt in attempts {
            let before = gave_up.entry(attempt.lock).or_default();
            attempt.gave_up_before = *before;
            *before += u64::from(!attempt.got);
        }
    }
    attempts
}
