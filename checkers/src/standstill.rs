//! Overlaps that a machine which stood still explains: the harness, whose links carry the renewals, stood still, a lease ran out, and
//! its holder, on the same machine, was told a moment late. They say nothing about the lock.

use crate::context::Context;
use crate::history::Standstill;
use crate::overlaps::Overlap;

/// Why a property is not decided for such a lock.
pub(crate) const REASON: &str =
    "a lease ran out after harness had stood still, and its holder noticed no later than harness itself would have";

/// The standstill that explains an overlap: it ended at most a lease before the first holder's grant expired, and lasted at least as
/// long as both held.
pub(crate) fn explains<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Option<&'a Standstill> {
    let history = context.history;
    let grant = context.grants.of_hold(history, &overlap.first)?;
    let ended_ns = grant.revoked_ns(history).filter(|_| grant.has_expired(history))?;
    let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
    let both_ns = to_ns.saturating_sub(from_ns);
    let asked_ns = overlap.first.asked_ns(history);
    let mut of_harness = context.standstills.iter().filter(|span| span.server.is_none());
    of_harness.find(|span| {
        let during = asked_ns <= span.to_ns && span.from_ns <= to_ns;
        let lasted_ns = span.to_ns.saturating_sub(span.from_ns);
        during && ended_ns <= span.to_ns.saturating_add(context.lease_ns) && both_ns <= lasted_ns
    })
}
