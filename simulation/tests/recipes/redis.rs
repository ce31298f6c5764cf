//! The recipes for Redis.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::redis::{RedisRoutes, SimulatedRedis};
use harness_workloads::{BackendId, Constructor, Policy, Recipe, RecipeOptions, Wakeup};

use super::load::{Disturbance, GRANTS, Journal, LEASE, MakeClient, disturb, links, take_turns};

fn run(recipe: &'static Recipe, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    run_as(RecipeOptions::of(recipe), seed, disturbance)
}

pub fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    let recipe = options.recipe;
    World::run(seed, async move |world: World| {
        let servers = recipe.servers.unwrap_or(1) as usize;
        let redis = SimulatedRedis::start(world, servers);
        let ways = links(world, servers);
        let _partitioning = disturb(world, disturbance, ways.clone());
        let Constructor::Redis(make) = recipe.constructor else {
            panic!("{} is for another store", recipe.name);
        };
        let make: MakeClient = Rc::new(move |process, number, signals| {
            let routes = RedisRoutes::new(redis, ways[number as usize].clone(), process, LEASE);
            options.build(make, Rc::new(routes), signals, LEASE)
        });
        take_turns(world, make).await
    })
}

#[test]
fn every_recipe_gives_a_hundred_grants_to_one_holder_at_a_time() {
    for recipe in BackendId::Redis.recipes() {
        for seed in 1..=3 {
            let journal = run(recipe, seed, Disturbance::None);
            let trace = journal.trace.borrow();
            assert_eq!(journal.overlaps.get(), 0, "{} seed {seed}:\n{trace}", recipe.name);
            assert!(journal.grants.get() >= GRANTS, "{} seed {seed}:\n{trace}", recipe.name);
            let woken = trace.contains("Woken");
            assert_eq!(
                woken,
                recipe.wakeup == Wakeup::Notified,
                "{} seed {seed}:\n{trace}",
                recipe.name
            );
            assert!(!trace.contains("unknown"), "{} seed {seed}:\n{trace}", recipe.name);
        }
    }
}

#[test]
fn careful_recipes_with_a_compared_release_keep_to_one_holder_in_partitions() {
    let mut losses = 0;
    for recipe in BackendId::Redis.recipes() {
        // the others delete whatever is in the key, and a partition may hold that back
        if !["redis-set-px-lua", "redis-watchdog", "redis-pubsub", "redlock"].contains(&recipe.name) {
            continue;
        }
        for seed in 1..=20 {
            let journal = run(recipe, seed, Disturbance::Partitions);
            let trace = journal.trace.borrow();
            assert_eq!(journal.overlaps.get(), 0, "{} seed {seed}:\n{trace}", recipe.name);
            assert!(journal.grants.get() >= GRANTS, "{} seed {seed}:\n{trace}", recipe.name);
            losses += journal.losses.get();
        }
    }
    assert!(losses > 0, "no partition lasted longer than a hold could");
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    let naive = RecipeOptions {
        policy: Policy::Naive,
        ..RecipeOptions::named("redis-set-px-lua").unwrap()
    };
    let overlaps = (1..=5).map(|seed| run_as(naive, seed, Disturbance::Partitions).overlaps.get());
    assert!(overlaps.sum::<u32>() > 0);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    for recipe in BackendId::Redis.recipes() {
        let traces = [1, 1, 2].map(|seed| run(recipe, seed, Disturbance::Partitions).trace.take());
        assert_eq!(traces[0], traces[1], "{}", recipe.name);
        assert_ne!(traces[0], traces[2], "{}", recipe.name);
    }
}
