//! The lock models by name: which of them a history is to be judged by.

use std::fmt;
use std::str::FromStr;

use crate::history::event::Header;

/// A lock model, or a register to prove the search by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Model {
    /// Acquired and released by the same owner; a release call ends the belief whatever its answer. The default.
    OwnerMutex,
    /// Jepsen's and Knossos' mutex: locked or not, by no owner in particular; a failed operation had no effect.
    Mutex,
    /// The owner may acquire again, up to `limit` times in all.
    Reentrant {
        /// Times that an owner may have it.
        limit: u32,
    },
    /// An owner-aware mutex whose tokens strictly increase.
    Fenced,
    /// Reentrant, and nested acquires get the token of the outermost.
    ReentrantFenced {
        /// Times that an owner may have it.
        limit: u32,
    },
    /// Any number of readers, or one writer.
    ReadWrite,
    /// `permits` in all, taken and given back by their holders.
    Semaphore {
        /// Permits that there are.
        permits: u32,
    },
    /// An owner-aware mutex whose `busy` answers must be explained by a hold.
    TryLock,
    /// Leadership is a mutex that is acquired by being elected and released by resigning.
    Election,
    /// A register with reads and writes.
    Register,
    /// A register with compare-and-set, too.
    CasRegister,
}

/// Holds of one owner that a reentrant lock allows when the model does not say.
const REENTRANT_LIMIT: u32 = u32::MAX;

/// The name is not that of a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no model is called `{name}`; hint: one of {}", MODEL_NAMES.join(", "))]
pub struct UnknownModel {
    /// The name that was asked for.
    pub name: String,
}

/// What `--model` takes. `reentrant=2` and `semaphore=3` set the limit.
pub const MODEL_NAMES: [&str; 11] = [
    "owner-mutex",
    "mutex",
    "reentrant",
    "fenced",
    "reentrant-fenced",
    "read-write",
    "semaphore",
    "try-lock",
    "election",
    "register",
    "cas-register",
];

impl FromStr for Model {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        let unknown = || UnknownModel { name: text.to_owned() };
        let (name, number) = match text.split_once('=') {
            Some((name, number)) => (name, Some(number.parse::<u32>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let limit = number.unwrap_or(REENTRANT_LIMIT);
        let model = match name {
            "owner-mutex" => Self::OwnerMutex,
            "mutex" | "plain-mutex" => Self::Mutex,
            "reentrant" => return Ok(Self::Reentrant { limit }),
            "reentrant-fenced" => return Ok(Self::ReentrantFenced { limit }),
            "fenced" | "fenced-mutex" => Self::Fenced,
            "read-write" | "rwlock" => Self::ReadWrite,
            "semaphore" => {
                return Ok(Self::Semaphore {
                    permits: number.unwrap_or(1),
                });
            }
            "try-lock" => Self::TryLock,
            "election" => Self::Election,
            "register" => Self::Register,
            "cas-register" => Self::CasRegister,
            _ => return Err(unknown()),
        };
        if number.is_some() { Err(unknown()) } else { Ok(model) }
    }
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnerMutex => f.write_str("owner-mutex"),
            Self::Mutex => f.write_str("mutex"),
            Self::Reentrant { limit: REENTRANT_LIMIT } => f.write_str("reentrant"),
            Self::Reentrant { limit } => write!(f, "reentrant={limit}"),
            Self::Fenced => f.write_str("fenced"),
            Self::ReentrantFenced { limit: REENTRANT_LIMIT } => f.write_str("reentrant-fenced"),
            Self::ReentrantFenced { limit } => write!(f, "reentrant-fenced={limit}"),
            Self::ReadWrite => f.write_str("read-write"),
            Self::Semaphore { permits } => write!(f, "semaphore={permits}"),
            Self::TryLock => f.write_str("try-lock"),
            Self::Election => f.write_str("election"),
            Self::Register => f.write_str("register"),
            Self::CasRegister => f.write_str("cas-register"),
        }
    }
}

impl Model {
    /// The model that a header asks for. There, `mutex` is the lock under test and so the owner-aware one: histories
    /// of ours name their owners. An unknown name is judged as that, too, and [`crate::check`] says so in a note.
    pub fn of_header(header: &Header) -> Self {
        Self::named_by(header).unwrap_or(Self::OwnerMutex)
    }

    /// As [`Self::of_header`], but `Err` for an unknown name.
    pub(crate) fn named_by(header: &Header) -> Result<Self, UnknownModel> {
        match header.model.as_str() {
            "mutex" => Ok(Self::OwnerMutex),
            name => name.parse(),
        }
    }

    /// Whether an owner may acquire again.
    pub fn is_reentrant(&self) -> bool {
        matches!(self, Self::Reentrant { .. } | Self::ReentrantFenced { .. })
    }

    /// Whether it is a lock, and not a register.
    pub fn is_lock(&self) -> bool {
        !matches!(self, Self::Register | Self::CasRegister)
    }

    /// Holds that may exist at once: the permits of a semaphore.
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
    }
}
