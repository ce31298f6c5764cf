//! The promises of recipes on simulated servers, whichever store they are for.

use std::ops::RangeInclusive;
use std::rc::Rc;

use harness_workloads::{Policy, Recipe, RecipeOptions, Wakeup};

use super::load::{Disturbance, GRANTS, Journal, run_as};

/// A run in which there were enough grants, and never two holders at once.
fn with_one_holder(recipe: &'static Recipe, seed: u64, disturbance: Disturbance) -> Rc<Journal> {
    let journal = run_as(RecipeOptions::of(recipe), seed, disturbance);
    let trace = journal.trace.borrow();
    assert_eq!(journal.overlaps.get(), 0, "{} seed {seed}:\n{trace}", recipe.name);
    assert!(journal.grants.get() >= GRANTS, "{} seed {seed}:\n{trace}", recipe.name);
    drop(trace);
    journal
}

/// Undisturbed, every recipe has one holder at a time, and waiters are woken if it says so. Users of the load extend no lease, and hold for up
/// to two.
pub fn all_have_one_holder_at_a_time(recipes: impl Iterator<Item = &'static Recipe>) {
    for recipe in recipes.filter(|recipe| !recipe.extends) {
        for seed in 1..=3 {
            let journal = with_one_holder(recipe, seed, Disturbance::None);
            let trace = journal.trace.borrow();
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

/// Checks that disturbed, careful recipes have one holder at a time, and that some holder notices that it lost the lock.
pub fn careful_ones_have_one_holder_at_a_time(
    recipes: impl Iterator<Item = &'static Recipe>,
    disturbance: Disturbance,
) {
    let losses = |recipe| (1..=10).map(move |seed| with_one_holder(recipe, seed, disturbance).losses.get());
    let losses: u32 = recipes.flat_map(losses).sum();
    assert!(
        losses > 0,
        "no holder noticed a disturbance: none lasted longer than a hold could"
    );
}

/// A naive holder of this recipe has the lock together with another in some partition.
pub fn naive_ones_overlap(recipe: &str, seeds: RangeInclusive<u64>) {
    let naive = RecipeOptions {
        policy: Policy::Naive,
        ..RecipeOptions::named(recipe).unwrap()
    };
    assert!(overlaps(|seed| run_as(naive, seed, Disturbance::Partitions), seeds) > 0);
}

/// Returns how often two held the lock at once in the runs of these seeds.
pub fn overlaps(run: impl Fn(u64) -> Rc<Journal>, seeds: RangeInclusive<u64>) -> u32 {
    seeds.map(|seed| run(seed).overlaps.get()).sum()
}

pub fn same_seed_leaves_same_trace(recipes: impl Iterator<Item = &'static Recipe>, disturbance: Disturbance) {
    for recipe in recipes {
        let traces = [1, 1, 2].map(|seed| run_as(RecipeOptions::of(recipe), seed, disturbance).trace.take());
        assert_eq!(traces[0], traces[1], "{}", recipe.name);
        assert_ne!(traces[0], traces[2], "{}", recipe.name);
    }
}
