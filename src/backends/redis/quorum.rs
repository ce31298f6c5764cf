//! Observes several independent Redis masters: a lock belongs to the owner that a majority of them shows.
//!
//! Each master has its own connection. What one that is out of sight held last counts until it is seen
//! again; what it may have taken on meanwhile does not.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::keyspace::{KeyChange, KeyspaceConnection};
use super::observer::REOPEN;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, RECONNECT, Unasked};
use crate::backends::owners::{Contender, OwnerChange};
use crate::clock::monotonic_ns;
use crate::cluster::{BoxFuture, EndpointsReceiver};

pub struct QuorumObserver {
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    connections: Vec<KeyspaceConnection>,
}

/// What one master shows.
enum MasterReport {
    /// It has these locks and no other.
    All(Vec<(String, String)>),
    /// A lock's key was set; the owner is unknown if more happened to it since.
    Set(String, Option<String>),
    Gone(String, Unasked),
    /// It was last heard then, and is not any more.
    Nothing {
        heard: u64,
    },
}

impl QuorumObserver {
    pub async fn connect(endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Box<dyn Observer>, String> {
        let masters = endpoints.borrow().servers();
        let mut connections = Vec::new();
        for address in masters {
            connections.push(
                KeyspaceConnection::open(address, keys.clone())
                    .await
                    .map_err(|error| format!("the observer: {error}"))?,
            );
        }
        Ok(Box::new(Self {
            endpoints,
            keys,
            connections,
        }))
    }

    async fn observe(self, log: ObservationLog) {
        let (sender, mut seen) = mpsc::channel(1024);
        let mut majority = MajorityCount::new(self.connections.len());
        // they end with this
        let mut watching = JoinSet::new();
        for (master, connection) in self.connections.into_iter().enumerate() {
            let keys = self.keys.clone();
            watching.spawn(watch(master, connection, keys, self.endpoints.clone(), sender.clone()));
        }
        while let Some((master, seen)) = seen.recv().await {
            let source = format!("master {}", master + 1);
            match &seen {
                MasterReport::Nothing { heard } => log.lost(&source, *heard),
                MasterReport::All(_) => log.back(&source),
                MasterReport::Set(..) | MasterReport::Gone(..) => {}
            }
            for (lock, change, why) in majority.count(master, seen) {
                let record = log.record(&lock, vec![change], monotonic_ns(), |_| async move { why });
                record.await;
            }
        }
    }
}

impl Observer for QuorumObserver {
    fn run(self: Box<Self>, log: ObservationLog) -> BoxFuture<'static, ()> {
        Box::pin(self.observe(log))
    }
}

/// Reports what one master shows, until the receiver is gone.
async fn watch(
    master: usize,
    mut connection: KeyspaceConnection,
    keys: LockKeys,
    endpoints: EndpointsReceiver,
    to: mpsc::Sender<(usize, MasterReport)>,
) {
    loop {
        let mut heard = monotonic_ns();
        // `Err` is a lost connection, and the only way out of it
        let Err(_) = tell(master, &mut connection, &keys, &to, &mut heard).await;
        let _ = send(&to, master, MasterReport::Nothing { heard }).await;
        connection = loop {
            tokio::time::sleep(RECONNECT).await;
            if to.is_closed() {
                return;
            }
            let address = endpoints.borrow().servers()[master];
            if let Ok(Ok(opened)) = timeout(REOPEN, KeyspaceConnection::open(address, keys.clone())).await {
                break opened;
            }
        };
    }
}

async fn tell(
    master: usize,
    connection: &mut KeyspaceConnection,
    keys: &LockKeys,
    to: &mpsc::Sender<(usize, MasterReport)>,
    heard: &mut u64,
) -> Result<Infallible, String> {
    let held = connection.held().await?;
    let mut taken: HashSet<String> = held.iter().map(|(lock, _)| lock.clone()).collect();
    send(to, master, MasterReport::All(held)).await?;
    loop {
        let (lock, event) = connection.event().await?;
        let at = monotonic_ns();
        let seen = match event {
            // the same owner, with another value
            KeyChange::Written if !taken.insert(lock.clone()) && keys.rewrites => continue,
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
        send(to, master, seen).await?;
    }
}

async fn send(to: &mpsc::Sender<(usize, MasterReport)>, master: usize, seen: MasterReport) -> Result<(), String> {
    to.send((master, seen))
        .await
        .map_err(|_| "the receiver is gone".to_owned())
}

/// Who has which lock on which master, and who has a majority.
struct MajorityCount {
    masters: usize,
    /// By lock and master.
    votes: HashMap<String, Vec<Option<String>>>,
    granted: HashMap<String, String>,
}

type Counted = (String, OwnerChange, Unasked);

impl MajorityCount {
    fn new(masters: usize) -> Self {
        Self {
            masters,
            votes: HashMap::new(),
            granted: HashMap::new(),
        }
    }

    fn count(&mut self, master: usize, seen: MasterReport) -> Vec<Counted> {
        match seen {
            MasterReport::Set(lock, owner) => self.vote(master, &lock, owner, Unasked::Deleted),
            MasterReport::Gone(lock, why) => self.vote(master, &lock, None, why),
            // what it said last is what is known of it
            MasterReport::Nothing { .. } => Vec::new(),
            MasterReport::All(held) => {
                let known = self
                    .votes
                    .keys()
                    .filter(|lock| !held.iter().any(|(other, _)| other == *lock));
                let gone: Vec<String> = known.cloned().collect();
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

    /// A master has the lock for `owner` now, or for an unknown owner; `why` says how the one before went.
    fn vote(&mut self, master: usize, lock: &str, owner: Option<String>, why: Unasked) -> Vec<Counted> {
        let votes = self
            .votes
            .entry(lock.to_owned())
            .or_insert_with(|| vec![None; self.masters]);
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
    fn a_master_that_came_back_empty_takes_its_vote_away_when_it_is_seen() {
        let mut majority = MajorityCount::new(3);
        set(&mut majority, 0, "x");
        assert_eq!(set(&mut majority, 1, "x"), ["+x"]);
        assert_eq!(in_words(majority.count(1, MasterReport::All(Vec::new()))), ["-x"]);
        set(&mut majority, 2, "y");
        assert_eq!(
            in_words(majority.count(1, MasterReport::All(vec![("l0".into(), "y".into())]))),
            ["+y"]
        );
    }
}
