//! What a store tells of keys, and what it can be asked ([`KeyChanges`], [`LeaseQueries`]), whether it is real or a model.

use std::sync::Arc;

use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdKeyChange {
    pub key: Vec<u8>,
    /// Otherwise it was put.
    pub deleted: bool,
    /// 0 where it was deleted.
    pub create_revision: i64,
    /// The revision of this change.
    pub mod_revision: i64,
    /// 0 if it has none.
    pub lease: i64,
}

/// The changes of the keys with a prefix, in the order of their revisions.
pub trait KeyChanges: Send {
    /// What the store told next; `None` when the watch is over. What it told is not lost when the future is dropped.
    fn next(&mut self) -> BoxFuture<'_, Option<Vec<EtcdKeyChange>>>;
}

/// What the store can be asked.
pub trait LeaseQueries: Send + Sync {
    /// Why a key of this lease went that its owner did not delete: its lease is gone, or it is not.
    fn why(&self, lease: i64) -> BoxFuture<'static, Unasked>;
}

/// A watch on a store.
pub struct OpenedStore {
    /// The first revision that it tells of.
    pub from_revision: i64,
    pub queries: Arc<dyn LeaseQueries>,
    pub changes: Box<dyn KeyChanges>,
}

/// Watches stores.
pub trait StoreSource: Send + Sync {
    /// Watches the keys with `prefix` from a revision on; `None`: what happened before is not told.
    fn open(
        &self,
        endpoints: &EndpointsReceiver,
        prefix: &str,
        from_revision: Option<i64>,
    ) -> BoxFuture<'static, Result<OpenedStore, String>>;
}
