//! The likely cause of an overlap, as far as the history shows it: by the faults on the first holder until its lease ended, and by the end
//! of its grant in the server's lines.

use std::iter;

use super::late_answers::{LateAnswer, answered_too_late, counted_from_the_answer, told_when_over};
use super::{OverlapClass, beyond_permits, ended_before, leased_after_ns};
use crate::calm;
use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::names::NONE;
use crate::history::{F, MessageMatch, PackedEvent, RevokeCause, Window};
use crate::holds::LockHold;
use crate::limits;
use crate::overlaps::Overlap;

/// Faults that end connections, and the name of their counter.
const CUTS: [&str; 5] = ["reset", "flaky", "forget-idle", "drop-", "partition"];
const RESETS: &str = "resets";
/// The name of the counter of files that lost data with the power of their server.
const FILES_SET_BACK: &str = "files_set_back";
/// Stores some of whose locks live as long as their connection, and the requests for these locks in the taps' lines.
const OF_CONNECTIONS: [&str; 2] = ["postgres", "mariadb"];
const ASKS_FOR_ONE: [&str; 3] = ["advisory_lock", "advisory_xact_lock", "GET_LOCK"];

/// A lease that ended early: the time that it lasted, and its length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortLease {
    pub lasted_ns: u64,
    pub lease_ms: u64,
}

impl ShortLease {
    /// Returns a lease that ended although, by its recorded length, it should have lasted.
    fn of(context: &Context<'_>, from_ns: u64, ended_ns: u64) -> Option<Self> {
        let lease_ms = context.history.header.lease_ms?;
        let lasted_ns = ended_ns.saturating_sub(from_ns);
        (!context.may_be_over(lasted_ns)).then_some(Self { lasted_ns, lease_ms })
    }
}

/// The cause of an overlap.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OverlapCause<'a> {
    /// The cause that its class implies.
    OfClass(OverlapClass),
    /// All servers restarted without the grant. `may_be_over`: so late that its lease may have ended in the meantime.
    Forgotten { window: &'a Window, may_be_over: bool },
    /// A replica without the grant took over.
    Failover,
    /// The wall clock of a server, by which it counts a time to live, was stepped.
    ServerClock(&'a Window),
    /// The wall clock of this client, by which it judges leases, was stepped.
    ClientClock { client: u32, window: &'a Window },
    /// An acquire was answered after the end of its lease.
    AnsweredTooLate(LateAnswer),
    /// The first's connection ended, and its lock with it, long before its lease.
    ConnectionEnded(&'a Window),
    /// The server ended the first's grant, which had no lease.
    SessionEnded,
    /// The first's grant, which had no lease, ended on the server for a reason that the history does not have.
    EndedUnexplained,
    /// A request removed the grant that early.
    RemovedEarly(ShortLease),
    /// The server ended the grant that early.
    EndedEarly(ShortLease),
    /// The grant ended that soon after the call of an extension that was answered `ok`.
    ExtendedInVain(ShortLease),
    /// The first was stopped when its lease ended, or when the second got the lock.
    StoodStill,
    /// A fault delayed or dropped this message.
    MessageKept(&'a MessageMatch),
    /// The first was answered so late after its grant, and held the lock for less than a lease after the answer.
    CountedFromTheAnswer(LateAnswer),
    /// A fault was on the first when its lease ended, and its hold continued.
    CutOff(&'a Window),
    /// No fault was on the first, and its hold continued after its lease.
    PastItsLease,
    /// The server's grants are not known. `may_be_over`: the lease is renewed, and the hold is longer than a lease.
    NotKnown { may_be_over: bool },
}

/// Decides the cause of an overlap of that class.
pub(crate) fn cause<'a>(context: &'a Context<'_>, class: OverlapClass, overlap: &Overlap) -> OverlapCause<'a> {
    let history = context.history;
    let (first, from_ns) = (&overlap.first, history.ns(overlap.from()));
    let by_time = matches!(
        class,
        OverlapClass::StaleHolder | OverlapClass::ToldTwice | OverlapClass::GrantedTwice | OverlapClass::TooManyPermits
    );
    let clock =
        || stepped_client(context, overlap).map(|(client, window)| OverlapCause::ClientClock { client, window });
    let late = |is_late: fn(&Context<'_>, &LockHold) -> Option<LateAnswer>| {
        let mut both = [&overlap.second, first].into_iter();
        let late = both.find_map(|hold| is_late(context, hold));
        late.map(OverlapCause::AnsweredTooLate)
    };
    if class == OverlapClass::ToldWithoutGrant
        && let Some(late) = late(told_when_over)
    {
        return late;
    }
    if !by_time {
        let overwritten = class == OverlapClass::Overwritten;
        let clock = clock().filter(|_| overwritten);
        return clock.unwrap_or(OverlapCause::OfClass(class));
    }
    if let Some(window) = server_that_forgot(context, first, from_ns).filter(|_| class != OverlapClass::TooManyPermits)
    {
        // however late the last renewal was
        let away_ns = from_ns.saturating_sub(window.start_ns);
        let may_be_over = away_ns >= context.surely_left_ns();
        return OverlapCause::Forgotten { window, may_be_over };
    }
    if let Some(late) = late(answered_too_late) {
        return late;
    }
    let at_the_end = end_of_lease(context, overlap);
    if let Some(clock) = clock().filter(|_| at_the_end.is_none()) {
        return clock;
    }
    match class {
        OverlapClass::StaleHolder => stale(context, overlap, at_the_end),
        OverlapClass::ToldTwice => match ended_connection(context, overlap) {
            Some(window) => OverlapCause::ConnectionEnded(window),
            None if context.not_watched.is_some() => OverlapCause::NotKnown { may_be_over: false },
            None => OverlapCause::OfClass(class),
        },
        OverlapClass::TooManyPermits => stale_permits(context, overlap).unwrap_or(OverlapCause::OfClass(class)),
        _ => OverlapCause::OfClass(class),
    }
}

/// Returns the grant of a hold; or, if its end was not shown, the last grant of its owner before a time: that is the same grant.
pub(crate) fn shown_last<'a>(context: &'a Context<'_>, hold: &LockHold, until_ns: u64) -> Option<&'a ServerGrant> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold)?;
    let is_told = grant
        .cause(history)
        .is_some_and(|cause| cause != RevokeCause::OutOfSight);
    if is_told || grant.revoked == NONE {
        return Some(grant);
    }
    let is_again = |other: &&ServerGrant| {
        let ns = other.granted_ns(history);
        other.granted > grant.revoked && ns.is_some_and(|ns| ns <= until_ns)
    };
    let own = context.grants.of_owner(history, hold);
    own.filter(is_again).last().or(Some(grant))
}

/// Decides the cause of a hold that outlived its grant: by the fault on the holder, if any, and by the end of the grant.
fn stale<'a>(context: &'a Context<'_>, overlap: &Overlap, at_the_end: Option<&'a Window>) -> OverlapCause<'a> {
    let history = context.history;
    let (first, from_ns) = (&overlap.first, history.ns(overlap.from()));
    let grant = shown_last(context, first, from_ns);
    let cause = grant.and_then(|grant| grant.cause(history));
    if cause == Some(RevokeCause::Failover) {
        return OverlapCause::Failover;
    }
    if has_no_lease(context) {
        return without_lease(context, overlap, grant);
    }
    let ended_ns = grant.and_then(|grant| grant.seen_end_ns(history));
    // the line of a step may come late, too
    let until_ns = ended_ns.map_or(from_ns, |ended_ns| from_ns.min(ended_ns + limits::OBSERVER_LAG_NS));
    let expired = cause.as_ref().is_none_or(|cause| *cause == RevokeCause::Expired);
    let may_be_early = expired && !grant.is_some_and(|grant| lasted_a_lease(context, first, grant));
    if let Some(window) = stepped_server(context, first, until_ns).filter(|_| may_be_early) {
        return OverlapCause::ServerClock(window);
    }
    let told_ns = history.ns(first.from);
    if ended_ns.is_some_and(|ended_ns| ended_ns < told_ns) && cause == Some(RevokeCause::Expired) {
        let after_ns = told_ns.saturating_sub(first.asked_ns(history));
        return OverlapCause::AnsweredTooLate(LateAnswer::of(context, first, after_ns));
    }
    let early = ended_ns.and_then(|ended_ns| ShortLease::of(context, first.asked_ns(history), ended_ns));
    // no fault on the holder explains the effect of a request
    if let (Some(lease), Some(RevokeCause::Deleted | RevokeCause::Overwritten)) = (early, &cause) {
        return OverlapCause::RemovedEarly(lease);
    }
    if let Some(window) = ended_connection(context, overlap) {
        return OverlapCause::ConnectionEnded(window);
    }
    // no fault on a client shortens a lease after an extension that was answered `ok`
    let in_vain = ended_ns.and_then(|ended_ns| {
        let extension = context.last_extension(first, ended_ns)?;
        ShortLease::of(context, history.event(extension.mate).time, ended_ns)
    });
    if let (Some(lease), Some(RevokeCause::Expired)) = (in_vain, &cause) {
        return OverlapCause::ExtendedInVain(lease);
    }
    // where the end of the grant was not seen, and no lease can have ended, the class has the cause
    let runs_since = |ns: u64| ShortLease::of(context, ns, from_ns).is_some();
    let runs = runs_since(leased_after_ns(context, first, from_ns));
    // the lease of a waiter without a fault since may be as young as its answer
    let may_run = at_the_end.is_none() && runs_since(history.ns(first.from));
    if ended_ns.is_none() && (runs || may_run) {
        return OverlapCause::NotKnown { may_be_over: false };
    }
    // nor where it may last, and no fault prevented that for long enough: a hold of many leases that are renewed, or of an unknown one
    let may_last = history.header.promises.renews != Some(false) || !context.is_lease_known();
    if ended_ns.is_none() && may_last && !at_the_end.is_some_and(|window| may_end_a_lease(context, window, from_ns)) {
        return OverlapCause::NotKnown { may_be_over: true };
    }
    past_its_lease(context, overlap, (grant, early), at_the_end)
}

/// Returns whether a grant that is not renewed was seen to last for a lease, so that no clock ended it early.
fn lasted_a_lease(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant) -> bool {
    let history = context.history;
    let (Some(granted_ns), Some(ended_ns)) = (grant.granted_ns(history), grant.seen_end_ns(history)) else {
        return false;
    };
    let since_ns = leased_after_ns(context, hold, ended_ns).max(granted_ns);
    let header = &history.header;
    let is_known = header.lease_ms.is_some() && header.promises.renews == Some(false);
    is_known && context.may_be_over(ended_ns.saturating_sub(since_ns))
}

/// Decides the cause for a lock without a lease, whose grant no time ends. An end that came after the overlap had begun is no cause.
fn without_lease<'a>(context: &'a Context<'_>, overlap: &Overlap, grant: Option<&ServerGrant>) -> OverlapCause<'a> {
    let history = context.history;
    let second = context.grants.of_hold(history, &overlap.second);
    let seen = grant.filter(|grant| !grant.is_out_of_sight(history));
    let ended = seen.filter(|grant| ended_before(context, overlap, grant, second));
    let ended = ended.map(|grant| grant.cause(history));
    match (ended_connection(context, overlap), ended) {
        (Some(window), _) => OverlapCause::ConnectionEnded(window),
        (None, Some(Some(RevokeCause::Expired))) => OverlapCause::SessionEnded,
        (None, Some(Some(cause))) if cause.is_removal() => OverlapCause::OfClass(OverlapClass::ForeignRelease),
        (None, Some(_)) => OverlapCause::EndedUnexplained,
        (None, None) => OverlapCause::NotKnown { may_be_over: false },
    }
}

/// Decides the cause of a hold that continued after the end of its lease: by the length of a lease that ended early, and by the fault on
/// the holder.
fn past_its_lease<'a>(
    context: &'a Context<'_>,
    overlap: &Overlap,
    (grant, early): (Option<&ServerGrant>, Option<ShortLease>),
    at_the_end: Option<&'a Window>,
) -> OverlapCause<'a> {
    let (history, first) = (context.history, &overlap.first);
    let renews = history.header.promises.renews != Some(false);
    let far_too_early = context.surely_left_ns();
    let has_expired = grant.is_some_and(|grant| grant.has_expired(history));
    if let Some(lease) = early.filter(|lease| has_expired && lease.lasted_ns < far_too_early) {
        return OverlapCause::EndedEarly(lease);
    }
    if at_the_end.is_some_and(|window| stood_still(context, overlap, window)) {
        return OverlapCause::StoodStill;
    }
    // no fault ends a lease that nobody renews, and no message before the answer renews a lease that began with its acquire
    let is_before = |window: &Window| window.is_on_message() && window.acted_ns() < history.ns(first.from);
    let of_renewals = |window: &Window| !(is_before(window) && context.grants.is_single(history, first));
    let explained = early.is_some() || renews && at_the_end.is_some_and(of_renewals);
    let late = grant.and_then(|grant| counted_from_the_answer(context, first, grant));
    if let Some(late) = late.filter(|_| !explained) {
        return OverlapCause::CountedFromTheAnswer(late);
    }
    let ended_ns = grant.and_then(|grant| grant.seen_end_ns(history));
    let cut_off = at_the_end.filter(|window| may_prevent_a_renewal(context, window, ended_ns));
    if let Some(message) = cut_off.and_then(Window::matched) {
        return OverlapCause::MessageKept(message);
    }
    match (early, at_the_end) {
        // a renewed lease may be older than the acquire, and ends that soon if its renewal is delayed
        (Some(lease), Some(window)) if renews && lease.lasted_ns >= far_too_early => OverlapCause::CutOff(window),
        (Some(lease), _) => OverlapCause::EndedEarly(lease),
        (None, _) => cut_off.map_or(OverlapCause::PastItsLease, OverlapCause::CutOff),
    }
}

/// Returns whether a window may have prevented the renewal of a lease that ended at a time, if that is known: clients do not wait with a
/// renewal until hardly any of the lease is left.
fn may_prevent_a_renewal(context: &Context<'_>, window: &Window, ended_ns: Option<u64>) -> bool {
    let left_ns = ended_ns.map(|ended_ns| ended_ns.saturating_sub(window.acted_ns()));
    left_ns.is_none_or(|left_ns| left_ns >= context.lease_ns / 4)
}

/// Returns whether a window stopped the first holder until less than a lease before the overlap. After a lease in which it runs again, it
/// can know that it lost the lock.
fn stood_still(context: &Context<'_>, overlap: &Overlap, window: &Window) -> bool {
    let from_ns = context.history.ns(overlap.from());
    let client = context.history.client_of(overlap.first.process);
    let stopped_until = context.stopped_until(client, window.start_ns, from_ns);
    window.stops() && stopped_until.is_none_or(|until_ns| from_ns <= until_ns.saturating_add(context.lease_ns))
}

/// Returns whether a window on the holder may have ended a renewed lease by a time, or must have ended an unknown one, unseen.
fn may_end_a_lease(context: &Context<'_>, window: &Window, ns: u64) -> bool {
    let lasted_ns = ns.saturating_sub(window.start_ns);
    let is_enough = window.stops() || window.matched().is_some() || lasted_ns >= context.surely_left_ns();
    context.is_lease_known() && is_enough || lasted_ns >= context.longest_lease_ns()
}

/// Decides the cause of a hold of permits that may have outlived its lease: it is not known which of the holders had one too many.
fn stale_permits<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Option<OverlapCause<'a>> {
    let history = context.history;
    let may_be_over = |hold: &&LockHold| {
        let held_ns = history.ns(overlap.from()).saturating_sub(history.ns(hold.from));
        history.header.lease_ms.is_some() && context.may_be_over(held_ns)
    };
    let holds = iter::once(&overlap.first).chain(beyond_permits(context, overlap));
    let old: Vec<LockHold> = holds.filter(may_be_over).copied().collect();
    let mut windows = old.iter().filter_map(|hold| {
        let second = overlap.second;
        end_of_lease(context, &Overlap { first: *hold, second })
    });
    let ends_by_itself = !old.is_empty() && history.header.promises.renews == Some(false);
    match windows.next() {
        Some(window) if window.stops() => Some(OverlapCause::StoodStill),
        Some(window) => Some(OverlapCause::CutOff(window)),
        None => ends_by_itself.then_some(OverlapCause::PastItsLease),
    }
}

/// Returns the window on the first holder when its lease ended, or when the second got the lock: one that stopped it, if there is one,
/// since nothing else matters to a stopped process.
pub(crate) fn end_of_lease<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Option<&'a Window> {
    let history = context.history;
    let (first, from_ns) = (&overlap.first, history.ns(overlap.from()));
    let client = history.client_of(first.process);
    let grant = shown_last(context, first, from_ns);
    let shown_ns = grant.and_then(|grant| grant.seen_end_ns(history));
    // without the server's line, of a lease that is not renewed
    let renews = history.header.promises.renews != Some(false);
    let promised_ns = || (!renews).then(|| first.asked_ns(history) + context.lease_ns);
    let ended_ns = shown_ns.or_else(promised_ns).map(|ns| ns.min(from_ns));
    // the observer's line of the end comes late and never early
    let was_over = |window: &Window| shown_ns.is_some_and(|ns| ns + limits::OBSERVER_LAG_NS < window.start_ns);
    let stopped = |window: &&Window| window.stops() && !was_over(window) && covers(context, window, ended_ns, from_ns);
    // a lease ends when its renewal was delayed for as long
    let until_ns = ended_ns.unwrap_or(from_ns);
    let near_ns = until_ns.saturating_sub(context.lease_ns + limits::OBSERVER_LAG_NS);
    let kept = |window: &&Window| {
        // a message before the last lease is older than the last renewal
        let is_old = ended_ns.is_some() && window.is_on_message() && window.acted_ns() < near_ns;
        !window.stops() && window.fault != "clock" && window.touches(near_ns, until_ns) && !is_old
    };
    let windows = || context.windows_that_touched(client, history.ns(first.from), from_ns);
    let in_time = |window: &&Window| kept(window) && may_prevent_a_renewal(context, window, ended_ns);
    let kept_in_time = || windows().find(in_time).or_else(|| windows().find(kept));
    windows().find(stopped).or_else(kept_in_time)
}

/// Returns whether a pause was active when the lease of its client ended, or when another client got the lock; or was as long as a lease,
/// which then ended in it.
fn covers(context: &Context<'_>, pause: &Window, ended_ns: Option<u64>, from_ns: u64) -> bool {
    let heal_ns = pause.heal_ns.unwrap_or(u64::MAX);
    let is_on = |ns: u64| pause.start_ns <= ns && ns <= heal_ns;
    // the observer's line of the end comes late
    let at_the_end = ended_ns.is_some_and(|ns| is_on(ns) || is_on(ns.saturating_sub(limits::OBSERVER_LAG_NS)));
    let as_long = context.may_be_over(heal_ns.saturating_sub(pause.start_ns));
    is_on(from_ns) || at_the_end || as_long && ended_ns.is_none_or(|ns| pause.start_ns <= ns)
}

/// Returns whether the lock lives as long as the connection that acquired it, by the requests in the taps' lines. On a store that has such
/// locks, it is `None` without taps, and for a lock without a lease that may be a row locked by a transaction: no request tells of that.
fn lives_in_connection(context: &Context<'_>) -> Option<bool> {
    let store = context.history.header.backend.as_deref();
    if !store.is_some_and(|store| OF_CONNECTIONS.contains(&store)) {
        return Some(false);
    }
    let mut requests = context.history.tap_totals().flat_map(|taps| &taps.requests).peekable();
    requests.peek()?;
    let is_told = requests.any(|request| ASKS_FOR_ONE.iter().any(|name| request.message.contains(name)));
    (is_told || !has_no_lease(context)).then_some(is_told)
}

fn has_no_lease(context: &Context<'_>) -> bool {
    context.history.header.promises.lease == Some(false)
}

/// Returns whether the lock is of a session: no other session can release it.
pub(crate) fn is_of_a_session(context: &Context<'_>) -> bool {
    has_no_lease(context) && lives_in_connection(context) == Some(true)
}

/// Returns the window that ended connections of the first holder during its hold, if the lock lives as long as its connection. Where that
/// is not known, its lease must not have ended.
fn ended_connection<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Option<&'a Window> {
    let history = context.history;
    let (first, from_ns) = (&overlap.first, history.ns(overlap.from()));
    let client = history.client_of(first.process);
    let held_ns = from_ns.saturating_sub(first.asked_ns(history));
    let lives_so = lives_in_connection(context).unwrap_or(has_no_lease(context) || !context.may_be_over(held_ns));
    let grant = context.grants.of_hold(history, first);
    let by_request = grant.is_some_and(|grant| grant.was_deleted(history));
    // the observer's line of the end comes late and never early
    let ended_ns = grant.and_then(|grant| grant.seen_end_ns(history));
    let ended_ns = ended_ns.filter(|ns| *ns >= history.ns(first.from));
    let until_ns = ended_ns.map_or(from_ns, |ns| ns.min(from_ns));
    let held = |ns: u64| (history.ns(first.from)..=until_ns).contains(&ns);
    let begun = |window: &&Window| window.begins_in(history.ns(first.from), until_ns);
    let ends = |window: &&Window| {
        let evidence = window.healed.as_ref().map(|healed| &healed.evidence);
        let resets = evidence.is_none_or(|evidence| evidence.get(RESETS) > 0);
        // a partition ends connections when it heals
        let when = match window.fault.as_str() {
            fault if fault.starts_with("partition") => window.heal_ns.is_some_and(held),
            fault if fault.starts_with("drop-") => window.touched_client(client) && held(window.acted_ns()),
            _ => window.touches(history.ns(first.from), until_ns),
        };
        resets && when && window.names_client(client)
    };
    let ended = |window: &&Window| match window.fault.as_str() {
        _ if window.restarts_servers() => begun(window) && calm::takes_all_servers(context, window),
        fault => CUTS.iter().any(|cut| fault.starts_with(cut)) && ends(window),
    };
    let windows = context.windows.iter().rev();
    windows.filter(|_| lives_so && !by_request).find(ended)
}

/// Returns the client whose wall clock a window stepped: the second, which took the lock then, or the first, which held it.
fn stepped_client<'a>(context: &'a Context<'_>, overlap: &Overlap) -> Option<(u32, &'a Window)> {
    let history = context.history;
    if history.header.promises.renews == Some(true) {
        return None;
    }
    let from_ns = history.ns(overlap.from());
    // a clock that is ahead ends the lease of another too early, and one that is behind its own too late; a heal steps it the other way
    let stepped = |hold: &LockHold, since_ns: u64, ahead: bool| {
        let client = history.client_of(hold.process);
        let explains = |window: &&Window| {
            let is_so = window.started.clock_step_ms.is_none_or(|ms| (ms > 0) == ahead);
            let is_healed = window
                .heal_ns
                .is_some_and(|heal_ns| (since_ns..=from_ns).contains(&heal_ns));
            window.fault == "clock" && window.is_of_clients() && (is_so || is_healed)
        };
        let window = context.windows_that_touched(client, since_ns, from_ns).find(explains)?;
        Some((client, window))
    };
    // the next owner's clock did not end a grant that expired on the server
    let first = context.grants.of_hold(history, &overlap.first);
    let ran_out = first.is_some_and(|grant| grant.has_expired(history));
    let second = stepped(&overlap.second, overlap.second.asked_ns(history), true).filter(|_| !ran_out);
    second.or_else(|| stepped(&overlap.first, history.ns(overlap.first.from), false))
}

/// Returns the window in which the wall clock of a server was stepped forward during the first hold: at its start, or as a step back was
/// healed. No other step ends a time to live early.
fn stepped_server<'a>(context: &'a Context<'_>, first: &LockHold, until_ns: u64) -> Option<&'a Window> {
    let held = context.history.ns(first.from)..=until_ns;
    let stepped_forward = |window: &&Window| {
        let is_ahead = window.started.clock_step_ms.is_none_or(|ms| ms > 0);
        let step_ns = if is_ahead {
            Some(window.start_ns)
        } else {
            window.heal_ns
        };
        window.fault == "clock" && !window.is_of_clients() && step_ns.is_some_and(|ns| held.contains(&ns))
    };
    context.windows.iter().rev().find(stepped_forward)
}

/// Returns the window in which every server was killed or restarted during the first hold, if the grant did not end by a request or by its
/// lease, of which the server tells. Where nobody saw the grant, the servers must have lost data that they had written.
fn server_that_forgot<'a>(context: &'a Context<'_>, first: &LockHold, from_ns: u64) -> Option<&'a Window> {
    let history = context.history;
    // the lock of a connection ends with it, whatever the server keeps
    if lives_in_connection(context).unwrap_or(has_no_lease(context)) {
        return None;
    }
    let restarts = |window: &&Window| window.restarts_servers() && calm::takes_all_servers(context, window);
    let begun = context.windows_begun_in(history.ns(first.from), from_ns);
    // servers start again after the line of their kill, and only then give the lock to the second
    let mut begun = begun.filter(|window| window.start_ns <= from_ns && restarts(window));
    let Some(grant) = context.grants.of_hold(history, first) else {
        let lost_data = |window: &&Window| {
            let healed = window.healed.as_ref();
            healed.is_some_and(|healed| healed.evidence.get(FILES_SET_BACK) > 0)
        };
        return begun.find(lost_data);
    };
    let ended_ns = grant.revoked_ns(history).unwrap_or(u64::MAX);
    let told = matches!(grant.cause(history), Some(cause) if cause.is_removal() || cause == RevokeCause::Expired);
    // the servers had kept a grant that is shown again after it
    let again_ns = shown_again_ns(context, grant, from_ns).unwrap_or(0);
    let forgot = |window: &&Window| window.began_ns() <= ended_ns && again_ns <= window.start_ns;
    begun.filter(|_| !told).find(forgot)
}

/// Returns the time of the observer's last line by a time that showed the owner of a grant again. The line may be of the same grant.
fn shown_again_ns(context: &Context<'_>, grant: &ServerGrant, until_ns: u64) -> Option<u64> {
    let history = context.history;
    let is_its_own = |event: PackedEvent| match grant.owner {
        NONE => history.token(event) == grant.token,
        owner => history.owner(event) == owner,
    };
    let shows_it = |event: &PackedEvent| {
        let is_granted = event.f == F::Granted && event.time <= until_ns;
        is_granted && history.lock_number(*event) == Some(grant.lock as usize) && is_its_own(*event)
    };
    let after = history.events.iter().skip(grant.first() as usize + 1);
    after.filter(shows_it).last().map(|event| event.time)
}
