//! Leftovers of a client on the server, and their origin, by the answers to its acquires and releases of the lock.

use std::collections::BTreeSet;

use super::stuck::{Stuck, StuckOwner};
use super::waits::Stall;
use crate::context::Context;
use crate::history::event::{Kind, Wakes};
use crate::history::names::NONE;
use crate::history::{F, History};
use crate::holds::{Ended, LockLoss};
use crate::limits;
use crate::wait::Wait;

/// A node or key that a client left on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftBehind<'a> {
    /// The client, if it is known.
    pub client: Option<u32>,
    pub by: LeftBy,
    /// The answer to the client, in words, if it was an error.
    pub said: Option<&'a str>,
}

impl LeftBehind<'_> {
    /// Creates one without an answer in words.
    pub(super) fn of(client: Option<u32>, by: LeftBy) -> Self {
        let said = None;
        Self { client, by, said }
    }
}

/// The origin of a leftover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftBy {
    /// An acquire that was answered `fail`.
    GaveUp,
    /// An acquire with an unknown outcome.
    Unanswered,
    /// An acquire of one of these two kinds.
    Acquire,
    /// One of these, at least one of which is no such acquire.
    OneOf(Suspects),
    /// A release that was answered `ok`.
    ReleaseOk,
    /// A release that was refused, or whose outcome is unknown.
    ReleaseFailed,
    /// It had ended with a hold that was released, and exists again.
    Again,
    /// A client that lost its lock, and did not remove its node or key.
    Loss(LockLoss),
    NotKnown,
}

/// The possible origins of a node or key that no client names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspects {
    /// An acquire that was refused, or whose reply was lost.
    pub ended: bool,
    /// A client that died in its acquire.
    pub died: bool,
    /// A pending acquire of a live client, which may be the owner without knowing it.
    pub waits: bool,
}

impl Suspects {
    /// Only clients that died.
    pub(super) const DIED: Self = Self {
        ended: false,
        died: true,
        waits: false,
    };
}

/// Returns the possible origins of the owner that the server shows since a grant, among acquires that were called by then; and the
/// processes that died in their acquires.
pub(super) fn suspects(context: &Context<'_>, lock: usize, granted_ns: u64) -> (Suspects, BTreeSet<u32>) {
    let history = context.history;
    let since_ns = near_ns(context, granted_ns);
    let (mut ended, mut waits, mut killed) = (false, false, BTreeSet::new());
    for ask in asks_before(context, lock, granted_ns) {
        let died_ns = context.died_ns(ask.process);
        match ask.answer() {
            _ if ask.kind == Kind::Ok => {}
            Some(_) if ask.to_ns < died_ns => {
                ended |= ask.to_ns >= since_ns && may_leave_something(history, &ask);
            }
            // a live client could have been answered
            _ if died_ns > granted_ns + limits::OBSERVER_LAG_NS => waits = true,
            _ if died_ns >= since_ns => {
                killed.insert(ask.process);
            }
            _ => {}
        }
    }
    let died = !killed.is_empty();
    (Suspects { ended, died, waits }, killed)
}

/// Returns whether an acquire that was answered may have left a node or key: a place in a queue, or the effect of requests before an error.
/// A polling acquire that was answered that the lock is taken has left nothing.
fn may_leave_something(history: &History, ask: &Wait) -> bool {
    let is_taken = ask
        .answer()
        .is_some_and(|answer| history.says_taken(history.event(answer)));
    ask.kind != Kind::Fail || !is_taken || history.header.promises.wakes != Some(Wakes::Polls)
}

/// Returns the leftover of the holder that called its release at a position.
pub(super) fn left_by_release(history: &History, process: u32, call: u32) -> LeftBehind<'_> {
    let reply = history.reply(history.event(call));
    let is_ok = reply.is_some_and(|reply| reply.is_ok(F::Release));
    LeftBehind {
        client: Some(history.client_of(process)),
        by: match is_ok {
            true => LeftBy::ReleaseOk,
            false => LeftBy::ReleaseFailed,
        },
        said: reply.and_then(|reply| history.error(reply)),
    }
}

/// Returns the origin of a node or key that the server shows as the owner since a grant at a position, and that no client holds. `process`:
/// of its client, if it is known.
pub(super) fn left_by_ghost<'a>(
    context: &'a Context<'_>,
    stuck: &Stuck,
    process: Option<u32>,
    granted: u32,
) -> LeftBehind<'a> {
    let history = context.history;
    let granted_ns = history.event(granted).time;
    let asks = asks_before(context, stuck.lock, granted_ns);
    let (suspects, _) = suspects(context, stuck.lock, granted_ns);
    if process.is_none() && (suspects.died || suspects.waits) {
        return LeftBehind::of(None, LeftBy::OneOf(suspects));
    }
    let client = process.map(|process| history.client_of(process));
    let Some(client) = client.or_else(|| only_client(context, &asks, granted_ns)) else {
        // if answers name the server's owners, an owner without an answer belongs to an acquire that was not answered `ok`
        let is_named = context.not_watched.is_none() && context.grants.watched().owners;
        return LeftBehind::of(None, if is_named { LeftBy::Acquire } else { LeftBy::NotKnown });
    };
    let own = asks.iter().filter(|ask| history.client_of(ask.process) == client);
    // only acquires since its last hold, the end of which removed earlier leftovers
    let own: Vec<&Wait> = own.collect();
    let last_ok = own.iter().rposition(|ask| ask.kind == Kind::Ok);
    let later = &own[last_ok.map_or(0, |place| place + 1)..];
    // an acquire that was refused after the grant would have been told of its own grant
    let by_then_ns = granted_ns.saturating_add(limits::OBSERVER_LAG_NS);
    let gave_up = |ask: &&&Wait| ask.kind == Kind::Fail && ask.to_ns <= by_then_ns;
    let unanswered = |ask: &&&Wait| ask.kind == Kind::Info;
    let last = |is_one: &dyn Fn(&&&Wait) -> bool| later.iter().rev().find(is_one).copied();
    let (by, ask) = match (last(&gave_up), last(&unanswered)) {
        (Some(ask), Some(_)) => (LeftBy::Acquire, ask),
        (Some(ask), None) => (LeftBy::GaveUp, ask),
        (None, Some(ask)) => (LeftBy::Unanswered, ask),
        (None, None) => match later.last() {
            Some(ask) => (LeftBy::GaveUp, *ask),
            None => {
                let held = last_ok.and_then(|place| own[place].answer());
                let held = held.and_then(|got| after_hold(context, stuck.lock, got, granted));
                return held.unwrap_or(LeftBehind::of(Some(client), LeftBy::NotKnown));
            }
        },
    };
    LeftBehind {
        client: Some(client),
        by,
        said: ask.answer().and_then(|answer| history.error(history.event(answer))),
    }
}

/// Returns whether an acquire of the lock ended without an outcome during a stall, or less than a lease before.
pub(super) fn was_cut_off(context: &Context<'_>, stall: &Stall, lock: usize) -> bool {
    let near = stall.from_ns.saturating_sub(context.longest_lease_ns())..=stall.to_ns;
    any_without_outcome(context, lock, |ask| near.contains(&ask.to_ns))
}

/// Returns whether the leftover may belong to an acquire of another process than the last holder's: one with an unknown outcome that ended
/// after that hold and was called before the lock was stuck.
pub(super) fn may_be_of_another(context: &Context<'_>, stuck: &Stuck) -> bool {
    let (StuckOwner::Dead { process, end, .. } | StuckOwner::Unsure { process, end }) = stuck.owner else {
        return false;
    };
    let ended_ns = context.history.event(end).time;
    any_without_outcome(context, stuck.lock, |ask| {
        ask.process != process && ask.from_ns <= stuck.from_ns && ask.to_ns >= ended_ns
    })
}

/// Returns whether an acquire of a lock satisfies a predicate, among those with an unknown outcome that ended before the history did.
fn any_without_outcome(context: &Context<'_>, lock: usize, is_one: impl Fn(Wait) -> bool) -> bool {
    let is_over = |ask: &Wait| ask.answer().is_some() || context.died_ns(ask.process) < u64::MAX;
    let mut unknown = context.waits_for(lock).filter(|ask| ask.kind == Kind::Info);
    unknown.any(|ask| is_over(&ask) && is_one(ask))
}

/// Returns the leftover of the hold that began with this reply, if the server shows an owner since a grant at a position.
fn after_hold<'a>(context: &'a Context<'_>, lock: usize, got: u32, granted: u32) -> Option<LeftBehind<'a>> {
    let history = context.history;
    let mut holds = context.holds.by_lock[lock].iter();
    let hold = holds.find(|hold| hold.got == got).filter(|hold| hold.end != NONE)?;
    if history.event(hold.end).is_call(F::Release) {
        let left = left_by_release(history, hold.process, hold.end);
        let own = context.grants.of_hold(history, hold);
        let has_ended = own.is_some_and(|own| {
            let since_release = own.seen_end_ns(history).is_some_and(|ns| ns >= history.ns(hold.to));
            since_release && own.revoked < granted
        });
        let by = if has_ended { LeftBy::Again } else { left.by };
        return Some(LeftBehind { by, ..left });
    }
    let client = history.client_of(hold.process);
    (hold.ended == Ended::Lost).then(|| LeftBehind::of(Some(client), LeftBy::Loss(LockLoss::at(history, hold.end))))
}

/// Returns the acquires of a lock that were called before the line of a grant, which comes late and never early.
fn asks_before(context: &Context<'_>, lock: usize, granted_ns: u64) -> Vec<Wait> {
    let asks = context.waits_for(lock);
    asks.filter(|ask| ask.from_ns <= granted_ns).collect()
}

/// Returns the earliest end of an acquire that may have left the owner which the server shows since a grant.
fn near_ns(context: &Context<'_>, granted_ns: u64) -> u64 {
    granted_ns.saturating_sub(context.lease_ns + limits::AFTERMATH_NS)
}

/// Returns the only client whose acquire may have left the owner that the server shows since a grant: by an acquire with an unknown
/// outcome, since its request may arrive late, or else by one that was refused.
fn only_client(context: &Context<'_>, asks: &[Wait], granted_ns: u64) -> Option<u32> {
    let history = context.history;
    let since_ns = near_ns(context, granted_ns);
    let answered = |kind: Kind| {
        let near = asks
            .iter()
            .filter(|ask| ask.kind == kind && ask.answer().is_some() && ask.to_ns >= since_ns);
        let clients = near.map(|ask| history.client_of(ask.process));
        clients.collect::<BTreeSet<u32>>()
    };
    let mut sorts = [answered(Kind::Info), answered(Kind::Fail)].into_iter();
    let clients = sorts.find(|clients| !clients.is_empty())?;
    clients.first().copied().filter(|_| clients.len() == 1)
}
