//! The recipes for NATS, on a cluster of three servers.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::nats::{NatsVersion, SimulatedNats};
use harness_workloads::{BackendId, Recipe, RecipeOptions};

use super::load::{Disturbance, Journal, play};
use super::promises;

const SERVERS: usize = 3;

/// Returns the recipes that have one holder at a time while nothing is disturbed.
fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let all = BackendId::Nats.recipes().iter().copied();
    all.filter(|recipe| recipe.name != "nats-key-put")
}

/// Returns those of them that compare when they release, too.
fn compared() -> impl Iterator<Item = &'static Recipe> {
    recipes().filter(|recipe| recipe.name != "nats-key-no-revision")
}

pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    run_on(NatsVersion::V2_10, options, seed, disturbance)
}

fn run_on(version: NatsVersion, options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| {
        let nats = SimulatedNats::start(world, SERVERS, version);
        play(world, nats, options, disturbance).await
    })
}

#[test]
fn every_recipe_but_one_gives_a_hundred_grants_to_one_holder_at_a_time() {
    promises::all_have_one_holder_at_a_time(run_as, recipes());
}

#[test]
fn two_who_read_that_a_key_is_free_both_put_it() {
    let put = RecipeOptions::named("nats-key-put").unwrap();
    assert!(promises::overlaps(|seed| run_as(put, seed, Disturbance::None), 1..=10) > 0);
}

#[test]
fn only_servers_of_2_9_take_two_writes_over_one_marker() {
    let marker = RecipeOptions::named("nats-key-marker").unwrap();
    for (version, takes) in [(NatsVersion::V2_9, true), (NatsVersion::V2_10, false)] {
        let run = |seed| run_on(version, marker, seed, Disturbance::None);
        assert_eq!(promises::overlaps(run, 1..=10) > 0, takes, "{version:?}");
    }
}

#[test]
fn careful_recipes_keep_to_one_holder_in_partitions() {
    promises::careful_ones_have_one_holder_at_a_time(run_as, compared(), Disturbance::Partitions);
}

#[test]
fn careful_recipes_keep_to_one_holder_while_servers_are_killed_and_stopped() {
    promises::careful_ones_have_one_holder_at_a_time(run_as, compared(), Disturbance::Servers);
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    promises::naive_ones_overlap(run_as, "nats-key-revision", 1..=10);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    promises::same_seed_leaves_same_trace(run_as, recipes(), Disturbance::Servers);
}
