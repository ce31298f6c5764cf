//! Grants: the intervals in which the server had a client as the owner, by the observer's lines.
//!
//! A line has the time at which the observer read it, so it may come after the event and after the client's reply. Grants are joined to
//! holds by token or by owner, never by the fine order of events.

use crate::history::names::{FastMap, FastSet, NONE};
use crate::history::{F, History, Mode, RevokeCause};
use crate::holds::{Ended, Holds, LockHold};
use crate::limits;
use crate::model::Model;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerGrant {
    pub lock: u32,
    pub owner: u32,
    pub token: Option<u64>,
    /// The position of the granted line; `NONE` when only the removal was seen.
    pub granted: u32,
    /// The position of the revoked line; `NONE` while there is none.
    pub revoked: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Grants {
    /// By lock, in the order in which the observer saw them.
    by_lock: Vec<Vec<ServerGrant>>,
    /// The places of grants among those of the lock, by lock and token, and by lock and owner.
    by_token: FastMap<(u32, u64), u32>,
    by_owner: FastMap<(u32, u32), Vec<u32>>,
    /// Owners that several holds name. Two grants of one owner may look like one, and one of them may have been too short to be seen.
    repeated: FastSet<(u32, u32)>,
    /// The names of holds that are compared with the grants.
    watched: Comparable,
    /// Whether two successive grants of one owner may be shown as one, with the token of the first.
    look_alike: bool,
    sharing: Sharing,
}

/// The names of a hold that can be compared with the observer's lines.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Comparable {
    pub owners: bool,
    pub tokens: bool,
}

/// The holders that may share a lock. Of several, the observer shows only the first of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Sharing {
    #[default]
    Nobody,
    Readers,
    All,
}

impl Grants {
    pub(crate) fn of(history: &History, holds: &Holds, model: &Model) -> Self {
        let mut grants = Self {
            by_lock: vec![Vec::new(); history.locks.len()],
            sharing: match model {
                Model::ReadWrite => Sharing::Readers,
                Model::Semaphore { permits } if *permits > 1 => Sharing::All,
                _ => Sharing::Nobody,
            },
            // an inner hold has the token of the outer one
            look_alike: numbers_values(history) && !model.is_reentrant(),
            ..Self::default()
        };
        if history.counts.granted + history.counts.revoked == 0 {
            return grants;
        }
        let is_told = |f, _| matches!(f, F::Granted | F::Revoked);
        history.each_of_locks(is_told, |lock, position, event| {
            let (lock, owner, token) = (lock as u32, history.owner(event), history.token(event));
            if event.f == F::Granted {
                grants.grant(lock, owner, token, position);
            } else {
                grants.revoke(lock, owner, token, position);
            }
        });
        grants.join_rewritten(history, holds);
        grants.index();
        grants
    }

    /// Sets the names that are compared, and finds the owners that several holds name.
    pub(crate) fn compared(mut self, history: &History, holds: &Holds, watched: Comparable) -> Self {
        self.watched = watched;
        let mut named = FastSet::default();
        let owners = holds
            .with_locks()
            .filter_map(|(lock, hold)| Some((lock as u32, self.owner_of(history, hold)?)));
        let repeated = owners.filter(|owner| !named.insert(*owner)).collect();
        self.repeated = repeated;
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_lock.iter().all(Vec::is_empty)
    }

    /// Returns the names of holds that are compared with these grants.
    pub(crate) fn watched(&self) -> Comparable {
        self.watched
    }

    /// Returns a hold's token, if the token is the server's and the observer would show it.
    pub(crate) fn token_of(&self, history: &History, hold: &LockHold) -> Option<u64> {
        let is_shown = !self.look_alike || !self.is_repeated(history, hold);
        (self.watched.tokens && is_shown).then(|| hold.token(history))?
    }

    /// Returns whether another hold of the lock names the same owner.
    fn is_repeated(&self, history: &History, hold: &LockHold) -> bool {
        let owner = self.owner_of(history, hold);
        owner.is_some_and(|owner| self.repeated.contains(&(hold.lock(history) as u32, owner)))
    }

    /// Returns a hold's owner, if the name is the server's and the observer would show the grant.
    pub(crate) fn owner_of(&self, history: &History, hold: &LockHold) -> Option<u32> {
        let named = || Some(hold.owner(history)).filter(|owner| *owner != NONE);
        (self.watched.owners && self.is_shown(hold)).then(named)?
    }

    /// Returns whether a hold has a name that the server knows.
    pub(crate) fn is_named(&self, history: &History, hold: &LockHold) -> bool {
        self.token_of(history, hold).is_some() || self.owner_of(history, hold).is_some()
    }

    /// Returns whether the observer would show the grant of this hold: a reader, or the holder of a permit, need not be the first.
    pub(crate) fn is_shown(&self, hold: &LockHold) -> bool {
        match self.sharing {
            Sharing::Nobody => true,
            Sharing::Readers => hold.mode == Mode::Write,
            Sharing::All => false,
        }
    }

    /// Returns the grant of a hold: the one with its token, or else the grant of its owner nearest to its beginning.
    pub(crate) fn of_hold(&self, history: &History, hold: &LockHold) -> Option<&ServerGrant> {
        if let Some(token) = self.token_of(history, hold)
            && let Some(named) = self.of_token(history, hold, token)
        {
            // a server that lost its last writes issues their tokens again, to others
            let other = self.owner_of(history, hold).filter(|owner| *owner != named.owner);
            let own = other.and_then(|owner| self.nearest(history, hold, owner, |grant| grant.token != Some(token)));
            return own.or(Some(named));
        }
        let token = self.token_of(history, hold);
        let differs = |grant: &ServerGrant| matches!((grant.token, token), (Some(a), Some(b)) if a != b);
        self.nearest(history, hold, self.owner_of(history, hold)?, differs)
    }

    /// Returns whether the observer saw a grant to the owner of a hold, at the time of the hold.
    pub(crate) fn shows_owner(&self, history: &History, hold: &LockHold) -> bool {
        self.nearest(history, hold, hold.owner(history), |_| false).is_some()
    }

    /// Returns whether the observer saw the grant with a hold's token, at the time of the hold.
    pub(crate) fn shows_token(&self, history: &History, hold: &LockHold) -> bool {
        let grant = hold
            .token(history)
            .and_then(|token| self.of_token(history, hold, token));
        grant.is_some_and(|grant| may_be_of(history, grant, hold))
    }

    /// Returns the grant of a hold's lock with this token.
    fn of_token(&self, history: &History, hold: &LockHold, token: u64) -> Option<&ServerGrant> {
        let lock = hold.lock(history);
        let place = self.by_token.get(&(lock as u32, token))?;
        Some(&self.by_lock[lock][*place as usize])
    }

    /// Returns the grant of an owner nearest to the beginning of a hold, of those that may be its grant.
    fn nearest(
        &self,
        history: &History,
        hold: &LockHold,
        owner: u32,
        differs: impl Fn(&ServerGrant) -> bool,
    ) -> Option<&ServerGrant> {
        let lock = hold.lock(history);
        let places = self.by_owner.get(&(lock as u32, owner))?;
        let from = history.ns(hold.from);
        let shown_ns = |grant: &ServerGrant| history.event(grant.first()).time;
        let after = places.partition_point(|place| shown_ns(&self.by_lock[lock][*place as usize]) <= from);
        let around = &places[after.saturating_sub(4)..(after + 4).min(places.len())];
        let around = around.iter().map(|place| &self.by_lock[lock][*place as usize]);
        around
            .filter(|grant| !differs(grant) && may_be_of(history, grant, hold))
            .min_by_key(|grant| (is_the_next(history, grant, hold), shown_ns(grant).abs_diff(from)))
    }

    /// Returns whether the observer showed exactly one grant of the hold's owner on its lock, and no other hold names that owner.
    pub(crate) fn is_single(&self, history: &History, hold: &LockHold) -> bool {
        self.owner_of(history, hold).is_some_and(|owner| {
            let key = (hold.lock(history) as u32, owner);
            let places = self.by_owner.get(&key);
            places.is_some_and(|places| places.len() == 1) && !self.repeated.contains(&key)
        })
    }

    /// Returns whether the grant of a hold is unambiguous: the same name may have been granted the lock again.
    pub(crate) fn is_sure(&self, history: &History, hold: &LockHold) -> bool {
        self.token_of(history, hold).is_some() || self.is_single(history, hold)
    }

    /// Returns the grants of the hold's owner that may be the grant of the hold, in order.
    pub(crate) fn candidates(&self, history: &History, hold: &LockHold) -> impl Iterator<Item = &ServerGrant> {
        self.of_owner(history, hold)
            .filter(move |grant| may_be_of(history, grant, hold) && !is_the_next(history, grant, hold))
    }

    /// Returns all grants of the hold's owner on its lock, in order.
    pub(crate) fn of_owner(&self, history: &History, hold: &LockHold) -> impl Iterator<Item = &ServerGrant> {
        let lock = hold.lock(history);
        let owner = self.owner_of(history, hold);
        let places = owner.and_then(|owner| self.by_owner.get(&(lock as u32, owner)));
        let places = places.into_iter().flatten();
        places.map(move |place| &self.by_lock[lock][*place as usize])
    }

    /// Returns the grants of a lock, in order.
    pub(crate) fn of_lock(&self, lock: usize) -> &[ServerGrant] {
        &self.by_lock[lock]
    }

    /// Returns whether the observer missed the end of a grant, as it may when it connects again: there is no line of the end, and a later
    /// line of another grant, and one client has the lock at a time.
    pub(crate) fn is_end_missed(&self, grant: &ServerGrant) -> bool {
        let is_last = || self.of_lock(grant.lock as usize).last().map(ServerGrant::first) == Some(grant.first());
        grant.revoked == NONE && self.sharing == Sharing::Nobody && !is_last()
    }

    fn grant(&mut self, lock: u32, owner: u32, token: Option<u64>, position: u32) {
        // An observer that connects again names the owner again: the same grant, certainly so if the token is the same.
        if let Some(last) = self.by_lock[lock as usize].last_mut()
            && (last.owner, last.token) == (owner, token)
            && last.granted != NONE
            && (last.revoked == NONE || token.is_some())
        {
            last.revoked = NONE;
            return;
        }
        self.add(ServerGrant {
            lock,
            owner,
            token,
            granted: position,
            revoked: NONE,
        });
    }

    fn revoke(&mut self, lock: u32, owner: u32, token: Option<u64>, position: u32) {
        let fits = |grant: &ServerGrant| {
            grant.revoked == NONE
                && (owner == NONE || grant.owner == NONE || grant.owner == owner)
                && (token.is_none() || grant.token.is_none() || grant.token == token)
        };
        // A grant that is not yet removed is among the last few: no client waits for more than one removal. Of a lock that is shared, others
        // come and go while one continues.
        let few = match self.sharing {
            Sharing::Nobody => 64,
            Sharing::Readers | Sharing::All => limits::GRANTS_BESIDE_ONE,
        };
        let mut last = self.by_lock[lock as usize].iter_mut().rev().take(few);
        match last.find(|grant| fits(grant)) {
            Some(grant) => grant.revoked = position,
            None => self.add(ServerGrant {
                lock,
                owner,
                token,
                granted: NONE,
                revoked: position,
            }),
        }
    }

    fn add(&mut self, grant: ServerGrant) {
        let of_lock = &mut self.by_lock[grant.lock as usize];
        if of_lock.is_empty() {
            // Most of many locks have one grant.
            of_lock.reserve_exact(1);
        }
        of_lock.push(grant);
    }

    /// Joins grants that are one. A lock that rewrites its value when it renews is shown as the end of one grant and the beginning of
    /// another, at one instant and with a name that is in no client's answer. They are one grant, unless the owner had called a release.
    fn join_rewritten(&mut self, history: &History, holds: &Holds) {
        let mut named = AnsweredNames {
            owners: FastSet::default(),
            tokens: numbers_values(history).then(FastSet::default),
        };
        let is_acquire = |f, _| f == F::Acquire;
        history.events.each_of(is_acquire, |_, event| {
            let owner = history.owner(event);
            if owner != NONE {
                named.owners.insert(owner);
            }
            if let Some(tokens) = &mut named.tokens
                && let (Some(lock), Some(token)) = (history.lock_number(event), history.token(event))
            {
                tokens.insert((lock as u32, token));
            }
        });
        let mut releases: FastMap<(u32, u32), Vec<u64>> = FastMap::default();
        for (lock, hold) in holds.with_locks().filter(|(_, hold)| hold.ended == Ended::Released) {
            let called_ns = history.event(hold.end).time;
            releases
                .entry((lock as u32, hold.owner(history)))
                .or_default()
                .push(called_ns);
        }
        let was_released = |grant: &ServerGrant| {
            let called = releases.get(&(grant.lock, grant.owner)).into_iter().flatten();
            let (from, to) = (grant.granted_ns(history), grant.revoked_ns(history));
            called
                .into_iter()
                .any(|called_ns| from <= Some(*called_ns) && Some(*called_ns) <= to)
        };
        for grants in &mut self.by_lock {
            grants.dedup_by(|later, earlier| {
                let is_one = is_rewritten(history, &named, earlier, later) && !was_released(earlier);
                if is_one {
                    earlier.revoked = later.revoked;
                }
                is_one
            });
        }
    }

    fn index(&mut self) {
        let places = self.by_lock.iter().flat_map(|grants| (0..).zip(grants));
        for (place, grant) in places {
            if let Some(token) = grant.token {
                self.by_token.entry((grant.lock, token)).or_insert(place);
            }
            if grant.owner != NONE {
                self.by_owner.entry((grant.lock, grant.owner)).or_default().push(place);
            }
        }
    }
}

/// Returns whether a grant can be the grant of a hold. Lines of the observer come late and never early: a grant that had ended by its line
/// at the hold's call had ended, and a grant that began by its line long after the end of the hold belongs to another.
fn may_be_of(history: &History, grant: &ServerGrant, hold: &LockHold) -> bool {
    let called = hold.asked_ns(history);
    let over = history.ns(hold.to).saturating_add(limits::OBSERVER_GAP_NS);
    let ended = grant.seen_end_ns(history);
    ended.is_none_or(|ended| ended >= called) && grant.granted_ns(history).is_none_or(|granted| granted <= over)
}

/// Returns whether a grant was seen to begin after the end of the hold, which was long enough to show that: it belongs to the owner's next
/// hold.
fn is_the_next(history: &History, grant: &ServerGrant, hold: &LockHold) -> bool {
    let (from, to) = (history.ns(hold.from), history.ns(hold.to));
    let after = grant.granted_ns(history).is_some_and(|granted| granted > to);
    after && to.saturating_sub(from) > limits::OBSERVER_LAG_NS
}

/// Returns whether the observer took the revision of each new value for a token.
fn numbers_values(history: &History) -> bool {
    history.header.backend.as_deref() == Some("nats")
}

/// The names in clients' answers to acquires.
struct AnsweredNames {
    owners: FastSet<u32>,
    /// By lock; `None` where a token belongs to a grant, and never to a value.
    tokens: Option<FastSet<(u32, u64)>>,
}

impl AnsweredNames {
    /// Returns whether an answer names the owner or the token of a grant.
    fn has(&self, grant: &ServerGrant) -> bool {
        let has_token = |token| {
            self.tokens
                .as_ref()
                .is_some_and(|tokens| tokens.contains(&(grant.lock, token)))
        };
        self.owners.contains(&grant.owner) || grant.token.is_some_and(has_token)
    }
}

/// Returns whether `later` is `earlier` under a new name: its key was never removed, and the new name is in no client's answer.
fn is_rewritten(history: &History, named: &AnsweredNames, earlier: &ServerGrant, later: &ServerGrant) -> bool {
    let (Some(ended), Some(began)) = (earlier.revoked_ns(history), later.granted_ns(history)) else {
        return false;
    };
    let unasked = match earlier.cause(history) {
        Some(RevokeCause::Overwritten) => true,
        // an acquire removes the value of an attempt that failed, and tries again with another one
        Some(RevokeCause::Deleted) => named.has(earlier),
        _ => false,
    };
    let told = named.tokens.as_ref();
    let untold = |token| told.is_some_and(|told| !told.contains(&(later.lock, token)));
    let unnamed = later.owner != NONE && !named.owners.contains(&later.owner) && later.token.is_none_or(untold);
    earlier.granted != NONE
        && unasked
        && unnamed
        && later.granted > earlier.revoked
        && began - ended.min(began) <= limits::REWRITE_NS
}

impl ServerGrant {
    /// Returns the position of the first line of the grant.
    pub(crate) fn first(&self) -> u32 {
        if self.granted == NONE {
            self.revoked
        } else {
            self.granted
        }
    }

    /// Returns the time of its removal, by the observer's line.
    pub(crate) fn revoked_ns(&self, history: &History) -> Option<u64> {
        history.events.get(self.revoked as usize).map(|event| event.time)
    }

    /// Returns the time of its end, if the observer saw it.
    pub(crate) fn seen_end_ns(&self, history: &History) -> Option<u64> {
        self.revoked_ns(history).filter(|_| !self.is_out_of_sight(history))
    }

    pub(crate) fn granted_ns(&self, history: &History) -> Option<u64> {
        history.events.get(self.granted as usize).map(|event| event.time)
    }

    /// Returns the server's reason for the removal; `None` without a reason or a removal.
    pub(crate) fn cause(&self, history: &History) -> Option<RevokeCause> {
        let event = history.events.get(self.revoked as usize)?;
        let text = history.name(history.rare(event).cause)?;
        Some(RevokeCause::parse(text)).filter(|_| !text.is_empty())
    }

    /// Returns whether the observer lost sight of the grant: the time and the reason of its end are not known.
    pub(crate) fn is_out_of_sight(&self, history: &History) -> bool {
        self.cause(history) == Some(RevokeCause::OutOfSight)
    }

    /// Returns whether its lease, session or time to live ended.
    pub(crate) fn has_expired(&self, history: &History) -> bool {
        self.cause(history) == Some(RevokeCause::Expired)
    }

    /// Returns whether its owner requested its end.
    pub(crate) fn was_released(&self, history: &History) -> bool {
        self.cause(history).is_some_and(|cause| cause.is_release())
    }

    /// Returns whether a request removed it, and not an expiry.
    pub(crate) fn was_deleted(&self, history: &History) -> bool {
        self.cause(history).is_some_and(|cause| cause.is_removal())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::event::{Header, Kind, Process};
    use crate::history::{Entry, HistoryBuilder};

    #[test]
    fn a_grant_of_a_shared_lock_ends_however_many_came_and_went_meanwhile() {
        let mut builder = HistoryBuilder::new(Header::of_locks(["l0"]));
        let mut say = |f: F, token: u64| {
            let at = builder.len() as u64 + 1;
            let entry = Entry {
                token: Some(token),
                ..Entry::new(at, at, Process::Server, Kind::Signal, f)
            };
            builder.push(&entry).expect("a line of the server");
        };
        say(F::Granted, 1);
        for token in 2..200 {
            say(F::Granted, token);
            say(F::Revoked, token);
        }
        say(F::Revoked, 1);
        let history = builder.finish();
        let model = Model::Semaphore { permits: 2 };
        let grants = Grants::of(&history, &Holds::of(&history, &model), &model);
        let is_whole = |grant: &ServerGrant| grant.granted != NONE && grant.revoked != NONE;
        assert!(grants.of_lock(0).iter().all(is_whole));
        assert_eq!(grants.of_lock(0).len(), 199);
    }
}
