//! The likely cause of a stuck lock, as far as the history shows it: by the answers to its acquires, by its owner in the server's lines,
//! and by the taps' lines. Where these do not show it, the cause is not known.

use super::answers::StallAnswers;
use super::dropped::{DroppedMessage, RENEWALS, dropped_message};
use super::left::{LeftBehind, LeftBy, Suspects, left_by_ghost, left_by_release, may_be_of_another};
use super::stuck::{Stuck, StuckOwner};
use crate::calm::{self, MinorityAway};
use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::event::Wakes;
use crate::history::{F, TapTotals};
use crate::holds::{LockHold, LockLoss};

/// The taps' names of a client that waits, and of one that neither holds nor asks.
const WAITER: &str = "a waiter";
const IDLE: &str = "idle";
/// Renewals of an idle client that may belong to a hold which has just ended.
const FEW: u64 = 10;

/// The cause of a stuck lock.
#[derive(Debug, Clone)]
pub(crate) enum StuckCause<'a> {
    /// No acquire of the whole history was answered `ok`; the words of the last answer, if there is one.
    NeverWorked(Option<&'a str>),
    /// Two clients acquire locks in different orders.
    Order,
    /// A fault dropped a request of the owner.
    Dropped(DroppedMessage<'a>),
    /// All acquires were answered with errors; the last one.
    OnlyErrors(&'a str),
    /// No client acquired it while a minority of the servers was away; the words of the last answer.
    MinorityAway {
        away: MinorityAway<'a>,
        said: Option<&'a str>,
    },
    /// Acquires that are refused renew the time to live of the key that they find, with this request.
    RefusedRenew(&'a str),
    /// Clients that neither hold nor ask send this request.
    IdleRenewal(&'a str),
    /// A client left a node or key that stays.
    Left(LeftBehind<'a>),
    /// The node or key of a client that died has no expiry.
    NoExpiry,
    /// The last grant expired, and no waiter was notified.
    EndNotTold {
        ended_ns: u64,
    },
    /// The server made a client the owner, which was not notified.
    WakeUpLost,
    /// The owner asks again, and is refused because of its own node or key; `is_sure`: no pending answer may have been lost.
    OwnLeftover {
        client: u32,
        is_sure: bool,
    },
    /// Waiters did not notice that the lock is free.
    ReleaseNotNoticed,
    /// Waiters did not notice the end of the last grant, which the observer did not see.
    EndNotNoticed,
    /// Acquires were refused while the server had no owner.
    RefusedThoughFree,
    /// Acquires were not answered while the server had no owner, or with errors; the last one.
    NotAnswered(Option<&'a str>),
    NotKnown(NotKnown),
}

/// The causes that fit a history without lines of the server, or without those of that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotKnown {
    /// A node or key stays, or acquires are refused although the lock is free.
    StaysOrRefusal,
    /// A node or key stays, or waiters were not notified of its end.
    StaysOrWakeUp,
    /// The node or key of a dead holder stays, or no waiter was notified of its end.
    ExpiryOrWakeUp,
}

/// Decides the cause of a stuck lock.
pub(crate) fn cause<'a>(context: &'a Context<'_>, stuck: &Stuck) -> StuckCause<'a> {
    let history = context.history;
    if let Some(said) = never_worked(context) {
        return StuckCause::NeverWorked(said);
    }
    if matches!(stuck.owner, StuckOwner::WaitsInTurn { .. }) {
        return StuckCause::Order;
    }
    let dropped = dropped_message(context, stuck);
    if let Some(dropped) = dropped.filter(|dropped| !dropped.is_reply()) {
        return StuckCause::Dropped(dropped);
    }
    let answers = StallAnswers::of(context, stuck);
    let only_errors = answers.only_errors(history);
    if (only_errors.is_some() || matches!(stuck.owner, StuckOwner::Nobody))
        && let Some(away) = calm::minority_away(context, stuck.from_ns, stuck.to_ns)
    {
        let said = answers.last(history);
        return StuckCause::MinorityAway { away, said };
    }
    if let Some(said) = only_errors {
        return StuckCause::OnlyErrors(said);
    }
    let asked_anew = answers.asked_anew(context);
    let polls = history.header.promises.wakes == Some(Wakes::Polls);
    let is_free = matches!(stuck.owner, StuckOwner::Nobody) && stuck.is_shown && is_seen(context, stuck);
    if is_gone(context, stuck)
        && asked_anew
        && !is_free
        && let Some(cause) = renewed_by_others(context)
    {
        return cause;
    }
    match stuck.owner {
        StuckOwner::Nobody if is_free => free(context, stuck, &answers),
        StuckOwner::Nobody => StuckCause::NotKnown(match asked_anew {
            true => NotKnown::StaysOrRefusal,
            false => NotKnown::StaysOrWakeUp,
        }),
        StuckOwner::Waiting { process, .. } => {
            let client = history.client_of(process);
            let is_sure = dropped.is_some() || answers.was_refused_anew(client);
            match is_sure || polls {
                true => StuckCause::OwnLeftover { client, is_sure },
                false => StuckCause::WakeUpLost,
            }
        }
        // an acquire of that time sees the present state; of one that waits since before it is not known what it waits for
        StuckOwner::Dead { .. } | StuckOwner::Unsure { .. } if !stuck.is_shown && !asked_anew => {
            StuckCause::NotKnown(NotKnown::ExpiryOrWakeUp)
        }
        // a library may read its own memory, and the node or key may belong to a later acquire
        StuckOwner::Dead { .. } | StuckOwner::Unsure { .. }
            if !stuck.is_shown && (!polls || may_be_of_another(context, stuck)) =>
        {
            StuckCause::NotKnown(NotKnown::StaysOrRefusal)
        }
        StuckOwner::Dead { .. } if stuck.owner.has_died(history) => StuckCause::NoExpiry,
        StuckOwner::Dead { process, end, .. } => {
            let by = LeftBy::Loss(LockLoss::at(history, end));
            StuckCause::Left(LeftBehind::of(Some(history.client_of(process)), by))
        }
        StuckOwner::Unsure { process, end } => StuckCause::Left(left_by_release(history, process, end)),
        StuckOwner::Ghost { process, granted } => match left_by_ghost(context, stuck, process, granted) {
            left if left.by == LeftBy::OneOf(Suspects::DIED) => StuckCause::NoExpiry,
            left => StuckCause::Left(left),
        },
        StuckOwner::WaitsInTurn { .. } => StuckCause::Order,
    }
}

/// Returns whether the last owner is no live client.
fn is_gone(context: &Context<'_>, stuck: &Stuck) -> bool {
    match stuck.owner {
        StuckOwner::Nobody | StuckOwner::Unsure { .. } | StuckOwner::Ghost { process: None, .. } => true,
        // a client that was told of its loss lives, and may renew it itself
        _ => stuck.owner.has_died(context.history),
    }
}

/// Returns the words of the last refusal, if no client acquired any lock.
fn never_worked<'a>(context: &Context<'a>) -> Option<Option<&'a str>> {
    let history = context.history;
    if context.has_acquires() {
        return None;
    }
    let backwards = (0..history.len() as u32).rev().map(|position| history.event(position));
    let mut answers = backwards.filter(|event| event.f == F::Acquire);
    Some(answers.find_map(|event| history.error(event)))
}

/// Returns whether the observer was connected to the server for the second half of a stall: after a reconnect it shows the owner.
fn is_seen(context: &Context<'_>, stuck: &Stuck) -> bool {
    let half_ns = stuck.from_ns + (stuck.to_ns - stuck.from_ns) / 2;
    context.sight().is_whole(half_ns, stuck.to_ns)
}

/// Decides the cause for a lock that has no owner in the server's lines.
fn free<'a>(context: &'a Context<'_>, stuck: &Stuck, answers: &StallAnswers) -> StuckCause<'a> {
    let history = context.history;
    let is_later = |grant: &ServerGrant| grant.granted_ns(history).is_some_and(|ns| ns > stuck.from_ns);
    // the observer may not have seen the grant of a hold
    let is_held_later = |hold: &LockHold| history.ns(hold.from) > stuck.from_ns;
    let holds = &context.holds.by_lock[stuck.lock];
    let had_none = context.grants.of_lock(stuck.lock).iter().all(is_later) && holds.iter().all(is_held_later);
    // without a grant before, there was no end to notice
    if answers.asked_anew(context) || had_none {
        return match answers.refused {
            0 => StuckCause::NotAnswered(answers.last_error(history)),
            _ => StuckCause::RefusedThoughFree,
        };
    }
    let ended_ns = |grant: &ServerGrant| grant.revoked_ns(history);
    let mut grants = context.grants.of_lock(stuck.lock).iter().rev();
    let last = grants.find(|grant| ended_ns(grant).is_some_and(|ns| ns <= stuck.to_ns));
    let ran_out = last.filter(|grant| grant.has_expired(history));
    match ran_out.and_then(ended_ns) {
        Some(ended_ns) => StuckCause::EndNotTold { ended_ns },
        None if last.is_some_and(|grant| grant.is_out_of_sight(history)) => StuckCause::EndNotNoticed,
        None => StuckCause::ReleaseNotNoticed,
    }
}

/// Finds the renewals by which an abandoned node or key never ends: those of refused acquires, if there are many more than successful
/// acquires need; or those of clients that do not even ask.
fn renewed_by_others<'a>(context: &Context<'a>) -> Option<StuckCause<'a>> {
    let granted = context.history.counts.acquires_ok + context.history.counts.acquires_info;
    let renewal = |role: &'static str, most: u64| {
        let of_all = context.history.tap_totals();
        let mut requests = of_all.flat_map(|taps: &'a TapTotals| taps.requests.iter());
        let found = requests.find(|request| {
            request.role == role && RENEWALS.contains(&request.message.as_str()) && request.count > most
        });
        Some(found?.message.as_str())
    };
    let refused = renewal(WAITER, 2 * granted + FEW)?;
    let goes_on = renewal(IDLE, FEW).map(StuckCause::IdleRenewal);
    Some(goes_on.unwrap_or(StuckCause::RefusedRenew(refused)))
}
