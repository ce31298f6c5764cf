//! The recipes for each store: what all of them do, what careful ones do under disturbances, and what naive ones do not.

use harness_workloads::{BackendId, Recipe, RecipeOptions};

use super::load::{Disturbance, run_as};
use super::promises;

/// Makes the tests of a store in a module of its name: all its recipes; those that have one holder at a time in partitions; a recipe whose naive
/// holder has not, and seeds that show it; and the disturbance of the traces that are compared. `Servers` are also killed and stopped.
macro_rules! store {
    ($store:ident: $all:expr; $careful:expr; $naive:literal in $seeds:expr; $again:ident; $($servers:ident)?) => {
        mod $store {
            use super::*;

            #[test]
            fn every_recipe_gives_a_hundred_grants_to_one_holder_at_a_time() {
                promises::all_have_one_holder_at_a_time($all);
            }

            #[test]
            fn careful_recipes_keep_to_one_holder_in_partitions() {
                promises::careful_ones_have_one_holder_at_a_time($careful, Disturbance::Partitions);
            }

            $(
                #[test]
                fn careful_recipes_keep_to_one_holder_while_servers_are_killed_and_stopped() {
                    promises::careful_ones_have_one_holder_at_a_time($careful, Disturbance::$servers);
                }
            )?

            #[test]
            fn a_naive_holder_that_is_cut_off_overlaps_with_the_next() {
                promises::naive_ones_overlap($naive, $seeds);
            }

            #[test]
            fn the_same_seed_leaves_the_same_trace() {
                promises::same_seed_leaves_same_trace($all, Disturbance::$again);
            }
        }
    };
}

/// The recipes for a store but for these.
fn but(store: BackendId, left_out: &'static [&'static str]) -> impl Iterator<Item = &'static Recipe> {
    let all = store.recipes().iter().copied();
    all.filter(move |recipe| !left_out.contains(&recipe.name))
}

/// Those that compare when they release: the others delete whatever is in the key, and a partition may hold that back.
const COMPARED: [&str; 5] = [
    "redis-set-px-lua",
    "redis-watchdog",
    "redis-pubsub",
    "redlock",
    "valkey-ifeq",
];

/// The recipes for Redis, and those for Valkey.
fn of_both() -> impl Iterator<Item = &'static Recipe> {
    but(BackendId::Redis, &[]).chain(but(BackendId::Valkey, &[]))
}

fn compared() -> impl Iterator<Item = &'static Recipe> {
    of_both().filter(|recipe| COMPARED.contains(&recipe.name))
}

// the lock that comes with the crate is refused with a sentence
store! {
    zk: but(BackendId::Zk, &["zk-curator"]); but(BackendId::Zk, &["zk-curator"]);
    "zk-predecessor-watch" in 1..=10; Partitions; Servers
}
store! {
    etcd: but(BackendId::Etcd, &[]); but(BackendId::Etcd, &[]);
    "etcd-mutex" in 1..=10; Servers; Servers
}
store! {
    redis: of_both(); compared();
    "redis-set-px-lua" in 1..=5; Partitions;
}
store! {
    nats: but(BackendId::Nats, &["nats-key-put"]); but(BackendId::Nats, &["nats-key-put", "nats-key-no-revision"]);
    "nats-key-revision" in 1..=10; Servers; Servers
}

#[test]
fn two_who_read_that_a_key_is_free_both_put_it() {
    let put = RecipeOptions::named("nats-key-put").unwrap();
    assert!(promises::overlaps(|seed| run_as(put, seed, Disturbance::None), 1..=10) > 0);
}
