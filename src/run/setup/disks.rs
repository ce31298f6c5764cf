//! The disks of servers that a fault can make slow, set up before any server starts.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::cluster::leftovers::claim::Claim;
use crate::disks::{DiskControl, DiskGate, DiskGates};
use crate::run::{RunError, RunSpec};

/// The disks of a run whose plan acts on some.
#[derive(Default)]
pub struct ServerDisks {
    /// By server.
    pub gates: Vec<Arc<DiskGate>>,
    /// What they are in; removed when this is dropped.
    _folder: Option<(DiskGates, Claim)>,
}

impl ServerDisks {
    pub fn lay_out(spec: &RunSpec) -> Result<Self, RunError> {
        if !spec.plan.gates_disks {
            return Ok(Self::default());
        }
        let failed = |path: &Path, error: &io::Error| RunError::write(path, error);
        let claim = Claim::make(&spec.name).map_err(|(path, error)| failed(&path, &error))?;
        let path = claim.folder().join("disks");
        let folder = DiskGates::lay_out(path.clone()).map_err(|error| failed(&path, &error))?;
        let nodes = spec.config.nodes + spec.plan.replicas;
        let gates: io::Result<Vec<_>> = (1..=nodes).map(|number| folder.gate(&format!("n{number}"))).collect();
        Ok(Self {
            gates: gates.map_err(|error| failed(&path, &error))?,
            _folder: Some((folder, claim)),
        })
    }

    /// As faults know them, by server.
    pub fn controls(&self) -> Vec<Arc<dyn DiskControl>> {
        self.gates.iter().map(|gate| Arc::clone(gate) as _).collect()
    }
}
