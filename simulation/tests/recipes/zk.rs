//! The recipes for ZooKeeper, on an ensemble of three servers. The lock that comes with the crate is refused with a sentence.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::zk::SimulatedZk;
use harness_workloads::{BackendId, Recipe, RecipeOptions};

use super::load::{Disturbance, Journal, LEASE, play};
use super::promises;

const SERVERS: usize = 3;

fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let all = BackendId::Zk.recipes().iter().copied();
    all.filter(|recipe| recipe.name != "zk-curator")
}

pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| {
        let zk = SimulatedZk::start(world, SERVERS, LEASE / 10);
        play(world, zk, options, disturbance).await
    })
}

#[test]
fn every_recipe_gives_a_hundred_grants_to_one_holder_at_a_time() {
    promises::all_have_one_holder_at_a_time(run_as, recipes());
}

#[test]
fn careful_recipes_keep_to_one_holder_in_partitions() {
    promises::careful_ones_have_one_holder_at_a_time(run_as, recipes(), Disturbance::Partitions);
}

#[test]
fn careful_recipes_keep_to_one_holder_while_servers_are_killed_and_stopped() {
    promises::careful_ones_have_one_holder_at_a_time(run_as, recipes(), Disturbance::Servers);
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    promises::naive_ones_overlap(run_as, "zk-predecessor-watch", 1..=10);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    promises::same_seed_leaves_same_trace(run_as, recipes(), Disturbance::Partitions);
}
