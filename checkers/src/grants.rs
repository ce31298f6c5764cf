//! What the server said: grants, from when it made a client the owner to when it removed that owner.
//!
//! Server lines are stamped when the observer read them, so they may trail the truth and the client's own replies.
//! Grants are joined to holds by token or by owner, never by the fine order of events.

use crate::history::names::{FastMap, NONE};
use crate::history::{F, History, RevokeCause};
use crate::holds::LockHold;

/// One grant of the server.
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

/// All grants in the order in which the observer saw them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grants {
    pub all: Vec<ServerGrant>,
    /// Places in `all`, by lock.
    pub by_lock: Vec<Vec<u32>>,
    by_token: FastMap<(u32, u64), u32>,
    by_owner: FastMap<(u32, u32), Vec<u32>>,
}

impl Grants {
    pub(crate) fn of(history: &History) -> Self {
        let mut grants = Self {
            by_lock: vec![Vec::new(); history.locks.len()],
            ..Self::default()
        };
        if history.counts.granted + history.counts.revoked == 0 {
            return grants;
        }
        for (position, event) in history.events.iter().enumerate() {
            let Some(lock) = history.lock_number(event) else {
                continue;
            };
            match event.f {
                F::Granted => grants.grant(lock as u32, event.owner, event.token(), position as u32),
                F::Revoked => grants.revoke(lock as u32, event.owner, event.token(), position as u32),
                _ => {}
            }
        }
        grants
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The grant that a hold rests on: of its token, or else the grant of its owner nearest to its beginning.
    pub(crate) fn of_hold(&self, history: &History, hold: &LockHold) -> Option<&ServerGrant> {
        if let Some(token) = hold.token()
            && let Some(place) = self.by_token.get(&(hold.lock, token))
        {
            return Some(&self.all[*place as usize]);
        }
        let places = self
            .by_owner
            .get(&(hold.lock, hold.owner))
            .filter(|_| hold.owner != NONE)?;
        let from = history.ns(hold.from);
        let differs = |grant: &ServerGrant| matches!((grant.token, hold.token()), (Some(a), Some(b)) if a != b);
        let near = |grant: &&ServerGrant| history.events[grant.first() as usize].time.abs_diff(from);
        let after =
            places.partition_point(|place| history.events[self.all[*place as usize].first() as usize].time <= from);
        let around = after.saturating_sub(4)..(after + 4).min(places.len());
        places[around]
            .iter()
            .map(|place| &self.all[*place as usize])
            .filter(|grant| !differs(grant))
            .min_by_key(near)
    }

    /// Whether the server knows exactly one grant of the hold's owner on its lock.
    pub(crate) fn is_single(&self, hold: &LockHold) -> bool {
        self.by_owner
            .get(&(hold.lock, hold.owner))
            .is_some_and(|places| places.len() == 1)
    }

    /// All grants of the hold's owner on its lock, in order.
    pub(crate) fn of_owner(&self, hold: &LockHold) -> impl Iterator<Item = &ServerGrant> {
        let places = self
            .by_owner
            .get(&(hold.lock, hold.owner))
            .filter(|_| hold.owner != NONE);
        places.into_iter().flatten().map(|place| &self.all[*place as usize])
    }

    /// Grants of a lock, in order.
    pub(crate) fn of_lock(&self, lock: usize) -> impl DoubleEndedIterator<Item = &ServerGrant> {
        self.by_lock
            .get(lock)
            .into_iter()
            .flatten()
            .map(|place| &self.all[*place as usize])
    }

    fn grant(&mut self, lock: u32, owner: u32, token: Option<u64>, position: u32) {
        // An observer that came back names the owner again: still the same grant, and with its token surely so.
        if let Some(place) = self.by_lock[lock as usize].last()
            && let last = &mut self.all[*place as usize]
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
        // The grant that is not yet removed is among the last few: no client waits for more than one to be removed.
        let places = self.by_lock[lock as usize].iter().rev().take(64);
        match places.copied().find(|place| fits(&self.all[*place as usize])) {
            Some(place) => self.all[place as usize].revoked = position,
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
        let place = self.all.len() as u32;
        if let Some(token) = grant.token {
            self.by_token.entry((grant.lock, token)).or_insert(place);
        }
        if grant.owner != NONE {
            self.by_owner.entry((grant.lock, grant.owner)).or_default().push(place);
        }
        self.by_lock[grant.lock as usize].push(place);
        self.all.push(grant);
    }
}

impl ServerGrant {
    /// The position of the first line that speaks of it.
    pub(crate) fn first(&self) -> u32 {
        if self.granted == NONE {
            self.revoked
        } else {
            self.granted
        }
    }

    /// The time of its removal, as the observer saw it.
    pub(crate) fn revoked_ns(&self, history: &History) -> Option<u64> {
        history.events.get(self.revoked as usize).map(|event| event.time)
    }

    pub(crate) fn granted_ns(&self, history: &History) -> Option<u64> {
        history.events.get(self.granted as usize).map(|event| event.time)
    }

    /// What the server gave as the reason of the removal; `None` when it gave none, or there was no removal.
    pub(crate) fn cause(&self, history: &History) -> Option<RevokeCause> {
        let event = history.events.get(self.revoked as usize)?;
        let text = history.name(history.rare(event).cause)?;
        Some(RevokeCause::parse(text)).filter(|_| !text.is_empty())
    }

    /// Whether the observer only lost sight of it: how and when it ended is not known.
    pub(crate) fn is_out_of_sight(&self, history: &History) -> bool {
        self.cause(history) == Some(RevokeCause::OutOfSight)
    }

    /// Whether it was removed by a request and not by an expiry.
    pub(crate) fn was_deleted(&self, history: &History) -> bool {
        self.cause(history).is_some_and(|cause| cause.is_removal())
    }
}
