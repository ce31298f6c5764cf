//! The herd as taps saw it on the wire, to compare with the clients' `woken` signals.
//!
//! A notification counts where its client had asked for the lock and had no answer yet. An acquire that gave up may leave its watch, as
//! libraries of ZooKeeper do: for each such acquire of a client one of its notifications counts only if it got the lock.
//!
//! Counts of messages are of all links and all locks together, since a message does not say which hand-over it belongs to.

use super::traffic::{Wake, in_order};
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::FastMap;
use crate::history::{F, Mode};

/// Signals and wire may differ by this number of wakes, or by this share of them in percent: a notification passes a link a
/// moment before its client says so, and the end of a run may fall in between.
const ALIKE: u64 = 2;
const ALIKE_PERCENT: u64 = 10;

/// How many wakes the clients told of, and how many passed their links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WakeCounts {
    pub signals: u64,
    pub wire: u64,
}

impl WakeCounts {
    /// Whether they are too far apart to be of the same run.
    pub(crate) fn disagree(self) -> bool {
        let most = self.signals.max(self.wire);
        self.signals.abs_diff(self.wire) > ALIKE.max(most * ALIKE_PERCENT / 100)
    }
}

/// What passed the links for each hand-over, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PerHandOver {
    pub messages: f64,
    pub requests: f64,
    pub retries: f64,
}

impl PerHandOver {
    /// `None` where no tap counted, or fewer than two releases were counted.
    pub(super) fn of(context: &Context<'_>) -> Option<Self> {
        let readings = &context.history.wire;
        let (first, last) = (readings.first()?, readings.last()?);
        let hand_overs = readings.len().checked_sub(1).filter(|count| *count > 0)? as f64;
        let each = |column: usize| last.counts[column].saturating_sub(first.counts[column]) as f64 / hand_overs;
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

/// On how many connections a tap lost its place, by the run's own account.
pub(super) fn lost(context: &Context<'_>) -> u64 {
    context.history.tap_totals().map(|taps| taps.lost).sum()
}

/// An acquire: when it was called and answered, and what came of it.
struct AcquireAttempt {
    lock: usize,
    called: u64,
    answered: u64,
    got: bool,
    reader: bool,
    /// How many acquires of the lock by this client ended without it before this one was called.
    gave_up_before: u64,
    /// The place, among the lock's, of the last notification in it.
    last: Option<usize>,
}

/// The wakes of each lock by the notifications of the wire.
pub(super) fn notified(context: &Context<'_>) -> Vec<Vec<Wake>> {
    let history = context.history;
    let mut wakes: Vec<Vec<Wake>> = vec![Vec::new(); history.locks.len()];
    let mut attempts = attempts(context);
    // by client and lock, the notifications that watches of earlier acquires may have had
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

/// Every acquire by its client, in the order of the calls.
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
