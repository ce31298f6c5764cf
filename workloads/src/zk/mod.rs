//! Locks on ZooKeeper.
//!
//! [`recipes`](self) has one file a recipe. They are written against [`ZkSession`], which [`client_session`](ZkServers)
//! implements for real servers. `lock_session` has what all recipes share, `queue_lock` what all queues share;
//! `hold_watch` raises `lost` when a careful client can no longer be sure that its session is alive. The
//! `zookeeper-client` crate keeps the session alive by itself.

mod client_session;
#[cfg(test)]
mod fake;
mod hold_watch;
mod leftovers;
mod lock_session;
mod queue_lock;
pub(crate) mod recipes;

pub use client_session::{CALL_SHARE, ZkServers, connector};

use crate::host::push_hexadecimal;
use crate::recipe::ZkContext;
pub use crate::session::zk::{
    ConnectionState, ConnectionStatus, WatchEvent, ZkConnect, ZkFailure, ZkSession, ZkWatch, Znode,
};

/// Returns the node whose children are the contenders for a lock, named `<guid>-lock-<sequence>` or `lock-<sequence>`.
pub fn lock_path(lock: &str) -> String {
    ["/harness/", lock].concat()
}

/// Returns the sequence number that the server put at the end of a contender's name.
///
/// The server prints a signed 32-bit counter in ten digits, so past 2³¹ there is a `-` before them; it stays a number
/// that sorts as the server counts.
pub fn sequence_of(name: &str) -> Option<i32> {
    let (before, digits) = name.as_bytes().split_last_chunk::<10>()?;
    let (mut number, mut are_digits) = (0, !before.last().is_some_and(u8::is_ascii_digit));
    for letter in digits {
        are_digits &= letter.is_ascii_digit();
        number = number * 10 + i64::from(letter.wrapping_sub(b'0'));
    }
    if !are_digits {
        return None;
    }
    // "lock--2147483648": the kind of node ends in one dash, the second one is the sign
    let is_negative = before.ends_with(b"--");
    i32::try_from(if is_negative { -number } else { number }).ok()
}

/// Returns a session's id as text, as ZooKeeper's own tools print it.
pub fn owner_name(session: i64) -> String {
    let mut name = String::with_capacity(18);
    name.push_str("0x");
    push_hexadecimal(&mut name, session as u64, 1);
    name
}

#[cfg(test)]
mod tests;
