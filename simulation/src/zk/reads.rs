//! Requests that a server answers from its own data.

use super::request::{ZkAnswer, ZkCall, ZkCode, ZkWatchKind};
use super::tree::ZkTree;

/// Answers a read. `notify` is called with watches that fire at once.
pub(super) fn read(
    tree: &mut ZkTree,
    connection: u64,
    call: ZkCall,
    notify: impl Fn(&'static str, String),
) -> ZkAnswer {
    match call {
        ZkCall::Exists { path, watch } => {
            if watch {
                tree.watch(ZkWatchKind::Data, &path, connection);
            }
            tree.stat(&path)
                .map_or(ZkAnswer::Failed(ZkCode::NoNode), ZkAnswer::Stat)
        }
        ZkCall::GetChildren { path, watch } => match tree.children(&path) {
            Some(names) => {
                if watch {
                    tree.watch(ZkWatchKind::Child, &path, connection);
                }
                ZkAnswer::Children(names)
            }
            None => ZkAnswer::Failed(ZkCode::NoNode),
        },
        ZkCall::RemoveWatches { path } => {
            tree.unwatch(&path, connection);
            ZkAnswer::Done
        }
        ZkCall::SetWatches { last_zxid, watches } => {
            for (kind, path) in watches {
                if let Some(event) = tree.watch_again(kind, &path, last_zxid, connection) {
                    notify(event, path);
                }
            }
            ZkAnswer::Done
        }
        _ => ZkAnswer::Done,
    }
}
