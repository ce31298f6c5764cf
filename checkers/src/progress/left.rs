//! What a client left on the server, and how: by what was answered to its acquires and releases of the lock.

use std::collections::BTreeSet;

use super::stuck::Stuck;
use super::waits::Stall;
use crate::context::Context;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::history::{F, History, PackedEvent};
use crate::limits;

/// A node or key that a client left on the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeftBehind<'a> {
    /// Whose it is, where that is known.
    pub client: Option<u32>,
    pub by: LeftBy,
    /// What its client was answered, in words, if it was an error.
    pub said: Option<&'a str>,
}

/// How a client left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftBy {
    /// By an acquire that was answered `fail`.
    GaveUp,
    /// By an acquire whose outcome is not known.
    Unanswered,
    /// By an acquire of one of these two kinds.
    Acquire,
    /// By a release that was answered `ok`.
    ReleaseOk,
    /// By a release that was refused, or whose outcome is not known.
    ReleaseFailed,
    /// It was told that it had lost the lock, and did not remove what was its own.
    Loss,
    NotKnown,
}

/// What the last holder left that called its release at a position.
pub(super) fn left_by_release(history: &History, process: u32, call: u32) -> LeftBehind<'_> {
    let reply = history.reply(history.event(call));
    let is_ok = reply.is_some_and(|reply| reply.is_ok(F::Release));
    LeftBehind {
        client: Some(history.client_of(process)),
        by: if is_ok {
            LeftBy::ReleaseOk
        } else {
            LeftBy::ReleaseFailed
        },
        said: reply.and_then(|reply| history.error(reply)),
    }
}

/// How a node or key was left that the server shows as the owner since a grant at a position, and that nobody holds. `process`: of its client,
/// where that is known.
pub(super) fn left_by_ghost<'a>(
    context: &'a Context<'_>,
    stuck: &Stuck,
    process: Option<u32>,
    granted: u32,
) -> LeftBehind<'a> {
    let history = context.history;
    let granted_ns = history.event(granted).time;
    let asks = asks_before(history, stuck.lock, granted_ns);
    let client = process.map(|process| history.client_of(process));
    let client = client.or_else(|| only_client(context, &asks, granted_ns));
    let not_known = LeftBehind {
        client,
        by: LeftBy::NotKnown,
        said: None,
    };
    let own = client.map(|client| {
        asks.iter()
            .filter(move |ask| history.client_of(ask.call.process) == client)
    });
    let Some(own) = own else {
        // where answers name the owners of the server, one that none of them names is of an acquire that was not answered `ok`
        let by = match context.not_watched {
            None if context.grants.watched().owners => LeftBy::Acquire,
            _ => LeftBy::NotKnown,
        };
        return LeftBehind { by, ..not_known };
    };
    // since its last hold, which ended what came before
    let own: Vec<&AskBefore> = own.collect();
    let last_ok = own.iter().rposition(|ask| ask.kind == Kind::Ok);
    let later = &own[last_ok.map_or(0, |place| place + 1)..];
    let said = |ask: &AskBefore| history.error(ask.reply?);
    // one that was refused later than the grant came would have been told of a grant of its own
    let by_then_ns = granted_ns.saturating_add(limits::OBSERVER_LAG_NS);
    let gave_up = |ask: &&&AskBefore| ask.kind == Kind::Fail && ask.reply.is_some_and(|reply| reply.time <= by_then_ns);
    let unanswered = |ask: &&&AskBefore| ask.kind == Kind::Info;
    let last = |is_one: &dyn Fn(&&&AskBefore) -> bool| later.iter().rev().find(is_one).copied();
    let (by, ask) = match (last(&gave_up), last(&unanswered)) {
        (Some(ask), Some(_)) => (LeftBy::Acquire, ask),
        (Some(ask), None) => (LeftBy::GaveUp, ask),
        (None, Some(ask)) => (LeftBy::Unanswered, ask),
        (None, None) => match later.last() {
            Some(ask) => (LeftBy::GaveUp, *ask),
            None => {
                let held = last_ok.and_then(|place| own[place].reply_position());
                return held.map_or(not_known, |got| after_hold(context, stuck, got).unwrap_or(not_known));
            }
        },
    };
    LeftBehind {
        client,
        by,
        said: said(ask),
    }
}

/// Whether an acquire of the lock ended without an outcome during a stall, or less than a lease before.
pub(super) fn was_cut_off(context: &Context<'_>, stall: &Stall, lock: usize) -> bool {
    let history = context.history;
    let near = stall.from_ns.saturating_sub(context.longest_lease_ns())..=stall.to_ns;
    let died = history.deaths();
    let mut was_cut_off = false;
    history.events.each_call(F::Acquire, |_, call| {
        let ended_ns = match history.events.answer(call.mate) {
            Some((Kind::Info, ns)) => ns,
            Some(_) => return,
            None => died[call.process as usize],
        };
        was_cut_off |= call.lock == history.locks[lock] && near.contains(&ended_ns);
    });
    was_cut_off
}

/// How the hold ended that began with this reply.
fn after_hold<'a>(context: &'a Context<'_>, stuck: &Stuck, got: u32) -> Option<LeftBehind<'a>> {
    let history = context.history;
    let mut holds = context.holds.by_lock[stuck.lock].iter();
    let hold = holds.find(|hold| hold.got == got).filter(|hold| hold.end != NONE)?;
    if history.event(hold.end).is_call(F::Release) {
        return Some(left_by_release(history, hold.process, hold.end));
    }
    (history.event(hold.end).f == F::Lost).then(|| LeftBehind {
        client: Some(history.client_of(hold.process)),
        by: LeftBy::Loss,
        said: None,
    })
}

/// An acquire, and how it was answered: without an answer, its outcome is not known.
struct AskBefore {
    call: PackedEvent,
    reply: Option<PackedEvent>,
    kind: Kind,
}

impl AskBefore {
    /// The position of the answer.
    fn reply_position(&self) -> Option<u32> {
        self.reply.map(|_| self.call.mate)
    }
}

/// The acquires of a lock that were called before a grant was shown, whose line comes late and never early.
fn asks_before(history: &History, lock: usize, granted_ns: u64) -> Vec<AskBefore> {
    let mut asks = Vec::new();
    history.events.each_call(F::Acquire, |_, call| {
        if call.lock == history.locks[lock] && call.time <= granted_ns {
            let reply = history.reply(call);
            let kind = reply.map_or(Kind::Info, |reply| reply.kind);
            asks.push(AskBefore { call, reply, kind });
        }
    });
    asks
}

/// The one client of which an acquire may have left what the server shows since a grant: one whose outcome is not known, since its request may
/// arrive late; else one that gave up; else one without an answer.
fn only_client(context: &Context<'_>, asks: &[AskBefore], granted_ns: u64) -> Option<u32> {
    let history = context.history;
    let since_ns = granted_ns.saturating_sub(context.lease_ns + limits::AFTERMATH_NS);
    let suspects = |is_one: &dyn Fn(&AskBefore) -> bool| {
        let near = asks
            .iter()
            .filter(|ask| ask.reply.is_none_or(|reply| reply.time >= since_ns));
        let clients = near
            .filter(|ask| is_one(ask))
            .map(|ask| history.client_of(ask.call.process));
        clients.collect::<BTreeSet<u32>>()
    };
    let answered = |kind| suspects(&|ask: &AskBefore| ask.reply.is_some() && ask.kind == kind);
    let sorts = [
        answered(Kind::Info),
        answered(Kind::Fail),
        suspects(&|ask: &AskBefore| ask.reply.is_none()),
    ];
    let clients = sorts.into_iter().find(|clients| !clients.is_empty())?;
    clients.first().copied().filter(|_| clients.len() == 1)
}
