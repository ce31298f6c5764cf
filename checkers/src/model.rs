//! The lock models by name: the specification by which a history is judged.

use std::str::FromStr;
use std::{fmt, mem};

use crate::history::event::{Header, Kind};
use crate::history::names::FastSet;
use crate::history::{F, History};

/// A lock model, or a register with which the search is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// Acquired and released by the same owner; a release call ends the hold whatever its answer. The default.
    OwnerMutex,
    /// Jepsen's and Knossos' mutex: locked or not, without an owner; a failed operation had no effect.
    Mutex,
    /// The owner may acquire again, up to `limit` times in all.
    Reentrant {
        /// The largest number of holds of one owner.
        limit: u32,
    },
    /// An owner-aware mutex whose tokens strictly increase.
    Fenced,
    /// Reentrant; nested acquires have the token of the outermost one.
    ReentrantFenced {
        /// The largest number of holds of one owner.
        limit: u32,
    },
    /// Any number of readers, or one writer.
    ReadWrite,
    /// `permits` in all, acquired and released by their holders.
    Semaphore {
        /// The number of permits.
        permits: u32,
    },
    /// An owner-aware mutex whose `busy` answers must be explained: by a hold, or by another acquire that was pending during the call,
    /// since a contender that queues up and withdraws may have been seen.
    TryLock,
    /// `TryLock` for locks whose contenders do not see each other, such as a key that is set if it is free: only a hold explains `busy`.
    ExactTryLock,
    /// Leadership: a mutex that is acquired by election and released by resignation.
    Election,
    /// A register. `start` is its value before the first operation, where it is known.
    ///
    /// Jepsen's and Knossos' reading: a failed operation did not happen and is no evidence, and neither is a read of nothing.
    Register {
        /// The value before the first operation.
        start: Option<u64>,
    },
    /// A register with compare-and-set.
    CasRegister {
        /// The value before the first operation.
        start: Option<u64>,
    },
    /// A compare-and-set register whose every answer is evidence: a compare-and-set that failed without an error found another value, and a
    /// read of nothing found none. Without `start` it is empty at first.
    ExactCasRegister {
        /// The value before the first operation.
        start: Option<u64>,
    },
}

/// The limit of a reentrant model that names none.
const REENTRANT_LIMIT: u32 = u32::MAX;

/// The error for a name of no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no model is called `{name}`; hint: one of {}", MODEL_NAMES.join(", "))]
pub struct UnknownModel {
    /// The name.
    pub name: String,
}

/// The error for a model that cannot be decided while a history grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the model `{model}` is not decided while a history grows: its verdict may depend on later answers; \
     check the finished history, or use a model with owners, such as owner-mutex"
)]
pub struct NotOnline {
    /// The model.
    pub model: Model,
}

/// The models by their names, without a number after the name.
const MODELS: [(&str, Model); 13] = [
    ("owner-mutex", Model::OwnerMutex),
    ("mutex", Model::Mutex),
    ("reentrant", Model::REENTRANT),
    ("fenced", Model::Fenced),
    ("reentrant-fenced", Model::ReentrantFenced { limit: REENTRANT_LIMIT }),
    ("read-write", Model::ReadWrite),
    ("semaphore", Model::Semaphore { permits: 1 }),
    ("try-lock", Model::TryLock),
    ("exact-try-lock", Model::ExactTryLock),
    ("election", Model::Election),
    ("register", Model::Register { start: None }),
    ("cas-register", Model::CasRegister { start: None }),
    ("exact-cas-register", Model::ExactCasRegister { start: None }),
];

/// The names of the models. `reentrant=2` and `semaphore=3` set the limit, `cas-register=0` the value at the start.
pub const MODEL_NAMES: [&str; 13] = {
    let mut names = [""; 13];
    let mut at = 0;
    while at < names.len() {
        names[at] = MODELS[at].0;
        at += 1;
    }
    names
};

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        let unknown = || UnknownModel { name: text.to_owned() };
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number.parse::<u64>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let name = match name {
            "plain-mutex" => "mutex",
            "fenced-mutex" => "fenced",
            "rwlock" => "read-write",
            name => name,
        };
        let named = MODELS.into_iter().find(|(known, _)| *known == name);
        let numbered = |(_, model): (&str, Self)| number.map_or(Some(model), |number| model.with(number));
        named.and_then(numbered).ok_or_else(unknown)
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_it = |(_, model): &&(&str, Self)| mem::discriminant(model) == mem::discriminant(self);
        let (name, _) = MODELS.iter().find(is_it).expect("each model has a name");
        f.write_str(name)?;
        self.number().map_or(Ok(()), |number| write!(f, "={number}"))
    }
}

/// Returns whether any process acquires a lock that it has acquired already.
fn is_nested(history: &History) -> bool {
    let mut held = FastSet::default();
    history.events.iter().any(|event| {
        let hold = (event.process, event.lock);
        match event.f {
            F::Acquire => event.kind == Kind::Ok && !held.insert(hold),
            F::Release | F::Lost => {
                held.remove(&hold);
                false
            }
            _ => false,
        }
    })
}

impl Model {
    const REENTRANT: Self = Self::Reentrant { limit: REENTRANT_LIMIT };

    /// Returns the number after the name, if there is one.
    fn number(&self) -> Option<u64> {
        match *self {
            Self::Reentrant { limit } | Self::ReentrantFenced { limit } => {
                (limit != REENTRANT_LIMIT).then_some(u64::from(limit))
            }
            Self::Semaphore { permits } => Some(u64::from(permits)),
            _ => self.start().flatten(),
        }
    }

    /// Returns the model with that number; `None` if it is too large, or the model has none.
    pub(crate) fn with(self, number: u64) -> Option<Self> {
        let (small, start) = (u32::try_from(number).ok(), Some(number));
        Some(match self {
            Self::Reentrant { .. } => Self::Reentrant { limit: small? },
            Self::ReentrantFenced { .. } => Self::ReentrantFenced { limit: small? },
            Self::Semaphore { .. } => Self::Semaphore { permits: small? },
            Self::Register { .. } => Self::Register { start },
            Self::CasRegister { .. } => Self::CasRegister { start },
            Self::ExactCasRegister { .. } => Self::ExactCasRegister { start },
            _ => return None,
        })
    }

    /// Returns the model of a header. In a header, `mutex` is the lock under test and so the owner-aware one: our histories name their
    /// owners. An unknown name is judged as that, too, and [`crate::check`] adds a note.
    pub fn of_header(header: &Header) -> Self {
        Self::named_by(header).unwrap_or(Self::OwnerMutex)
    }

    /// Returns the model of a whole history: reentrant, if no model is named, the lock promises it, and an owner acquires again.
    pub(crate) fn of_history(history: &History) -> Self {
        let header = &history.header;
        match Self::of_header(header) {
            Self::OwnerMutex if header.promises.reentrant == Some(true) && is_nested(history) => Self::REENTRANT,
            model => model,
        }
    }

    /// Returns the model of a history whose events are not known yet: a lock that promises to be reentrant may be acquired by its owner.
    pub(crate) fn of_beginning(header: &Header) -> Self {
        match Self::of_header(header) {
            Self::OwnerMutex if header.promises.reentrant == Some(true) => Self::REENTRANT,
            model => model,
        }
    }

    /// Returns the model of a header, or an error for an unknown name.
    pub fn named_by(header: &Header) -> Result<Self, UnknownModel> {
        match header.model.as_str() {
            "mutex" => Ok(Self::OwnerMutex),
            name => name.parse(),
        }
    }

    /// Returns whether an owner may acquire again.
    pub fn is_reentrant(&self) -> bool {
        matches!(self, Self::Reentrant { .. } | Self::ReentrantFenced { .. })
    }

    /// Returns whether `busy` answers are judged.
    pub(crate) fn judges_busy(&self) -> bool {
        matches!(self, Self::TryLock | Self::ExactTryLock)
    }

    /// Returns whether it is a lock, and not a register.
    pub fn is_lock(&self) -> bool {
        self.start().is_none()
    }

    /// Returns the value at the start of a register, if it is known; `None` for locks.
    pub(crate) fn start(&self) -> Option<Option<u64>> {
        match *self {
            Self::Register { start } | Self::CasRegister { start } | Self::ExactCasRegister { start } => Some(start),
            _ => None,
        }
    }

    /// Returns the largest number of holds at a time: the permits of a semaphore.
    pub(crate) fn capacity(&self) -> u64 {
        if let Self::Semaphore { permits } = self {
            u64::from(*permits)
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_is_listed_is_a_model_and_prints_as_itself() {
        for name in MODEL_NAMES {
            let model: Model = name.parse().expect(name);
            assert_eq!(model.to_string().split('=').next(), Some(name));
            assert_eq!(model.to_string().parse(), Ok(model));
        }
    }

    #[test]
    fn a_number_where_none_belongs_is_refused() {
        assert!("mutex=3".parse::<Model>().is_err());
        assert!("semaphore=x".parse::<Model>().is_err());
        assert_eq!("semaphore=3".parse(), Ok(Model::Semaphore { permits: 3 }));
        assert_eq!("cas-register=0".parse(), Ok(Model::CasRegister { start: Some(0) }));
        assert_eq!(Model::CasRegister { start: Some(7) }.to_string(), "cas-register=7");
    }
}
