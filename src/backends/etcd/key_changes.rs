//! What a store tells of keys, and what it can be asked ([`OpenedStore`]), whether it is real or a model.

use std::sync::Arc;

use futures_util::stream::BoxStream;

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

/// The changes of the keys with a prefix, in the order of their revisions, until the watch is over.
pub type ToldKeyChanges = BoxStream<'static, Vec<EtcdKeyChange>>;

/// A watch on a store.
pub struct OpenedStore {
    /// The first revision that it tells of.
    pub from_revision: i64,
    pub changes: ToldKeyChanges,
    /// Why a key of this lease went that its owner did not delete: its lease is gone, or it is not.
    pub why: Arc<dyn Fn(i64) -> BoxFuture<'static, Unasked> + Send + Sync>,
}

/// A watch that begins; the error is a sentence.
pub type OpeningStore = BoxFuture<'static, Result<OpenedStore, String>>;

/// Watches the keys with a prefix from a revision on; `None`: what happened before is not told.
pub type WatchStore = Box<dyn Fn(&EndpointsReceiver, &str, Option<i64>) -> OpeningStore + Send + Sync>;
