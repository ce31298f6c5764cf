//! Backends: the knowledge of harness about one store product is a [`Backend`] in a folder here.
//!
//! To add a backend, name it in [`BackendId`], write its folder with a `static BACKEND`, and follow the compiler to [`of`].
//! The other modules use the value and know no product.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use harness_workloads::{BackendId, KeyValue, Recipe, recipes};

use crate::cluster::{BoxFuture, EndpointsReceiver, ServerSoftware};
use harness_proxy::tap::Protocol;

pub mod arriving;
pub mod described;
mod etcd;
pub mod lock_keys;
mod mariadb;
mod nats;
pub mod observer;
pub mod owners;
pub mod polled;
mod postgres;
mod redis;
pub mod stored_data;
mod valkey;
mod zk;

pub use etcd::{key_changes, observe as observe_store};
pub use postgres::pooler;
pub use redis::{keyspace, observe as observe_keyspaces};
pub use zk::{LockSweeper, ensemble, observe as observe_ensemble, tick as zk_tick};

use lock_keys::LockKeys;
use observer::Observer;
use stored_data::StoredData;

/// A part of the scripts of servers that refuse to run as root: `$as` then runs a program as `$user`. A change of the user would
/// prevent the server's death with harness.
const AS_USER: &str = r#"if [ "$(id -u)" = 0 ]; then
  id -u "$user" >/dev/null 2>&1 || user=nobody
  chown "$user" . && chmod o+x . .. || exit
  # in virtual time it has sockets and a page of memory beside its folder
  [ -z "$HARNESS_VIRTUAL_TIME" ] || chown "$user" .. "${HARNESS_VIRTUAL_TIME%.page}".* || exit
  as="setpriv --reuid=$user --regid=$(id -g "$user") --clear-groups --pdeathsig=KILL"
fi
"#;

/// Connects a sweeper to a cluster; the error is a sentence.
pub type ConnectSweeper = fn(EndpointsReceiver) -> BoxFuture<'static, Result<LockSweeper, String>>;

/// An observer that connects; the error is a sentence.
pub type ConnectingObserver = BoxFuture<'static, Result<Observer, String>>;

/// Connects an observer of locks that are kept under these keys.
pub type Observe = &'static (dyn Fn(EndpointsReceiver, LockKeys) -> ConnectingObserver + Send + Sync);

/// One store product: its servers, their protocol, and the queries of them.
pub struct Backend {
    /// `None` for a store that a file describes: it has no recipes.
    pub id: Option<BackendId>,
    /// The file of a described store.
    pub file: Option<&'static Path>,
    pub software: &'static ServerSoftware,
    pub topology: Topology,
    /// The protocol of clients and servers, for the taps on their links.
    pub protocol: Protocol,
    /// The recipe of a run that names none; without one a run needs a client program.
    pub default_recipe: Option<&'static str>,
    /// The characters between the parts of a path, key or channel; one part is the lock's name.
    pub separators: &'static [char],
    /// Whether its servers expire locks by a wall clock that can be stepped.
    pub wall_clock: bool,
    /// Returns a sentence, with the options that are possible, if a run with these options is not.
    pub refuse: fn(&BackendOptions) -> Option<String>,
    /// The place of a lock if its client's contract has none.
    pub keys: &'static str,
    /// The kinds of values there, the usual one first; none if the observer finds locks by their names.
    pub values: &'static [KeyValue],
    /// Connects the observer, which shows the owners of locks, if there is one.
    pub observe: Option<Observe>,
    /// Connects the sweeper of locks that no client uses, if they leave anything.
    pub sweep: Option<ConnectSweeper>,
    /// The data on its servers.
    pub data: &'static dyn StoredData,
    /// Whether a [`pooler`] can stand between clients and a server, and share its sessions among them.
    pub pooler: bool,
}

/// The options of a run that a backend may refuse.
#[derive(Debug, Clone, Copy)]
pub struct BackendOptions {
    pub nodes: u32,
    pub lease: Duration,
    /// `None` if the clients are a foreign program.
    pub recipe: Option<&'static Recipe>,
}

/// How the servers of a backend stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Topology {
    /// As the backend has them: one server, or an ensemble
    #[default]
    Plain,
    /// A master of Redis or Valkey with two replicas, and three sentinels that choose the master
    Sentinel,
    /// A Redis Cluster: three masters that have a third of the keys each, with a replica each
    Cluster,
}

impl Backend {
    /// Returns a backend with what most of them have, and without an id, a recipe and an observer.
    const fn plain(software: &'static ServerSoftware, protocol: Protocol, data: &'static dyn StoredData) -> Self {
        Self {
            id: None,
            file: None,
            software,
            topology: Topology::Plain,
            protocol,
            default_recipe: None,
            separators: &['/', ':', '.'],
            wall_clock: false,
            refuse: |_| None,
            keys: "{lock}",
            values: &[],
            observe: None,
            sweep: None,
            data,
            pooler: false,
        }
    }

    /// Returns the backend with its servers in this topology. The error names the backends that have it.
    pub fn in_topology(&'static self, topology: Topology) -> Result<&'static Self, String> {
        match (topology, self.id) {
            (Topology::Plain, _) => Ok(self),
            (Topology::Sentinel, Some(BackendId::Redis)) => Ok(&redis::SENTINEL),
            (Topology::Cluster, Some(BackendId::Redis)) => Ok(&redis::CLUSTER),
            (Topology::Sentinel, Some(BackendId::Valkey)) => Ok(&valkey::SENTINEL),
            (Topology::Cluster, Some(BackendId::Valkey)) => Ok(&valkey::CLUSTER),
            (Topology::Sentinel, _) => Err(format!(
                "--topology sentinel is for Redis and Valkey, and {self} has no sentinels\nhint: --backend redis, or leave --topology out"
            )),
            (Topology::Cluster, _) => Err(format!(
                "--topology cluster is for Redis and Valkey, and not for {self}\nhint: --backend redis, or leave --topology out"
            )),
        }
    }

    /// Returns the servers whose addresses clients get, of as many nodes: sentinels, if there are any, and otherwise all.
    pub fn told_of(&self, nodes: u32) -> Range<u32> {
        match self.topology {
            Topology::Plain | Topology::Cluster => 0..nodes,
            Topology::Sentinel => redis::sentinel::SERVERS as u32..nodes,
        }
    }
}

/// Returns the backend of this id.
pub const fn of(id: BackendId) -> &'static Backend {
    match id {
        BackendId::Zk => &zk::BACKEND,
        BackendId::Etcd => &etcd::BACKEND,
        BackendId::Redis => &redis::BACKEND,
        BackendId::Valkey => &valkey::BACKEND,
        BackendId::Postgres => &postgres::BACKEND,
        BackendId::Mariadb => &mariadb::BACKEND,
        BackendId::Nats => &nats::BACKEND,
    }
}

/// Returns all backends.
pub fn all() -> impl Iterator<Item = &'static Backend> {
    BackendId::ALL.iter().map(|id| of(*id))
}

/// Returns the names of the backends that `are` so, for a sentence: `zk, etcd or redis`, where `last` is ` or `.
pub fn names(last: &str, are: impl Fn(&Backend) -> bool) -> String {
    let names: Vec<&str> = all().filter(|backend| are(backend)).map(Backend::name).collect();
    match names.split_last() {
        Some((name, [])) => (*name).to_owned(),
        Some((name, others)) => format!("{}{last}{name}", others.join(", ")),
        None => "none".to_owned(),
    }
}

/// Returns the default numbers of servers, for help: `zk 3, etcd 3, redis 1, redlock 5`.
pub fn default_nodes() -> String {
    let of_backends = all().map(|backend| (backend.name(), backend.software.nodes));
    let of_recipes = recipes().filter_map(|recipe| Some((recipe.name, recipe.servers?)));
    let nodes = of_backends
        .chain(of_recipes)
        .map(|(name, nodes)| format!("{name} {nodes}"));
    nodes.collect::<Vec<_>>().join(", ")
}

impl Backend {
    /// Returns the name for users: `zk`, `etcd`, `redis`.
    pub fn name(&self) -> &'static str {
        self.software.backend
    }

    /// Returns the value of `--backend`: the name, or the path of the file that describes it.
    pub fn typed(&self) -> String {
        match self.file {
            Some(file) => file.display().to_string(),
            None => self.name().to_owned(),
        }
    }

    /// Whether locks on the store of this name work on it.
    pub fn takes_locks_of(&self, store: &str) -> bool {
        self.name() == store || self.id.is_some_and(|id| id.takes_locks_of(store))
    }

    /// Returns the time of an election if it may be longer than a few seconds: no client gets a lock in that time.
    pub fn slow_election(&self) -> Duration {
        match self.id {
            Some(BackendId::Nats) => Duration::from_secs(9),
            _ => Duration::ZERO,
        }
    }

    /// Returns the product's name: `ZooKeeper`.
    pub fn product(&self) -> &'static str {
        self.software.product
    }
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.software, other.software)
    }
}

impl Eq for Backend {}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use harness_workloads::find_recipe;

    use super::*;
    use crate::cluster::image_name;

    #[test]
    fn a_default_recipe_is_one_of_its_own_backend() {
        for backend in all() {
            if let Some(name) = backend.default_recipe {
                assert_eq!(find_recipe(name).map(|recipe| Some(recipe.backend)), Some(backend.id));
            }
            let has_recipes = backend.id.is_some_and(|id| !id.recipes().is_empty());
            assert_eq!(backend.default_recipe.is_some(), has_recipes, "{backend}");
        }
    }

    #[test]
    fn a_backend_is_found_by_its_own_id_and_has_a_whole_image_name() {
        for (backend, id) in all().zip(BackendId::ALL) {
            assert_eq!((backend.id, backend.name()), (Some(*id), id.name()));
            let image = backend.software.images[0];
            let tag = image_name::tag(image).unwrap();
            assert!(!tag.is_empty() && !image.starts_with(':') && !image.contains(char::is_whitespace));
        }
    }
}
