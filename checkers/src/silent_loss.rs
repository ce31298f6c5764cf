//! HL009, silent loss: the server ended a grant, and the client library signalled no loss to its user in time.

use crate::context::Context;
use crate::finding::Verdict;
use crate::grants::ServerGrant;
use crate::history::Window;
use crate::holds::LockHold;
use crate::limits;

/// A hold that outlived its grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Silence<'a> {
    pub hold: &'a LockHold,
    pub grant: &'a ServerGrant,
    /// The time at which the client could have known: the removal, or the end of its pause.
    pub since_ns: u64,
    /// The end of the hold.
    pub to_ns: u64,
}

impl Silence<'_> {
    /// Returns its length in nanoseconds.
    pub(crate) fn length_ns(&self) -> u64 {
        self.to_ns - self.since_ns
    }
}

/// The decision on HL009.
#[derive(Default)]
pub(crate) struct SilentLosses<'a> {
    /// Not applicable when the server was not watched, inconclusive without an acquire.
    pub verdict: Verdict,
    /// The longest time for which a hold may outlive its grant, in nanoseconds.
    pub bound_ns: u64,
    /// Holds that outlived their grants.
    pub taken: u64,
    /// The longest of them, in nanoseconds.
    pub longest_ns: u64,
    /// Those beyond the bound, the longest first.
    pub silences: Vec<Silence<'a>>,
}

pub(crate) fn decide<'a>(context: &'a Context<'_>) -> SilentLosses<'a> {
    let mut decided = SilentLosses {
        bound_ns: context.bounds.silent_ms.map_or(context.longest_lease_ns(), limits::ns),
        ..SilentLosses::default()
    };
    if context.not_watched.is_some() {
        return decided;
    }
    if !context.has_acquires() {
        decided.verdict = Verdict::Inconclusive;
        return decided;
    }
    for silence in context.holds.iter().filter_map(|hold| silence(context, hold)) {
        decided.taken += 1;
        decided.longest_ns = decided.longest_ns.max(silence.length_ns());
        let counted_ns = context.busy.counted_ns(silence.since_ns, silence.to_ns);
        if counted_ns > decided.bound_ns.saturating_add(context.inexact_ns()) {
            decided.silences.push(silence);
        }
    }
    decided
        .silences
        .sort_by_key(|silence| std::cmp::Reverse(silence.length_ns()));
    decided.verdict = Verdict::of(!decided.silences.is_empty());
    decided
}

/// Returns the time for which a hold outlived its grant, if it did.
fn silence<'a>(context: &'a Context<'_>, hold: &'a LockHold) -> Option<Silence<'a>> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold)?;
    let mut revoked = grant.seen_end_ns(history)?;
    if may_have_lasted(context, grant, revoked) {
        return None;
    }
    if context.grants.token_of(context.history, hold).is_none() {
        // it is not certain which of its owner's grants it was; it was lost with the last of them
        for other in context.grants.candidates(history, hold) {
            revoked = revoked.max(other.seen_end_ns(history)?);
        }
    }
    let (from, to_ns) = (history.ns(hold.from), history.ns(hold.to));
    let mut since_ns = revoked.max(from);
    if to_ns <= since_ns || hold.is_empty() {
        return None;
    }
    // A stopped process can receive nothing: its time begins when it is resumed.
    let client = history.client_of(hold.process);
    if let Some(went_on) = context.stopped_until(client, from, to_ns) {
        since_ns = since_ns.max(went_on);
    }
    // the harness reads messages of a standstill after it
    since_ns = context.harness_went_on(since_ns, to_ns).fold(since_ns, u64::max);
    (to_ns > since_ns).then_some(Silence {
        hold,
        grant,
        since_ns,
        to_ns,
    })
}

/// Returns whether a grant may have lasted beyond its end: that has no reason, the observer saw nothing from then on, and no fault is known to
/// be on a server, which may end each connection of a server that keeps its locks.
fn may_have_lasted(context: &Context<'_>, grant: &ServerGrant, ended_ns: u64) -> bool {
    let is_seen = grant.cause(context.history).is_some() || context.sight().is_whole(ended_ns, ended_ns);
    let near_ns = ended_ns.saturating_sub(limits::OBSERVER_LAG_NS);
    !is_seen && context.windows_in(near_ns, ended_ns).all(Window::names_no_server)
}
