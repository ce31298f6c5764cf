//! What runs leave behind when they are killed, and how it is found: by the folders of runs and the labels of containers.
//!
//! A run that starts servers claims a temporary folder and writes into it who it is. A claim whose harness is no longer
//! alive is a leftover; so is a container or network whose label names such a harness.
//!
//! Every user can write into the temporary folder of the machine. So a claim is believed only where no other user can have
//! written it, and a process that it names is killed only if it also works in the claimed folder, which others cannot enter.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::leftover_outages::ClaimedOutage;
use super::leftover_proxies::ClaimedProxies;
use super::leftover_traces::ClaimedTraces;
use super::local::temporary_folder;
use crate::ownership::{Distrust, check_own};
use crate::process::started_at;

const PREFIX: &str = "harness-run-";
const OWNER_FILE: &str = "owner.json";
const RANDOM: &str = "/dev/urandom";
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
    /// Makes the folder. An error if it exists already: another user may have made it.
    pub fn make(run: &str) -> Result<Self, (PathBuf, io::Error)> {
        let number = unguessable_number().map_err(|error| (PathBuf::from(RANDOM), error))?;
        let folder = temporary_folder().join(format!("{PREFIX}{run}-{number:016x}"));
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| (folder.clone(), error))?;
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

/// A number that another user cannot know in advance, to make a folder of that name first.
fn unguessable_number() -> io::Result<u64> {
    let mut bytes = [0; size_of::<u64>()];
    File::open(RANDOM)?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
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
        /// The folder that the run claimed.
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Proxies on a Toxiproxy, and the claim that notes them.
    Proxies {
        run: String,
        #[serde(flatten)]
        proxies: ClaimedProxies,
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Servers that a run did not start and left killed or paused, and the claim that notes them.
    Outages {
        run: String,
        servers: Vec<ClaimedOutage>,
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Entries on servers that a run did not start, and the claim that notes them.
    Traces {
        run: String,
        #[serde(flatten)]
        traces: ClaimedTraces,
        #[serde(skip)]
        claim: PathBuf,
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
            Self::Proxies { run, proxies, .. } => write!(f, "proxies of {run} on the Toxiproxy at {}", proxies.at),
            Self::Outages { run, servers, .. } => {
                let each: Vec<String> = servers
                    .iter()
                    .map(|out| format!("{} (`{}`)", out.server, out.undo))
                    .collect();
                write!(f, "servers that {run} killed or paused: {}", each.join(", "))
            }
            Self::Traces { run, traces, .. } => {
                write!(
                    f,
                    "entries of {run} on {} at {}",
                    traces.backend,
                    traces.servers.join(", ")
                )
            }
            Self::Container { run, id } => write!(f, "container {} of {run}", &id[..id.len().min(12)]),
            Self::Network { run, id } => write!(f, "network {} of {run}", &id[..id.len().min(12)]),
        }
    }
}

/// How much looks like a leftover, and is not touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftAlone {
    pub foreign_folders: usize,
    pub folders_others_can_write: usize,
    /// They have the number and start of a server, and work elsewhere.
    pub processes_elsewhere: usize,
}

impl LeftAlone {
    /// What is left alone and why, one sentence for each reason.
    pub fn sentences(self) -> Vec<String> {
        let counts = [
            (self.foreign_folders, "folder", "of another user"),
            (self.folders_others_can_write, "folder", "that other users can write"),
            (
                self.processes_elsewhere,
                "process",
                "that does not work in the folder of its run",
            ),
        ];
        let some = counts.into_iter().filter(|(count, ..)| *count > 0);
        let sentence = |(count, what, why): (usize, &str, &str)| match (count, what) {
            (1, _) => format!("1 {what} {why} left alone"),
            (_, "process") => format!("{count} processes, each one {why}, left alone"),
            _ => format!("{count} {what}s {why} left alone"),
        };
        some.map(sentence).collect()
    }
}

/// What earlier runs left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub leftovers: Vec<Leftover>,
    pub left_alone: LeftAlone,
}

/// Folders and processes of runs whose harness is gone, among the claims in the folder `within`.
fn local(within: &Path) -> Found {
    let mut found = Found::default();
    let Ok(entries) = fs::read_dir(within) else {
        return found;
    };
    let claimed = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in claimed {
        // of the entry itself: no claim is a symbolic link
        let Ok(about) = entry.metadata() else { continue };
        match check_own(&about) {
            Ok(()) if about.is_dir() => {
                let (left, elsewhere) = of_folder(entry.path());
                found.leftovers.extend(left);
                found.left_alone.processes_elsewhere += elsewhere;
            }
            Ok(()) => {}
            Err(Distrust::ForeignOwner(_)) => found.left_alone.foreign_folders += 1,
            Err(Distrust::WritableByOthers) => found.left_alone.folders_others_can_write += 1,
        }
    }
    found
}

/// What a claim comes to, and how many of its processes do not work in its folder.
fn of_folder(path: PathBuf) -> (Vec<Leftover>, usize) {
    let owner = fs::read(path.join(OWNER_FILE))
        .ok()
        .and_then(|text| serde_json::from_slice::<RunOwner>(&text).ok());
    let Some(owner) = owner else {
        let run = "an unknown run".into();
        let left = (!is_young(&path)).then_some(Leftover::Folder { run, path });
        return (left.into_iter().collect(), 0);
    };
    if owner.harness.is_alive() {
        return (Vec::new(), 0);
    }
    if let Some(proxies) = ClaimedProxies::noted_in(&path) {
        let (run, claim) = (owner.run, path);
        return (vec![Leftover::Proxies { run, proxies, claim }], 0);
    }
    if let Some(servers) = ClaimedOutage::noted_in(&path).filter(|servers| !servers.is_empty()) {
        let (run, claim) = (owner.run, path);
        return (vec![Leftover::Outages { run, servers, claim }], 0);
    }
    if let Some(traces) = ClaimedTraces::noted_in(&path) {
        let (run, claim) = (owner.run, path);
        return (vec![Leftover::Traces { run, traces, claim }], 0);
    }
    let alive = owner.servers.iter().filter(|server| server.is_alive());
    let (own, elsewhere): (Vec<&Identity>, Vec<&Identity>) = alive.partition(|server| works_in(server.pid, &path));
    let processes = own.into_iter().map(|server| Leftover::Process {
        run: owner.run.clone(),
        pid: server.pid,
        started: server.started,
        claim: path.clone(),
    });
    let folder = Leftover::Folder {
        run: owner.run.clone(),
        path: path.clone(),
    };
    (processes.chain([folder]).collect(), elsewhere.len())
}

/// Whether the working folder of a process is in `claim`, as that of every server is that [`super::local`] starts. Unlike
/// the environment, which a server may overwrite with its title, the kernel keeps it.
fn works_in(pid: u32, claim: &Path) -> bool {
    let works = fs::read_link(format!("/proc/{pid}/cwd"));
    works.is_ok_and(|works| claim.canonicalize().is_ok_and(|claim| works.starts_with(claim)))
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
pub async fn all() -> Found {
    #[cfg_attr(
        not(feature = "docker"),
        expect(unused_mut, reason = "only the docker runtime adds to it")
    )]
    let mut found = local(&temporary_folder());
    #[cfg(feature = "docker")]
    found.leftovers.extend(super::docker::leftovers().await);
    found
}

/// Removes a leftover; of entries on servers only the note, since the backend removes them. The error says why it is still there.
pub async fn remove(leftover: &Leftover) -> Result<(), String> {
    match leftover {
        Leftover::Folder { path, .. } | Leftover::Traces { claim: path, .. } => {
            fs::remove_dir_all(path).map_err(|error| error.to_string())
        }
        Leftover::Process {
            pid, started, claim, ..
        } => {
            let identity = Identity {
                pid: *pid,
                started: *started,
                namespace: own_namespace(),
            };
            kill(identity, claim)
        }
        Leftover::Outages { servers, claim, .. } => {
            servers.iter().try_for_each(ClaimedOutage::undo)?;
            fs::remove_dir_all(claim).map_err(|error| error.to_string())
        }
        Leftover::Proxies { proxies, claim, .. } => {
            proxies.remove().await?;
            fs::remove_dir_all(claim).map_err(|error| error.to_string())
        }
        #[cfg(feature = "docker")]
        Leftover::Container { id, .. } => super::docker::remove_container(id).await,
        #[cfg(feature = "docker")]
        Leftover::Network { id, .. } => super::docker::remove_network(id).await,
        #[cfg(not(feature = "docker"))]
        Leftover::Container { .. } | Leftover::Network { .. } => Err("this harness was built without docker".into()),
    }
}

fn kill(identity: Identity, claim: &Path) -> Result<(), String> {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    if !identity.is_alive() {
        return Ok(());
    }
    if !works_in(identity.pid, claim) {
        return Err("it does not work in the folder of its run any more".into());
    }
    kill(Pid::from_raw(identity.pid as i32), Signal::SIGKILL).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    use super::*;
    use crate::ownership::give_away;

    /// A claim in `within` of a harness that is gone, and of these processes.
    fn dead_claim(within: &Path, name: &str, servers: Vec<Identity>) -> PathBuf {
        let folder = within.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(folder.join("n1")).unwrap();
        let harness = Identity {
            pid: u32::MAX,
            started: 1,
            namespace: own_namespace(),
        };
        let run = name.to_owned();
        let owner = RunOwner { run, harness, servers };
        fs::write(folder.join(OWNER_FILE), serde_json::to_string(&owner).unwrap()).unwrap();
        folder
    }

    fn sleeper(works_in: &Path) -> std::process::Child {
        let mut sleep = std::process::Command::new("sleep");
        sleep.arg("600").current_dir(works_in).spawn().unwrap()
    }

    #[test]
    fn a_living_run_is_no_leftover_and_a_dead_one_is() {
        let claim = Claim::make("test-living").unwrap();
        assert_eq!(of_folder(claim.folder().to_owned()), (Vec::new(), 0));
        let temporary = tempfile::tempdir().unwrap();
        let path = dead_claim(temporary.path(), "r", vec![]);
        let expected = Leftover::Folder { run: "r".into(), path };
        assert_eq!(local(temporary.path()).leftovers, [expected]);
    }

    #[test]
    fn a_claim_is_a_new_folder_that_only_its_user_can_enter() {
        let claims = [Claim::make("test-new").unwrap(), Claim::make("test-new").unwrap()];
        assert_ne!(claims[0].folder(), claims[1].folder(), "the name cannot be guessed");
        for claim in &claims {
            assert_eq!(fs::metadata(claim.folder()).unwrap().mode() & 0o777, 0o700);
        }
    }

    #[test]
    fn a_claim_that_another_user_can_have_written_is_left_alone() {
        let temporary = tempfile::tempdir().unwrap();
        let open = dead_claim(temporary.path(), "open", vec![]);
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        let mut left_alone = LeftAlone {
            folders_others_can_write: 1,
            ..LeftAlone::default()
        };
        let foreign = dead_claim(temporary.path(), "foreign", vec![Identity::own()]);
        if give_away(&foreign) {
            left_alone.foreign_folders = 1;
        } else {
            fs::remove_dir_all(&foreign).unwrap();
        }
        let expected = Found {
            leftovers: Vec::new(),
            left_alone,
        };
        assert_eq!(local(temporary.path()), expected);
        let sentences = left_alone.sentences();
        assert!(
            sentences.contains(&"1 folder that other users can write left alone".to_owned()),
            "{sentences:?}"
        );
    }

    #[tokio::test]
    async fn a_process_is_killed_only_if_it_works_in_the_folder_of_its_run() {
        let temporary = tempfile::tempdir().unwrap();
        let claim = dead_claim(temporary.path(), "r", vec![]);
        let (mut server, mut other) = (sleeper(&claim.join("n1")), sleeper(temporary.path()));
        let servers = [&server, &other].map(|child| Identity::of(child.id()).unwrap());
        dead_claim(temporary.path(), "r", servers.to_vec());
        let found = local(temporary.path());
        assert_eq!(found.left_alone.processes_elsewhere, 1);
        assert!(
            matches!(found.leftovers[..], [Leftover::Process { pid, .. }, Leftover::Folder { .. }] if pid == server.id())
        );
        for leftover in &found.leftovers {
            remove(leftover).await.unwrap();
        }
        assert_eq!(server.wait().unwrap().signal(), Some(9));
        assert!(!claim.exists());
        assert_eq!(other.try_wait().unwrap(), None, "it lives");
        assert!(kill(servers[1], &claim).unwrap_err().contains("does not work"));
        other.kill().unwrap();
        other.wait().unwrap();
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
