//! `nats-key-put`: as `nats-key-revision`, but the key is read, and then written without an expected revision. Broken.
//!
//! 1. read the key; poll while it has a value;
//! 2. `put` it: all who have read that it is free take it.
//!
//! Source: `Put` in place of `Create` of the key-value store of NATS:
//! <https://docs.nats.io/nats-concepts/jetstream/key-value-store>.

use super::{KeyGiving, KeyLock, KeyTaking, Recipe, nats};

pub(super) const RECIPE: Recipe = nats(
    "nats-key-put",
    "broken: the key is read, and then put without an expected revision",
    |context| Box::new(KeyLock::new(context, KeyTaking::Blind, KeyGiving::Removed)),
);
