//! Replication from a primary to replicas: the commands that a product has for it.

use std::net::SocketAddr;

use super::{BoxFuture, ServerAccess};

/// The commands and queries of servers that replicate from a primary. Each call opens a connection to the server; callers set a
/// timeout. The error of each call is a sentence.
pub trait Replication: Sync {
    /// Returns the role that a server reports when it follows a primary.
    fn role_of_replica(&self) -> &'static str;

    /// Returns the reason for which containers of the product cannot replicate, or `None` if they can.
    fn not_in_containers(&self) -> Option<&'static str> {
        None
    }

    /// Makes a replica the primary.
    fn promote(&self, server: ServerAccess) -> BoxFuture<'_, Result<(), String>>;

    /// Makes a server a replica of `primary`. Data that its primary does not have are deleted.
    fn follow(&self, server: ServerAccess, primary: SocketAddr) -> BoxFuture<'_, Result<(), String>>;

    /// Returns the keys of a server.
    fn keys(&self, server: ServerAccess) -> BoxFuture<'_, Result<Vec<String>, String>>;

    /// Returns the length of the primary's log of writes, in bytes.
    fn written(&self, primary: ServerAccess) -> BoxFuture<'_, Result<u64, String>>;

    /// Returns the position up to which a replica has read that log, in bytes.
    fn applied(&self, replica: ServerAccess) -> BoxFuture<'_, Result<u64, String>>;
}
