//! The guarded register: the data that an application protects with its lock. It is in this process, not in a server, so it shows
//! exactly the accesses that the lock permitted.
//!
//! Each lock has two. The plain one accepts every write; the fenced one accepts a write only if no higher token wrote before, and
//! so shows whether a check of tokens would have protected the data (M. Kleppmann, How to do distributed locking, 2016,
//! <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>).

use std::collections::BTreeMap;
use std::sync::Mutex;

use harness_checkers::history::event::Fenced;

use super::locked::locked;

#[derive(Debug, Default, Clone, Copy)]
struct Cell {
    plain: u64,
    highest_token: u64,
}

#[derive(Debug, Default)]
pub struct GuardedRegister {
    cells: Mutex<BTreeMap<String, Cell>>,
}

impl GuardedRegister {
    /// Returns the plain value.
    pub fn read(&self, lock: &str) -> u64 {
        self.with(lock, |cell| cell.plain)
    }

    /// Writes both; returns the answer of the fenced one, if the writer has a token.
    pub fn write(&self, lock: &str, value: u64, token: Option<u64>) -> Option<Fenced> {
        self.with(lock, |cell| {
            cell.plain = value;
            let token = token?;
            if token < cell.highest_token {
                return Some(Fenced::Refused);
            }
            cell.highest_token = token;
            Some(Fenced::Accepted)
        })
    }

    fn with<T>(&self, lock: &str, then: impl FnOnce(&mut Cell) -> T) -> T {
        let mut cells = locked(&self.cells);
        match cells.get_mut(lock) {
            Some(cell) => then(cell),
            None => then(cells.entry(lock.to_owned()).or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_token_is_refused_by_the_fenced_register_and_taken_by_the_plain_one() {
        let register = GuardedRegister::default();
        assert_eq!(register.write("l0", 1, Some(41)), Some(Fenced::Accepted));
        assert_eq!(register.write("l0", 2, Some(42)), Some(Fenced::Accepted));
        assert_eq!(register.write("l0", 2, Some(41)), Some(Fenced::Refused));
        assert_eq!(register.write("l0", 3, None), None);
        assert_eq!(register.read("l0"), 3);
        assert_eq!(register.read("l1"), 0);
    }
}
