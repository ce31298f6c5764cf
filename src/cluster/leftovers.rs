//! What runs leave behind when they are killed, and how it is found: by the run's folder and by the containers' labels.
//!
//! A run that starts servers claims a temporary folder and writes into it who it is. A claim whose harness is no longer
//! alive is a leftover; so is a container or network whose label names such a harness.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::local::temporary_folder;
use crate::process::started_at;

const PREFIX: &str = "harness-run-";
const OWNER_FILE: &str = "owner.json";
/// A folder without an owner file that is younger than this is left alone.
const UNSIGNED: Duration = Duration::from_secs(60);
/// Every container and network carries these.
pub const RUN_LABEL: &str = "harness.run";
pub const OWNER_LABEL: &str = "harness.owner";

/// A process that cannot be mistaken for a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pid: u32,
    started: u64,
    /// The process namespace in which the number means something; another container has another one.
    namespace: u64,
}

impl Identity {
    pub fn own() -> Self {
        let pid = std::process::id();
        Self::of(pid).unwrap_or(Self {
            pid,
            started: 0,
            namespace: own_namespace(),
        })
    }

    fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            started: started_at(pid)?,
            namespace: own_namespace(),
        })
    }

    /// Whether it lives; one of another namespace cannot be seen from here, and is left alone.
    pub fn is_alive(self) -> bool {
        self.namespace != own_namespace() || started_at(self.pid) == Some(self.started)
    }

    /// `<pid>-<start>-<namespace>`, as labels carry it.
    pub fn label(self) -> String {
        format!("{}-{}-{}", self.pid, self.started, self.namespace)
    }

    pub fn from_label(label: &str) -> Option<Self> {
        let mut parts = label.split('-').map(|part| part.parse::<u64>().ok());
        let mut part = || parts.next().flatten();
        Some(Self {
            pid: part()?.try_into().ok()?,
            started: part()?,
            namespace: part()?,
        })
    }
}

/// The number of the process namespace that this process lives in; 0 where there are none.
fn own_namespace() -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunOwner {
    run: String,
    harness: Identity,
    servers: Vec<Identity>,
}

/// A temporary folder that says whose it is, and is removed when this is dropped.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    run: String,
}

impl Claim {
    pub fn make(run: &str) -> Result<Self, (PathBuf, io::Error)> {
        let folder = temporary_folder().join(format!("{PREFIX}{run}-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| (folder.clone(), error))?;
        let claim = Self {
            folder,
            run: run.to_owned(),
        };
        claim.note_servers(std::iter::empty())?;
        Ok(claim)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes down which processes belong to this run.
    pub fn note_servers(&self, pids: impl Iterator<Item = u32>) -> Result<(), (PathBuf, io::Error)> {
        let owner = RunOwner {
            run: self.run.clone(),
            harness: Identity::own(),
            servers: pids.filter_map(Identity::of).collect(),
        };
        let path = self.folder.join(OWNER_FILE);
        let text = serde_json::to_string(&owner).expect("an owner is plain data");
        let fresh = self.folder.join(format!("{OWNER_FILE}.new"));
        fs::write(&fresh, text)
            .and_then(|()| fs::rename(&fresh, &path))
            .map_err(|error| (path, error))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Something that a run left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Leftover {
    Folder {
        run: String,
        path: PathBuf,
    },
    Process {
        run: String,
        pid: u32,
        #[serde(skip)]
        started: u64,
    },
    Container {
        run: String,
        id: String,
    },
    Network {
        run: String,
        id: String,
    },
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder { run, path } => write!(f, "folder {} of {run}", path.display()),
            Self::Process { run, pid, .. } => write!(f, "server process {pid} of {run}"),
            Self::Container { run, id } => write!(f, "container {} of {run}", &id[..id.len().min(12)]),
            Self::Network { run, id } => write!(f, "network {} of {run}", &id[..id.len().min(12)]),
        }
    }
}

/// Folders and processes of runs whose harness is gone.
pub fn local() -> Vec<Leftover> {
    let Ok(entries) = fs::read_dir(temporary_folder()) else {
        return Vec::new();
    };
    let claimed = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    claimed.flat_map(|entry| of_folder(entry.path())).collect()
}

fn of_folder(path: PathBuf) -> Vec<Leftover> {
    let owner = fs::read(path.join(OWNER_FILE))
        .ok()
        .and_then(|text| serde_json::from_slice::<RunOwner>(&text).ok());
    let Some(owner) = owner else {
        return if is_young(&path) {
            Vec::new()
        } else {
            vec![Leftover::Folder {
                run: "an unknown run".into(),
                path,
            }]
        };
    };
    if owner.harness.is_alive() {
        return Vec::new();
    }
    let alive = owner.servers.iter().filter(|server| server.is_alive());
    let processes = alive.map(|s| Leftover::Process {
        run: owner.run.clone(),
        pid: s.pid,
        started: s.started,
    });
    processes
        .chain([Leftover::Folder {
            run: owner.run.clone(),
            path: path.clone(),
        }])
        .collect()
}

/// Whether a folder was made just now, and its owner may not have signed it yet.
fn is_young(path: &Path) -> bool {
    let age = fs::metadata(path)
        .and_then(|about| about.modified())
        .ok()
        .and_then(|made| made.elapsed().ok());
    age.is_none_or(|age| age < UNSIGNED)
}

/// Everything that is left behind, containers included when an engine answers.
pub async fn all() -> Vec<Leftover> {
    #[cfg_attr(
        not(feature = "docker"),
        expect(unused_mut, reason = "only the docker runtime adds to it")
    )]
    let mut found = local();
    #[cfg(feature = "docker")]
    found.extend(super::docker::leftovers().await);
    found
}

/// Removes a leftover. The error says why it is still there.
pub async fn remove(leftover: &Leftover) -> Result<(), String> {
    match leftover {
        Leftover::Folder { path, .. } => fs::remove_dir_all(path).map_err(|error| error.to_string()),
        Leftover::Process { pid, started, .. } => kill(Identity {
            pid: *pid,
            started: *started,
            namespace: own_namespace(),
        }),
        #[cfg(feature = "docker")]
        Leftover::Container { id, .. } => super::docker::remove_container(id).await,
        #[cfg(feature = "docker")]
        Leftover::Network { id, .. } => super::docker::remove_network(id).await,
        #[cfg(not(feature = "docker"))]
        Leftover::Container { .. } | Leftover::Network { .. } => Err("this harness was built without docker".into()),
    }
}

fn kill(identity: Identity) -> Result<(), String> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    if !identity.is_alive() {
        return Ok(());
    }
    kill(Pid::from_raw(identity.pid as i32), Signal::SIGKILL).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_run_is_no_leftover_and_a_dead_one_is() {
        let claim = Claim::make("test-living").unwrap();
        assert_eq!(of_folder(claim.folder().to_owned()), Vec::new());
        let dead = RunOwner {
            run: "r".into(),
            harness: Identity {
                pid: u32::MAX,
                started: 1,
                namespace: own_namespace(),
            },
            servers: vec![],
        };
        fs::write(claim.folder().join(OWNER_FILE), serde_json::to_string(&dead).unwrap()).unwrap();
        let expected = Leftover::Folder {
            run: "r".into(),
            path: claim.folder().to_owned(),
        };
        assert_eq!(of_folder(claim.folder().to_owned()), vec![expected]);
    }

    #[test]
    fn an_identity_survives_its_label() {
        let own = Identity::own();
        assert_eq!(Identity::from_label(&own.label()), Some(own));
        assert!(own.is_alive());
        assert!(
            Identity {
                pid: u32::MAX,
                started: 1,
                namespace: 0
            }
            .is_alive(),
            "of another namespace: not ours to judge"
        );
        assert!(
            !Identity {
                started: own.started + 1,
                ..own
            }
            .is_alive()
        );
    }
}
