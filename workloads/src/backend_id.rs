//! The names of the stores that recipes speak to ([`BackendId`]).

use std::fmt;

/// Declares [`BackendId`]: one line for each backend, with its name.
macro_rules! backend_ids {
    ($($id:ident = $name:literal;)+) => {
        /// The name of the store that a recipe speaks to. What the harness knows about the store is a value under this name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BackendId {
            $($id,)+
        }

        impl BackendId {
            pub const ALL: &[BackendId] = &[$(BackendId::$id,)+];

            /// Returns the name that users type and stored runs carry.
            pub const fn name(self) -> &'static str {
                match self {
                    $(BackendId::$id => $name,)+
                }
            }
        }
    };
}

backend_ids! {
    Zk = "zk";
    Etcd = "etcd";
    Redis = "redis";
    Valkey = "valkey";
    Postgres = "postgres";
    Mariadb = "mariadb";
    Nats = "nats";
}

impl BackendId {
    /// Whether locks on the store of this name work on it, too: Valkey has all commands of Redis 7.2.
    /// <https://valkey.io/topics/migration/>
    pub fn takes_locks_of(self, store: &str) -> bool {
        self.name() == store || (self == Self::Valkey && store == Self::Redis.name())
    }
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_on_redis_work_on_valkey_and_not_the_other_way_round() {
        assert!(BackendId::Valkey.takes_locks_of("redis") && BackendId::Valkey.takes_locks_of("valkey"));
        assert!(BackendId::Redis.takes_locks_of("redis") && !BackendId::Redis.takes_locks_of("valkey"));
        assert!(!BackendId::Valkey.takes_locks_of("etcd"));
    }
}
