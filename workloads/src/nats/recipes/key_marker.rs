//! `nats-key-marker`: as `nats-key-revision`, but released by a delete marker, over which the next client creates the key.
//!
//! 1. write the key, if it has no message, or over a delete marker whose revision is expected;
//! 2. write a delete marker over the last own revision to release.
//!
//! Source: `Create`, and `Delete` with `LastRevision`, of the key-value client libraries of NATS, such as
//! <https://github.com/nats-io/nats.go/blob/main/kv.go>. Servers of version 2.9 take two writes over one revision that come at
//! the same time: two clients have the lock.

use super::{KeyGiving, KeyLock, KeyTaking, Recipe, nats};

pub(super) const RECIPE: Recipe = nats(
    "nats-key-marker",
    "broken on old servers: a key that is released by a delete marker, and created over it",
    |context| Box::new(KeyLock::new(context, KeyTaking::Compared, KeyGiving::Marked)),
);
