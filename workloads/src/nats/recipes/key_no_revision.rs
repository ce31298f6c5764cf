//! `nats-key-no-revision`: as `nats-key-revision`, but a release purges the key whatever its revision is. Broken.
//!
//! 1. write the key, if it has no message;
//! 2. purge the key to release: a late one frees the next holder's lock.
//!
//! Source: `nats-key-revision` without the comparison, as `DEL` without one on Redis.

use super::{KeyGiving, KeyLock, KeyTaking, Recipe, nats};

pub(super) const RECIPE: Recipe = nats(
    "nats-key-no-revision",
    "broken: the key is purged without a look at its revision",
    |context| Box::new(KeyLock::new(context, KeyTaking::Compared, KeyGiving::Purged)),
);
