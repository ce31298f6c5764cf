//! Runs on simulated servers, in virtual time: models of servers and of the network, on which the same recipes, drivers, faults and
//! observers run as on real ones.
//!
//! [`execute`] is the counterpart of [`run::execute`](crate::run::execute) on real servers. A run is a function of its
//! configuration and its seed: repeated, it has the same history, byte by byte, but for the name of the run in its header. A pass
//! is about the recipe on a model, and not about a server or a client library.

mod clients;
mod endless;
mod etcd;
#[cfg(test)]
mod foolish;
mod ground;
mod keyspaces;
mod links;
mod nats;
mod redis;
mod refusal;
mod zk;

use std::sync::Arc;

use harness_simulation::World;
use harness_workloads::BackendId;

pub use ground::{address_of, address_of_server, server_at};
pub use links::{ConnectionTaps, FaultableLink, Redirect};
pub use refusal::refusal;

use crate::backends::Backend;
use crate::cluster::Cluster;
use crate::run::{self, Ground, RunError, RunOutcome, RunSpec};
use endless::WorldWatch;

/// Executes the run, on a thread of its own. The history is complete and on disk when this returns, and the run has ended.
pub async fn execute(spec: RunSpec) -> RunOutcome {
    let made = run::on_a_thread(move || execute_here(spec)).await;
    made.unwrap_or_else(RunOutcome::not_made)
}

/// Executes the run on this thread.
pub fn execute_here(spec: RunSpec) -> RunOutcome {
    execute_on(ground, spec)
}

/// Returns servers, links and clients in a world.
type LayGround = fn(World, &RunSpec) -> (Ground, Cluster);

fn execute_on(ground: LayGround, spec: RunSpec) -> RunOutcome {
    let made = World::try_run(run::world_seed(&spec.config), |world| in_world(world, ground, spec));
    made.unwrap_or_else(|looping| RunOutcome::not_made(RunError::Clients(looping.to_string())))
}

async fn in_world(world: World, ground: LayGround, mut spec: RunSpec) -> RunOutcome {
    let _watch = WorldWatch::of(world);
    let mut outcome = RunOutcome::default();
    run::hear_interrupt(world, &mut spec);
    let made = attempt(world, ground, Arc::new(spec), &mut outcome).await;
    outcome.error = made.err();
    // models leave nothing
    let _ = std::mem::take(&mut outcome.teardown).run().await;
    outcome
}

async fn attempt(world: World, lay: LayGround, spec: Arc<RunSpec>, outcome: &mut RunOutcome) -> Result<(), RunError> {
    if let Some(why) = refusal(&spec.config) {
        return Err(RunError::Clients(why));
    }
    let (ground, cluster) = lay(world, &spec);
    let played = run::play(spec, ground, outcome).await;
    cluster.stop().await;
    played
}

/// Whether there is a model of the servers of a backend.
fn has_model(backend: &Backend) -> bool {
    matches!(
        backend.id,
        Some(BackendId::Redis | BackendId::Valkey | BackendId::Zk | BackendId::Etcd | BackendId::Nats)
    )
}

/// Returns servers, links and clients in `world`.
fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
    match spec.config.backend.id {
        Some(BackendId::Redis | BackendId::Valkey) => redis::ground(world, spec),
        Some(BackendId::Zk) => zk::ground(world, spec),
        Some(BackendId::Etcd) => etcd::ground(world, spec),
        Some(BackendId::Nats) => nats::ground(world, spec),
        Some(BackendId::Postgres | BackendId::Mariadb) | None => unreachable!("it is refused before this"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use harness_checkers::{History, Options, ReadOptions, Verdict, check};
    use harness_workloads::RecipeOptions;

    use super::*;
    use crate::backends;
    use crate::cluster::Runtime;
    use crate::config::{Clients, Config, FaultRequest};

    /// Returns the configuration of a short run: a lease of 1 s, 15 s in all.
    fn config(recipe: &str, fault: &str, seed: u64) -> Config {
        let options = RecipeOptions::named(recipe).unwrap();
        let backend = backends::of(options.recipe.backend);
        Config {
            backend,
            nodes: options.recipe.servers.unwrap_or(backend.software.nodes),
            who: Clients::Recipe(options),
            faults: vec![FaultRequest::read(fault)],
            // etcd grants no shorter one
            lease: Duration::from_secs(if backend.id == Some(BackendId::Etcd) { 2 } else { 1 }),
            time: Duration::from_secs(15),
            seed,
            ..Config::example()
        }
    }

    /// Executes a run in a folder; returns its history.
    fn history_of(config: Config, folder: &std::path::Path) -> String {
        let spec = RunSpec::of_test(config, folder, Runtime::Simulated);
        let path = spec.folder.history();
        let outcome = execute_here(spec);
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        std::fs::read_to_string(path).unwrap()
    }

    /// Returns the properties that a history violates.
    fn violated(history: &str) -> Vec<String> {
        let history = History::read(history.as_bytes(), &ReadOptions::default()).unwrap();
        let findings = check(&history, &Options::default()).findings;
        let broken = findings.iter().filter(|finding| finding.verdict == Verdict::Violated);
        broken.map(|finding| format!("{:?}", finding.property)).collect()
    }

    #[test]
    fn a_history_in_memory_is_the_one_on_disk_and_leaves_no_file() {
        for (recipe, fault) in [
            ("redis-set-px-lua", "pause-holder"),
            ("zk-read-write", "partition"),
            ("redlock", "partition"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let config = Config {
                grants: Some(60),
                ..config(recipe, fault, 5)
            };
            let in_memory = RunSpec {
                in_memory: true,
                ..RunSpec::of_test(config.clone(), folder.path(), Runtime::Simulated)
            };
            let outcome = execute_here(in_memory);
            assert!(outcome.error.is_none(), "{:?}", outcome.error);
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
            let kept = outcome.history.unwrap();
            let written = history_of(config, folder.path());
            let written = History::read(written.as_bytes(), &ReadOptions::default()).unwrap();
            assert_eq!(kept.header(), written.header());
            assert!(kept.entries().eq(written.entries()), "{recipe}");
            let options = Options::still();
            let findings = |history| format!("{:?}", check(history, &options).findings);
            assert_eq!(findings(&kept), findings(&written));
        }
    }

    #[test]
    fn a_run_with_a_number_of_grants_ends_with_them_and_with_one_acquire_of_each_client() {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            grants: Some(40),
            time: Duration::from_secs(60),
            ..config("zk-predecessor-watch", "partition", 2)
        };
        let history = history_of(config, folder.path());
        let grants = history.matches(r#""type":"ok","f":"acquire""#).count();
        // a client that waits at the last grant acquires, too
        assert!((45..=50).contains(&grants), "{grants} grants");
        assert!(history.contains(r#""unfinished":[]"#));
        assert!(violated(&history).is_empty());
    }

    /// Runs one seed for each pair of a recipe and a fault.
    #[test]
    fn correct_recipes_hold_under_every_fault_that_they_can_stand() {
        correct_recipes_hold(20);
    }

    mod nightly {
        #[test]
        fn correct_recipes_hold_under_every_fault_that_they_can_stand() {
            super::correct_recipes_hold(300);
        }
    }

    fn correct_recipes_hold(seeds: usize) {
        let folder = tempfile::tempdir().unwrap();
        let faults = ["partition", "latency", "kill-holder", "pause-waiter", "server-pause"];
        let recipes = [
            "redis-set-px-lua",
            "redis-watchdog",
            "zk-predecessor-watch",
            "etcd-election",
        ];
        for seed in 0..seeds {
            let (fault, recipe) = (faults[seed % faults.len()], recipes[seed % recipes.len()]);
            let violated = violated(&history_of(config(recipe, fault, seed as u64), folder.path()));
            assert!(violated.is_empty(), "{recipe} {fault} seed {seed}: {violated:?}");
        }
    }

    #[test]
    fn every_recipe_acquires_again_and_again_without_faults() {
        let folder = tempfile::tempdir().unwrap();
        let modelled = BackendId::ALL.iter().filter(|id| has_model(backends::of(**id)));
        let recipes = modelled.flat_map(|id| id.recipes());
        for recipe in recipes.filter(|recipe| recipe.name != "zk-curator") {
            let config = Config {
                faults: Vec::new(),
                grants: Some(20),
                ..config(recipe.name, "partition", 1)
            };
            let history = history_of(config, folder.path());
            let grants = history.matches(r#""type":"ok","f":"acquire""#).count();
            // a client that polls asks once a second
            assert!(grants > 15, "{}: {grants} grants", recipe.name);
        }
    }
}
