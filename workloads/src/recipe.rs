//! What a lock recipe is, the catalogue of all recipes ([`recipes`]), and the options that every recipe takes.
//!
//! A recipe is one file in the folder `recipes` of its backend, which ends in its [`Recipe`], and one line in the `mod.rs`
//! next to it. Names are stable: users type them, and stored runs carry them.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use harness_tls::TlsFiles;
use serde::{Deserialize, Serialize};

use crate::client::{LockClient, SignalSink};
use crate::contract::{Contract, IssuedBy};
use crate::etcd::{EtcdConnect, EtcdServers};
use crate::host::RecipeHost;
use crate::login::Login;
use crate::mariadb::MariadbServer;
use crate::postgres::PostgresServer;
use crate::protocol::OpenRequest;
use crate::redis::{RedisConnect, RedisServers};
use crate::reentrant::Reentrant;
use crate::relays::Relays;
use crate::sql::SqlConnect;
use crate::zk::{ZkConnect, ZkServers};
use crate::{etcd, mariadb, postgres, redis, zk};

/// Declares [`BackendId`]: one line for each backend, with its name and its recipes.
macro_rules! backend_ids {
    ($($id:ident = $name:literal, $recipes:expr;)+) => {
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

            /// The recipes for this store, in the order in which they are listed.
            pub const fn recipes(self) -> &'static [&'static Recipe] {
                match self {
                    $(BackendId::$id => $recipes,)+
                }
            }
        }
    };
}

backend_ids! {
    Zk = "zk", zk::recipes::RECIPES;
    Etcd = "etcd", etcd::recipes::RECIPES;
    Redis = "redis", redis::recipes::RECIPES;
    Postgres = "postgres", postgres::recipes::RECIPES;
    Mariadb = "mariadb", mariadb::recipes::RECIPES;
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a waiter learns that it may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wakeup {
    /// The server notifies it, and the client raises `woken`.
    Notified,
    /// It asks at intervals; `woken` is never raised.
    #[serde(rename = "polls")]
    Polling,
    /// The server or a library waits on its behalf and does not report it; `woken` is never raised.
    Unreported,
}

/// What a client does when it can no longer be sure that it holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// It stops believing and raises `lost`.
    #[default]
    Careful,
    /// It goes on until it releases, as the usual textbook code does.
    Naive,
}

impl FromStr for Policy {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, RecipeError> {
        match text {
            "careful" => Ok(Policy::Careful),
            "naive" => Ok(Policy::Naive),
            _ => Err(RecipeError::Policy(text.to_owned())),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Careful => "careful",
            Policy::Naive => "naive",
        })
    }
}

/// A lock implementation, and what can be expected of it.
#[derive(Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub backend: BackendId,
    /// One line for lists and help, without a period.
    pub summary: &'static str,
    /// Whether the policies careful and naive differ; not so where nothing expires.
    pub policies: bool,
    /// Whether `--guid off` has an effect.
    pub guid: bool,
    pub wakeup: Wakeup,
    /// Whether it can be taken for reading, together with other readers.
    pub modes: bool,
    /// Whether a grant comes with a fencing token.
    pub tokens: bool,
    /// Whether waiters are promised their turn in the order they came.
    pub fifo: bool,
    /// How many servers it takes unless told otherwise, where that differs from the backend's default: independent
    /// masters.
    pub servers: Option<u32>,
    /// Whether the lock expires by itself when its holder says nothing for a lease.
    pub lease: bool,
    /// Whether the lease is renewed while the lock is held.
    pub renews: bool,
    /// Whether times of the wall clocks of several clients are compared.
    pub wall_clock: bool,
    /// How long a waiter waits before it asks again; zero where it does not poll.
    pub interval: Duration,
    pub constructor: Constructor,
}

impl Recipe {
    /// A recipe with what most recipes have in common; a recipe file changes what differs.
    pub(crate) const fn new(name: &'static str, summary: &'static str, constructor: Constructor) -> Self {
        Recipe {
            name,
            backend: constructor.backend(),
            summary,
            policies: true,
            guid: false,
            wakeup: Wakeup::Notified,
            modes: false,
            tokens: true,
            fifo: true,
            servers: None,
            lease: true,
            renews: true,
            wall_clock: false,
            interval: Duration::ZERO,
            constructor,
        }
    }
}

/// Makes a client of a recipe, for each kind of session.
#[derive(Debug, Clone, Copy)]
pub enum Constructor {
    Zk(fn(RecipeContext<dyn ZkConnect>) -> Box<dyn LockClient>),
    Etcd(fn(RecipeContext<dyn EtcdConnect>) -> Box<dyn LockClient>),
    Redis(fn(RecipeContext<dyn RedisConnect>) -> Box<dyn LockClient>),
    Postgres(fn(RecipeContext<dyn SqlConnect>) -> Box<dyn LockClient>),
    Mariadb(fn(RecipeContext<dyn SqlConnect>) -> Box<dyn LockClient>),
}

impl Constructor {
    const fn backend(self) -> BackendId {
        match self {
            Constructor::Zk(_) => BackendId::Zk,
            Constructor::Etcd(_) => BackendId::Etcd,
            Constructor::Redis(_) => BackendId::Redis,
            Constructor::Postgres(_) => BackendId::Postgres,
            Constructor::Mariadb(_) => BackendId::Mariadb,
        }
    }
}

/// What a client of a recipe is given: a way to its store, and the machine it runs on.
pub struct RecipeContext<C: ?Sized> {
    pub store: Rc<C>,
    pub host: Rc<dyn RecipeHost>,
    pub signals: SignalSink,
    /// Session timeout or time to live to ask for.
    pub lease: Duration,
    pub options: RecipeOptions,
}

// derived, it would ask for `C: Clone`
impl<C: ?Sized> Clone for RecipeContext<C> {
    fn clone(&self) -> Self {
        RecipeContext {
            store: self.store.clone(),
            host: self.host.clone(),
            signals: self.signals.clone(),
            lease: self.lease,
            options: self.options,
        }
    }
}

impl<C: ?Sized> RecipeContext<C> {
    pub(crate) fn is_careful(&self) -> bool {
        self.options.policy == Policy::Careful
    }
}

/// A recipe as it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct RecipeOptions {
    pub recipe: &'static Recipe,
    pub policy: Policy,
    /// Whether a node's name carries a GUID, so that a create whose reply was lost is found again.
    pub guid: bool,
    /// How long a waiter waits before it asks again, where it polls.
    pub interval: Duration,
    /// Whether a client may take a lock again that it already holds.
    pub reentrant: bool,
}

impl RecipeOptions {
    /// The defaults of a recipe.
    pub const fn of(recipe: &'static Recipe) -> Self {
        RecipeOptions {
            recipe,
            policy: Policy::Careful,
            guid: true,
            interval: recipe.interval,
            reentrant: false,
        }
    }

    /// The defaults of the recipe of this name.
    pub fn named(name: &str) -> Result<Self, RecipeError> {
        find_recipe(name).map(Self::of)
    }

    /// What a client of this recipe promises. Its keys are those that the observers look for by default.
    pub fn contract(self) -> Contract {
        let recipe = self.recipe;
        Contract {
            lease: Some(recipe.lease),
            renews: Some(recipe.lease && recipe.renews),
            fifo: Some(recipe.fifo),
            read: Some(recipe.modes),
            reentrant: Some(self.reentrant),
            permits: None,
            tries: Some(true),
            wakes: Some(recipe.wakeup),
            owner: Some(IssuedBy::Server),
            token: Some(if recipe.tokens {
                IssuedBy::Server
            } else {
                IssuedBy::None
            }),
            wall_clock: Some(recipe.wall_clock),
            keys: None,
            value: None,
            rewrites: None,
        }
    }

    /// A client of this recipe for real servers, not yet connected. It logs in as the environment says.
    ///
    /// # Errors
    ///
    /// A sentence, if the request is for another backend, or has no endpoint, no lease or a malformed address.
    pub fn client(self, open: &OpenRequest, signals: SignalSink) -> Result<Box<dyn LockClient>, String> {
        let backend = self.recipe.backend;
        if open.backend != backend.name() {
            return Err(format!(
                "{} is a recipe for {backend}, not for {}",
                self.recipe.name, open.backend
            ));
        }
        if open.endpoints.is_empty() || open.lease_ms == 0 {
            return Err("an open needs at least one endpoint and a lease above 0 ms".into());
        }
        let tls = TlsFiles::of_environment()
            .map(|files| Relays::before(open, &files))
            .transpose()?;
        let open = tls.as_ref().map_or(open, |(_, open)| open);
        let lease = Duration::from_millis(open.lease_ms);
        let host = signals.host().clone();
        let login = Login::of_environment(backend);
        let login = login.as_ref();
        let client = match self.recipe.constructor {
            Constructor::Zk(make) => self.build(make, Rc::new(ZkServers::new(open, login, host)), signals, lease),
            Constructor::Etcd(make) => self.build(make, Rc::new(EtcdServers::new(open, login)?), signals, lease),
            Constructor::Redis(make) => self.build(make, Rc::new(RedisServers::new(open, login)?), signals, lease),
            Constructor::Postgres(make) => self.build(make, Rc::new(PostgresServer::new(open, login)?), signals, lease),
            Constructor::Mariadb(make) => self.build(make, Rc::new(MariadbServer::new(open, login)?), signals, lease),
        };
        Ok(match tls {
            None => client,
            Some((relays, _)) => relays.with(client),
        })
    }

    /// A client of this recipe for the given store, which may be a fake one.
    pub fn build<C: ?Sized>(
        self,
        make: fn(RecipeContext<C>) -> Box<dyn LockClient>,
        store: Rc<C>,
        signals: SignalSink,
        lease: Duration,
    ) -> Box<dyn LockClient> {
        let host = signals.host().clone();
        let client = make(RecipeContext {
            store,
            host,
            signals: signals.clone(),
            lease,
            options: self,
        });
        if self.reentrant {
            Box::new(Reentrant::new(client, signals))
        } else {
            client
        }
    }
}

/// A name that is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    #[error("there is no recipe {0:?}")]
    Unknown(String),
    #[error("unknown holder {0:?}; expected \"careful\" or \"naive\"")]
    Policy(String),
}

/// Every recipe, backend by backend.
pub fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let all = BackendId::ALL.iter();
    all.flat_map(|backend| backend.recipes().iter().copied())
}

/// The recipe of this name.
pub fn find_recipe(name: &str) -> Result<&'static Recipe, RecipeError> {
    recipes()
        .find(|recipe| recipe.name == name)
        .ok_or_else(|| RecipeError::Unknown(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_names_it() {
        let error = find_recipe("zk-predecesor-watch").unwrap_err();
        assert_eq!(error.to_string(), "there is no recipe \"zk-predecesor-watch\"");
    }

    #[test]
    fn names_are_unique_and_begin_with_their_backend() {
        for (i, recipe) in recipes().enumerate() {
            assert!(
                recipes().take(i).all(|other| other.name != recipe.name),
                "{} is listed twice",
                recipe.name
            );
            let expected = match recipe.name {
                "redlock" => BackendId::Redis,
                name if name.starts_with("pg-") => BackendId::Postgres,
                name if name.starts_with("mysql-") => BackendId::Mariadb,
                name => *BackendId::ALL
                    .iter()
                    .find(|backend| name.starts_with(backend.name()))
                    .expect(name),
            };
            assert_eq!(recipe.backend, expected, "{}", recipe.name);
        }
    }

    #[test]
    fn every_file_of_a_recipe_is_in_the_catalogue() {
        for backend in BackendId::ALL.iter().filter(|backend| !backend.recipes().is_empty()) {
            let folder = format!("{}/src/{backend}/recipes", env!("CARGO_MANIFEST_DIR"));
            let listed = std::fs::read_to_string(format!("{folder}/mod.rs")).unwrap();
            let mut files = 0;
            for file in std::fs::read_dir(&folder).unwrap() {
                let path = file.unwrap().path();
                let recipe = path.file_stem().unwrap().to_str().unwrap();
                let entry = format!("&{recipe}::RECIPE");
                assert!(
                    recipe == "mod" || listed.contains(&entry),
                    "{folder}/mod.rs does not list {entry}"
                );
                files += 1;
            }
            assert_eq!(files, backend.recipes().len() + 1, "{folder}");
        }
    }
}
