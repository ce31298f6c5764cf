//! Words that histories use for reasons: why an operation was refused, why a server took a lock back, a server's role.
//!
//! Each type reads every text: what it does not know is kept word for word in `Other`. So reading and writing a word
//! again never loses it, and foreign histories need no table of their own.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why an operation surely did not happen: the `error` of a line of type `fail`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Another client had the lock at some instant of the call: `busy`.
    Busy,
    /// The lock did not become free within the time that the caller gave: `timeout`.
    Timeout,
    /// The caller did not hold the lock that it releases: `not held`. `not-held` is read as the same.
    NotHeld,
    /// Any other reason, as it was written.
    Other(String),
}

impl Refusal {
    /// The reason that a text gives, with or without a detail after a colon (`not held: own node is gone`). Keywords of Jepsen's
    /// histories (`:busy`) are read as their words.
    pub fn parse(text: &str) -> Self {
        let words = text.strip_prefix(':').unwrap_or(text);
        match words.split_once(':').map_or(words, |(word, _)| word) {
            "busy" | "locked" | "already-locked" => Self::Busy,
            "timeout" => Self::Timeout,
            "not held" | "not-held" | "not-owner" | "not-locked" => Self::NotHeld,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// Whether it says that the lock is taken: at some instant of the call, or until its wait was over.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Busy | Self::Timeout)
    }

    /// The one spelling in which it is written.
    pub fn name(&self) -> &str {
        match self {
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::NotHeld => "not held",
            Self::Other(text) => text,
        }
    }
}

/// Why a server took a lock back: the `cause` of a `revoked` line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RevokeCause {
    /// Its owner asked for that: `released`.
    Released,
    /// Its lease, session or time to live ran out: `expired`.
    Expired,
    /// A request removed it, and not its owner's as far as is known: `deleted`.
    Deleted,
    /// A request wrote another owner over it: `overwritten`.
    Overwritten,
    /// Another server took over that knew nothing of it: `failover`.
    Failover,
    /// The observer lost sight of it; how and when it ended is not known: `out of sight`.
    OutOfSight,
    /// What another recorder wrote, as it was written.
    Other(String),
}

impl RevokeCause {
    /// Whether the owner asked for it. Other recorders' words count where they begin like ours (`release by c3`).
    pub fn is_release(&self) -> bool {
        *self == Self::Released || self.begins_with("releas")
    }

    /// Whether a request removed it or wrote over it, the owner's or another's, and not an expiry. Other recorders' words count where they
    /// begin like ours (`del`, `DELETE`, `release by c3`).
    pub fn is_removal(&self) -> bool {
        matches!(self, Self::Deleted | Self::Overwritten) || self.is_release() || self.begins_with("del")
    }

    fn begins_with(&self, word: &str) -> bool {
        matches!(self, Self::Other(text) if text.to_ascii_lowercase().starts_with(word))
    }
}

/// What a server is to the others, in the word of its product.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// ZooKeeper and etcd: it decides.
    Leader,
    /// ZooKeeper and etcd: it follows the leader.
    Follower,
    /// ZooKeeper: it is alone.
    Standalone,
    /// Redis: it takes writes.
    Master,
    /// Redis: it copies its master.
    Replica,
    /// It did not answer as one that serves clients: `not serving`.
    NotServing,
    /// Another role, in the product's word.
    Other(String),
}

/// Types with one word for each variant, and `Other` for every other text.
macro_rules! words {
    ($($name:ident: { $($variant:ident = $word:literal,)+ })+) => {$(
        impl $name {
            /// What a text says.
            pub fn parse(text: &str) -> Self {
                match text {
                    $($word => Self::$variant,)+
                    _ => Self::Other(text.to_owned()),
                }
            }

            /// The one spelling in which it is written.
            pub fn name(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(text) => text,
                }
            }
        }
    )+};
}
words! {
    RevokeCause: {
        Released = "released",
        Expired = "expired",
        Deleted = "deleted",
        Overwritten = "overwritten",
        Failover = "failover",
        OutOfSight = "out of sight",
    }
    Role: {
        Leader = "leader",
        Follower = "follower",
        Standalone = "standalone",
        Master = "master",
        Replica = "replica",
        NotServing = "not serving",
    }
}

/// Texts in JSON, both ways, and in messages.
macro_rules! text {
    ($($name:ty),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.name())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Ok(Self::parse(&String::deserialize(deserializer)?))
            }
        }
    )*};
}
text!(Refusal, RevokeCause, Role);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_release_is_recognised_in_every_spelling() {
        for text in [
            "not held",
            "not-held",
            ":not-held",
            "not held: own node is gone",
            "not-owner",
        ] {
            assert_eq!(Refusal::parse(text), Refusal::NotHeld, "{text}");
        }
        assert_eq!(Refusal::parse("busy: held by c3"), Refusal::Busy);
        assert_eq!(Refusal::parse("timeout: not free in 1 s"), Refusal::Timeout);
        for text in ["not heldover", "nothing", "held", "redis: busy"] {
            assert_eq!(Refusal::parse(text), Refusal::Other(text.to_owned()));
        }
        assert_eq!(
            serde_json::to_string(&Refusal::parse("not-held")).unwrap(),
            r#""not held""#
        );
        assert_eq!(serde_json::from_str::<Refusal>(r#"":busy""#).unwrap(), Refusal::Busy);
    }

    #[test]
    fn words_that_are_known_come_back_and_unknown_ones_do_too() {
        for word in [
            "released",
            "expired",
            "deleted",
            "failover",
            "out of sight",
            "evicted by c3",
        ] {
            assert_eq!(RevokeCause::parse(word).to_string(), word);
        }
        for word in [
            "leader",
            "follower",
            "standalone",
            "master",
            "replica",
            "not serving",
            "learner",
        ] {
            assert_eq!(Role::parse(word).to_string(), word);
        }
        for word in ["busy", "timeout", "not held", "no quorum"] {
            assert_eq!(Refusal::parse(word).to_string(), word);
        }
    }

    #[test]
    fn causes_of_other_recorders_count_by_how_they_begin() {
        let cause = RevokeCause::parse;
        assert!(cause("RELEASE by c3").is_release() && cause("DEL").is_removal() && cause("release").is_removal());
        assert!(!cause("deleted").is_release() && !cause("expired").is_removal() && !cause("").is_removal());
    }
}
