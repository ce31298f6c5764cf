//! Simulated NATS as the ground of a run: a cluster, and the messages of its bucket's leader for the observer.

use std::collections::BTreeMap;
use std::future::ready;

use harness_simulation::nats::{NatsChange, SimulatedNats};
use harness_simulation::{SimulatedServers, World};
use harness_workloads::nats::api::BUCKET;
use harness_workloads::nats::{KeyMessage, read_value};
use tokio::sync::mpsc;

use super::ground::ServerModel;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Unasked, observing};
use crate::backends::owners::{Contender, OwnerChange};
use crate::cluster::Cluster;
use crate::faults::Links;
use crate::run::{ConnectObserver, Ground, RunSpec};

/// Returns servers, links and clients in `world`.
pub fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
    let nats = SimulatedNats::start(world, spec.config.nodes as usize);
    super::ground::ground(world, &nats, Links::new(), spec)
}

impl ServerModel for SimulatedNats {
    fn version(&self) -> &'static str {
        "2.10 (a model)"
    }

    fn servers(&self) -> &dyn SimulatedServers {
        self
    }

    fn role(&self, server: usize) -> Result<(&'static str, bool), String> {
        match self.leader() {
            _ if self.count() == 1 => Ok(("standalone", true)),
            Some(leader) if leader == server => Ok(("leader", true)),
            Some(leader) if self.answers(leader) => Ok(("follower", false)),
            // no client has made the bucket
            None if !self.has_bucket() => Ok(("follower", false)),
            _ => Err("no server leads the bucket".to_owned()),
        }
    }

    fn observe(&self) -> ConnectObserver {
        let nats = *self;
        Box::new(move |_, keys| {
            let (told, changes) = mpsc::unbounded_channel();
            // the receiver may be dropped
            nats.on_change(move |change| drop(told.send(change)));
            let observer = ModelObserver { changes, keys };
            Box::pin(ready(Ok(observing(move |log| observer.observe(log)))))
        })
    }
}

/// Receives every change that the leader of the bucket shows. Real servers are polled, and short holds are missed there.
struct ModelObserver {
    changes: mpsc::UnboundedReceiver<NatsChange>,
    keys: LockKeys,
}

impl ModelObserver {
    async fn observe(mut self, log: ObservationLog) {
        let mut held = BTreeMap::new();
        while let Some(change) = self.changes.recv().await {
            let Some(lock) = self.keys.lock_at(&format!("{BUCKET}/{}", change.key)) else {
                continue;
            };
            let message = change.message.filter(|message| !message.deleted);
            let now = message.map(|message| contender(&message));
            let before = match &now {
                Some(now) => held.insert(lock.clone(), now.clone()),
                None => held.remove(&lock),
            };
            if before == now {
                continue;
            }
            let why = match (&now, change.expired) {
                (Some(_), _) => Unasked::Overwritten,
                (None, true) => Unasked::Expired,
                (None, false) => Unasked::Deleted,
            };
            let revoked = before.map(OwnerChange::Revoked).into_iter();
            let changes = revoked.chain(now.map(OwnerChange::Granted)).collect();
            log.record(&lock, changes, log.clock.now_ns(), |_| ready(why)).await;
        }
    }
}

/// Returns the contender of a message. The revision of a first write is the token, and a renewal has the token in its value.
fn contender(message: &KeyMessage) -> Contender {
    let (owner, token) = read_value(&message.value);
    Contender {
        owner: Some(owner.to_owned()),
        token: token.or(Some(message.revision)),
    }
}
