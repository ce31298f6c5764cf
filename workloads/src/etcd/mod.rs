//! Locks on etcd.
//!
//! [`recipes`](self) has one file a recipe. They are written against [`EtcdSession`], which [`client_session`](EtcdServers) implements for
//! real servers, by the methods of etcd's own API and their messages ([`wire`]), and for others with their own [`EtcdLine`].
//! `lease_keeper` renews a lease and knows how long it is sure; `lease_session` has what all recipes share.

mod call;
mod channels;
mod client_session;
#[cfg(test)]
mod fake;
mod lease_keeper;
mod lease_session;
mod login;
mod messages;
mod methods;
pub(crate) mod recipes;
mod server_wait;
pub mod wire;

#[cfg(test)]
mod tests;

pub use call::{EtcdAnswer, EtcdCall, EtcdCompare, EtcdFailure, EtcdFailureKind, EtcdLine, EtcdOp, EtcdReply, EtcdTxn};
pub use channels::{CONNECTS_A_LEASE, PINGS_A_LEASE};
pub use client_session::{EtcdServers, LimitTimer};
pub use methods::EtcdMethod;

use crate::recipe::EtcdContext;
pub use crate::session::etcd::{Created, EtcdKey, EtcdSession, EtcdWatch, Leader, Lease, Listing};

/// Returns the beginning of the keys of all contenders for a lock.
pub fn lock_prefix(lock: &str) -> String {
    format!("harness/{lock}/")
}

/// Returns the end of the range of keys that begin with `prefix`, as etcd wants it.
pub fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end;
        }
    }
    vec![0]
}

/// Returns a lease's id as text, in the form of etcd's own keys.
pub fn owner_name(lease: i64) -> String {
    format!("0x{lease:x}")
}
