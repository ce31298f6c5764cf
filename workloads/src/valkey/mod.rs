//! Locks on Valkey that Redis has no commands for. They use the sessions and shared parts of `redis`, whose locks all run on Valkey.

pub(crate) mod recipes;
