//! Locks on ZooKeeper.
//!
//! [`session`] is what a recipe needs of ZooKeeper, `real` is that on the field's own crate, `member` has what all
//! recipes share and `queue` what all queues share, `guard` is the careful holder's doubt; the rest is one file a recipe.

pub mod curator;
pub mod election;
#[cfg(test)]
mod fake;
mod guard;
mod leftovers;
mod member;
pub mod parent_watch;
pub mod polling;
pub mod predecessor_watch;
mod queue;
pub mod read_write;
mod real;
pub mod session;
pub mod single_node;

pub use real::RealZk;
pub use session::{Link, LinkState, Node, Watch, WatchEvent, ZkConnect, ZkSession};

/// The node whose children are the contenders for a lock, named `<guid>-lock-<sequence>` or `lock-<sequence>`.
pub fn lock_path(lock: &str) -> String {
    format!("/harness/{lock}")
}

/// The sequence number that the server put at the end of a contender's name.
///
/// The server prints a signed 32-bit counter in ten digits, so past 2³¹ there is a `-` before them; it stays a number
/// that sorts as the server counts.
pub fn sequence_of(name: &str) -> Option<i32> {
    let digits = name
        .rfind(|letter: char| !letter.is_ascii_digit())
        .map_or(0, |last| last + 1);
    if name.len() - digits != 10 {
        return None;
    }
    // "lock--2147483648": the kind of node ends in one dash, the second one is the sign
    let sign = if name[..digits].ends_with("--") {
        digits - 1
    } else {
        digits
    };
    name[sign..].parse().ok()
}

/// A session's id as text, the way that ZooKeeper's own tools print it.
pub fn owner_name(session: i64) -> String {
    format!("0x{session:x}")
}

#[cfg(test)]
mod tests;
