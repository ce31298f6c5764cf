//! Numbers that a family gives out: those of its threads and processes, and those of its connections. As `page.rs`, the loaded library
//! has it, too.

use core::sync::atomic::Ordering::SeqCst;

use super::page::{CONNECTIONS, FamilyPage, connection};

impl FamilyPage {
    /// Returns a new number for a thread or process.
    pub fn next_number(&self) -> u32 {
        self.numbers.load(SeqCst) + self.numbered.fetch_add(1, SeqCst)
    }

    /// Returns the number of a new connection in this state; not that of another one that is dialled or open, unless all are.
    pub fn number_connection(&self, begins: u8) -> u16 {
        let next = || self.connections_made.fetch_add(1, SeqCst) as usize;
        let is_free = |made: &usize| {
            // the state of a number that was never given is 0
            *made < CONNECTIONS || self.connections[*made % CONNECTIONS].load(SeqCst) > connection::OPEN
        };
        let free = (1..CONNECTIONS).map(|_| next()).find(is_free);
        let number = free.unwrap_or_else(next) % CONNECTIONS;
        self.connections[number].store(begins, SeqCst);
        number as u16
    }
}
