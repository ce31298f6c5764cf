//! The leftovers of a session ([`Leftovers`]): nodes that its unknown operations may have left, until they are surely deleted.

use crate::session::SessionError;
use crate::session::zk::ZkSession;

/// A create that was not answered.
struct UnknownCreate {
    parent: String,
    /// The beginning of the node's name, if it was created.
    guid: String,
}

#[derive(Default)]
pub(super) struct Leftovers {
    /// Nodes whose delete was not answered.
    paths: Vec<String>,
    creates: Vec<UnknownCreate>,
}

impl Leftovers {
    pub(super) fn add_path(&mut self, path: String) {
        self.paths.push(path);
    }

    pub(super) fn add_create(&mut self, parent: &str, guid: &str) {
        self.creates.push(UnknownCreate {
            parent: parent.to_owned(),
            guid: guid.to_owned(),
        });
    }

    /// Deletes the leftovers. Nothing new may be created before this has succeeded, or the client would queue after its own old node.
    ///
    /// `syncs`: waits first until the session's server has applied the leader's part of it. An older server would not show leftovers, or
    /// would show those that are gone.
    pub(super) async fn sweep(&mut self, session: &dyn ZkSession, syncs: bool) -> Result<(), SessionError> {
        let any = self.creates.last().map(|create| &create.parent).or(self.paths.last());
        if let Some(path) = any.filter(|_| syncs) {
            session.sync(path).await?;
        }
        while let Some(UnknownCreate { parent, guid }) = self.creates.last() {
            let names = session.children(parent).await?;
            let found = names.iter().filter(|name| name.starts_with(guid.as_str()));
            self.paths.extend(found.map(|name| format!("{parent}/{name}")));
            self.creates.pop();
        }
        while let Some(path) = self.paths.last() {
            // another client's node may be at the same path by now
            let there = session.exists(path).await?;
            if there.is_some_and(|node| node.owner == session.id()) {
                session.delete(path).await?;
            }
            self.paths.pop();
        }
        Ok(())
    }
}
