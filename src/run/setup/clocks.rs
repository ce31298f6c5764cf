//! Wall clocks of clients and servers that a fault can step, made before any process starts.

use std::sync::Arc;

use crate::cluster::NotWritten;
use crate::run::{RunError, RunSpec};
use crate::wall_clock::{Clocks, WallClock};

/// The wall clocks of a run whose plan steps some.
#[derive(Default)]
pub struct WallClocks {
    /// Their folder, which is removed when this is dropped.
    pub folder: Option<Clocks>,
    /// The clocks of the clients; those of one process use the first one's.
    pub clients: Vec<Arc<WallClock>>,
    pub servers: Vec<Arc<WallClock>>,
}

impl WallClocks {
    pub fn lay_out(spec: &RunSpec) -> Result<Self, RunError> {
        if !spec.plan.steps_clocks {
            return Ok(Self::default());
        }
        let path = spec.folder.clocks();
        let failed = NotWritten::at(&path);
        let folder = Clocks::lay_out(path.clone()).map_err(&failed)?;
        let make = |letter: char, number: u32| folder.clock(&format!("{letter}{number}"));
        let clients: Result<Vec<_>, _> = (0..spec.config.clients).map(|number| make('c', number)).collect();
        let clients = clients.map_err(&failed)?;
        let nodes = spec.config.nodes + spec.plan.replicas;
        let with_clock = if spec.config.backend.wall_clock { nodes } else { 0 };
        let servers: Result<Vec<_>, _> = (1..=with_clock).map(|number| make('n', number)).collect();
        let servers = servers.map_err(&failed)?;
        Ok(Self {
            folder: Some(folder),
            clients,
            servers,
        })
    }
}
