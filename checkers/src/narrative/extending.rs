//! Words for holds whose lease the application extends.

use crate::extensions;
use crate::history::History;
use crate::holds::LockHold;

pub(super) const REMOVED_BY_EXTENSION: &str = "an `extend` that is answered ok removed the lock: look at the time to live that it sets, which \
     must not be 0, and at its unit";

/// Returns the words for the beginning of a hold.
pub(super) fn got(history: &History, hold: &LockHold) -> &'static str {
    match extensions::began_again(history, hold) {
        true => "lost the lock, asked to extend it, and had it again",
        false => "got the lock",
    }
}
