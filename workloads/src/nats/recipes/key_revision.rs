//! `nats-key-revision`: a key of a bucket, created, renewed and removed by its revision.
//!
//! 1. write the key, if it has no message (`Nats-Expected-Last-Subject-Sequence: 0`); poll while it has one. The revision is the
//!    fencing token;
//! 2. every third of the lease, write it again over the last own revision. The bucket's `max_age` is the lease: the server ends
//!    what was not renewed;
//! 3. remove the message of the last own revision to release: no marker stays, so that a create always expects nothing.
//!
//! Source: the key-value store of NATS, its `create` and `update`: <https://docs.nats.io/nats-concepts/jetstream/key-value-store>.

use super::{KeyGiving, KeyLock, KeyTaking, Recipe, nats};

pub(super) const RECIPE: Recipe = nats(
    "nats-key-revision",
    "a key that is created, renewed and removed by its revision",
    |context| Box::new(KeyLock::new(context, KeyTaking::Compared, KeyGiving::Removed)),
);
