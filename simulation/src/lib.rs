//! Lock servers, the network and client processes in virtual time, on one thread, the same for the same seed.
//!
//! A [`World`] has a clock in nanoseconds that goes on when nothing is left to do, tasks, and random numbers from one seed.
//! A [`SimulatedProcess`] owns tasks, can be stopped, go on and be killed, and is the machine ([`RecipeHost`]) that lock recipes
//! run on.
//!
//! A [`network`] joins processes with links that faults are put on, and [`redis`], [`zk`], [`etcd`] and [`nats`] are servers as
//! pure models, with sessions that implement the traits of `harness_workloads`, so that its recipes run on them unmodified.
//!
//! Two runs with the same seed do the same, step by step: nothing here reads the real clock, the randomness of the thread, or the
//! order of a hash table.
//!
//! [`RecipeHost`]: harness_workloads::RecipeHost

#[cfg(test)]
mod conformance;
mod dice;
pub mod etcd;
mod mutants;
pub mod nats;
pub mod network;
pub mod redis;
mod servers;
mod work_queue;
mod world;
pub mod zk;

pub use servers::{ClientPlace, SimulatedServers};
pub use world::{Kept, Looping, ScheduledCall, SimulatedProcess, SimulatedTask, World, WorldPulse, WorldSleep};
