//! Node changes of an ensemble and queries about them ([`ChangedNode`], [`NodeQueries`]), for real servers and models.

use std::sync::Arc;
use std::time::Duration;

use crate::backends::arriving::ArrivingEvents;
use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// A change of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Created,
    Deleted,
    /// A change that no owner depends on.
    Other,
}

/// The owner of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOwner {
    /// The session, 0 if the node is not ephemeral.
    pub session: i64,
    /// The transaction that created it.
    pub czxid: i64,
}

/// A change, and the path of its node.
pub type ChangedNode = (NodeChange, String);

/// Queries of the server.
pub trait NodeQueries: Send + Sync {
    /// Returns the names of a node's children, none without such a node; `None` without an answer.
    fn children(&self, path: &str) -> BoxFuture<'static, Option<Vec<String>>>;

    /// Returns the owner of a node; `None` without such a node, or without an answer.
    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>>;

    /// Returns the time between two proofs.
    fn beat(&self) -> Duration;

    /// Whether a majority answers: then every change before the query has been reported.
    fn proves(&self) -> BoxFuture<'static, bool>;

    /// Returns the cause of the end of this session's node, if its owner did not delete it: whether the session is over.
    fn why(&self, session: &str) -> BoxFuture<'static, Unasked>;
}

/// A connection to an ensemble.
pub struct OpenedEnsemble {
    pub queries: Arc<dyn NodeQueries>,
    /// The changes of the nodes below the root, in the order in which they happened, until the connection is over.
    pub changes: ArrivingEvents<ChangedNode>,
}

/// A connection that is being opened; the error is a sentence.
pub type OpeningEnsemble = BoxFuture<'static, Result<OpenedEnsemble, String>>;

/// Connects, and receives the changes of all nodes below a root from then on, which is made if it does not exist.
pub type ConnectEnsemble = Box<dyn Fn(&EndpointsReceiver, &str) -> OpeningEnsemble + Send + Sync>;
