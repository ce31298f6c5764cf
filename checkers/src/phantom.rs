//! HL007, phantom grant: an acquire was answered ok while the server held nothing for that process, or a lock was
//! removed by a process that did not own it.
//!
//! Decided only where an observer watched the server and was demonstrably there at the time.

use std::collections::BTreeMap;

use crate::check::Context;
use crate::finding::{Because, Finding, Property, Verdict, Violation};
use crate::grants::Grant;
use crate::history::names::{FastSet, NONE};
use crate::history::{History, NemesisFact, ObserverFact};
use crate::holds::{Ended, Hold};
use crate::limits;
use crate::story::{at, finding, length, many, violated};

/// The finding of HL007.
pub(crate) fn check(context: &Context<'_>) -> Finding {
    if context.grants.is_empty() {
        return finding(Property::Hl007, Verdict::NotApplicable, "nobody watched the server");
    }
    let known = context
        .holds
        .iter()
        .filter(|hold| hold.has_token || hold.owner != NONE)
        .count() as u64;
    if known == 0 {
        return finding(
            Property::Hl007,
            Verdict::Inconclusive,
            "no acquire named its token or owner",
        );
    }
    let mut found: Vec<Violation> = Vec::new();
    let mut count = 0;
    let mut joined = 0;
    let sight = Sight::of(context);
    let named = Named::of(context);
    for hold in context.holds.iter() {
        joined += u64::from(context.grants.of_hold(context.history, hold).is_some());
        if let Some(violation) = phantom(context, &sight, &named, hold).or_else(|| foreign(context, hold)) {
            count += 1;
            if found.len() < limits::MAX_VIOLATIONS {
                found.push(violation);
            }
        }
    }
    let mut answer = if count > 0 {
        let of = many(known, "hold", "holds");
        let are = if count == 1 { "is" } else { "are" };
        violated(
            Property::Hl007,
            format!("{count} of {of} {are} not as the server has it"),
            found,
            count,
        )
    } else if joined == 0 {
        finding(
            Property::Hl007,
            Verdict::Inconclusive,
            "no acquire could be joined to a grant of the server",
        )
    } else {
        let evidence = format!(
            "{} of {} known to the server",
            many(joined, "hold", "holds"),
            many(known, "hold", "holds")
        );
        finding(Property::Hl007, Verdict::Holds, evidence)
    };
    answer.figures.insert("joined_holds".into(), joined as f64);
    answer.figures.insert("phantoms".into(), count as f64);
    answer
}

/// How late the observer was, as the history itself shows it: by the grants that it saw after their owners had the reply, and
/// by the ends that it saw after their owners had asked for them. On a machine that has too much to do it may be a second
/// late, and then sees some grants not at all.
struct Sight {
    /// When something happened, and how much later the observer saw it; by time, in nanoseconds.
    late: Vec<(u64, u64)>,
    /// When it heard nothing of somebody, by its own word: from, to.
    blind: Vec<(u64, u64)>,
}

impl Sight {
    fn of(context: &Context<'_>) -> Self {
        let history = context.history;
        let seen = context.holds.iter().filter(|hold| hold.has_token).flat_map(|hold| {
            let grant = context.grants.of_hold(history, hold);
            let (from, to) = (history.ns(hold.from), history.ns(hold.to));
            let granted = grant.and_then(|grant| grant.granted_ns(history));
            let ended = grant.filter(|grant| hold.ended == Ended::Released && !grant.is_out_of_sight(history));
            let ended = ended.and_then(|grant| grant.revoked_ns(history));
            let late = |at: u64, seen: Option<u64>| seen.map(|seen| (at, seen.saturating_sub(at)));
            [late(from, granted), late(to, ended)].into_iter().flatten()
        });
        let mut late: Vec<(u64, u64)> = seen.collect();
        late.sort_unstable();
        let blind = blind(history);
        Self { late, blind }
    }

    /// Whether all that happened between two times was told.
    fn is_whole(&self, from: u64, to: u64) -> bool {
        self.blind.iter().all(|(since, until)| *until < from || *since > to)
    }

    /// How late it may have been about a time: twice as late as it is seen to have been near it.
    fn lag_ns(&self, ns: u64) -> u64 {
        let from = self.late.partition_point(|(at, _)| at + limits::OBSERVER_GAP_NS < ns);
        let near = self.late[from..]
            .iter()
            .take_while(|(at, _)| *at < ns + limits::OBSERVER_GAP_NS);
        let latest = near.map(|(_, late)| *late).max().unwrap_or(0);
        limits::OBSERVER_LAG_NS.max(latest * 2)
    }
}

/// When an observer of this tool had lost whom it listens to: nothing is told of what happens then.
fn blind(history: &History) -> Vec<(u64, u64)> {
    let mut lost: BTreeMap<String, u64> = BTreeMap::new();
    let mut blind = Vec::new();
    for line in history.nemesis() {
        match line.fact {
            NemesisFact::Observer(ObserverFact::Lost { watched, since_ns }) => {
                lost.entry(watched).or_insert(since_ns.unwrap_or(line.time_ns));
            }
            NemesisFact::Observer(ObserverFact::Back { watched }) => {
                blind.extend(lost.remove(&watched).map(|since| (since, line.time_ns)));
            }
            _ => {}
        }
    }
    blind.extend(lost.into_values().map(|since| (since, u64::MAX)));
    blind
}

/// The grants that an acquire was answered with, by their tokens: none of these is anybody else's.
struct Named(FastSet<(u32, u64)>);

impl Named {
    fn of(context: &Context<'_>) -> Self {
        let holds = context.holds.iter();
        Self(holds.filter_map(|hold| Some((hold.lock, hold.token()?))).collect())
    }

    fn has(&self, grant: &Grant) -> bool {
        grant.token.is_some_and(|token| self.0.contains(&(grant.lock, token)))
    }
}

/// An acquire that the server knows nothing of, or that it had already taken back.
fn phantom(context: &Context<'_>, sight: &Sight, named: &Named, hold: &Hold) -> Option<Violation> {
    let history = context.history;
    if hold.is_empty() || (!hold.has_token && hold.owner == NONE) {
        return None;
    }
    let from = history.ns(hold.from);
    // A name that comes again proves nothing about which of its grants this was; unless the store gives a token with each,
    // this answer came without one, and all of that name's grants were another answer's or had ended before it was asked for.
    let sure = |grant: &Grant| grant.token.is_some() && hold.has_token || context.grants.is_single(hold);
    let without_its_token = history.header.promises.tokens && !hold.has_token;
    let meant = |grant: &&Grant| {
        let mut all = context.grants.of_owner(hold);
        let free = |grant: &Grant| !named.has(grant) && !ended_before_the_call(context, grant, hold);
        sure(grant) || !without_its_token || all.any(free)
    };
    if let Some(grant) = context.grants.of_hold(history, hold).filter(meant) {
        let revoked = grant.revoked_ns(history)?;
        let sure = sure(grant);
        let long_gone = revoked + limits::OBSERVER_LAG_NS < from;
        return (sure && long_gone && !grant.is_out_of_sight(history)).then(|| taken_back(context, hold, grant));
    }
    let mut others = context
        .grants
        .of_lock(hold.lock as usize)
        .filter(|grant| speaks_alike(grant, hold));
    let mut alike = context
        .grants
        .of_lock(hold.lock as usize)
        .filter(|grant| speaks_alike(grant, hold));
    let lag_ns = sight.lag_ns(from);
    let covering = alike.find(|grant| covers(context, grant, from, lag_ns));
    let long = history.ns(hold.to) - from > lag_ns;
    let told = sight.is_whole(history.events[hold.call as usize].time, from + lag_ns);
    let live =
        long && told && observed_around(context, &mut others, from, lag_ns) && !somebody_stands(context, hold, lag_ns);
    (covering.is_some() || live).then(|| unknown(context, hold, covering))
}

/// Whether a grant was over when a hold was asked for. Lines of the observer come late and never early, so it was.
fn ended_before_the_call(context: &Context<'_>, grant: &Grant, hold: &Hold) -> bool {
    let history = context.history;
    let seen_to_end = grant.revoked_ns(history).filter(|_| !grant.is_out_of_sight(history));
    let called = history.events[hold.call as usize].time;
    seen_to_end.is_some_and(|revoked| revoked < called)
}

/// Whether the observer's lines say what this hold could be joined by.
fn speaks_alike(grant: &Grant, hold: &Hold) -> bool {
    (hold.has_token && grant.token.is_some()) || (hold.owner != NONE && grant.owner != NONE)
}

/// Whether the server may have shown an owner at the beginning of a hold whose name the observer did not learn.
fn somebody_stands(context: &Context<'_>, hold: &Hold, lag_ns: u64) -> bool {
    let history = context.history;
    let from = history.ns(hold.from);
    let mut unnamed = context
        .grants
        .of_lock(hold.lock as usize)
        .filter(|grant| !speaks_alike(grant, hold));
    unnamed.any(|grant| {
        let came = grant.granted_ns(history).is_none_or(|granted| granted < from + lag_ns);
        let stays = grant.revoked_ns(history).is_none_or(|revoked| revoked + lag_ns > from);
        came && stays
    })
}

/// Whether the server showed this owner well before and well after a time.
fn covers(context: &Context<'_>, grant: &Grant, ns: u64, lag_ns: u64) -> bool {
    let history = context.history;
    let before = grant.granted_ns(history).is_some_and(|granted| granted + lag_ns < ns);
    before && grant.revoked_ns(history).unwrap_or(0) > ns + lag_ns
}

/// Whether the observer wrote about this lock both shortly before and shortly after a time, and had not lost sight of it
/// in between.
fn observed_around<'a>(
    context: &Context<'_>,
    grants: &mut impl Iterator<Item = &'a Grant>,
    ns: u64,
    lag_ns: u64,
) -> bool {
    let history = context.history;
    let (mut before, mut after) = (false, false);
    let mut blind_since = None;
    let mut last_seen = 0;
    for grant in grants {
        let lost_sight = grant.revoked_ns(history).filter(|_| grant.is_out_of_sight(history));
        blind_since = blind_since.max(lost_sight.filter(|at| *at <= ns));
        for seen in [grant.granted_ns(history), grant.revoked_ns(history)]
            .into_iter()
            .flatten()
        {
            let near = seen.abs_diff(ns) < limits::OBSERVER_GAP_NS;
            before |= near && seen + lag_ns < ns;
            after |= near && seen > ns + lag_ns;
            if seen <= ns {
                last_seen = last_seen.max(seen);
            }
        }
    }
    before && after && blind_since.is_none_or(|since| since < last_seen)
}

/// The lock was removed on request while its owner held it and had not asked for that.
pub(crate) fn foreign(context: &Context<'_>, hold: &Hold) -> Option<Violation> {
    let history = context.history;
    let grant = context.grants.of_hold(history, hold)?;
    let removed = grant.revoked_ns(history).filter(|_| grant.was_deleted(history))?;
    let named = grant.token.is_some() && hold.has_token || context.grants.is_single(hold);
    let margin = if named { 0 } else { limits::OBSERVER_LAG_NS };
    let inside = removed > history.ns(hold.from) + margin && removed < history.ns(hold.to);
    // A loss that the owner was told of shortly after, or its death, may be why the lock was deleted.
    let by_itself = hold.ended != Ended::Released && history.ns(hold.to) < removed + limits::OBSERVER_LAG_NS;
    if !inside || by_itself || may_be_an_expiry(context, hold, grant, removed) {
        return None;
    }
    let who = history.who(hold.process);
    let mut violation = start(context, "foreign-release", hold, removed);
    violation.summary = format!(
        "the lock `{}` was released by somebody else while {who} held it",
        violation.lock
    );
    violation.events.push(history.step(grant.revoked, "removed on request"));
    let cause = grant.cause(history).map(|cause| cause.to_string()).unwrap_or_default();
    let text = format!("The lock of {who} was removed at {} ({cause}).", at(removed, false));
    violation.because.push(history.because(text, &[grant.revoked]));
    let text = format!(
        "{who} held it until {} and had not released it.",
        at(history.ns(hold.to), false)
    );
    violation.because.push(history.because(text, &[hold.end]));
    violation.likely = Some(
        "a release that does not compare the owner, or compares and deletes in two steps, came late from an earlier holder"
            .into(),
    );
    Some(violation)
}

/// "Deleted" is all that some stores say of an expiry, too: then it proves nothing once the lease may have run out.
fn may_be_an_expiry(context: &Context<'_>, hold: &Hold, grant: &Grant, removed: u64) -> bool {
    let history = context.history;
    if grant.cause(history).is_some_and(|cause| cause.is_release()) {
        return false;
    }
    let asked = history.events[hold.call as usize].time;
    let old = removed.saturating_sub(asked) >= context.lease_ns / 100 * limits::LEASE_SHARE_PERCENT;
    old || context
        .window_of_client(history.client_of(hold.process), asked, removed)
        .is_some()
}

fn taken_back(context: &Context<'_>, hold: &Hold, grant: &Grant) -> Violation {
    let history = context.history;
    let (from, who) = (history.ns(hold.from), history.who(hold.process));
    let revoked = grant.revoked_ns(history).unwrap_or(from);
    let mut violation = start(context, "phantom-grant", hold, from);
    let late = length(from - revoked);
    violation.summary = format!(
        "{who} was told that it has `{}`, {late} after the server had taken it back",
        violation.lock
    );
    violation
        .events
        .push(history.step(grant.revoked, "the server took it back"));
    let text = format!("The server took the lock from {who} at {}.", at(revoked, false));
    violation.because.insert(0, history.because(text, &[grant.revoked]));
    violation.likely =
        Some("the acquire does not check, after waiting, that its own node or key is still there".into());
    violation
}

fn unknown(context: &Context<'_>, hold: &Hold, covering: Option<&Grant>) -> Violation {
    let history = context.history;
    let (from, who) = (history.ns(hold.from), history.who(hold.process));
    let mut violation = start(context, "phantom-grant", hold, from);
    violation.summary = format!(
        "{who} was told that it has `{}`, and the server never gave it",
        violation.lock
    );
    let because: Because = match covering {
        Some(grant) => {
            violation
                .events
                .push(history.step(grant.granted, "the server's owner at the time"));
            let owner = history.name(grant.owner).unwrap_or("another");
            let since = at(grant.granted_ns(history).unwrap_or(from), false);
            history.because(
                format!("The server shows {owner} as the owner since {since}."),
                &[grant.granted],
            )
        }
        None => history.because("The observer saw the lock before and after, and no grant to it.", &[]),
    };
    violation.because.push(because);
    violation.likely =
        Some("the acquire is answered without having won: look at sessions that ended while it waited".into());
    violation
}

fn start(context: &Context<'_>, class: &str, hold: &Hold, at_ns: u64) -> Violation {
    let history = context.history;
    let mut violation = history.violation(class, hold.lock as usize, &[hold.process], at_ns);
    violation.window = context.window_before(at_ns).map(|window| window.number);
    violation.events.push(history.step(hold.got, "got the lock"));
    let token = hold
        .token()
        .map(|token| format!(" (token {token})"))
        .unwrap_or_default();
    let text = format!(
        "{} got the lock at {}{token}.",
        history.who(hold.process),
        at(history.ns(hold.from), false)
    );
    violation.because.push(history.because(text, &[hold.got]));
    violation
}
