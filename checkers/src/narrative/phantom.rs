//! HL007 in words: grants that the server never gave or had ended, that another process removed, or that are in no client's answer.

use super::{
    EARLY_RELEASE, OF_AN_EARLIER_SESSION, OVERWRITTEN, RELEASED_BY_ITS_SESSION, REMOVED_BY_A_REQUEST,
    REMOVED_BY_EXTENSION, at, finding, in_brackets, length, many, not_watched, thousands, violated,
};
use crate::context::Context;
use crate::exclusion::cause::is_of_a_session;
use crate::finding::{Finding, Property, Verdict, Violation};
use crate::grants::ServerGrant;
use crate::history::RevokeCause;
use crate::history::event::Kind;
use crate::history::names::NONE;
use crate::holds::LockHold;
use crate::phantom::{OrphanGrant, PhantomGrants, Refusals, Removal, RemovedBy, WrongGrant, grant_by_another_name};

pub(crate) fn tell(context: &Context<'_>, decided: &PhantomGrants<'_>) -> Finding {
    let said = |evidence: &str| finding(Property::Hl007, decided.verdict, evidence);
    let known = many(decided.known, "hold", "holds");
    let joined = thousands(decided.joined);
    let count = decided.wrong.len() as u64;
    let mut told = match decided.verdict {
        Verdict::NotApplicable => return said(not_watched(context)),
        Verdict::Inconclusive if decided.joined == 0 => said("no acquire could be joined to a grant of the server"),
        Verdict::Inconclusive => said(&format!(
            "only {joined} of {known} could be joined to a grant of the server"
        )),
        Verdict::Holds => said(&format!("{joined} of {known} known to the server")),
        Verdict::Violated => {
            let wrong = decided.wrong.iter();
            let orphans = wrong.filter(|wrong| matches!(wrong, WrongGrant::Orphan(_)));
            let orphans = orphans.count() as u64;
            let told = format!("{} held by no client", many(orphans, "grant", "grants"));
            let holds = count - orphans;
            let differ = if holds == 1 { "differs" } else { "differ" };
            let evidence = match (holds, orphans) {
                (0, _) => format!("{told}, beside {known}"),
                (_, 0) => format!("{holds} of {known} {differ} from the server's record"),
                _ => format!("{holds} of {known} {differ} from the server's record; {told}"),
            };
            let violations = decided.wrong.iter().map(|wrong| describe(context, wrong));
            violated(Property::Hl007, evidence, violations, count)
        }
    };
    told.figure("joined_holds", decided.joined as f64);
    told.figure("phantoms", count as f64);
    told
}

fn describe(context: &Context<'_>, wrong: &WrongGrant<'_>) -> Violation {
    match *wrong {
        WrongGrant::TakenBack { hold, grant } => taken_back(context, hold, grant),
        WrongGrant::NeverGiven { hold, covering } => never_given(context, hold, covering),
        WrongGrant::Removed(removal) => match removal.by {
            RemovedBy::Another => foreign_release(context, removal),
            RemovedBy::OwnRelease(call) => own_release(context, removal, call),
            RemovedBy::OwnExtension(answer) => own_extension(context, removal, answer),
        },
        WrongGrant::Orphan(orphan) => match orphan.refused {
            Some(refused) => unnoticed_grant(context, &orphan, &refused),
            None => orphan_grant(context, &orphan),
        },
    }
}

fn orphan_grant(context: &Context<'_>, orphan: &OrphanGrant<'_>) -> Violation {
    let history = context.history;
    let (call, reply) = (history.event(orphan.call), history.event(orphan.reply));
    let grant = orphan.grant;
    let granted_ns = grant.granted_ns(history).unwrap_or(reply.time);
    let at_ns = granted_ns.max(reply.time);
    let (who, stood) = (history.who(call.process), length(orphan.stood_ns));
    let mut violation = context.violation("orphan-grant", grant.lock as usize, &[call.process], at_ns);
    violation.summary = format!(
        "an acquire of `{}` was answered fail, and its grant stayed for {stood} without a holder",
        violation.lock
    );
    violation.show(history, orphan.call, "asked for the lock");
    violation.show(history, orphan.reply, "answered fail");
    let said = history.error(reply).unwrap_or("no reason");
    let text = format!(
        "{who} asked for the lock at {} and was answered fail at {} (`{said}`): the last acquire that the grant can belong to.",
        at(call.time),
        at(reply.time)
    );
    violation.say(history, text, &[orphan.call, orphan.reply]);
    let owner = history.name(grant.owner).unwrap_or("an owner");
    let when = at(granted_ns);
    let text = format!("The server gave the lock to {owner} at {when}, and no client held the lock by that grant.");
    violation.step(history, grant.granted, "the server gave the lock", text);
    if let Some(session) = orphan.session {
        let (client, got) = (&session.client, at(session.time_ns));
        let text = format!(
            "{owner} is the session that {client} got at {got}. The client asked again meanwhile and was refused."
        );
        violation.say(history, text, &[]);
    }
    until_its_end(context, grant, &mut violation);
    violation.likely = Some(
        "the acquire gives up and leaves its request or its place in the queue behind: remove it before the answer `fail`, \
         and answer `info` if the removal is not certain"
            .into(),
    );
    violation.figure("stood_ms", orphan.stood_ns as f64 / 1e6);
    violation
}

/// Adds the end of a grant without a hold.
fn until_its_end(context: &Context<'_>, grant: &ServerGrant, violation: &mut Violation) {
    let history = context.history;
    let text = match grant.revoked_ns(history) {
        Some(ended_ns) => {
            violation.show(history, grant.revoked, "its lease ended");
            format!("The grant stayed until its lease ended at {}.", at(ended_ns))
        }
        None => "The grant was still there when the history ended.".to_owned(),
    };
    violation.say(history, text, &[grant.revoked]);
}

fn unnoticed_grant(context: &Context<'_>, orphan: &OrphanGrant<'_>, refused: &Refusals<'_>) -> Violation {
    let history = context.history;
    let (call, reply) = (history.event(orphan.call), history.event(orphan.reply));
    let grant = orphan.grant;
    let granted_ns = grant.granted_ns(history).unwrap_or(call.time);
    let (who, again) = (history.who(call.process), refused.again);
    let (message, times) = (&again.message, many(refused.count, "time", "times"));
    let least = if again.refused > again.refused_ns.len() as u64 {
        "at least "
    } else {
        ""
    };
    let mut violation = context.violation("orphan-grant", grant.lock as usize, &[call.process], granted_ns);
    let lock = &violation.lock;
    violation.summary = format!("{who} was refused `{lock}` {least}{times} while it had a grant whose reply was lost");
    violation.show(history, orphan.call, "asked for the lock");
    violation.show(history, grant.granted, "the server gave the lock");
    let owner = history.name(grant.owner).unwrap_or("an owner");
    let text = format!(
        "The `{message}` of {who} at {} was accepted, and a fault lost the reply. The server gave the lock to {owner} at {}.",
        at(again.time_ns),
        at(granted_ns)
    );
    violation.say(history, text, &[orphan.call, grant.granted]);
    let (from, to) = (at(refused.first_ns), at(refused.last_ns));
    let text = format!(
        "{who} asked again, and was refused {least}{times} from {from} to {to}; no client held the lock meanwhile."
    );
    violation.say(history, text, &[orphan.call, orphan.reply]);
    until_its_end(context, grant, &mut violation);
    if orphan.reply > grant.revoked {
        violation.show(history, orphan.reply, answered(reply.kind));
    }
    violation.likely = Some(
        "a refused acquire does not check the owner of the lock: after a call without an answer, compare the lock's value or owner \
         with the client's own"
            .into(),
    );
    violation.figure("stood_ms", orphan.stood_ns as f64 / 1e6);
    violation
}

fn answered(kind: Kind) -> &'static str {
    match kind {
        Kind::Fail => "answered fail",
        Kind::Info => "outcome unknown",
        _ => "acquired",
    }
}

const LATE_RELEASE: &str =
    "a release that does not compare the owner, or compares and deletes in two steps, came late from an earlier holder";

fn foreign_release(context: &Context<'_>, removal: Removal<'_>) -> Violation {
    let history = context.history;
    let (hold, grant, removed_ns) = (removal.hold, removal.grant, removal.removed_ns);
    let who = history.who(hold.process);
    let mut violation = start(context, "foreign-release", hold, removed_ns);
    let is_overwritten = grant.cause(history) == Some(RevokeCause::Overwritten);
    let release = context.release_that_removed(hold, removed_ns);
    let is_its_own = |call: u32| history.client_of(history.event(call).process) == history.client_of(hold.process);
    let (what, likely) = match release {
        _ if is_overwritten => ("overwritten by another client", OVERWRITTEN),
        _ if is_of_a_session(context) => ("released by its own session", RELEASED_BY_ITS_SESSION),
        Some(call) if is_its_own(call) => ("released by another process of its client", LATE_RELEASE),
        Some(_) => ("released by another client", LATE_RELEASE),
        None => ("removed by a request", REMOVED_BY_A_REQUEST),
    };
    let lock = &violation.lock;
    violation.summary = format!("the lock `{lock}` was {what} while {who} held it");
    violation.show(history, grant.revoked, "removed on request");
    let cause = grant.cause(history).map(|cause| cause.to_string()).unwrap_or_default();
    let mut text = format!("The lock of {who} was removed at {} ({cause})", at(removed_ns));
    if let Some(call) = release {
        text += &format!(", {}", history.beside_release(call, removed_ns));
    }
    violation.say(history, text + ".", &[release.unwrap_or(NONE), grant.revoked]);
    let when = at(history.ns(hold.to));
    let text = format!("{who} held it until {when} and had not released it.");
    violation.say(history, text, &[hold.end]);
    violation.likely = Some(likely.into());
    violation
}

fn own_extension(context: &Context<'_>, removal: Removal<'_>, answer: u32) -> Violation {
    let history = context.history;
    let (hold, grant, removed_ns) = (removal.hold, removal.grant, removal.removed_ns);
    let who = history.who(hold.process);
    let mut violation = start(context, "wrong-extension", hold, removed_ns);
    let lock = &violation.lock;
    violation.summary = format!("the `extend` of `{lock}` by {who} was answered ok, and removed the lock");
    let answered = history.event(answer);
    violation.show(history, answered.mate, "asked to extend it");
    violation.show(history, answer, "extended the lock");
    let (called, replied) = (at(history.event(answered.mate).time), at(answered.time));
    let text = format!("{who} asked to extend it at {called}, and was answered ok at {replied}.");
    violation.say(history, text, &[answered.mate, answer]);
    let text = format!("The server removed the lock at {}.", at(removed_ns));
    violation.step(history, grant.revoked, "removed on request", text);
    violation.likely = Some(REMOVED_BY_EXTENSION.into());
    violation
}

fn own_release(context: &Context<'_>, removal: Removal<'_>, release: u32) -> Violation {
    let history = context.history;
    let (hold, grant, removed_ns) = (removal.hold, removal.grant, removal.removed_ns);
    let who = history.who(hold.process);
    let mut violation = start(context, "early-release", hold, removed_ns);
    let lock = &violation.lock;
    violation.summary = format!("one release by {who} freed `{lock}`, which it had taken more than once");
    let called_ns = history.event(release).time;
    let text = format!("{who} released it once at {}, and still held it.", at(called_ns));
    violation.step(history, release, "release call for one of several acquires", text);
    let text = format!("The server removed the lock at {}.", at(removed_ns));
    violation.step(history, grant.revoked, "removed on request", text);
    violation.likely = Some(EARLY_RELEASE.into());
    violation
}

fn taken_back(context: &Context<'_>, hold: &LockHold, grant: &ServerGrant) -> Violation {
    let history = context.history;
    let (from, who) = (history.ns(hold.from), history.who(hold.process));
    let revoked = grant.revoked_ns(history).unwrap_or(from);
    let mut violation = start(context, "phantom-grant", hold, from);
    let late = length(from - revoked);
    let lock = &violation.lock;
    violation.summary = format!("{who} was told that it has `{lock}`, {late} after the server had taken it back");
    violation.show(history, grant.revoked, "the server took it back");
    let text = format!("The server took the lock from {who} at {}.", at(revoked));
    violation.because.insert(0, history.because(text, &[grant.revoked]));
    // a session may end while its acquire waits in a queue
    let ran_out = grant.has_expired(history) && history.header.promises.renews == Some(false);
    let likely = match ran_out {
        true => {
            "the answer came when the lease of its grant was over: check the time after the reply, and answer `fail` when the lease is over"
        }
        false => "the acquire does not check, after waiting, that its own node or key is still there",
    };
    violation.likely = Some(likely.into());
    violation
}

fn never_given(context: &Context<'_>, hold: &LockHold, covering: Option<&ServerGrant>) -> Violation {
    let history = context.history;
    let (from, who) = (history.ns(hold.from), history.who(hold.process));
    let mut violation = start(context, "phantom-grant", hold, from);
    let lock = &violation.lock;
    violation.summary = format!("{who} was told that it has `{lock}`, and the server never granted it");
    let of_another_name = grant_by_another_name(context, hold);
    match of_another_name.or(covering) {
        Some(grant) => {
            let owner = history.name(grant.owner).unwrap_or("another");
            let since = at(grant.granted_ns(history).unwrap_or(from));
            let whose = match (of_another_name, history.name(hold.owner(history))) {
                (Some(_), Some(own)) => format!(", another name of {who}, which was answered with {own}"),
                (Some(_), None) => format!(", another name of {who}"),
                (None, _) => String::new(),
            };
            let text = format!("The server shows {owner} as the owner since {since}{whose}.");
            violation.step(history, grant.granted, "the server's owner at the time", text);
        }
        None => {
            let text = format!("The observer saw the lock before and after, and no grant to {who}.");
            violation.say(history, text, &[]);
        }
    }
    if let Some(grant) = of_another_name
        && let Some(ended_ns) = grant.revoked_ns(history)
    {
        let cause = in_brackets(grant.cause(history).map(|cause| cause.to_string()));
        let text = format!("That grant ended at {}{cause}.", at(ended_ns));
        violation.step(history, grant.revoked, "the end of that grant", text);
    }
    let likely = match of_another_name {
        Some(_) => OF_AN_EARLIER_SESSION,
        None if covering.is_some() => {
            "the acquire is answered `ok` while another owner has the lock: look at one that does not wait for its turn, at lost replies, \
             and at sessions that ended during its wait"
        }
        None => {
            "the acquire is answered `ok` without a grant: look at lost replies, and at sessions that ended during its wait"
        }
    };
    violation.likely = Some(likely.into());
    violation
}

fn start(context: &Context<'_>, class: &str, hold: &LockHold, at_ns: u64) -> Violation {
    let history = context.history;
    let mut violation = context.violation(class, hold.lock(history), &[hold.process], at_ns);
    let token = in_brackets(hold.token(history).map(|token| format!("token {token}")));
    let (who, from) = (history.who(hold.process), at(history.ns(hold.from)));
    let text = format!("{who} got the lock at {from}{token}.");
    violation.step(history, hold.got, "got the lock", text);
    violation
}
