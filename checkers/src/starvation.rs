//! Starvation, a part of HL006: a client that asks for a lock all the time and never gets it, while others do, or is refused.
//!
//! Where no order is promised, any is allowed, and a client may be unlucky. One that was passed over twenty times as often as there are
//! clients, and got nothing in the whole run, was not: by chance that happens once in 10^8. Only grants from one client to another count,
//! since a client that has just released is often the first to ask again; only those at a time at which the client asked, since one that
//! asks for 10 ms twice a second competes for few of them; and only those that it could have had, since a lock may let readers in while
//! others read, however long a writer waits, or prefer writers. A client also starves if its acquires are answered with errors for longer
//! than the bound while others get the lock and no fault is active.

use std::collections::BTreeMap;

use crate::calm;
use crate::context::{CalmSpan, Context};
use crate::history::event::Kind;
use crate::history::names::FastMap;
use crate::history::{History, Mode, OrderBasis, PackedEvent};
use crate::holds::LockHold;
use crate::limits;
use crate::model::Model;
use crate::wait::{self, Wait};

/// A client that starved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starved {
    /// Dense.
    pub lock: usize,
    pub process: u32,
    /// The positions of its first and its last call.
    pub first: u32,
    pub last: u32,
    pub from_ns: u64,
    pub to_ns: u64,
    /// Grants to other clients in that time.
    pub others: u64,
    pub how: Starving,
}

/// The kind of starvation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starving {
    /// The client never got the lock while others did. Grants to it after the last of theirs do not count.
    Never,
    /// The client waited for longer than the configured bound.
    PastTheBound,
    /// Every call was answered with an error other than `busy` or `timeout`.
    Refused,
}

/// Returns the clients that starved, the longest first.
pub(crate) fn starved(context: &Context<'_>) -> Vec<Starved> {
    let history = context.history;
    if history.order == OrderBasis::Position || !context.model.is_lock() {
        return Vec::new();
    }
    let mut found = Vec::new();
    let bounded = context.bounds.starvation_ms.is_some();
    let asked = asked(context);
    let never = |lock: usize, client: u32, asked: &Outcomes| {
        let last_ns = last_grant_but_to(context, lock, client);
        last_ns.is_none_or(|ns| asked.acquired_ns > ns)
    };
    let judged = asked.iter().enumerate().map(|(lock, asked)| {
        let is_judged = |(client, asked): &(&u32, &Outcomes)| bounded || asked.refused || never(lock, **client, asked);
        let judged = asked.iter().filter(is_judged);
        judged.map(|(client, _)| (*client, Vec::new())).collect()
    });
    let judged: Vec<CallsOfClients> = judged.collect();
    for (lock, calls) in calls_that_count(history, judged).iter().enumerate() {
        if calls.is_empty() {
            continue;
        }
        let enough = (asked[lock].len() as u64 * limits::PASSED_BY_CHANCE).max(limits::STARVED_GRANTS);
        let grants = GrantTimes::of(&grants_of(context, lock, |_| true));
        for (client, calls) in calls {
            let attempts = AttemptsInOrder::of(context, calls);
            let of = |how: Starving, enough: u64| {
                let longest = longest(context, &attempts, how)?;
                let others = grants.but_to(*client, (longest.from_ns, longest.to_ns));
                // a configured bound defines the longest wait, whichever client has the lock meanwhile
                let drawn: u64 = match bounded || how == Starving::Refused {
                    true => others,
                    false => {
                        let in_its_place = grants_in_its_place(context, lock, &attempts.attempts);
                        let on = attempts.on_within(longest.from_ns, longest.to_ns);
                        on.map(|on| in_its_place.but_to(*client, on)).sum()
                    }
                };
                (drawn >= enough).then_some(Starved {
                    lock,
                    others,
                    ..longest
                })
            };
            // without a configured bound, only the whole run is long enough to be certain
            let starving = match never(lock, *client, &asked[lock][client]) {
                true => Some(Starving::Never),
                false => bounded.then_some(Starving::PastTheBound),
            };
            let refused = of(Starving::Refused, limits::GRANTS_BESIDE_A_REFUSED);
            found.extend(refused.or_else(|| of(starving?, enough)));
        }
    }
    found.sort_by_key(|starved| std::cmp::Reverse(starved.to_ns - starved.from_ns));
    found
}

/// Returns the longest time for which a client may ask without a grant, in nanoseconds.
pub(crate) fn bound_ns(context: &Context<'_>) -> u64 {
    let usual_ns = context.progress_ns() + context.lease_ns;
    context.bounds.starvation_ms.map_or(usual_ns, limits::ns)
}

/// Returns the last grant of a lock to another client, in nanoseconds.
fn last_grant_but_to(context: &Context<'_>, lock: usize, client: u32) -> Option<u64> {
    let history = context.history;
    // Holds are in the order in which they began.
    let mut holds = context.holds.by_lock[lock].iter().rev();
    let last = holds.find(|hold| history.client_of(hold.process) != client);
    last.map(|hold| history.ns(hold.from))
}

/// Returns the grants of a lock that satisfy a predicate, by time, each with its client.
fn grants_of(context: &Context<'_>, lock: usize, is_one: impl Fn(&LockHold) -> bool) -> Vec<(u64, u32)> {
    let history = context.history;
    let holds = context.holds.by_lock[lock].iter().filter(|hold| is_one(hold));
    let grants = holds.map(|hold| (history.ns(hold.from), history.client_of(hold.process)));
    let mut grants: Vec<(u64, u32)> = grants.collect();
    grants.sort_unstable();
    grants
}

/// Returns the grants, each to another client than the one before, that a client with these attempts could have had instead. Where no order
/// is promised, a lock may prefer readers or writers, and let readers in while others read; a grant of fewer permits takes nothing from a
/// client that asks for more.
fn grants_in_its_place(context: &Context<'_>, lock: usize, attempts: &[Wait]) -> GrantTimes {
    let history = context.history;
    let calls = || attempts.iter().map(|attempt| history.event(attempt.call));
    let is_exclusive = context.model != Model::ReadWrite;
    let asked = |mode: Mode| is_exclusive || calls().any(|call| call.mode == mode);
    let (reads, writes) = (asked(Mode::Read), asked(Mode::Write));
    let permits = calls().map(|call| history.permits(call)).min().unwrap_or(1);
    let is_alike = |hold: &LockHold| {
        let asked = if hold.mode == Mode::Read { reads } else { writes };
        asked && hold.permits >= permits
    };
    let in_order = history.header.promises.fifo;
    let mut grants = grants_of(context, lock, |hold| in_order || is_alike(hold));
    grants.dedup_by_key(|(_, client)| *client);
    GrantTimes::of(&grants)
}

/// The times of grants: all of them, and by client.
struct GrantTimes {
    all: Vec<u64>,
    by_client: Vec<(u32, u64)>,
}

impl GrantTimes {
    /// Builds the times from grants that are sorted by time.
    fn of(grants: &[(u64, u32)]) -> Self {
        let mut by_client: Vec<(u32, u64)> = grants.iter().map(|(ns, client)| (*client, *ns)).collect();
        by_client.sort_unstable();
        Self {
            all: grants.iter().map(|(ns, _)| *ns).collect(),
            by_client,
        }
    }

    /// Returns the number of grants to other clients in an interval.
    fn but_to(&self, client: u32, (from_ns, to_ns): (u64, u64)) -> u64 {
        let all = self.all.partition_point(|ns| *ns <= to_ns) - self.all.partition_point(|ns| *ns < from_ns);
        let own = self.by_client.partition_point(|grant| *grant <= (client, to_ns))
            - self.by_client.partition_point(|grant| *grant < (client, from_ns));
        (all - own) as u64
    }
}

/// Returns whether an acquire waits or got the lock. A failed try is no evidence: it may always meet a holder.
fn counts(history: &History, call: PackedEvent, answer: Option<(Kind, u64)>) -> bool {
    let acquired = answer.is_some_and(|(kind, _)| kind == Kind::Ok);
    acquired || history.wait_ms(call) != 0
}

/// The positions of the calls for one lock, by client.
type CallsOfClients = BTreeMap<u32, Vec<u32>>;

/// Adds the calls that count to the clients that the map has, by lock.
fn calls_that_count(history: &History, mut calls: Vec<CallsOfClients>) -> Vec<CallsOfClients> {
    if calls.iter().any(|clients| !clients.is_empty()) {
        history.each_ask(|lock, position, call| {
            let own = calls[lock].get_mut(&history.client_of(call.process));
            if let Some(own) = own.filter(|_| counts(history, call, history.events.answer(call.mate))) {
                own.push(position);
            }
        });
    }
    calls
}

/// The outcome of a client's calls.
#[derive(Debug, Clone, Copy)]
struct Outcomes {
    /// The first answer `ok`; `u64::MAX` without one.
    acquired_ns: u64,
    /// Whether any was refused.
    refused: bool,
}

/// Returns the clients of all calls that count, by lock; a lock with too few grants for a starvation has none.
fn asked(context: &Context<'_>) -> Vec<FastMap<u32, Outcomes>> {
    let history = context.history;
    let least = limits::STARVED_GRANTS.min(limits::GRANTS_BESIDE_A_REFUSED) as usize;
    let mut all: Vec<FastMap<u32, Outcomes>> = vec![FastMap::default(); history.locks.len()];
    let is_looked_at = |lock: usize| context.holds.by_lock[lock].len() >= least;
    if !(0..all.len()).any(is_looked_at) {
        return all;
    }
    history.each_ask(|lock, _, call| {
        let answer = history.events.answer(call.mate);
        if !is_looked_at(lock) || !counts(history, call, answer) {
            return;
        }
        let client = history.client_of(call.process);
        let asked = all[lock].entry(client).or_insert(Outcomes {
            acquired_ns: u64::MAX,
            refused: false,
        });
        match answer {
            Some((Kind::Ok, ns)) => asked.acquired_ns = asked.acquired_ns.min(ns),
            Some(_) => asked.refused = asked.refused || is_refused(context, call),
            None => {}
        }
    });
    all
}

/// Returns whether an acquire was refused with an error that does not mean that the lock is taken, long before the end of its wait. An
/// acquire without a wait may be a try, and its error may mean a taken lock. The death of a process ends its acquire without a refusal.
fn is_refused(context: &Context<'_>, call: PackedEvent) -> bool {
    error_of(context.history, call).is_some_and(|error| {
        let (reply, wait_ns) = error;
        let soon = || reply.time - call.time < wait_ns / 2;
        !may_be_taken(error) && soon() && reply.time < context.died_ns(call.process)
    })
}

/// Returns the answer to an acquire with a wait, if it is an error of another word; and that wait.
fn error_of(history: &History, call: PackedEvent) -> Option<(PackedEvent, u64)> {
    let (reply, wait_ns) = (history.reply(call)?, history.wait_ns(call)?);
    (reply.kind != Kind::Ok && !history.says_taken(reply)).then_some((reply, wait_ns))
}

/// Returns whether such an error may mean a taken lock: an acquire gives up after its first attempt if it waits for less time than a
/// library sleeps between two, or for less than the second in which the library counts.
fn may_be_taken((reply, wait_ns): (PackedEvent, u64)) -> bool {
    wait_ns <= limits::GIVEN_UP_NS && reply.kind == Kind::Fail
}

/// The attempts of one client, in the order of its calls.
struct AttemptsInOrder {
    attempts: Vec<Wait>,
    over_ns: Vec<u64>,
}

impl AttemptsInOrder {
    fn of(context: &Context<'_>, calls: &[u32]) -> Self {
        let attempts: Vec<Wait> = calls.iter().map(|call| Wait::at(context, *call)).collect();
        Self {
            over_ns: wait::over_ns(attempts.iter().copied()),
            attempts,
        }
    }

    /// Returns all attempts that may be pending at some instant of a span, and none that ended before it.
    fn during(&self, span: &CalmSpan) -> &[Wait] {
        let from = self.over_ns.partition_point(|over_ns| *over_ns <= span.from_ns);
        let to = self.attempts.partition_point(|attempt| attempt.from_ns < span.to_ns);
        &self.attempts[from.min(to)..to]
    }

    /// Returns the spans of an interval in which the client asked: without pauses, and with an overlap of attempts only once.
    fn on_within(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut over_ns = from_ns;
        self.attempts.iter().filter_map(move |attempt| {
            let on = (attempt.from_ns.max(over_ns), attempt.to_ns.min(to_ns));
            over_ns = over_ns.max(on.1);
            (on.0 < on.1).then_some(on)
        })
    }
}

/// Returns the longest stretch, if it exceeds the bound and the time in which TCP may retransmit.
fn longest(context: &Context<'_>, attempts: &AttemptsInOrder, how: Starving) -> Option<Starved> {
    let bound_ns = bound_ns(context);
    let long = calm::spans(context).iter().flat_map(|span| {
        let at_most_ns = bound_ns.saturating_add(span.retransmission_ns);
        let lasted = move |found: &Starved| context.busy.counted_ns(found.from_ns, found.to_ns) > at_most_ns;
        let all = stretches(context, attempts.during(span), span, how);
        all.into_iter().filter(lasted)
    });
    long.max_by_key(|stretch| stretch.to_ns - stretch.from_ns)
}

/// Returns the stretches of a calm span in which a client asked all the time and got nothing, or was only refused.
fn stretches(context: &Context<'_>, attempts: &[Wait], span: &CalmSpan, how: Starving) -> Vec<Starved> {
    let history = context.history;
    let mut found: Vec<Starved> = Vec::new();
    let mut broken = true;
    for attempt in attempts {
        let call = history.event(attempt.call);
        if how == Starving::Refused && !is_refused(context, call) {
            broken |= !error_of(history, call).is_some_and(may_be_taken);
            continue;
        }
        let (from_ns, to_ns) = (attempt.from_ns.max(span.from_ns), attempt.to_ns.min(span.to_ns));
        if from_ns >= to_ns {
            continue;
        }
        match found.last_mut() {
            Some(stretch) if !broken && from_ns <= stretch.to_ns + limits::RETRY_GAP_NS => {
                stretch.to_ns = stretch.to_ns.max(to_ns);
                stretch.last = attempt.call;
            }
            _ => found.push(Starved {
                lock: 0,
                process: attempt.process,
                first: attempt.call,
                last: attempt.call,
                from_ns,
                to_ns,
                others: 0,
                how,
            }),
        }
        // a wait that is answered `ok` counts until then
        broken = attempt.kind == Kind::Ok;
    }
    found
}
