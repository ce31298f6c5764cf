//! [`locked`]: the values of the mutexes that the parts of a run share.

use std::sync::{Mutex, MutexGuard};

/// Locks a mutex. A value that a panic may have left half changed is not used: its next user panics, too.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no one panics while holding a mutex")
}
