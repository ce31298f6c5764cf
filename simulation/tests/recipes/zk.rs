//! The recipes for ZooKeeper, on an ensemble of three servers. The lock that comes with the crate is refused with a sentence.

use std::rc::Rc;

use harness_simulation::World;
use harness_simulation::zk::{SimulatedZk, ZkRoutes};
use harness_workloads::{BackendId, Constructor, Policy, Recipe, RecipeOptions, Wakeup};

use crate::load::{Disturbance, GRANTS, Journal, LEASE, MakeClient, disturb, links, take_turns};

const SERVERS: usize = 3;

fn recipes() -> impl Iterator<Item = &'static Recipe> {
    let all = BackendId::Zk.recipes().iter().copied();
    all.filter(|recipe| recipe.name != "zk-curator")
}

fn run_as(options: RecipeOptions, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    World::run(seed, async move |world: World| {
        let zk = SimulatedZk::start(world, SERVERS, LEASE / 10);
        let ways = links(world, SERVERS);
        let _partitioning = disturb(world, disturbance, ways.clone());
        let Constructor::Zk(make) = options.recipe.constructor else {
            panic!("{} is for another store", options.recipe.name);
        };
        let make: MakeClient = Rc::new(move |process, number, signals| {
            let routes = ZkRoutes::new(zk, ways[number as usize].clone(), process, LEASE);
            options.build(make, Rc::new(routes), signals, LEASE)
        });
        take_turns(world, make).await
    })
}

#[test]
fn every_recipe_gives_a_hundred_grants_to_one_holder_at_a_time() {
    for recipe in recipes() {
        for seed in 1..=3 {
            let journal = run_as(RecipeOptions::of(recipe), seed, Disturbance::None);
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
fn careful_recipes_keep_to_one_holder_in_partitions() {
    let mut losses = 0;
    for recipe in recipes() {
        for seed in 1..=20 {
            let journal = run_as(RecipeOptions::of(recipe), seed, Disturbance::Partitions);
            let trace = journal.trace.borrow();
            assert_eq!(journal.overlaps.get(), 0, "{} seed {seed}:\n{trace}", recipe.name);
            assert!(journal.grants.get() >= GRANTS, "{} seed {seed}:\n{trace}", recipe.name);
            losses += journal.losses.get();
        }
    }
    assert!(losses > 0, "no partition was noticed by a holder");
}

#[test]
fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
    let naive = RecipeOptions {
        policy: Policy::Naive,
        ..RecipeOptions::named("zk-predecessor-watch").unwrap()
    };
    let overlaps = (1..=10).map(|seed| run_as(naive, seed, Disturbance::Partitions).overlaps.get());
    assert!(overlaps.sum::<u32>() > 0);
}

#[test]
fn the_same_seed_leaves_the_same_trace() {
    for recipe in recipes() {
        let run = |seed| run_as(RecipeOptions::of(recipe), seed, Disturbance::Partitions);
        let traces = [1, 1, 2].map(|seed| run(seed).trace.take());
        assert_eq!(traces[0], traces[1], "{}", recipe.name);
        assert_ne!(traces[0], traces[2], "{}", recipe.name);
    }
}
