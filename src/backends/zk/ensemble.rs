//! What an ensemble tells of nodes, and what it can be asked ([`ToldChange`], [`NodeQueries`]), whether it is real or a model.

use std::sync::Arc;
use std::time::Duration;

use harness_workloads::zk::owner_name;
use tokio::sync::mpsc;

use crate::backends::observer::Unasked;
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// What happened to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeChange {
    Created,
    Deleted,
    /// Something that no owner depends on.
    Other,
}

/// Whose node it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeOwner {
    /// The session, 0 where the node is not ephemeral.
    pub session: i64,
    /// The transaction that created it.
    pub czxid: i64,
}

/// What happened to which node.
pub type ToldChange = (NodeChange, String);

/// What the server can be asked.
pub trait NodeQueries: Send + Sync {
    /// The names of a node's children; none if there is no such node, or no answer.
    fn children(&self, path: &str) -> BoxFuture<'static, Vec<String>>;

    /// Whose a node is; `None` if there is none, or no answer.
    fn owner(&self, path: &str) -> BoxFuture<'static, Option<NodeOwner>>;

    /// How often it is to be asked whether a majority answers.
    fn beat(&self) -> Duration;

    /// Whether a majority answers: then every change before it was asked has been told.
    fn proves(&self) -> BoxFuture<'static, bool>;

    /// Why a node of this session went that its owner did not delete: the session is gone, or it is not.
    fn why(&self, session: &str) -> BoxFuture<'static, Unasked>;
}

/// A connection to an ensemble.
pub struct OpenedEnsemble {
    pub queries: Arc<dyn NodeQueries>,
    /// The changes of the nodes below the root, in the order in which they happened, until the connection is over.
    pub changes: mpsc::UnboundedReceiver<ToldChange>,
}

/// A connection that is made; the error is a sentence.
pub type OpeningEnsemble = BoxFuture<'static, Result<OpenedEnsemble, String>>;

/// Connects, and hears of all nodes below a root from then on, which is made if it is not there.
pub type ConnectEnsemble = Box<dyn Fn(&EndpointsReceiver, &str) -> OpeningEnsemble + Send + Sync>;

impl NodeOwner {
    /// The session as owners are named.
    pub fn name(self) -> String {
        owner_name(self.session)
    }
}
