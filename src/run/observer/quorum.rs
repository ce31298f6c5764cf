//! Observes several independent Redis masters: a lock belongs to whom a majority of them says.
//!
//! Each master is read over a connection of its own. What one that is out of sight held last counts until it is seen
//! again; what it may have taken on meanwhile does not.

use std::collections::HashMap;
use std::convert::Infallible;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::queue::{Change, Contender};
use super::redis::REOPEN;
use super::wire::Wire;
use super::{Addresses, Sight, Unasked};
use crate::clock::monotonic_ns;

pub struct Quorum {
    addresses: Addresses,
    wires: Vec<Wire>,
}

/// What one master shows.
enum Seen {
    /// It has these locks and no other.
    All(Vec<(String, String)>),
    /// A lock's key was set; nobody knows by whom if more happened to it since.
    Set(String, Option<String>),
    Gone(String, Unasked),
    /// It was last heard then, and is not any more.
    Nothing {
        heard: u64,
    },
}

impl Quorum {
    pub async fn connect(addresses: Addresses) -> Result<Self, String> {
        let masters = addresses.borrow().served();
        let mut wires = Vec::new();
        for address in masters {
            wires.push(
                Wire::open(address)
                    .await
                    .map_err(|error| format!("the observer: {error}"))?,
            );
        }
        Ok(Self { addresses, wires })
    }

    pub async fn run(self, sight: Sight) {
        let (sender, mut seen) = mpsc::channel(1024);
        let mut tally = Tally::new(self.wires.len());
        // they end with this
        let mut watching = JoinSet::new();
        for (master, wire) in self.wires.into_iter().enumerate() {
            watching.spawn(watch(master, wire, self.addresses.clone(), sender.clone()));
        }
        while let Some((master, seen)) = seen.recv().await {
            let whom = format!("master {}", master + 1);
            match &seen {
                Seen::Nothing { heard } => sight.lost(&whom, *heard),
                Seen::All(_) => sight.back(&whom),
                Seen::Set(..) | Seen::Gone(..) => {}
            }
            for (lock, change, why) in tally.count(master, seen) {
                let record = sight.record(&lock, vec![change], monotonic_ns(), |_| async move { why });
                record.await;
            }
        }
    }
}

/// Tells what one master shows, as long as anybody listens.
async fn watch(master: usize, mut wire: Wire, addresses: Addresses, to: mpsc::Sender<(usize, Seen)>) {
    loop {
        let mut heard = monotonic_ns();
        // `Err` is a lost connection, and the only way out of it
        let Err(_) = tell(master, &mut wire, &to, &mut heard).await;
        let _ = send(&to, master, Seen::Nothing { heard }).await;
        wire = loop {
            tokio::time::sleep(super::RECONNECT).await;
            if to.is_closed() {
                return;
            }
            let address = addresses.borrow().served()[master];
            if let Ok(Ok(wire)) = timeout(REOPEN, Wire::open(address)).await {
                break wire;
            }
        };
    }
}

async fn tell(
    master: usize,
    wire: &mut Wire,
    to: &mpsc::Sender<(usize, Seen)>,
    heard: &mut u64,
) -> Result<Infallible, String> {
    let held = wire.held().await?;
    send(to, master, Seen::All(held)).await?;
    loop {
        let (lock, event) = wire.event().await?;
        let at = monotonic_ns();
        let seen = match event.as_str() {
            "set" => {
                let owner = wire.value_of(&lock).await?;
                Seen::Set(lock, owner)
            }
            "expired" => Seen::Gone(lock, Unasked::Expired),
            _ => Seen::Gone(lock, Unasked::Deleted),
        };
        *heard = at;
        send(to, master, seen).await?;
    }
}

async fn send(to: &mpsc::Sender<(usize, Seen)>, master: usize, seen: Seen) -> Result<(), String> {
    to.send((master, seen)).await.map_err(|_| "nobody listens".to_owned())
}

/// Who has which lock on which master, and who has a majority.
struct Tally {
    masters: usize,
    /// By lock and master.
    votes: HashMap<String, Vec<Option<String>>>,
    granted: HashMap<String, String>,
}

type Counted = (String, Change, Unasked);

impl Tally {
    fn new(masters: usize) -> Self {
        Self {
            masters,
            votes: HashMap::new(),
            granted: HashMap::new(),
        }
    }

    fn count(&mut self, master: usize, seen: Seen) -> Vec<Counted> {
        match seen {
            Seen::Set(lock, owner) => self.vote(master, &lock, owner, Unasked::Deleted),
            Seen::Gone(lock, why) => self.vote(master, &lock, None, why),
            // what it said last is what is known of it
            Seen::Nothing { .. } => Vec::new(),
            Seen::All(held) => {
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

    /// A master has the lock for `owner` now, or for nobody that is known; `why` says how the one before went.
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
            changes.push((lock.to_owned(), Change::Revoked(contender(before)), why));
        }
        if let Some(owner) = owner.filter(majority)
            && self.granted.get(lock) != Some(&owner)
        {
            self.granted.insert(lock.to_owned(), owner.clone());
            changes.push((lock.to_owned(), Change::Granted(contender(owner)), why));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tally: &mut Tally, master: usize, owner: &str) -> Vec<String> {
        in_words(tally.count(master, Seen::Set("l0".into(), Some(owner.into()))))
    }

    fn gone(tally: &mut Tally, master: usize) -> Vec<String> {
        in_words(tally.count(master, Seen::Gone("l0".into(), Unasked::Deleted)))
    }

    fn in_words(counted: Vec<Counted>) -> Vec<String> {
        let word = |(_, change, _)| match change {
            Change::Granted(contender) => format!("+{}", contender.owner.unwrap()),
            Change::Revoked(contender) => format!("-{}", contender.owner.unwrap()),
        };
        counted.into_iter().map(word).collect()
    }

    #[test]
    fn a_lock_is_granted_by_the_third_of_five_and_gone_when_two_are_left() {
        let mut tally = Tally::new(5);
        assert!(set(&mut tally, 0, "x").is_empty() && set(&mut tally, 4, "x").is_empty());
        assert!(set(&mut tally, 1, "y").is_empty(), "one that is refused has a minority");
        assert_eq!(set(&mut tally, 2, "x"), ["+x"]);
        assert!(set(&mut tally, 3, "x").is_empty());
        assert!(gone(&mut tally, 0).is_empty());
        assert_eq!(gone(&mut tally, 2), ["-x"]);
    }

    #[test]
    fn a_master_that_came_back_empty_takes_its_vote_away_when_it_is_seen() {
        let mut tally = Tally::new(3);
        set(&mut tally, 0, "x");
        assert_eq!(set(&mut tally, 1, "x"), ["+x"]);
        assert_eq!(in_words(tally.count(1, Seen::All(Vec::new()))), ["-x"]);
        set(&mut tally, 2, "y");
        assert_eq!(
            in_words(tally.count(1, Seen::All(vec![("l0".into(), "y".into())]))),
            ["+y"]
        );
    }
}
