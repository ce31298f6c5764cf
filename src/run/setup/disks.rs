//! Disks of servers that a fault can make slow, set up before any server starts.

use std::io;
use std::sync::Arc;

use crate::cluster::NotWritten;
use crate::cluster::leftovers::claim::Claim;
use crate::disks::{DiskGate, DiskGates};
use crate::run::{RunError, RunSpec};

/// The disks of a run whose plan acts on some.
#[derive(Default)]
pub struct ServerDisks {
    /// The gates of the servers.
    pub gates: Vec<Arc<DiskGate>>,
    /// Their folder, which is removed when this is dropped.
    _folder: Option<(DiskGates, Claim)>,
}

impl ServerDisks {
    pub fn lay_out(spec: &RunSpec) -> Result<Self, RunError> {
        if !spec.plan.gates_disks {
            return Ok(Self::default());
        }
        let claim = Claim::make(&spec.name)?;
        let path = claim.folder().join("disks");
        let folder = DiskGates::lay_out(path.clone()).map_err(NotWritten::at(&path))?;
        let nodes = spec.config.nodes + spec.plan.replicas;
        let gates: io::Result<Vec<_>> = (1..=nodes).map(|number| folder.gate(&format!("n{number}"))).collect();
        Ok(Self {
            gates: gates.map_err(NotWritten::at(&path))?,
            _folder: Some((folder, claim)),
        })
    }
}
