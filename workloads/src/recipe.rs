//! The catalogue of locks: [`RECIPES`], one line each, and the options every recipe takes.
//!
//! To add a recipe, write its file under `zk/`, `etcd/` or `redis/` and add its line here. Names are stable: users type
//! them, and stored runs carry them.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use crate::client::{LockClient, Signals};
use crate::etcd::{EtcdConnect, RealEtcd};
use crate::host::Host;
use crate::protocol;
use crate::redis::{RealRedis, RedisConnect};
use crate::reentrant::Reentrant;
use crate::zk::{RealZk, ZkConnect};

mod catalogue;

pub use catalogue::RECIPES;

/// Declares [`BackendId`]: one line for each backend.
macro_rules! backend_ids {
    ($($id:ident = $name:literal,)+) => {
        /// The name of the store that a recipe speaks to. What the harness knows about it is a value under this name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum BackendId {
            $($id,)+
        }

        impl BackendId {
            pub const ALL: &[BackendId] = &[$(BackendId::$id,)+];

            /// As users type it and stored runs carry it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(BackendId::$id => $name,)+
                }
            }
        }
    };
}

backend_ids! {
    Zk = "zk",
    Etcd = "etcd",
    Redis = "redis",
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a waiter learns that it may try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// The server tells it: `woken` is raised.
    Notified,
    /// It asks again and again: `woken` is never raised.
    Polls,
    /// Somebody else waits for it and does not say: the server, or a library.
    Unsaid,
}

/// What a holder does when it can no longer be sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Holder {
    /// It stops believing and raises `lost`.
    #[default]
    Careful,
    /// It goes on until it releases, as the usual textbook code does.
    Naive,
}

impl FromStr for Holder {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, RecipeError> {
        match text {
            "careful" => Ok(Holder::Careful),
            "naive" => Ok(Holder::Naive),
            _ => Err(RecipeError::Holder(text.to_owned())),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Holder::Careful => "careful",
            Holder::Naive => "naive",
        })
    }
}

/// A lock implementation, and what can be expected of it.
#[derive(Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub backend: BackendId,
    /// One line for lists and help.
    pub summary: &'static str,
    /// Whether careful and naive differ.
    pub attitudes: bool,
    /// Whether `--guid off` means something.
    pub guid: bool,
    pub wakes: Wakes,
    /// Whether it can be taken for reading, beside other readers.
    pub modes: bool,
    /// Whether a grant comes with a fencing token.
    pub tokens: bool,
    /// Whether waiters are promised their turn in the order they came.
    pub fifo: bool,
    /// How many servers it takes unless told otherwise, where that is not what the backend has: masters that know nothing
    /// of each other.
    pub servers: Option<u32>,
    /// Whether the lock runs out by itself when its holder says nothing for a lease.
    pub lease: bool,
    /// How long a waiter waits before it asks again, where it polls.
    pub interval: Duration,
    pub open: Open,
}

/// How a client of a recipe is made, for each kind of session.
#[derive(Debug, Clone, Copy)]
pub enum Open {
    Zk(fn(Seat<dyn ZkConnect>) -> Box<dyn LockClient>),
    Etcd(fn(Seat<dyn EtcdConnect>) -> Box<dyn LockClient>),
    Redis(fn(Seat<dyn RedisConnect>) -> Box<dyn LockClient>),
}

/// What a recipe is given: a way to its store, and the machine it runs on.
pub struct Seat<C: ?Sized> {
    pub store: Rc<C>,
    pub host: Rc<dyn Host>,
    pub signals: Signals,
    /// Session timeout or time to live to ask for.
    pub lease: Duration,
    pub options: RecipeOptions,
}

impl<C: ?Sized> Clone for Seat<C> {
    fn clone(&self) -> Self {
        Seat {
            store: self.store.clone(),
            host: self.host.clone(),
            signals: self.signals.clone(),
            lease: self.lease,
            options: self.options,
        }
    }
}

impl<C: ?Sized> Seat<C> {
    pub(crate) fn is_careful(&self) -> bool {
        self.options.holder == Holder::Careful
    }
}

/// A recipe as it was asked for.
#[derive(Debug, Clone, Copy)]
pub struct RecipeOptions {
    pub recipe: &'static Recipe,
    pub holder: Holder,
    /// Whether a create whose reply was lost is found again by a name of its own.
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
            holder: Holder::Careful,
            guid: true,
            interval: recipe.interval,
            reentrant: false,
        }
    }

    /// The defaults of the recipe of this name.
    pub fn named(name: &str) -> Result<Self, RecipeError> {
        find_recipe(name).map(Self::of)
    }

    /// A client of this recipe for real servers, not yet connected; or a sentence that says why there cannot be one.
    pub fn client(self, open: &protocol::Open, signals: Signals) -> Result<Box<dyn LockClient>, String> {
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
        let lease = Duration::from_millis(open.lease_ms);
        let host = signals.host().clone();
        Ok(match self.recipe.open {
            Open::Zk(make) => self.seated(make, Rc::new(RealZk::new(open, host)), signals, lease),
            Open::Etcd(make) => self.seated(make, Rc::new(RealEtcd::new(open)?), signals, lease),
            Open::Redis(make) => self.seated(make, Rc::new(RealRedis::new(open)?), signals, lease),
        })
    }

    /// A client of this recipe, made of the given parts.
    pub fn seated<C: ?Sized>(
        self,
        make: fn(Seat<C>) -> Box<dyn LockClient>,
        store: Rc<C>,
        signals: Signals,
        lease: Duration,
    ) -> Box<dyn LockClient> {
        let host = signals.host().clone();
        let client = make(Seat {
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

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    #[error("there is no recipe {name:?}\nhint: did you mean {nearest:?}?")]
    Unknown { name: String, nearest: &'static str },
    #[error("a holder is \"careful\" or \"naive\", not {0:?}")]
    Holder(String),
}

/// The recipe of this name; an unknown name is an error that names the nearest known one.
pub fn find_recipe(name: &str) -> Result<&'static Recipe, RecipeError> {
    RECIPES.iter().find(|recipe| recipe.name == name).ok_or_else(|| {
        let nearest = RECIPES
            .iter()
            .map(|recipe| recipe.name)
            .max_by(|one, other| likeness(name, one).total_cmp(&likeness(name, other)));
        RecipeError::Unknown {
            name: name.to_owned(),
            nearest: nearest.expect("the catalogue is not empty"),
        }
    })
}

/// From 0 to 1. A common beginning counts for much, since names that are typed short begin right.
fn likeness(typed: &str, known: &str) -> f64 {
    strsim::jaro_winkler(typed, known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest() {
        let error = find_recipe("zk-predecesor-watch").unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no recipe \"zk-predecesor-watch\"\nhint: did you mean \"zk-predecessor-watch\"?"
        );
    }

    #[test]
    fn a_name_that_was_cut_short_is_recognised() {
        for (typed, meant) in [("zk-predecesor", "zk-predecessor-watch"), ("etcd-mutx", "etcd-mutex")] {
            let RecipeError::Unknown { nearest, .. } = find_recipe(typed).unwrap_err() else {
                panic!("{typed}")
            };
            assert_eq!(nearest, meant);
        }
    }

    #[test]
    fn names_are_unique_and_begin_with_their_backend() {
        for (i, recipe) in RECIPES.iter().enumerate() {
            assert!(
                RECIPES[..i].iter().all(|other| other.name != recipe.name),
                "{} is listed twice",
                recipe.name
            );
            let expected = match recipe.name {
                "redlock" => BackendId::Redis,
                name => *BackendId::ALL
                    .iter()
                    .find(|backend| name.starts_with(backend.name()))
                    .expect(name),
            };
            assert_eq!(recipe.backend, expected, "{}", recipe.name);
        }
    }

    #[test]
    fn a_recipe_is_made_of_its_own_backends_session() {
        for recipe in RECIPES {
            let backend = match recipe.open {
                Open::Zk(_) => BackendId::Zk,
                Open::Etcd(_) => BackendId::Etcd,
                Open::Redis(_) => BackendId::Redis,
            };
            assert_eq!(recipe.backend, backend, "{}", recipe.name);
        }
    }
}
