//! What unknown operations of a session may have left behind, until it is surely gone.

use super::session::ZkSession;
use crate::session::SessionError;

#[derive(Default)]
pub(super) struct Leftovers {
    /// Nodes whose delete was not answered.
    paths: Vec<String>,
    /// Creates that were not answered: the parent, and the GUID that the node's name would begin with.
    doubts: Vec<(String, String)>,
}

impl Leftovers {
    pub(super) fn remember(&mut self, path: String) {
        self.paths.push(path);
    }

    pub(super) fn doubt(&mut self, parent: &str, guid: &str) {
        self.doubts.push((parent.to_owned(), guid.to_owned()));
    }

    /// Deletes what is left. Nothing new may be created before this has succeeded, or one would queue behind oneself.
    pub(super) async fn sweep(&mut self, session: &dyn ZkSession) -> Result<(), SessionError> {
        while let Some((parent, guid)) = self.doubts.last() {
            let names = session.children(parent).await?;
            let found = names.iter().filter(|name| name.starts_with(guid.as_str()));
            self.paths.extend(found.map(|name| format!("{parent}/{name}")));
            self.doubts.pop();
        }
        while let Some(path) = self.paths.last() {
            // another's node may be at the same path by now
            if session
                .exists(path)
                .await?
                .is_some_and(|node| node.owner == session.id())
            {
                session.delete(path).await?;
            }
            self.paths.pop();
        }
        Ok(())
    }
}
