//! The quorum observer of several independent Redis masters: a lock belongs to the owner that a majority of them shows.
//!
//! Each master has its own connection. The last holders of one that is out of sight count until it is seen again; later ones do
//! not.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::keyspace::{KeyChange, Keyspace, OpenKeyspace};
use super::observer::{HELD, REOPEN};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, RECONNECT, Unasked, observing};
use crate::backends::owners::{Contender, OwnerChange};
use crate::clock::GroundClock;
use crate::cluster::EndpointsReceiver;

pub struct QuorumObserver {
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    source: OpenKeyspace,
    connections: Vec<Box<dyn Keyspace>>,
}

/// A report of one master.
enum MasterReport {
    /// It has these locks and no other.
    All(Vec<(String, String)>),
    /// A lock's key was set; the owner is unknown if it changed again since.
    Set(String, Option<String>),
    Gone(String, Unasked),
    /// The connection was lost; its last message was then.
    Nothing {
        heard: u64,
    },
}

impl QuorumObserver {
    pub async fn connect(
        source: OpenKeyspace,
        endpoints: EndpointsReceiver,
        keys: LockKeys,
    ) -> Result<Observer, String> {
        let masters = endpoints.borrow().servers();
        let mut connections = Vec::new();
        for address in masters {
            connections.push(source(address, &keys).await?);
        }
        let observer = Self {
            endpoints,
            keys,
            source,
            connections,
        };
        Ok(observing(move |log| observer.observe(log)))
    }

    async fn observe(self, log: ObservationLog) {
        let (sender, mut seen) = mpsc::channel(1024);
        let mut majority = MajorityCount::new(self.connections.len());
        // they end with this future
        let mut watching = log.clock.tasks();
        for (master, connection) in self.connections.into_iter().enumerate() {
            let watch = MasterWatch {
                master,
                keys: self.keys.clone(),
                endpoints: self.endpoints.clone(),
                source: Arc::clone(&self.source),
                clock: log.clock,
                to: sender.clone(),
            };
            watching.spawn(watch.run(connection));
        }
        while let Some((master, seen)) = seen.recv().await {
            let source = format!("master {}", master + 1);
            match &seen {
                MasterReport::Nothing { heard } => log.lost(&source, *heard),
                MasterReport::All(_) => log.back(&source),
                MasterReport::Set(..) | MasterReport::Gone(..) => {}
            }
            for (lock, change, why) in majority.count(master, seen) {
                let record = log.record(&lock, vec![change], log.clock.now_ns(), |_| async move { why });
                record.await;
            }
        }
    }
}

/// Reports the locks of one master.
struct MasterWatch {
    master: usize,
    keys: LockKeys,
    endpoints: EndpointsReceiver,
    source: OpenKeyspace,
    clock: GroundClock,
    to: mpsc::Sender<(usize, MasterReport)>,
}

impl MasterWatch {
    /// Continues until it is dropped, with the receiver.
    async fn run(self, mut connection: Box<dyn Keyspace>) {
        loop {
            let mut heard = self.clock.now_ns();
            // `Err` is a lost connection, and the only end
            let Err(_) = self.tell(&mut *connection, &mut heard).await;
            let _ = self.send(MasterReport::Nothing { heard }).await;
            connection = loop {
                self.clock.sleep(RECONNECT).await;
                let address = self.endpoints.borrow().servers()[self.master];
                let opening = (self.source)(address, &self.keys);
                if let Some(Ok(opened)) = self.clock.within(REOPEN, opening).await {
                    break opened;
                }
            };
        }
    }

    async fn tell(&self, connection: &mut dyn Keyspace, heard: &mut u64) -> Result<Infallible, String> {
        let held = self.clock.within_real(HELD, connection.held()).await;
        let held = held.ok_or("it does not show the held locks")??;
        let mut taken: BTreeSet<String> = held.iter().map(|(lock, _)| lock.clone()).collect();
        self.send(MasterReport::All(held)).await?;
        loop {
            let (lock, event) = connection.event().await?;
            let at = self.clock.now_ns();
            let seen = match event {
                // the same owner, with another value
                KeyChange::Written if !taken.insert(lock.clone()) && self.keys.rewrites => continue,
                KeyChange::Written => {
                    let owner = connection.owner_of(&lock).await?;
                    MasterReport::Set(lock, owner)
                }
                KeyChange::Gone(why) => {
                    taken.remove(&lock);
                    MasterReport::Gone(lock, why)
                }
            };
            *heard = at;
            self.send(seen).await?;
        }
    }

    async fn send(&self, seen: MasterReport) -> Result<(), String> {
        let sent = self.to.send((self.master, seen)).await;
        sent.map_err(|_| "the receiver is gone".to_owned())
    }
}

/// The votes of the masters for the owners of locks, and the owners with a majority.
struct MajorityCount {
    masters: usize,
    /// The owner by lock and master.
    votes: BTreeMap<String, Vec<Option<String>>>,
    granted: BTreeMap<String, String>,
}

type Counted = (String, OwnerChange, Unasked);

impl MajorityCount {
    fn new(masters: usize) -> Self {
        Self {
            masters,
            votes: BTreeMap::new(),
            granted: BTreeMap::new(),
        }
    }

    fn count(&mut self, master: usize, seen: MasterReport) -> Vec<Counted> {
        match seen {
            MasterReport::Set(lock, Some(owner)) => self.vote(master, &lock, Some(owner), Unasked::Overwritten),
            // it may be the same owner; the later event of its key shows that
            MasterReport::Set(_, None) => Vec::new(),
            MasterReport::Gone(lock, why) => self.vote(master, &lock, None, why),
            // its last votes stay
            MasterReport::Nothing { .. } => Vec::new(),
            MasterReport::All(held) => {
                let known = self.votes.keys();
                let gone = known.filter(|lock| !held.iter().any(|(other, _)| other == *lock));
                let gone: Vec<String> = gone.cloned().collect();
                let mut counted = Vec::new();
                for lock in gone {
                    counted.extend(self.vote(master, &lock, None, Unasked::Unknown));
                }
                for (lock, owner) in held {
                    counted.extend(self.vote(master, &lock, Some(owner), Unasked::Unknown));
                }
                counted
            }
        }
    }

    /// Counts the vote of a master for `owner`, or for no owner; `why` is the end of the previous one.
    fn vote(&mut self, master: usize, lock: &str, owner: Option<String>, why: Unasked) -> Vec<Counted> {
        let none = || vec![None; self.masters];
        let votes = self.votes.entry(lock.to_owned()).or_insert_with(none);
        votes[master].clone_from(&owner);
        let majority = |owner: &String| votes.iter().flatten().filter(|vote| *vote == owner).count() > self.masters / 2;
        let contender = |owner: String| Contender {
            owner: Some(owner),
            token: None,
        };
        let mut changes = Vec::new();
        if let Some(before) = self.granted.get(lock).filter(|before| !majority(before)).cloned() {
            self.granted.remove(lock);
            changes.push((lock.to_owned(), OwnerChange::Revoked(contender(before)), why));
        }
        if let Some(owner) = owner.filter(majority)
            && self.granted.get(lock) != Some(&owner)
        {
            self.granted.insert(lock.to_owned(), owner.clone());
            changes.push((lock.to_owned(), OwnerChange::Granted(contender(owner)), why));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(majority: &mut MajorityCount, master: usize, owner: &str) -> Vec<String> {
        in_words(majority.count(master, MasterReport::Set("l0".into(), Some(owner.into()))))
    }

    fn gone(majority: &mut MajorityCount, master: usize) -> Vec<String> {
        in_words(majority.count(master, MasterReport::Gone("l0".into(), Unasked::Deleted)))
    }

    fn in_words(counted: Vec<Counted>) -> Vec<String> {
        let word = |(_, change, _)| match change {
            OwnerChange::Granted(contender) => format!("+{}", contender.owner.unwrap()),
            OwnerChange::Revoked(contender) => format!("-{}", contender.owner.unwrap()),
        };
        counted.into_iter().map(word).collect()
    }

    #[test]
    fn a_lock_is_granted_by_the_third_of_five_and_gone_when_two_are_left() {
        let mut majority = MajorityCount::new(5);
        assert!(set(&mut majority, 0, "x").is_empty() && set(&mut majority, 4, "x").is_empty());
        assert!(
            set(&mut majority, 1, "y").is_empty(),
            "one that is refused has a minority"
        );
        assert_eq!(set(&mut majority, 2, "x"), ["+x"]);
        assert!(set(&mut majority, 3, "x").is_empty());
        assert!(gone(&mut majority, 0).is_empty());
        assert_eq!(gone(&mut majority, 2), ["-x"]);
    }

    #[test]
    fn a_vote_stays_while_the_owner_that_was_written_is_not_known() {
        let mut majority = MajorityCount::new(3);
        set(&mut majority, 0, "x");
        assert_eq!(set(&mut majority, 1, "x"), ["+x"]);
        // two renewals before the observer read the key
        assert!(majority.count(1, MasterReport::Set("l0".into(), None)).is_empty());
        assert!(set(&mut majority, 1, "x").is_empty());
        assert!(majority.count(1, MasterReport::Set("l0".into(), None)).is_empty());
        assert_eq!(set(&mut majority, 1, "y"), ["-x"]);
    }

    #[test]
    fn a_master_that_came_back_empty_takes_its_vote_away_when_it_is_seen() {
        let mut majority = MajorityCount::new(3);
        set(&mut majority, 0, "x");
        assert_eq!(set(&mut majority, 1, "x"), ["+x"]);
        assert_eq!(in_words(majority.count(1, MasterReport::All(Vec::new()))), ["-x"]);
        set(&mut majority, 2, "y");
        let all = MasterReport::All(vec![("l0".into(), "y".into())]);
        assert_eq!(in_words(majority.count(1, all)), ["+y"]);
    }
}
