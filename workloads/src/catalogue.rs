//! The catalogue of all recipes ([`recipes`]), and their clients for real servers.
//!
//! A recipe is one file in the folder `recipes` of its backend, which ends in its [`Recipe`], and one line in the `mod.rs`
//! next to it. Names are stable: users type them, and stored runs carry them.

use std::rc::Rc;
use std::time::Duration;

use harness_tls::TlsFiles;

use crate::backend_id::BackendId;
use crate::client::{LockClient, SignalSink};
use crate::etcd::EtcdServers;
use crate::login::Login;
use crate::mariadb::MariadbServer;
use crate::nats::NatsServers;
use crate::postgres::PostgresServer;
use crate::protocol::OpenRequest;
use crate::recipe::{Constructor, Recipe, RecipeOptions};
use crate::redis::RedisServers;
use crate::relays::{relayed, with_relays};
use crate::zk::ZkServers;
use crate::{etcd, mariadb, nats, postgres, redis, valkey, zk};

impl BackendId {
    /// Returns the recipes for this store, in the order in which they are listed.
    pub const fn recipes(self) -> &'static [&'static Recipe] {
        match self {
            BackendId::Zk => zk::recipes::RECIPES,
            BackendId::Etcd => etcd::recipes::RECIPES,
            BackendId::Redis => redis::recipes::RECIPES,
            BackendId::Valkey => valkey::recipes::RECIPES,
            BackendId::Postgres => postgres::recipes::RECIPES,
            BackendId::Mariadb => mariadb::recipes::RECIPES,
            BackendId::Nats => nats::recipes::RECIPES,
        }
    }
}

/// Returns every recipe, backend by backend.
pub fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let all = BackendId::ALL.iter();
    all.flat_map(|backend| backend.recipes().iter().copied())
}

/// Returns the recipe of this name.
pub fn find_recipe(name: &str) -> Option<&'static Recipe> {
    recipes().find(|recipe| recipe.name == name)
}

impl RecipeOptions {
    /// Returns the defaults of the recipe of this name.
    pub fn named(name: &str) -> Option<Self> {
        find_recipe(name).map(Self::of)
    }

    /// Returns a client of this recipe for real servers, not yet connected. It logs in as the environment says.
    ///
    /// # Errors
    ///
    /// A sentence, if the request is for another backend, or has no endpoint, no lease or a malformed address.
    pub fn client(self, open: &OpenRequest, signals: SignalSink) -> Result<Box<dyn LockClient>, String> {
        let backend = self.recipe.backend;
        let mut stores = BackendId::ALL.iter().filter(|store| store.name() == open.backend);
        if !stores.any(|store| store.takes_locks_of(backend.name())) {
            return Err(format!(
                "{} is a recipe for {backend}, not for {}",
                self.recipe.name, open.backend
            ));
        }
        if open.endpoints.is_empty() || open.lease_ms == 0 {
            return Err("an open needs at least one endpoint and a lease above 0 ms".into());
        }
        let files = TlsFiles::of_environment();
        let tls = files.map(|files| relayed(open, &files)).transpose()?;
        let open = tls.as_ref().map_or(open, |(_, open)| open);
        let lease = Duration::from_millis(open.lease_ms);
        let host = signals.host().clone();
        let login = Login::of_environment(backend);
        let login = login.as_ref();
        let client = match self.recipe.constructor {
            Constructor::Zk(make) => self.build(make, Rc::new(ZkServers::new(open, login, host)), signals, lease),
            Constructor::Etcd(make) => self.build(make, Rc::new(EtcdServers::new(open, login, host)?), signals, lease),
            Constructor::Redis(make, compare) => {
                let servers = RedisServers::new(open, login, compare)?;
                self.build(make, Rc::new(servers), signals, lease)
            }
            Constructor::Postgres(make) => self.build(make, Rc::new(PostgresServer::new(open, login)?), signals, lease),
            Constructor::Mariadb(make) => self.build(make, Rc::new(MariadbServer::new(open, login)?), signals, lease),
            Constructor::Nats(make) => self.build(make, Rc::new(NatsServers::new(open, login, host)), signals, lease),
        };
        Ok(match tls {
            None => client,
            Some((relays, _)) => with_relays(client, relays),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
