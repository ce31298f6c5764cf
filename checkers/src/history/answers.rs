//! Words for reasons and roles in histories: of a refused operation, of the end of a grant, of a server.
//!
//! Each type reads every text, and keeps an unknown one word for word in `Other`. So no text is lost when it is written again, and other
//! recorders' histories need no table.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The reason why an operation certainly did not happen: the `error` of a line of type `fail`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Another client had the lock at some instant of the call: `busy`.
    Busy,
    /// The lock did not become free within the wait: `timeout`.
    Timeout,
    /// The process released a lock that it did not hold: `not held`; also read from `not-held`.
    NotHeld,
    /// Any other reason, word for word.
    Other(String),
}

impl Refusal {
    /// Returns the reason in a text, with or without a detail after a colon (`not held: own node is gone`). Keywords of Jepsen's histories
    /// (`:busy`) are read as words.
    pub fn parse(text: &str) -> Self {
        let words = text.strip_prefix(':').unwrap_or(text);
        match words.split_once(':').map_or(words, |(word, _)| word) {
            "busy" | "locked" | "already-locked" => Self::Busy,
            "timeout" => Self::Timeout,
            "not held" | "not-held" | "not-owner" | "not-locked" => Self::NotHeld,
            _ => Self::Other(text.to_owned()),
        }
    }

    /// Returns whether the reason is a taken lock: at some instant of the call, or until the end of its wait.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Busy | Self::Timeout)
    }

    /// Returns the word that histories have for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::NotHeld => "not held",
            Self::Other(text) => text,
        }
    }
}

/// The reason for the end of a grant: the `cause` of a `revoked` line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RevokeCause {
    /// A request of its owner: `released`.
    Released,
    /// The end of its lease, session or time to live: `expired`.
    Expired,
    /// A request that removed it, and is not known to be its owner's: `deleted`.
    Deleted,
    /// A request that wrote another owner over it: `overwritten`.
    Overwritten,
    /// Another server without it, which took over: `failover`.
    Failover,
    /// Not known, since the observer lost sight of it: `out of sight`.
    OutOfSight,
    /// A reason in another recorder's words.
    Other(String),
}

impl RevokeCause {
    /// Returns whether its owner requested it. Other recorders' words count if they begin like ours (`release by c3`).
    pub fn is_release(&self) -> bool {
        *self == Self::Released || self.begins_with("releas")
    }

    /// Returns whether a request of any client removed or overwrote it, and not an expiry. Other recorders' words count if they begin like
    /// ours (`del`, `DELETE`, `release by c3`).
    pub fn is_removal(&self) -> bool {
        matches!(self, Self::Deleted | Self::Overwritten) || self.is_release() || self.begins_with("del")
    }

    fn begins_with(&self, word: &str) -> bool {
        matches!(self, Self::Other(text) if text.to_ascii_lowercase().starts_with(word))
    }
}

/// The role of a server, in the word of its product.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The server of ZooKeeper or etcd that decides.
    Leader,
    /// A server of ZooKeeper or etcd that follows the leader.
    Follower,
    /// The only server of ZooKeeper.
    Standalone,
    /// A server of Redis that accepts writes.
    Master,
    /// A server of Redis that copies its master.
    Replica,
    /// A server that did not answer as one that serves clients: `not serving`.
    NotServing,
    /// Another role, in the product's word.
    Other(String),
}

/// Makes types with one word for each variant, and `Other` for every other text.
macro_rules! words {
    ($($name:ident: { $($variant:ident = $word:literal,)+ })+) => {$(
        impl $name {
            /// Returns the meaning of a text.
            pub fn parse(text: &str) -> Self {
                match text {
                    $($word => Self::$variant,)+
                    _ => Self::Other(text.to_owned()),
                }
            }

            /// Returns the word that histories have for it.
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

/// Implements reading and writing as JSON text, and formatting.
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
        for word in ["busy", "timeout", "not held"] {
            assert_eq!(Refusal::parse(word).to_string(), word);
        }
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
    fn causes_of_other_recorders_count_by_how_they_begin() {
        let cause = RevokeCause::parse;
        assert!(cause("RELEASE by c3").is_release() && cause("DEL").is_removal() && cause("release").is_removal());
        assert!(!cause("deleted").is_release() && !cause("expired").is_removal() && !cause("").is_removal());
    }
}
