//! Overlaps that a standstill of the machine explains: the harness, whose links carry the renewals, stood still, a lease ended, and its
//! holder, on the same machine, was told a moment late. They are no evidence about the lock.

use crate::grants::Grants;
use crate::history::{History, Standstill};
use crate::overlaps::Overlap;

/// The reason why a property of such a lock is not decided.
pub(crate) const REASON: &str =
    "a lease ran out after harness was stopped for a while, and the overlap was no longer than that stop";

/// Returns whether a standstill explains an overlap: it ended at most a lease before the first holder's grant expired, and was no shorter
/// than the overlap.
pub(crate) fn explains(
    standstills: &[Standstill],
    overlap: &Overlap,
    (history, grants): (&History, &Grants),
    lease_ns: u64,
) -> bool {
    let grant = grants.of_hold(history, &overlap.first);
    let expired = grant.filter(|grant| grant.has_expired(history));
    let Some(ended_ns) = expired.and_then(|grant| grant.revoked_ns(history)) else {
        return false;
    };
    let (from_ns, to_ns) = (history.ns(overlap.from()), history.ns(overlap.to()));
    let both_ns = to_ns.saturating_sub(from_ns);
    let asked_ns = overlap.first.asked_ns(history);
    let mut of_harness = standstills.iter().filter(|span| span.server.is_none());
    of_harness.any(|span| {
        let during = asked_ns <= span.to_ns && span.from_ns <= to_ns;
        let lasted_ns = span.to_ns.saturating_sub(span.from_ns);
        during && ended_ns <= span.to_ns.saturating_add(lease_ns) && both_ns <= lasted_ns
    })
}
