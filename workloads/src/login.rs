//! The login of a client in a store ([`Login`]), in variables of the environment.

use std::fmt;

use crate::backend_id::BackendId;

/// Returns a variable of the environment, unless it is unset or empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A user and its password, which no output shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// The variables of a login in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginVariables {
    pub user: &'static str,
    pub password: &'static str,
    /// The user where only a password is set.
    pub default_user: &'static str,
    /// The user on servers that let everyone in, where a client must name one.
    pub open_user: Option<&'static str>,
}

impl BackendId {
    /// Returns the variables that the programs of its product read, where they read any.
    pub const fn login_variables(self) -> LoginVariables {
        let (user, password, default_user) = match self {
            BackendId::Zk => ("ZK_USER", "ZK_PASSWORD", "harness"),
            BackendId::Etcd => ("ETCDCTL_USER", "ETCDCTL_PASSWORD", "root"),
            BackendId::Redis | BackendId::Valkey => ("REDIS_USER", "REDISCLI_AUTH", "default"),
            BackendId::Postgres => ("PGUSER", "PGPASSWORD", "postgres"),
            BackendId::Mariadb => ("MYSQL_USER", "MYSQL_PWD", "root"),
            BackendId::Nats => ("NATS_USER", "NATS_PASSWORD", "harness"),
        };
        LoginVariables {
            user,
            password,
            default_user,
            open_user: match self {
                BackendId::Postgres | BackendId::Mariadb => Some(default_user),
                _ => None,
            },
        }
    }
}

impl Login {
    /// Makes a random login, which nobody has.
    pub fn random() -> Self {
        Login {
            user: format!("harness_{:08x}", rand::random::<u32>()),
            password: format!("{:032x}", rand::random::<u128>()),
        }
    }

    /// Returns the login in the environment; `None` where its variables are unset or empty.
    pub fn of_environment(backend: BackendId) -> Option<Self> {
        Self::of_variables(backend, variable)
    }

    fn of_variables(backend: BackendId, set: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let variables = backend.login_variables();
        let (user, password) = match (set(variables.user), set(variables.password)) {
            (None, None) => return None,
            // as etcdctl reads it
            (Some(both), None) if backend == BackendId::Etcd && both.contains(':') => {
                let (user, password) = both.split_once(':')?;
                (Some(user.to_owned()), Some(password.to_owned()))
            }
            given => given,
        };
        Some(Login {
            user: user.unwrap_or_else(|| variables.default_user.to_owned()),
            password: password.unwrap_or_default(),
        })
    }

    /// Returns the environment of a client with this login.
    pub fn environment(&self, backend: BackendId) -> [(&'static str, &str); 2] {
        let variables = backend.login_variables();
        [(variables.user, &self.user), (variables.password, &self.password)]
    }

    /// Returns the login in the form of ZooKeeper's scheme `digest`.
    pub fn digest(&self) -> String {
        format!("{}:{}", self.user, self.password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: &str, password: &str) -> Option<Login> {
        Some(Login {
            user: user.into(),
            password: password.into(),
        })
    }

    #[test]
    fn a_client_reads_the_login_that_it_is_given() {
        for backend in BackendId::ALL {
            let own = Login::random();
            let given = own.environment(*backend);
            let set = |name: &str| {
                let value = given.iter().find(|(given, _)| *given == name);
                value.map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(Login::of_variables(*backend, set), Some(own.clone()), "{backend}");
            assert_eq!(Login::of_variables(*backend, |_| None), None, "{backend}");
        }
    }

    #[test]
    fn half_a_login_is_completed_as_the_products_programs_do() {
        let one = |backend: BackendId, name: &str, value: &str| {
            Login::of_variables(backend, |asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(one(BackendId::Redis, "REDISCLI_AUTH", "x"), login("default", "x"));
        assert_eq!(one(BackendId::Postgres, "PGUSER", "me"), login("me", ""));
        assert_eq!(one(BackendId::Etcd, "ETCDCTL_USER", "me:x:y"), login("me", "x:y"));
        assert_eq!(one(BackendId::Mariadb, "MYSQL_PWD", "x"), login("root", "x"));
    }

    #[test]
    fn no_output_shows_a_password() {
        let own = Login::random();
        let shown = format!("{own:?}");
        assert!(shown.contains(&own.user) && !shown.contains(&own.password), "{shown}");
        assert_ne!(Login::random(), Login::random());
    }
}
