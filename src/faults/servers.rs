//! The guard of a strike at servers: what was killed is started again, what was paused is resumed, by an order that the
//! cluster carries out whatever becomes of the guard.

use std::time::Duration;

use super::field::Field;
use super::strike::ServerBlow;
use crate::cluster::{CommandOutcome, NodeCommand};
use crate::evidence::Evidence;
use crate::limits::SERVER_BACK;

pub struct Struck {
    blow: ServerBlow,
    field: Field,
    servers: Vec<u32>,
    /// How many of them the blow fell on.
    landed: u64,
    /// How many served again.
    back: u64,
    healed: bool,
}

impl Struck {
    /// Strikes the nodes behind all `servers` at once; a restart strikes nothing yet.
    pub async fn strike(blow: ServerBlow, field: Field, servers: Vec<u32>) -> Self {
        let endpoints = field.servers.endpoints();
        let servers = servers.into_iter().map(|server| endpoints.node_of(server)).collect();
        // the guard is there before the first order is given
        let mut struck = Self {
            blow,
            field,
            servers,
            landed: 0,
            back: 0,
            healed: false,
        };
        let act = match blow {
            ServerBlow::Kill => NodeCommand::Kill,
            ServerBlow::Pause => NodeCommand::Pause,
            ServerBlow::Restart => return struck,
        };
        for done in struck.order(act) {
            struck.landed += u64::from(matches!(done.await, Ok(Ok(()))));
        }
        struck
    }

    /// Restarts one server after the other.
    pub async fn act(&mut self) {
        if self.blow != ServerBlow::Restart {
            return;
        }
        for server in self.servers.clone() {
            let restarted = self.field.servers.order(server, NodeCommand::Restart).await;
            self.landed += u64::from(matches!(restarted, Ok(Ok(()))));
            self.redirect(server);
            self.back += u64::from(self.field.servers.serves(server, SERVER_BACK).await);
        }
    }

    /// Undoes the blow; a `patient` heal waits until the servers serve again.
    pub async fn heal(&mut self, patient: bool) {
        let Some(act) = self.undo() else { return };
        self.healed = true;
        for done in self.order(act) {
            let _ = done.await;
        }
        for server in self.servers.clone() {
            self.redirect(server);
            if patient && act == NodeCommand::Start {
                self.back += u64::from(self.field.servers.serves(server, SERVER_BACK).await);
            }
        }
    }

    pub fn evidence(&self, lasted: Duration) -> Evidence {
        match self.blow {
            ServerBlow::Pause => Evidence {
                servers_paused: self.landed,
                stopped_ms: lasted.as_millis() as u64,
                ..Evidence::default()
            },
            ServerBlow::Kill | ServerBlow::Restart => Evidence {
                servers_killed: self.landed,
                servers_back: self.back,
                ..Evidence::default()
            },
        }
    }

    /// The order that undoes the blow; a restart undoes itself.
    fn undo(&self) -> Option<NodeCommand> {
        match self.blow {
            ServerBlow::Kill => Some(NodeCommand::Start),
            ServerBlow::Pause => Some(NodeCommand::Resume),
            ServerBlow::Restart => None,
        }
    }

    fn order(&self, act: NodeCommand) -> Vec<CommandOutcome> {
        let order = |server: &u32| self.field.servers.order(*server, act);
        self.servers.iter().map(order).collect()
    }

    /// Leads the links to where the node serves now, if clients are led to it: a container may come back with another
    /// address.
    fn redirect(&self, node: u32) {
        let Some(server) = self.field.servers.endpoints().server_of(node) else {
            return;
        };
        let address = self.field.servers.address(node);
        for (_, link) in self.field.links.iter().filter(|((_, to), _)| *to == server) {
            link.redirect(address);
        }
    }
}

impl Drop for Struck {
    fn drop(&mut self) {
        if let Some(act) = self.undo().filter(|_| !self.healed) {
            self.order(act);
        }
    }
}
