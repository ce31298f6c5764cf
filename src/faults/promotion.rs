//! The guard of a failover, and what comes before it.
//!
//! Held back first: [`Prelude`] holds the replication link while the replica has no lock, before anybody is aimed at, so
//! that the one who is was granted a lock that the replica will never hear of. Then [`Promotion`] stalls the clients,
//! promotes the replica, waits until the observer looks at it, and leads the clients there.

use std::sync::Arc;
use std::time::Duration;

use super::field::Field;
use crate::cluster::NodeCommand;
use crate::evidence::Evidence;
use crate::limits::{AIM, PROBE, SERVER_BACK};
use crate::network::{Behaviour, Hold, Layer};

/// A replication link that is held back.
pub struct Prelude {
    hold: Option<Hold>,
    replica: u32,
    /// The keys that the replica has, and will have.
    pub keys: Vec<String>,
}

impl Prelude {
    /// Finds the replica, and holds its link back if asked to: at a moment at which it has no lock, if there is one soon.
    /// The error says what is missing.
    pub async fn play(held_back: bool, layer: Layer, field: &Field) -> Result<Self, &'static str> {
        let replica = field.servers.replica().ok_or("there is no replica")?;
        if field.servers.role(replica).await.as_deref() != Some(REPLICA) {
            return Err("the replica was not in step with its master");
        }
        let mut prelude = Self {
            hold: None,
            replica,
            keys: Vec::new(),
        };
        if held_back {
            let master = field.servers.endpoints().primary().ok_or("there is no master")?;
            let link = field.between.get(&(replica, master)).ok_or("its link is not proxied")?;
            for _ in 0..AIM.as_millis() / TRY.as_millis() {
                // the one before is lifted first
                prelude.hold = None;
                tokio::time::sleep(TRY).await;
                prelude.hold = Some(Hold::put(vec![Arc::clone(link)], layer, Behaviour::STALL, false));
                tokio::time::sleep(IN_FLIGHT).await;
                prelude.keys = field.servers.keys(replica).await.ok_or("the replica does not answer")?;
                if prelude.keys.is_empty() {
                    break;
                }
            }
        }
        Ok(prelude)
    }
}

/// The role of a server that is in step with its master.
const REPLICA: &str = "replica";
/// What was on its way to the replica when its link was held back has arrived after this.
const IN_FLIGHT: Duration = Duration::from_millis(5);
/// Between two tries to find the replica without a lock.
const TRY: Duration = Duration::from_millis(7);

/// A replica in the place of its master.
pub struct Promotion {
    field: Field,
    /// The replication link, if it is held back.
    hold: Option<Hold>,
    old: u32,
    new: u32,
    promoted: bool,
    /// Whether the old master follows the new one.
    follows: bool,
    in_step: bool,
}

impl Promotion {
    pub async fn strike(prelude: Prelude, layer: Layer, field: &Field) -> Self {
        let mut promotion = Self {
            field: field.clone(),
            hold: prelude.hold,
            old: field.servers.endpoints().primary().unwrap_or_default(),
            new: prelude.replica,
            promoted: false,
            follows: true,
            in_step: false,
        };
        let clients: Vec<_> = field.links.values().map(Arc::clone).collect();
        let stalled = Hold::put(clients, layer, Behaviour::STALL, true);
        if promotion.hold.is_none() && !field.servers.in_sync(promotion.new, promotion.old, PROBE).await {
            return promotion;
        }
        let ordered = field.servers.order(promotion.new, NodeCommand::Promote).await;
        promotion.promoted = matches!(ordered, Ok(Ok(())));
        if promotion.promoted {
            promotion.follows = false;
            field.servers.set_primary(promotion.new);
            let address = field.servers.address(promotion.new);
            let mut observed = field.observed.clone();
            // an observer that does not come has its own troubles; clients are not held back for ever
            let _ = tokio::time::timeout(PROBE, observed.wait_for(|at| *at == Some(address))).await;
            for link in field.links.values() {
                link.redirect(address);
            }
        }
        // every connection to the old master ends
        drop(stalled);
        promotion
    }

    /// The one that was struck: the old master.
    pub fn servers(&self) -> Vec<u32> {
        if self.promoted {
            vec![self.old, self.new]
        } else {
            Vec::new()
        }
    }

    pub fn links(&self) -> Vec<String> {
        self.hold.as_ref().map(Hold::names).unwrap_or_default()
    }

    /// Lets the old master follow the new one; a `patient` heal waits until they are in step.
    pub async fn heal(&mut self, patient: bool) {
        if !std::mem::replace(&mut self.follows, true) {
            let _ = self.field.servers.order(self.old, NodeCommand::Follow).await;
            self.in_step = patient && self.field.servers.becomes(self.old, REPLICA, SERVER_BACK).await;
        }
    }

    pub fn evidence(&self) -> Evidence {
        let hold = self.hold.as_ref();
        Evidence {
            links: self.links().len() as u64,
            counts: hold.map(Hold::counts).unwrap_or_default(),
            servers_promoted: u64::from(self.promoted),
            servers_back: u64::from(self.in_step),
            ..Evidence::default()
        }
    }
}

impl Drop for Promotion {
    fn drop(&mut self) {
        if !self.follows {
            self.field.servers.order(self.old, NodeCommand::Follow);
        }
    }
}
