//! The built-in specifications of locks: with one owner, and with many.

use super::spec::{Polarity, SequentialSpec};
use crate::history::Mode;
use crate::history::names::NONE;
use crate::model::Model;

/// One operation on a lock with its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockOp {
    /// An acquire.
    Acquire {
        /// The process.
        process: u32,
        /// The mode.
        mode: Mode,
        /// The number of permits.
        permits: u32,
        /// The token of the grant.
        token: Option<u64>,
        /// Whether it extends a grant that its process had given up: one grant has one token.
        extends: bool,
    },
    /// A release.
    Release {
        /// The process.
        process: u32,
        /// The number of permits.
        permits: u32,
    },
    /// The loss of all holds of a process, as by an expiry.
    Lose {
        /// The process.
        process: u32,
    },
    /// The answer that another process holds the lock.
    Busy {
        /// The process.
        process: u32,
    },
    /// The answer that the caller does not hold the lock.
    NotHeld {
        /// The process.
        process: u32,
    },
}

/// A lock with at most one owner: plain, owner-aware, reentrant, fenced, try-lock, election.
#[derive(Debug, Clone, Copy)]
pub struct OneOwner {
    limit: u32,
    plain: bool,
    fenced: bool,
    hints: bool,
}

/// The owner, the number of its holds, and the token of the latest grant that had one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owned {
    owner: u32,
    depth: u32,
    token: u64,
    /// The process of that grant; `NONE` if no grant had a token yet.
    told: u32,
    /// Whether the token is that of the present owner.
    known: bool,
}

impl OneOwner {
    /// Creates the specification of a model with one owner; of the owner-aware mutex for all others.
    pub fn new(model: Model) -> Self {
        let (limit, fenced) = match model {
            Model::Reentrant { limit } => (limit, false),
            Model::ReentrantFenced { limit } => (limit, true),
            Model::Fenced => (1, true),
            _ => (1, false),
        };
        Self {
            limit,
            plain: model == Model::Mutex,
            fenced,
            hints: true,
        }
    }

    /// Returns the specification without hints, against which the hints are tested.
    pub fn without_hints(self) -> Self {
        Self { hints: false, ..self }
    }

    fn acquire(&self, state: Owned, process: u32, token: Option<u64>, extends: bool) -> Option<Owned> {
        let token = token.filter(|_| self.fenced);
        let same_grant = |token: u64| token == state.token && extends && state.told == process;
        let fits = token.is_none_or(|token| state.told == NONE || token > state.token || same_grant(token));
        let told = |state: Owned| match token {
            Some(token) => Owned {
                token,
                told: process,
                known: true,
                ..state
            },
            None => state,
        };
        if state.owner == NONE {
            let owner = if self.plain { 0 } else { process };
            return fits.then_some(told(Owned {
                owner,
                depth: 1,
                known: false,
                ..state
            }));
        }
        // A nested acquire has the token of the outermost, or is the first with a token.
        let same = if state.known {
            token.is_none_or(|token| token == state.token)
        } else {
            fits
        };
        let again = !self.plain && state.owner == process && state.depth < self.limit && same;
        again.then_some(told(Owned {
            depth: state.depth + 1,
            ..state
        }))
    }
}

const FREE: Owned = Owned {
    owner: NONE,
    depth: 0,
    token: 0,
    told: NONE,
    known: false,
};

impl SequentialSpec for OneOwner {
    type Op = LockOp;
    type State = Owned;

    fn initial(&self) -> Owned {
        FREE
    }

    fn step(&self, state: Owned, op: &LockOp) -> Option<Owned> {
        let free = Owned {
            owner: NONE,
            depth: 0,
            ..state
        };
        match *op {
            LockOp::Acquire {
                process,
                token,
                extends,
                ..
            } => self.acquire(state, process, token, extends),
            LockOp::Release { process, .. } => {
                let own = state.owner != NONE && (self.plain || state.owner == process);
                let next = if state.depth > 1 {
                    Owned {
                        depth: state.depth - 1,
                        ..state
                    }
                } else {
                    free
                };
                own.then_some(next)
            }
            LockOp::Lose { process } => (state.owner == process).then_some(free),
            LockOp::Busy { .. } => (state.owner != NONE).then_some(state),
            LockOp::NotHeld { process } => (state.owner != process).then_some(state),
        }
    }

    fn is_observer(&self, op: &LockOp) -> bool {
        self.hints && matches!(op, LockOp::Busy { .. } | LockOp::NotHeld { .. })
    }

    fn class(&self, op: &LockOp) -> Option<u64> {
        match op {
            LockOp::Acquire { token: None, .. } if self.hints && self.plain => Some(0),
            LockOp::Release { .. } if self.hints && self.plain => Some(1),
            _ => None,
        }
    }

    fn polarity(&self, op: &LockOp) -> Polarity {
        match op {
            _ if !self.hints || self.plain => Polarity::Neutral,
            LockOp::Acquire { .. } => Polarity::Late,
            LockOp::Release { .. } | LockOp::Lose { .. } => Polarity::Early,
            LockOp::Busy { .. } | LockOp::NotHeld { .. } => Polarity::Neutral,
        }
    }
}

/// A lock with several owners at once: read/write, or a semaphore.
#[derive(Debug, Clone, Copy)]
pub struct ManyOwners {
    permits: Option<u64>,
    hints: bool,
}

type OwnerList = Vec<(u32, Mode, u64)>;

impl ManyOwners {
    /// Creates the specification of the read/write lock, or of a semaphore.
    pub fn new(model: Model) -> Self {
        let permits = if let Model::Semaphore { permits } = model {
            Some(u64::from(permits))
        } else {
            None
        };
        Self { permits, hints: true }
    }

    /// Returns the specification without hints, against which the hints are tested.
    pub fn without_hints(self) -> Self {
        Self { hints: false, ..self }
    }

    fn acquire(&self, owners: &mut OwnerList, process: u32, mode: Mode, permits: u32) -> bool {
        let own = owners.iter().position(|owner| owner.0 == process);
        if let Some(all) = self.permits {
            let taken: u64 = owners.iter().map(|owner| owner.2).sum();
            match own {
                Some(place) => owners[place].2 += u64::from(permits),
                None => owners.push((process, Mode::Write, u64::from(permits))),
            }
            return taken + u64::from(permits) <= all;
        }
        let legal = owners
            .iter()
            .all(|owner| owner.0 == process || (owner.1 == Mode::Read && mode == Mode::Read));
        match own {
            Some(place) if owners[place].1 != mode => owners[place].1 = mode,
            Some(_) => return false,
            None => owners.push((process, mode, 1)),
        }
        legal
    }

    fn release(&self, owners: &mut OwnerList, process: u32, permits: u32) -> bool {
        let Some(place) = owners.iter().position(|owner| owner.0 == process) else {
            return false;
        };
        let permits = if self.permits.is_some() { u64::from(permits) } else { 1 };
        let enough = owners[place].2 >= permits;
        owners[place].2 = owners[place].2.saturating_sub(permits);
        if owners[place].2 == 0 {
            owners.remove(place);
        }
        enough
    }
}

impl SequentialSpec for ManyOwners {
    type Op = LockOp;
    /// The owners by process, each with its mode and its permits.
    type State = OwnerList;

    fn initial(&self) -> OwnerList {
        Vec::new()
    }

    fn step(&self, mut owners: OwnerList, op: &LockOp) -> Option<OwnerList> {
        let legal = match *op {
            LockOp::Acquire {
                process, mode, permits, ..
            } => self.acquire(&mut owners, process, mode, permits),
            LockOp::Release { process, permits } => self.release(&mut owners, process, permits),
            LockOp::Lose { process } => {
                let before = owners.len();
                owners.retain(|owner| owner.0 != process);
                owners.len() < before
            }
            LockOp::Busy { .. } => !owners.is_empty(),
            LockOp::NotHeld { process } => owners.iter().all(|owner| owner.0 != process),
        };
        owners.sort_unstable_by_key(|owner| owner.0);
        legal.then_some(owners)
    }

    fn is_observer(&self, op: &LockOp) -> bool {
        self.hints && matches!(op, LockOp::Busy { .. } | LockOp::NotHeld { .. })
    }

    fn polarity(&self, op: &LockOp) -> Polarity {
        match op {
            // An acquire in read mode may be a downgrade, which allows others more: it takes effect when that is best.
            _ if !self.hints => Polarity::Neutral,
            LockOp::Acquire { mode: Mode::Read, .. } if self.permits.is_none() => Polarity::Neutral,
            LockOp::Acquire { .. } => Polarity::Late,
            LockOp::Release { .. } | LockOp::Lose { .. } => Polarity::Early,
            LockOp::Busy { .. } | LockOp::NotHeld { .. } => Polarity::Neutral,
        }
    }
}
