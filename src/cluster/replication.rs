//! Replication from a primary to replicas: the commands that a product has for it.

use std::net::SocketAddr;

use super::{BoxFuture, ServerAccess};

/// What can be told to and asked of servers that replicate from a primary. Each call opens a connection to the server;
/// callers bound its time. The error of each call is a sentence.
pub trait Replication: Sync {
    /// What a server that follows a primary calls itself when it is asked for its role.
    fn role_of_replica(&self) -> &'static str;

    /// Why containers of the product cannot replicate; `None` where they can.
    fn not_in_containers(&self) -> Option<&'static str> {
        None
    }

    /// Makes a replica the primary.
    fn promote(&self, server: ServerAccess) -> BoxFuture<'_, Result<(), String>>;

    /// Makes a server a replica of `primary`. What it has and its primary does not have is deleted.
    fn follow(&self, server: ServerAccess, primary: SocketAddr) -> BoxFuture<'_, Result<(), String>>;

    /// The keys that a server has.
    fn keys(&self, server: ServerAccess) -> BoxFuture<'_, Result<Vec<String>, String>>;

    /// How far the primary's log of writes goes, in bytes.
    fn written(&self, primary: ServerAccess) -> BoxFuture<'_, Result<u64, String>>;

    /// How far a replica has read that log, in bytes.
    fn applied(&self, replica: ServerAccess) -> BoxFuture<'_, Result<u64, String>>;
}
