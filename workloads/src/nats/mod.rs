//! Locks on NATS JetStream.
//!
//! [`recipes`](self) has one file a recipe. They are written against [`NatsSession`], which leads to real servers, and to
//! others with their own [`KeyDial`]. `key_lock` is a lock that is one key of a bucket.

#[cfg(test)]
mod fake;
mod key_lock;
pub(crate) mod recipes;
mod shared_connection;

#[cfg(test)]
mod tests;

pub use crate::session::nats::{
    KeyAnswer, KeyDial, KeyLine, KeyMessage, KeyOutcome, KeyRequest, NatsConnection, NatsError, NatsGreeting,
    NatsReply, NatsRequest, NatsServers, NatsSession, api, lone_answer, lone_request,
};

/// Returns the value of a held key that was renewed: its owner, and the revision by which it was taken, which is the fencing token. Before
/// that, it is the owner.
fn held_value(owner: &str, token: u64) -> String {
    format!("{owner} {token}")
}

/// Returns the owner in the value of a held key, and the token where it has one.
pub fn read_value(value: &str) -> (&str, Option<u64>) {
    let parts = value.rsplit_once(' ');
    let renewed = parts.and_then(|(owner, token)| Some((owner, Some(token.parse().ok()?))));
    renewed.unwrap_or((value, None))
}
