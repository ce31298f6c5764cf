//! The recipes for Redis and Valkey.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::redis::SimulatedRedis;
use harness_workloads::{BackendId, Recipe, RecipeOptions};

use super::load::{Disturbance, Journal, play};
use super::promises;

fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let both = [BackendId::Redis, BackendId::Valkey].into_iter();
    both.flat_map(BackendId::recipes).copied()
}

pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| {
        let redis = SimulatedRedis::start(world, options.recipe.servers.unwrap_or(1) as usize);
        play(world, redis, options, disturbance).await
    })
}

#[test]
fn every_recipe_gives_a_hundred_grants_to_one_holder_at_a_time() {
    // users of the load extend no lease, and hold for up to two
    let recipes = recipes().filter(|recipe| !recipe.extends);
    promises::all_have_one_holder_at_a_time(run_as, recipes);
}

#[test]
fn careful_recipes_with_a_compared_release_keep_to_one_holder_in_partitions() {
    // the others delete whatever is in the key, and a partition may hold that back
    let compared = [
        "redis-set-px-lua",
        "redis-watchdog",
        "redis-pubsub",
        "redlock",
        "valkey-ifeq",
    ];
    let recipes = recipes().filter(|recipe| compared.contains(&recipe.name));
    promises::careful_ones_have_one_holder_at_a_time(run_as, recipes, Disturbance::Partitions);
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    promises::naive_ones_overlap(run_as, "redis-set-px-lua", 1..=5);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    promises::same_seed_leaves_same_trace(run_as, recipes(), Disturbance::Partitions);
}
