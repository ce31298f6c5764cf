//! Key changes of a store and queries about them ([`OpenedStore`]), for real servers and models.

use std::sync::Arc;

use crate::backends::arriving::ArrivingEvents;
use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// A change of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdKeyChange {
    pub key: Vec<u8>,
    /// Whether it was deleted, and otherwise put.
    pub deleted: bool,
    /// The revision of its creation, 0 if it was deleted.
    pub create_revision: i64,
    /// The revision of this change.
    pub mod_revision: i64,
    /// Its lease, 0 if it has none.
    pub lease: i64,
}

/// The changes of the keys with a prefix, in the order of their revisions, until the watch is over. `None`: the next changes are
/// compacted, and are never reported.
pub type KeyChangeStream = ArrivingEvents<Option<Vec<EtcdKeyChange>>>;

/// A watch on a store.
pub struct OpenedStore {
    /// The first revision of the watch.
    pub from_revision: i64,
    /// The last puts of the keys that exist at its begin; none if it begins at a requested revision.
    pub present: Vec<EtcdKeyChange>,
    pub changes: KeyChangeStream,
    /// Returns the reason for which a key of this lease disappeared without its owner: whether its lease is over.
    pub why: Arc<dyn Fn(i64) -> BoxFuture<'static, Unasked> + Send + Sync>,
}

/// A watch that is being opened; the error is a sentence.
pub type OpeningStore = BoxFuture<'static, Result<OpenedStore, String>>;

/// Watches the keys with a prefix from a revision on, or from now on if it is `None`.
pub type WatchStore = Box<dyn Fn(&EndpointsReceiver, &str, Option<i64>) -> OpeningStore + Send + Sync>;
