//! The comparison of the observer's lines with the clients' answers: whether it is possible, by the origin of the owners and tokens.
//!
//! The contract in the header has the origin. Otherwise the history shows it: owners and tokens of the server also occur in the observer's
//! lines, at the time of their holds.

use crate::grants::{Comparable, Grants};
use crate::history::History;
use crate::history::event::Origin;
use crate::history::names::NONE;
use crate::holds::{Holds, LockHold};

/// The reason why the observer's lines are no evidence about the clients' answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotWatched {
    /// The recording has no observer.
    NoObserver,
    /// The observer does not know the place of the lock.
    Elsewhere,
    /// There was an observer, and it saw no grant.
    NothingSeen,
    /// The clients' answers name neither owners nor tokens.
    NoNames,
    /// The clients' owners and tokens are the lock's own.
    OwnNames,
    /// The contract has no origin of the clients' owners and tokens, and hardly one of them is in the observer's lines.
    OtherNames,
}

/// One in this number of holds must be among the grants for the names to count as the server's. Names of the server are found nearly
/// always, unless the observer was away or shows one of several holders.
const FOUND: u64 = 10;
/// The same for numbers of a lock that one client has at a time: two counters may have some numbers at about the same time.
const FOUND_NUMBERS: u64 = 2;

/// Returns the names of a hold that can be compared with the observer's lines.
pub(crate) fn comparable(history: &History, holds: &Holds, grants: &Grants) -> Comparable {
    let promises = &history.header.promises;
    if promises.watched == Some(false) || grants.is_empty() {
        return Comparable::default();
    }
    let servers = |origin: Option<Origin>, one_in: u64, shown: &dyn Fn(&LockHold) -> Option<bool>| match origin {
        Some(origin) => origin == Origin::Server,
        None => {
            let (mut named, mut found) = (0, 0);
            for shown in holds.iter().filter_map(shown) {
                named += 1;
                found += u64::from(shown);
            }
            found > 0 && found * one_in >= named
        }
    };
    let are_all_shown = holds.iter().all(|hold| grants.is_shown(hold));
    let one_in = if are_all_shown { FOUND_NUMBERS } else { FOUND };
    Comparable {
        owners: servers(promises.owner, FOUND, &|hold| {
            (hold.owner(history) != NONE).then(|| grants.shows_owner(history, hold))
        }),
        tokens: servers(promises.token, one_in, &|hold| {
            hold.token(history).is_some().then(|| grants.shows_token(history, hold))
        }),
    }
}

/// Returns the reason why no hold can be compared; `None` when holds can be.
pub(crate) fn why_not(history: &History, holds: &Holds, grants: &Grants) -> Option<NotWatched> {
    let promises = &history.header.promises;
    let own = |origin: Option<Origin>| matches!(origin, Some(Origin::Own | Origin::None));
    let named = || {
        let mut all = holds.iter();
        all.any(|hold| hold.token(history).is_some() || hold.owner(history) != NONE)
    };
    let compared = grants.watched();
    Some(match () {
        () if promises.watched == Some(false) => NotWatched::Elsewhere,
        () if grants.is_empty() && history.phases().is_empty() => NotWatched::NoObserver,
        () if grants.is_empty() => NotWatched::NothingSeen,
        () if compared.owners || compared.tokens => return None,
        () if own(promises.owner) && own(promises.token) => NotWatched::OwnNames,
        () if named() => NotWatched::OtherNames,
        () => NotWatched::NoNames,
    })
}
