//! Locks on etcd.
//!
//! [`session`] is what a recipe needs of etcd, `real` is that on a client generated from etcd's own API ([`wire`]),
//! `tenancy` keeps a lease alive and knows how long it is sure, `tenant` has what all recipes share; the rest is one file
//! a recipe.

mod channels;
pub mod election;
#[cfg(test)]
mod fake;
pub mod lock_rpc;
pub mod mutex;
pub mod queue;
mod real;
mod served;
pub mod session;
mod tenancy;
mod tenant;
pub mod wire;

#[cfg(test)]
mod tests;

pub use real::RealEtcd;
pub use session::{Created, EtcdConnect, EtcdSession, EtcdWatch, Key, KeyEvent, Leader, Lease, Listing};

/// What the keys of all contenders for a lock begin with.
pub fn lock_prefix(lock: &str) -> String {
    format!("harness/{lock}/")
}

/// The end of the range of keys that begin with `prefix`, as etcd wants it.
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

/// A lease's id as text, the way that etcd's own keys carry it.
pub fn owner_name(lease: i64) -> String {
    format!("0x{lease:x}")
}
