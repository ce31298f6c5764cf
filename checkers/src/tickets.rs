//! The order of tokens against the order of grants, for fencing and fairness.
//!
//! Three rules, each sound by itself. *Asked after*: a client that called after another one's reply was granted later. *Server*: the lines
//! of one observer are in the order of the grants. *Ended before*: a hold that had ended was granted before one that began after, unless the
//! reply to that came so late that its grant may have run out by then; used only where the server was not watched.

use crate::context::Context;
use crate::extensions;
use crate::grants::ServerGrant;
use crate::history::event::Kind;
use crate::history::names::{FastMap, FastSet};
use crate::history::{F, History, Mode};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::model::Model;

/// A later grant whose token does not exceed that of an earlier one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenBreak {
    /// Dense.
    pub lock: usize,
    pub earlier: TokenGrant,
    pub later: TokenGrant,
}

/// A grant with its token, from a client's answer or a line of the observer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenGrant {
    pub token: u64,
    /// The position of that answer or line.
    pub position: u32,
    /// The client's hold, if it is known.
    pub hold: Option<LockHold>,
}

/// A hold and the token that came with it.
#[derive(Clone, Copy)]
struct Ticket<'a> {
    token: u64,
    hold: &'a LockHold,
}

impl TokenGrant {
    fn of(ticket: &Ticket<'_>) -> Self {
        Self {
            token: ticket.token,
            position: ticket.hold.got,
            hold: Some(*ticket.hold),
        }
    }
}

/// The tokens of one lock.
#[derive(Debug, Default)]
pub(crate) struct LockTokens {
    /// Holds with a token.
    pub count: u64,
    /// All breaks, each with another later grant, in the order of that grant's event.
    pub breaks: Vec<TokenBreak>,
}

/// Judges the tokens of each lock.
pub(crate) fn of_locks(context: &Context<'_>) -> impl Iterator<Item = LockTokens> {
    let in_order = answered_in_order(context).into_iter().enumerate();
    in_order.map(|(lock, in_order)| {
        if !in_order || is_observed(context, lock) {
            return of_lock(context, lock);
        }
        let count = context.holds.by_lock[lock].len() as u64;
        LockTokens {
            count,
            ..Default::default()
        }
    })
}

/// Returns for each lock whether every acquire that was answered `ok` came with a larger token than those before it, so that no hold of it
/// breaks the order. One pass in the order of the file is fastest, since the holds of one lock lie far apart in a large one.
fn answered_in_order(context: &Context<'_>) -> Vec<bool> {
    let history = context.history;
    let mut locks = vec![(true, None); history.locks.len()];
    let is_granted = |f, kind| f == F::Acquire && kind == Kind::Ok;
    history.each_of_locks(is_granted, |lock, position, event| {
        let (in_order, last) = &mut locks[lock];
        let answer = history
            .token(event)
            .map(|token| (history.instant_of(position, event), token));
        *in_order &= answer.is_some_and(|(instant, token)| {
            last.is_none_or(|(instant_before, token_before)| instant_before < instant && token_before < token)
        });
        *last = answer;
    });
    locks.into_iter().map(|(in_order, _)| in_order).collect()
}

/// Returns whether the observer's lines have tokens of a lock.
fn is_observed(context: &Context<'_>, lock: usize) -> bool {
    let mut grants = context.grants.of_lock(lock).iter();
    context.grants.watched().tokens && grants.any(|grant| grant.token.is_some())
}

/// Judges the tokens of one lock.
fn of_lock(context: &Context<'_>, lock: usize) -> LockTokens {
    let holds = context.holds.by_lock[lock].iter();
    let tickets = holds.filter_map(|hold| {
        let token = hold.token(context.history)?;
        Some(Ticket { token, hold })
    });
    let mut tickets: Vec<Ticket<'_>> = tickets.collect();
    let count = tickets.len() as u64;
    tickets.retain(|ticket| ticket.hold.ended != Ended::Changed);
    let observed = is_observed(context, lock);
    // If the tokens increase from hold to hold, only the server's lines can have another order.
    let is_later = |a: &Ticket<'_>, b: &Ticket<'_>| a.hold.from < b.hold.from && a.token < b.token;
    if !observed && tickets.is_sorted_by(is_later) {
        let breaks = Vec::new();
        return LockTokens { count, breaks };
    }
    let mut found = asked_after(context, &tickets);
    if one_at_a_time(&context.model) {
        found.extend(match observed {
            true => by_the_server(context, lock, &tickets),
            false => ended_before(context, &tickets),
        });
    }
    found.sort_by_key(|broken| broken.later.position);
    // Two rules may find one grant; a token that was issued again is a break each time.
    let mut seen: FastSet<u32> = FastSet::default();
    found.retain(|broken| seen.insert(broken.later.hold.map_or(broken.later.position, |hold| hold.got)));
    LockTokens { count, breaks: found }
}

/// Counts the answers that came after one with a larger token, where the order is that of the server's lines: an answer may be late, so
/// this is no violation.
pub(crate) fn answered_out_of_order(context: &Context<'_>) -> u64 {
    if !context.grants.watched().tokens || !one_at_a_time(&context.model) {
        return 0;
    }
    let mut count = 0;
    for holds in &context.holds.by_lock {
        let mut highest = 0;
        for hold in holds.iter().filter(|hold| hold.ended != Ended::Changed) {
            let Some(token) = hold.token(context.history) else {
                continue;
            };
            count += u64::from(token < highest);
            highest = highest.max(token);
        }
    }
    count
}

fn one_at_a_time(model: &Model) -> bool {
    !matches!(model, Model::ReadWrite | Model::Semaphore { .. })
}

fn asked_after(context: &Context<'_>, tickets: &[Ticket<'_>]) -> Vec<TokenBreak> {
    let history = context.history;
    let call = |ticket: &Ticket<'_>| history.instant(ticket.hold.call(history));
    // a downgraded hold begins with the call of the downgrade, and its token comes with the reply
    let reply = |ticket: &Ticket<'_>| history.instant(ticket.hold.got);
    let apart = context.apart_ns();
    let (mut by_reply, mut by_call) = (tickets.to_vec(), tickets.to_vec());
    by_reply.sort_by_key(reply);
    by_call.sort_by_key(call);
    let returned = |earlier: &Ticket<'_>, later: &Ticket<'_>| reply(earlier).saturating_add(apart) < call(later);
    not_above(context, &by_reply, &by_call, returned)
}

fn ended_before(context: &Context<'_>, tickets: &[Ticket<'_>]) -> Vec<TokenBreak> {
    let apart = context.apart_ns();
    let mut by_end = tickets.to_vec();
    by_end.sort_by_key(|ticket| ticket.hold.to);
    let ended = |earlier: &Ticket<'_>, later: &Ticket<'_>| {
        let (to, from) = (earlier.hold.to.saturating_add(apart), later.hold.from);
        // two holds of one instant have no order
        let is_moment = |ticket: &Ticket<'_>| ticket.hold.from == ticket.hold.to;
        let is_before = to < from || to == from && !(is_moment(earlier) && is_moment(later));
        is_before && earlier.hold.got != later.hold.got
    };
    // The grant of the largest token may be later than the end of a late one, and that of another one not.
    let surely = |broken: TokenBreak| {
        if !may_have_run_out(context, &broken) {
            return Some(broken);
        }
        let (token, hold) = (broken.later.token, broken.later.hold?);
        let later = Ticket { token, hold: &hold };
        let before = by_end.iter().rev();
        let before = before.filter(|earlier| ended(earlier, &later) && is_low(context.history, earlier, &later));
        let mut breaks = before.map(|earlier| TokenBreak {
            earlier: TokenGrant::of(earlier),
            ..broken
        });
        breaks.find(|broken| !may_have_run_out(context, broken))
    };
    let found = not_above(context, &by_end, tickets, ended);
    found.into_iter().filter_map(surely).collect()
}

/// Returns whether the grant of the later hold may have run out before the earlier one began, so that only its answer came later.
fn may_have_run_out(context: &Context<'_>, broken: &TokenBreak) -> bool {
    let (history, TokenBreak { earlier, later, .. }) = (context.history, broken);
    let Some((next, own)) = earlier.hold.zip(later.hold) else {
        return false;
    };
    let has_lease = history.header.promises.lease != Some(false);
    let waited_ns = history.ns(next.from).saturating_sub(own.asked_ns(history));
    let lasted_ns = context.least_lease_ns() / 100 * limits::LEASE_SHARE_PERCENT;
    later.token < earlier.token && has_lease && waited_ns >= lasted_ns
}

/// Returns whether the token of a later hold is not above that of an earlier one. Two may share one: readers that of an epoch, which a
/// writer's grant ends, since neither has writes to refuse; and a process that gave up in doubt, and extended the same grant again.
fn is_low(history: &History, earlier: &Ticket<'_>, later: &Ticket<'_>) -> bool {
    let (one, other) = (earlier.hold, later.hold);
    let are_readers = one.mode == Mode::Read && other.mode == Mode::Read;
    let may_be_one = || are_readers || one.process == other.process && extensions::began_again(history, other);
    later.token < earlier.token || later.token == earlier.token && !may_be_one()
}

/// Finds the grants whose token is not above that of an earlier grant. Both lists are in the order in which `is_before` becomes true.
fn not_above(
    context: &Context<'_>,
    earlier: &[Ticket<'_>],
    later: &[Ticket<'_>],
    is_before: impl Fn(&Ticket<'_>, &Ticket<'_>) -> bool,
) -> Vec<TokenBreak> {
    let mut found = Vec::new();
    let mut highest: Option<&Ticket<'_>> = None;
    let mut before = earlier.iter().peekable();
    for later in later {
        while let Some(earlier) = before.next_if(|earlier| is_before(earlier, later)) {
            if highest.is_none_or(|highest| earlier.token > highest.token) {
                highest = Some(earlier);
            }
        }
        let is_other = |earlier: &&Ticket<'_>| earlier.hold.got != later.hold.got;
        let is_low = |earlier: &&Ticket<'_>| is_low(context.history, earlier, later);
        if let Some(earlier) = highest.filter(|earlier| is_low(earlier) && is_other(earlier)) {
            found.push(TokenBreak {
                lock: later.hold.lock(context.history),
                earlier: TokenGrant::of(earlier),
                later: TokenGrant::of(later),
            });
        }
    }
    found
}

fn by_the_server(context: &Context<'_>, lock: usize, tickets: &[Ticket<'_>]) -> Vec<TokenBreak> {
    let by_token: FastMap<u64, &LockHold> = tickets.iter().map(|ticket| (ticket.token, ticket.hold)).collect();
    let side = |grant: &ServerGrant, token: u64| TokenGrant {
        token,
        position: grant.granted,
        hold: by_token.get(&token).map(|hold| **hold),
    };
    let mut found = Vec::new();
    let mut highest: Option<(&ServerGrant, u64)> = None;
    let grants = context.grants.of_lock(lock).iter();
    for grant in grants.filter(|grant| grant.granted != u32::MAX) {
        let Some(token) = grant.token else { continue };
        match highest {
            // The observer lost sight of an owner and saw it again.
            Some((last, highest)) if token == highest && last.owner == grant.owner => {}
            Some((last, highest)) if token <= highest => {
                found.push(TokenBreak {
                    lock,
                    earlier: side(last, highest),
                    later: side(grant, token),
                });
            }
            _ => highest = Some((grant, token)),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizability::random::random;
    use crate::options::Options;

    #[test]
    fn one_pass_over_all_locks_finds_what_each_lock_shows() {
        let (options, mut in_order, mut broken) = (Options::default(), 0, 0);
        for seed in 1..=5_000 {
            let history = random(seed, Model::Fenced);
            let context = Context::new(&history, &options);
            let each: Vec<LockTokens> = (0..history.locks.len()).map(|lock| of_lock(&context, lock)).collect();
            let all: Vec<LockTokens> = of_locks(&context).collect();
            assert_eq!(format!("{all:?}"), format!("{each:?}"), "seed {seed}");
            in_order += answered_in_order(&context)
                .into_iter()
                .filter(|in_order| *in_order)
                .count();
            broken += each.iter().filter(|lock| !lock.breaks.is_empty()).count();
        }
        assert!(in_order > 100 && broken > 100, "{in_order} in order, {broken} broken");
    }
}
