//! The end of sessions by the leader ([`SessionExpiry`]): in steps of a tick, as `ExpiryQueue` of ZooKeeper 3.8 does it.

use std::collections::{BTreeMap, BTreeSet};

use crate::mutants::is_mutant;

/// The sessions that a leader keeps alive. Times are nanoseconds.
#[derive(Debug, Default)]
pub struct SessionExpiry {
    tick: u64,
    timeouts: BTreeMap<i64, u64>,
    ends: BTreeMap<i64, u64>,
    due: BTreeMap<u64, BTreeSet<i64>>,
    /// The server that each session is on, once it has written or was taken up again; see `SessionTrackerImpl.checkSession`.
    servers: BTreeMap<i64, usize>,
}

impl SessionExpiry {
    pub fn new(tick: u64) -> Self {
        SessionExpiry {
            tick,
            ..SessionExpiry::default()
        }
    }

    /// Adds a session with its timeout, new or from another leader: it has all of its time again.
    pub fn track(&mut self, now: u64, session: i64, timeout: u64) {
        self.timeouts.insert(session, timeout);
        self.touch(now, session);
    }

    /// Notes that the client was heard: `roundToNextInterval` of now and the timeout, never earlier than before.
    pub fn touch(&mut self, now: u64, session: i64) {
        let Some(timeout) = self.timeouts.get(&session) else {
            return;
        };
        let timeout = if is_mutant("zk: sessions live twice as long") {
            timeout * 2
        } else {
            *timeout
        };
        let end = ((now + timeout) / self.tick + 1) * self.tick;
        let before = self.ends.get(&session).copied();
        if before.is_some_and(|before| before >= end) {
            return;
        }
        if let Some(before) = before {
            self.remove_due(before, session);
        }
        self.ends.insert(session, end);
        self.due.entry(end).or_default().insert(session);
    }

    fn remove_due(&mut self, end: u64, session: i64) {
        if let Some(sessions) = self.due.get_mut(&end) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.due.remove(&end);
            }
        }
    }

    /// Notes that the client took its session up again on this server.
    pub fn moves(&mut self, session: i64, server: usize) {
        self.servers.insert(session, server);
    }

    /// Whether the session goes on on another server than this one, which has a request of it.
    pub fn is_elsewhere(&mut self, session: i64, server: usize) -> bool {
        *self.servers.entry(session).or_insert(server) != server
    }

    pub fn forget(&mut self, session: i64) {
        self.servers.remove(&session);
        self.timeouts.remove(&session);
        if let Some(end) = self.ends.remove(&session) {
            self.remove_due(end, session);
        }
    }

    /// Returns the time at which the next session ends, if it is not heard of.
    pub fn next_end(&self) -> Option<u64> {
        self.due.first_key_value().map(|(end, _)| *end)
    }

    /// Takes out the sessions that have ended by now.
    pub fn take_ended(&mut self, now: u64) -> Vec<i64> {
        let mut ended = Vec::new();
        while self.next_end().is_some_and(|end| end <= now) {
            let sessions = self.due.pop_first().map(|(_, sessions)| sessions).unwrap_or_default();
            for session in sessions {
                self.ends.remove(&session);
                self.timeouts.remove(&session);
                ended.push(session);
            }
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_at_the_first_tick_after_its_time_and_is_put_off_by_each_touch() {
        let mut expiry = SessionExpiry::new(100);
        expiry.track(30, 1, 200);
        assert_eq!(expiry.next_end(), Some(300));
        expiry.touch(70, 1);
        assert_eq!(expiry.next_end(), Some(300));
        expiry.touch(100, 1);
        assert_eq!(expiry.next_end(), Some(400));
        expiry.track(101, 2, 200);
        assert!(expiry.take_ended(399).is_empty());
        assert_eq!(expiry.take_ended(400), [1, 2]);
        expiry.touch(401, 1);
        assert_eq!(expiry.next_end(), None, "what has ended stays so");
    }
}
