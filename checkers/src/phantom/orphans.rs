//! Orphan grants, a part of HL007: an acquire was answered `fail`, and the server granted the lock to it; or its client continued to ask,
//! and was refused because of its own grant.
//!
//! No client holds such a grant, and it stays until its lease ends. Judged only where the contract says that the owners of grants are the
//! server's, so that a grant without an answer is known to be one.

use crate::calm;
use crate::context::Context;
use crate::grants::ServerGrant;
use crate::history::event::{Kind, Origin};
use crate::history::names::{FastMap, FastSet, NONE};
use crate::history::{AskedAgain, ClientSession, F, Window, client_number};
use crate::holds::{Ended, LockHold};
use crate::limits;
use crate::model::Model;
use crate::wait::Wait;

/// A grant to an acquire that was answered `fail`, or whose client did not notice it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OrphanGrant<'a> {
    pub grant: &'a ServerGrant,
    /// The positions of the acquire and of its answer: the last acquire to which the grant can belong.
    pub call: u32,
    pub reply: u32,
    /// The time from that answer to the end of the grant, in nanoseconds; or, if its client continued to ask, the length of the grant.
    pub stood_ns: u64,
    /// The refusals of its client while the grant existed.
    pub refused: Option<Refusals<'a>>,
    /// The owner's session by the taps' lines, if no acquire that was answered `ok` names it.
    pub session: Option<&'a ClientSession>,
    /// Whether an acquire that was answered `ok` under another name may have left it: a client may ask under a new name at each attempt, on
    /// an overloaded machine.
    doubtful: bool,
}

/// The repeated requests of a client that were refused because of its own grant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refusals<'a> {
    pub again: &'a AskedAgain,
    /// The number of refusals with known times, and the first and the last of these times.
    pub count: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

impl<'a> Refusals<'a> {
    /// Returns the refusals up to a time, if there are any.
    fn until(again: &'a AskedAgain, until_ns: u64) -> Option<Self> {
        let mut times = again.refused_ns.iter().filter(|at| **at <= until_ns);
        let first_ns = *times.next()?;
        let (more, last_ns) = times.fold((0, first_ns), |(more, _), at| (more + 1, *at));
        Some(Self {
            again,
            count: more + 1,
            first_ns,
            last_ns,
        })
    }
}

/// Returns the orphan grants of a history.
pub(super) fn of<'a>(context: &'a Context<'_>) -> Vec<OrphanGrant<'a>> {
    let history = context.history;
    let exclusive = context.model.capacity() == 1 && !matches!(context.model, Model::ReadWrite);
    let in_order = context.clock_error_ns == 0;
    if history.header.promises.owner != Some(Origin::Server) || !exclusive || !in_order {
        return Vec::new();
    }
    let named = clients_by_owner(context);
    let sessions = sessions(context);
    let fresh = has_fresh_names(context);
    let asked_again: Vec<&AskedAgain> = asked_again(context).collect();
    let mut found = Vec::new();
    for lock in 0..history.locks.len() {
        let grants = context.grants.of_lock(lock);
        let asks: Vec<Wait> = context.waits_for(lock).collect();
        let mut not_before_ns = 0;
        for (place, grant) in grants.iter().enumerate() {
            if let Some(hold) = context.hold_of(grant) {
                not_before_ns = not_before_ns.max(next_not_before(context, grant, hold));
                continue;
            }
            let before = place.checked_sub(1).map(|before| &grants[before]);
            not_before_ns = not_before_ns.max(before.and_then(|before| seen_to_end(context, before)).unwrap_or(0));
            let clients = clients_of(&named, grant.owner);
            // a request that was sent twice: the second arrived after its acquire was answered `ok`
            let again = fresh && !clients.is_empty();
            if before.is_some_and(|before| is_rewritten(context, before, grant)) {
                continue;
            }
            let judge = OrphanJudge {
                context,
                asks: &asks,
                asked_again: &asked_again,
                clients,
                session: history.name(grant.owner).and_then(|name| sessions.get(name).copied()),
                not_before_ns,
            };
            let orphan = if again { None } else { judge.orphan(grant) };
            found.extend(orphan.or_else(|| judge.unnoticed(grant)));
        }
    }
    let doubtful = found.iter().filter(|orphan| orphan.doubtful).count() as u64;
    found.retain(|orphan| !orphan.doubtful || doubtful >= limits::ORPHANS);
    found
}

/// Returns the requests that clients repeated after lost replies.
fn asked_again<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a AskedAgain> {
    context.history.tap_totals().flat_map(|taps| &taps.asked_again)
}

/// Returns the sessions by their names, without those that two clients had, which identify neither.
fn sessions<'a>(context: &Context<'a>) -> FastMap<&'a str, &'a ClientSession> {
    let mut known: FastMap<&str, Option<&ClientSession>> = FastMap::default();
    for session in context.history.tap_totals().flat_map(|taps| &taps.sessions) {
        let first = known.entry(&session.name).or_insert(Some(session));
        first.take_if(|first| first.client != session.client);
    }
    known
        .into_iter()
        .filter_map(|(name, session)| Some((name, session?)))
        .collect()
}

/// Returns the owners' names with the clients that use them, in order: a session's name recurs, and clients of one process may share one.
fn clients_by_owner(context: &Context<'_>) -> Vec<(u32, u32)> {
    let history = context.history;
    let named = history.events.iter().filter(|event| event.f == F::Acquire);
    let named = named.map(|event| (history.owner(event), history.client_of(event.process)));
    let mut named: Vec<(u32, u32)> = named.filter(|(owner, _)| *owner != NONE).collect();
    named.sort_unstable();
    named.dedup();
    named
}

/// Returns whether a client, and no other, has asked for locks as this owner, by the answers or by the taps.
pub(super) fn is_owner_of(context: &Context<'_>, client: u32, owner: u32) -> bool {
    let named = clients_by_owner(context);
    match clients_of(&named, owner) {
        [] => {
            let session = context
                .history
                .name(owner)
                .and_then(|name| sessions(context).remove(name));
            session.is_some_and(|session| client_number(&session.client) == Some(client))
        }
        clients => clients == [(owner, client)],
    }
}

/// Returns the entries of one name.
fn clients_of(named: &[(u32, u32)], owner: u32) -> &[(u32, u32)] {
    let from = named.partition_point(|(name, _)| *name < owner);
    let to = named.partition_point(|(name, _)| *name <= owner);
    &named[from..to]
}

/// Returns whether each acquire has its own name, such as a random value: then a name that was answered `ok` belongs to that acquire only.
/// A session's name is repeated.
fn has_fresh_names(context: &Context<'_>) -> bool {
    let history = context.history;
    let mut names: FastSet<u32> = FastSet::default();
    let mut clients: FastSet<u32> = FastSet::default();
    let mut has_two = false;
    for event in history.events.iter().filter(|event| event.f == F::Acquire) {
        let owner = history.owner(event);
        if event.kind != Kind::Ok || owner == NONE {
            continue;
        }
        if !names.insert(owner) {
            return false;
        }
        has_two |= !clients.insert(history.client_of(event.process));
    }
    has_two
}

/// Returns whether a value was overwritten during a hold of its owner: the new value may be the same owner's.
fn is_rewritten(context: &Context<'_>, before: &ServerGrant, grant: &ServerGrant) -> bool {
    let history = context.history;
    let (Some(ended), Some(began)) = (before.revoked_ns(history), grant.granted_ns(history)) else {
        return true;
    };
    !before.was_released(history)
        && !before.has_expired(history)
        && began.saturating_sub(ended) <= limits::OBSERVER_LAG_NS
}

/// Returns the earliest time of the next grant: after the call of the acquire to which this one belongs, and after that of the release
/// which ended it.
fn next_not_before(context: &Context<'_>, grant: &ServerGrant, hold: &LockHold) -> u64 {
    let history = context.history;
    match hold.ended == Ended::Released && grant.was_released(history) {
        true => history.ns(hold.to),
        false => hold.asked_ns(history),
    }
}

/// Returns the earliest end of a grant, by the line that showed its end and by the delay of lines at that time.
fn seen_to_end(context: &Context<'_>, grant: &ServerGrant) -> Option<u64> {
    let shown_ns = grant.seen_end_ns(context.history)?;
    Some(shown_ns.saturating_sub(context.sight().measured_ns(shown_ns)?))
}

/// The facts by which one grant is judged.
struct OrphanJudge<'j, 'a> {
    context: &'j Context<'a>,
    /// The acquires of the lock.
    asks: &'j [Wait],
    /// The repeated requests of the whole history.
    asked_again: &'j [&'a AskedAgain],
    /// The owner's name with each of its clients, if any acquire named it.
    clients: &'j [(u32, u32)],
    /// The owner's session, if the taps' lines show its client.
    session: Option<&'a ClientSession>,
    /// The earliest time of the grant, by the acquires and releases of the grants before and by the end of the last of them.
    not_before_ns: u64,
}

impl<'a> OrphanJudge<'_, 'a> {
    /// Returns the beginning of a grant, the end of its lease, and the observer delay; `None` unless it ended so and was seen whole.
    fn stand(&self, grant: &ServerGrant) -> Option<(u64, u64, u64)> {
        let history = self.context.history;
        let granted_ns = grant.granted_ns(history)?;
        let ended_ns = grant.revoked_ns(history).unwrap_or(history.end_ns);
        let sight = self.context.sight();
        let lag_ns = sight.lag_ns(granted_ns).max(sight.lag_ns(ended_ns));
        let goes_on = grant.revoked == NONE && !self.context.grants.is_end_missed(grant);
        let by_itself = goes_on || grant.has_expired(history);
        let whole = sight.is_whole(granted_ns.saturating_sub(lag_ns), ended_ns);
        (grant.owner != NONE && by_itself && whole).then_some((granted_ns, ended_ns, lag_ns))
    }

    fn client(&self, ask: &Wait) -> u32 {
        self.context.history.client_of(ask.process)
    }

    /// Returns whether a message at a time, of a client by its name in the taps' lines (`c3`), was sent for an acquire.
    fn sent(&self, ask: &Wait, client: &str, at_ns: u64) -> bool {
        client_number(client) == Some(self.client(ask)) && ask.from_ns <= at_ns && at_ns <= ask.to_ns
    }

    /// Returns the session and its client, if no acquire named its client.
    fn by_wire(&self) -> Option<(&'a ClientSession, u32)> {
        let session = self.session.filter(|_| self.clients.is_empty())?;
        Some((session, client_number(&session.client)?))
    }

    /// Returns whether the server may have granted the lock to a client; `None` if no line names one.
    fn may_own(&self, client: u32) -> Option<bool> {
        if self.clients.is_empty() {
            return self.by_wire().map(|(_, owner)| owner == client);
        }
        Some(self.clients.iter().any(|(_, owner)| *owner == client))
    }

    /// Returns the acquires that the owner of the grant may have called: none that had ended before the owner's session began.
    fn own(&self) -> impl Iterator<Item = &Wait> {
        let of_it = |session: &&ClientSession| {
            client_number(&session.client).is_some_and(|client| self.may_own(client) == Some(true))
        };
        let since_ns = self.session.filter(of_it).map_or(0, |session| session.time_ns);
        let is_own = move |ask: &&Wait| self.may_own(self.client(ask)) != Some(false) && ask.to_ns >= since_ns;
        self.asks.iter().filter(is_own)
    }

    fn orphan(&self, grant: &'a ServerGrant) -> Option<OrphanGrant<'a>> {
        let (granted_ns, ended_ns, lag_ns) = self.stand(grant)?;
        // the line of a grant comes late and never early, so the grant belongs to no later call
        let refused = self
            .own()
            .filter(|ask| ask.kind == Kind::Fail && ask.from_ns <= granted_ns);
        let patience_ns = self.context.lease_ns + limits::AFTERMATH_NS;
        let recent = refused.filter(|ask| granted_ns.saturating_sub(ask.to_ns) <= patience_ns);
        let lost_ok = self.lost_ok(granted_ns, lag_ns);
        // of all candidates, the one that was answered last: the grant existed for that long after any of them
        let meant = lost_ok.or_else(|| recent.max_by_key(|ask| ask.to_ns))?;
        let stood_ns = ended_ns.saturating_sub(granted_ns.max(meant.to_ns));
        // a grant whose client only the taps show must have outlived two leases, and its client must have been refused again in that time:
        // a client that is disconnected for a whole session may not know
        let session = self.by_wire().map(|(session, _)| session).filter(|_| lost_ok.is_none());
        let least_ns = if session.is_some() {
            self.context.lease_ns * 2
        } else {
            self.context.lease_ns / 2
        };
        // a process that dies right after its answer can remove nothing
        let left_ns = self.context.died_ns(meant.process).min(ended_ns);
        let could_remove_ns = left_ns.saturating_sub(granted_ns.max(meant.to_ns));
        let asked_on = |ask: &Wait| ask.kind == Kind::Fail && ask.from_ns >= meant.to_ns && ask.to_ns <= ended_ns;
        if could_remove_ns <= least_ns + lag_ns || (session.is_some() && !self.own().any(asked_on)) {
            return None;
        }
        let unknown = |ask: &Wait| ask.kind == Kind::Info && self.may_happen_late(ask, granted_ns, patience_ns);
        let explained = lost_ok.is_none() && self.own().any(unknown);
        // an answer before the earliest time of this grant belongs to another one
        let may_be_its_answer = |ask: &Wait| {
            ask.kind == Kind::Ok && ask.was_in_flight(granted_ns, lag_ns) && ask.to_ns >= self.not_before_ns
        };
        let answered = lost_ok.is_none() && self.own().any(may_be_its_answer);
        let calm = self.is_calm(granted_ns.saturating_sub(patience_ns), granted_ns);
        // a client with this name has been answered with another grant, or this one is its own
        let by_another = answered && (!self.clients.is_empty() || session.is_some() || !calm);
        (!explained && !by_another).then_some(OrphanGrant {
            grant,
            call: meant.call,
            reply: meant.reply,
            stood_ns,
            refused: None,
            session,
            doubtful: answered,
        })
    }

    /// Returns a grant whose reply a fault lost, and whose client asked again for a quarter of a lease or longer, and was refused each time
    /// while the grant existed: no other client had the lock.
    fn unnoticed(&self, grant: &'a ServerGrant) -> Option<OrphanGrant<'a>> {
        let (granted_ns, ended_ns, lag_ns) = self.stand(grant)?;
        let (refused, ask) = self.asked_again.iter().find_map(|again| {
            let at = again.time_ns;
            let asked = |ask: &&Wait| ask.answer().is_some() && self.sent(ask, &again.client, at);
            let ask = self.asks.iter().find(asked)?;
            let refused = Refusals::until(again, ask.to_ns.min(ended_ns))?;
            let came_of_it = (at..=at.saturating_add(lag_ns)).contains(&granted_ns);
            let long = refused.last_ns - refused.first_ns >= self.context.lease_ns / 4;
            (came_of_it && long && refused.count >= limits::REFUSED_AGAIN).then_some((refused, ask))
        })?;
        // the accepted request acquired the lock, unless it had another purpose and another client acquired it at that moment
        let may_be_of = |other: &Wait| {
            other.kind == Kind::Info
                && self.client(other) != self.client(ask)
                && other.was_in_flight(granted_ns, lag_ns)
        };
        let name = self.context.history.name(grant.owner);
        let is_named = name.is_some_and(|name| refused.again.words.iter().any(|word| word == name));
        let is_its_own = is_named
            || match self.may_own(self.client(ask)) {
                Some(false) => false,
                Some(true) if self.clients.len() <= 1 => true,
                _ => !self.asks.iter().any(may_be_of),
            };
        is_its_own.then_some(OrphanGrant {
            grant,
            call: ask.call,
            reply: ask.reply,
            stood_ns: ended_ns.saturating_sub(granted_ns),
            refused: Some(refused),
            session: None,
            doubtful: false,
        })
    }

    /// Returns the acquire that was answered `fail`, and whose `ok` reply a fault lost when this grant began: the grant is its own.
    fn lost_ok(&self, granted_ns: u64, lag_ns: u64) -> Option<&Wait> {
        let windows = self.context.windows.iter();
        let lost = windows.filter(|window| window.fault == "drop-reply");
        lost.filter_map(Window::matched).find_map(|message| {
            let at = message.time_ns;
            let came_of_it = message.done
                && message.accepted
                && self.not_before_ns <= at
                && (at..=at.saturating_add(lag_ns)).contains(&granted_ns);
            let of_a_grant = |ask: &&Wait| ask.kind == Kind::Fail && self.may_own(self.client(ask)) != Some(false);
            let mut sent = self.asks.iter().filter(|ask| self.sent(ask, &message.client, at));
            sent.find(|ask| came_of_it && of_a_grant(ask))
        })
    }

    /// Returns whether an acquire with an unknown outcome may have taken effect at a time: a request under a fault arrives after it, and
    /// without a fault no request is pending for long.
    fn may_happen_late(&self, ask: &Wait, ns: u64, patience_ns: u64) -> bool {
        let over = ask.to_ns.saturating_add(patience_ns) < ns;
        ask.from_ns <= ns && !(over && self.is_calm(ns.saturating_sub(patience_ns), ns))
    }

    fn is_calm(&self, from_ns: u64, to_ns: u64) -> bool {
        let span = calm::span_of(self.context, from_ns, to_ns);
        span.is_some_and(|span| span.from_ns + span.retransmission_ns <= from_ns)
    }
}
