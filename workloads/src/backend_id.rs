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

            /// The name that users type and stored runs carry.
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
    Postgres = "postgres";
    Mariadb = "mariadb";
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
