//! HL003, fencing: tokens of successive grants strictly increase, and a register that checks them stops every stale
//! write and no other.
//!
//! Fencing tokens as in M. Kleppmann, "How to do distributed locking" (2016),
//! <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>.

use crate::context::Context;
use crate::finding::Verdict;
use crate::history::event::{Fenced, Kind};
use crate::history::names::{FastMap, NONE};
use crate::history::{F, Mode, PackedEvent};
use crate::limits;
use crate::tickets::{self, LockTokens, TokenBreak};

/// The decision on HL003.
#[derive(Default)]
pub(crate) struct Fencing {
    /// Not applicable to a lock that gives no tokens; inconclusive when it promises them and none came.
    pub verdict: Verdict,
    /// Holds with a token.
    pub tokens: u64,
    /// Grants whose token does not exceed an earlier one, lock by lock.
    pub breaks: Vec<TokenBreak>,
    pub writes: CheckedWrites,
    /// Without tokens: writes that a store which checks tokens would have refused.
    pub late_writes: u64,
    /// There are tokens, the lock's own, and no order of them is promised.
    pub unordered: bool,
}

/// The writes to the register that checks tokens.
#[derive(Debug, Default)]
pub(crate) struct CheckedWrites {
    /// Writes that the register checked.
    pub count: u64,
    /// Stale writes that it refused.
    pub refused_stale: u64,
    pub wrong: Vec<WrongWrite>,
}

/// A write with its token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenWrite {
    /// The position of its reply.
    pub position: u32,
    pub token: u64,
}

/// A wrong answer of the register that checks tokens.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WrongWrite {
    /// A write was accepted after one with a larger token.
    StaleAccepted {
        lock: usize,
        stale: TokenWrite,
        newer: TokenWrite,
    },
    /// The write of the only holder was refused.
    HolderRefused { lock: usize, write: TokenWrite },
}

pub(crate) fn decide(context: &Context<'_>) -> Fencing {
    let mut decided = Fencing {
        verdict: Verdict::Inconclusive,
        ..Fencing::default()
    };
    if !context.history.header.promises.orders_tokens() {
        let tokens = context.holds.iter().filter_map(|hold| hold.token(context.history));
        decided.tokens = tokens.count() as u64;
        decided.verdict = Verdict::NotApplicable;
        decided.unordered = decided.tokens > 0;
        decided.late_writes = late_writes(context);
        return decided;
    }
    for LockTokens { count, breaks } in tickets::of_locks(context) {
        decided.tokens += count;
        decided.breaks.extend(breaks);
    }
    if decided.tokens == 0 {
        // Tokens that only the server's lines have, and no client, are not judged.
        decided.breaks.clear();
        if !context.history.header.promises.tokens {
            decided.verdict = Verdict::NotApplicable;
            decided.late_writes = late_writes(context);
        }
        return decided;
    }
    // of several holders of permits, one may write with the smaller token last
    if context.model.capacity() == 1 {
        decided.writes = checked_writes(context);
    }
    decided.verdict = Verdict::of(!decided.breaks.is_empty() || !decided.writes.wrong.is_empty());
    decided
}

fn is_written(f: F, kind: Kind) -> bool {
    f == F::Write && kind == Kind::Ok
}

/// Counts the writes that were called after a later holder had written, of a lock that one client has at a time.
fn late_writes(context: &Context<'_>) -> u64 {
    let history = context.history;
    if context.model.capacity() > 1 {
        return 0;
    }
    // by lock: the replies to writes, each with the beginning of the newest hold that had written by then
    let mut newest: Vec<Vec<(u32, u64)>> = vec![Vec::new(); history.locks.len()];
    let mut late = 0;
    history.each_in_time(is_written, |lock, position, event| {
        let around = context.holds.around(lock, event.process, history.instant(event.mate));
        let Some(hold) = around else { return };
        let written = &mut newest[lock];
        let before = written.partition_point(|(at, _)| context.is_before(*at, event.mate));
        late += u64::from(before > 0 && written[before - 1].1 > hold.from);
        if written.last().is_none_or(|(_, newest)| *newest < hold.from) {
            written.push((position, hold.from));
        }
    });
    late
}

/// Judges the writes to the register that checks tokens, lock by lock, in order.
fn checked_writes(context: &Context<'_>) -> CheckedWrites {
    let history = context.history;
    let mut writes = CheckedWrites::default();
    let mut accepted: Vec<Vec<(u32, u64)>> = vec![Vec::new(); history.locks.len()];
    // by lock and process, whose own writes are in order whatever their stamps are
    let mut own: FastMap<(usize, u32), (u32, u64)> = FastMap::default();
    history.each_in_time(is_written, |lock, position, event| {
        let (Some(fenced), Some(token)) = (history.rare(event).fenced, token_of(context, event)) else {
            return;
        };
        writes.count += 1;
        // The highest token that was accepted before the call of this write.
        let before = accepted[lock].partition_point(|(at, _)| context.is_before(*at, event.mate));
        let of_all = before.checked_sub(1).map(|place| accepted[lock][place]);
        let of_its_own = own.get(&(lock, event.process)).copied();
        let highest = of_its_own.into_iter().chain(of_all).max_by_key(|(_, token)| *token);
        match fenced {
            Fenced::Accepted => {
                if let Some((other, highest)) = highest.filter(|(_, highest)| token < *highest) {
                    writes.wrong.push(WrongWrite::StaleAccepted {
                        lock,
                        stale: TokenWrite { position, token },
                        newer: TokenWrite {
                            position: other,
                            token: highest,
                        },
                    });
                } else {
                    own.insert((lock, event.process), (position, token));
                    if accepted[lock].last().is_none_or(|(_, last)| *last < token) {
                        accepted[lock].push((position, token));
                    }
                }
            }
            Fenced::Refused if is_true_holder(context, lock, event) => {
                writes.wrong.push(WrongWrite::HolderRefused {
                    lock,
                    write: TokenWrite { position, token },
                });
            }
            Fenced::Refused => writes.refused_stale += 1,
        }
    });
    writes
}

fn token_of(context: &Context<'_>, event: PackedEvent) -> Option<u64> {
    let history = context.history;
    let of_call = || history.token(history.reply(event)?);
    history.token(event).or_else(of_call)
}

/// Returns whether the writer had a certain hold alone, also by the server's lines, from call to reply.
fn is_true_holder(context: &Context<'_>, lock: usize, reply: PackedEvent) -> bool {
    let history = context.history;
    let (called, replied) = (history.instant(reply.mate), reply.time);
    let Some(hold) = context.holds.around(lock, reply.process, called) else {
        return false;
    };
    let got = hold.got;
    let alone = hold.mode == Mode::Write && !context.overlapping.contains(&got);
    let grant = context.grants.of_hold(history, hold);
    let granted = grant.is_some_and(|grant| grant.granted != NONE);
    let until_ns = replied + limits::OBSERVER_LAG_NS + context.apart_ns();
    let kept = grant.is_some_and(|grant| grant.revoked_ns(history).is_none_or(|ns| ns > until_ns));
    alone && granted && kept && hold.to > history.instant(history.event(reply.mate).mate)
}
