//! What each client is doing, as the experiment tells it: faults aim at messages of the holder, taps ask who waits.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Nothing with a lock.
    Idle,
    /// It asked for a lock and has no answer.
    Waits,
    /// It holds a lock.
    Works,
    /// It asked to release its lock and has no answer.
    Releases,
}

impl Role {
    const ALL: [Self; 4] = [Self::Idle, Self::Waits, Self::Works, Self::Releases];

    /// In words, as evidence has it: "create of c3, a waiter".
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Waits => "a waiter",
            Self::Works => "the holder",
            Self::Releases => "the holder, releasing",
        }
    }
}

/// The roles of all clients of a run.
#[derive(Debug, Default)]
pub struct Roles(Vec<AtomicU64>);

/// The role stands in the low bits, and how often it changed above them.
const CHANGES: u32 = 2;

impl Roles {
    pub fn of(clients: u32) -> Self {
        Self((0..clients).map(|_| AtomicU64::new(0)).collect())
    }

    /// A client does something else from now on; the only writer is whoever drives that client.
    pub fn set(&self, client: u32, role: Role) {
        if let Some(slot) = self.0.get(client as usize) {
            let changes = (slot.load(Relaxed) >> CHANGES) + 1;
            slot.store(changes << CHANGES | role as u64, Relaxed);
        }
    }

    /// What a client does, and how often that changed so far.
    pub fn get(&self, client: u32) -> (Role, u64) {
        let slot = self.0.get(client as usize).map_or(0, |slot| slot.load(Relaxed));
        let role = Role::ALL[(slot & ((1 << CHANGES) - 1)) as usize];
        (role, slot >> CHANGES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_what_was_last_told_and_a_stranger_is_idle() {
        let roles = Roles::of(2);
        for (changes, role) in (1..).zip([Role::Waits, Role::Works, Role::Releases, Role::Idle]) {
            roles.set(1, role);
            assert_eq!(roles.get(1), (role, changes));
        }
        assert_eq!(roles.get(0), (Role::Idle, 0));
        roles.set(7, Role::Works);
        assert_eq!(roles.get(7), (Role::Idle, 0));
    }
}
