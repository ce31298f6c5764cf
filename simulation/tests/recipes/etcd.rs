//! The recipes for etcd, on a cluster of three members.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::etcd::{EtcdVersion, SimulatedEtcd};
use harness_workloads::{BackendId, Recipe, RecipeOptions};

use super::load::{Disturbance, Journal, play};
use super::promises;

const MEMBERS: usize = 3;

fn recipes() -> impl Iterator<Item = &'static Recipe> {
    BackendId::Etcd.recipes().iter().copied()
}

pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| {
        let etcd = SimulatedEtcd::start(world, MEMBERS, EtcdVersion::V3_4);
        play(world, etcd, options, disturbance).await
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
fn careful_recipes_keep_to_one_holder_while_members_are_killed_and_stopped() {
    promises::careful_ones_have_one_holder_at_a_time(run_as, recipes(), Disturbance::Servers);
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    promises::naive_ones_overlap(run_as, "etcd-mutex", 1..=10);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    promises::same_seed_leaves_same_trace(run_as, recipes(), Disturbance::Servers);
}
