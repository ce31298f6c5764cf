//! Observes Redis: the keyspace events of the locks' keys, and the value that each set wrote.
//!
//! Where a master has a replica, it follows whoever clients are led to.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use super::queue::{Change, Contender};
use super::wire::Wire;
use super::{Addresses, Sight, Unasked};

/// How long a new connection may take before another one is tried: the first try at a container that is not up yet is
/// repeated by the kernel only after a second, and what happens meanwhile is not seen.
pub(super) const REOPEN: Duration = Duration::from_millis(100);

pub struct Redis {
    addresses: Addresses,
    at: SocketAddr,
    wire: Wire,
}

/// What a key is known to hold: nothing, or somebody's value. An unnamed owner is `Some(None)`.
type Keys = HashMap<String, Option<String>>;

impl Redis {
    pub async fn connect(addresses: Addresses) -> Result<Self, String> {
        let at = first(&addresses);
        let wire = Wire::open(at).await.map_err(|error| format!("the observer: {error}"))?;
        Ok(Self { addresses, at, wire })
    }

    pub async fn run(mut self, sight: Sight) {
        let mut keys = Keys::new();
        loop {
            sight.looks_at(self.at);
            let cause = self.watch(&mut keys, &sight).await;
            for (lock, owner) in keys.drain() {
                sight.revoked(&lock, &Contender { owner, token: None }, cause);
            }
            if cause.is_none() {
                sight.lost_its_connection().await;
            }
            loop {
                self.at = first(&self.addresses);
                if let Ok(Ok(wire)) = timeout(REOPEN, Wire::open(self.at)).await {
                    self.wire = wire;
                    break;
                }
                sight.lost_its_connection().await;
            }
            // the next error is met by the next event
            let _ = self.catch_up(&mut keys, &sight).await;
        }
    }

    /// Records what happens until the connection is lost, or clients are led elsewhere; then what that did to every lock.
    async fn watch(&mut self, keys: &mut Keys, sight: &Sight) -> Option<&'static str> {
        loop {
            let event = tokio::select! {
                event = self.wire.event() => event,
                // without a sender nobody is led anywhere any more
                Ok(()) = self.addresses.changed() => {
                    if first(&self.addresses) == self.at {
                        continue;
                    }
                    return Some("failover");
                }
            };
            let Ok((lock, event)) = event else { return None };
            if self.saw(&lock, &event, keys, sight).await.is_err() {
                return None;
            }
        }
    }

    /// Reads which locks are held, after a connection was made.
    async fn catch_up(&mut self, keys: &mut Keys, sight: &Sight) -> Result<(), String> {
        for (lock, owner) in self.wire.held().await? {
            keys.insert(lock.clone(), Some(owner.clone()));
            let owner = Some(owner);
            sight.granted(&lock, &Contender { owner, token: None });
        }
        Ok(())
    }

    async fn saw(&mut self, lock: &str, event: &str, keys: &mut Keys, sight: &Sight) -> Result<(), String> {
        match event {
            "set" => {
                let owner = self.wire.value_of(lock).await?;
                if owner.is_some() && keys.get(lock) == Some(&owner) {
                    return Ok(());
                }
                let replaced = keys.insert(lock.to_owned(), owner.clone());
                if let Some(owner) = replaced {
                    self.gone(lock, owner, Unasked::Deleted, sight).await;
                }
                sight.granted(lock, &Contender { owner, token: None });
            }
            "del" | "expired" => {
                let why = if event == "expired" {
                    Unasked::Expired
                } else {
                    Unasked::Deleted
                };
                if let Some(owner) = keys.remove(lock) {
                    self.gone(lock, owner, why, sight).await;
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn gone(&self, lock: &str, owner: Option<String>, why: Unasked, sight: &Sight) {
        let why = if owner.is_none() && why == Unasked::Deleted {
            Unasked::Unknown
        } else {
            why
        };
        let contender = Contender { owner, token: None };
        sight
            .record(lock, vec![Change::Revoked(contender)], |_| async move { why })
            .await;
    }
}

/// A plain lock lives on the first server.
fn first(addresses: &Addresses) -> SocketAddr {
    addresses.borrow().served()[0]
}
