//! Leftovers of killed runs, and the search for them: by the folders of runs and the labels of containers.
//!
//! A run that starts servers claims a temporary folder and writes its identity into it. A claim whose harness is no longer alive
//! is a leftover; so is a container or network whose label names such a harness.
//!
//! Every user can write into the temporary folder of the machine. So a claim is trusted only if no other user can have written
//! it, and a process that it names is killed only if it also works in the claimed folder, which others cannot enter.

pub mod claim;
#[cfg(feature = "docker")]
mod containers;
pub mod outages;
pub mod proxies;
pub mod traces;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use claim::{OWNER_FILE, PREFIX, RunOwner, noted};
use outages::ClaimedOutage;
use proxies::{ClaimedProxies, PROXIES_FILE};
use traces::{ClaimedTraces, TRACES_FILE};

use crate::ownership::{Distrust, check_own};
use crate::process::{self, Identity, Vitality};

/// The age below which a folder without an owner file is left alone.
const UNSIGNED: Duration = Duration::from_secs(60);

/// A leftover of a run.
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
        identity: Identity,
        /// The folder that the run claimed.
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Proxies on a Toxiproxy, and the claim that lists them.
    Proxies {
        run: String,
        #[serde(flatten)]
        proxies: ClaimedProxies,
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Attached servers that a run left killed or paused, and the claim that lists them.
    Outages {
        run: String,
        servers: Vec<ClaimedOutage>,
        #[serde(skip)]
        claim: PathBuf,
    },
    /// Entries on attached servers, and the claim that lists them.
    Traces {
        run: String,
        #[serde(flatten)]
        traces: ClaimedTraces,
        #[serde(skip)]
        claim: PathBuf,
    },
    /// A process that a client or a server started, and that no claim lists.
    Offspring {
        pid: u32,
        command: String,
        #[serde(skip)]
        identity: Identity,
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

impl Leftover {
    /// Returns the claim of leftovers on servers that the run only used; without it they are not reported again.
    pub fn claim_elsewhere(&self) -> Option<&Path> {
        match self {
            Self::Proxies { claim, .. } | Self::Outages { claim, .. } | Self::Traces { claim, .. } => Some(claim),
            _ => None,
        }
    }
}

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Folder { run, path } => write!(f, "folder {} of {run}", path.display()),
            Self::Process { run, pid, .. } => write!(f, "server process {pid} of {run}"),
            Self::Proxies { run, proxies, .. } => write!(f, "proxies of {run} on the Toxiproxy at {}", proxies.at),
            Self::Outages { run, servers, .. } => {
                let each = servers.iter().map(|out| format!("{} (`{}`)", out.server, out.undo));
                let each: Vec<String> = each.collect();
                write!(f, "servers that {run} killed or paused: {}", each.join(", "))
            }
            Self::Traces { run, traces, .. } => {
                let (backend, servers) = (&traces.backend, traces.servers.join(", "));
                write!(f, "entries of {run} on {backend} at {servers}")
            }
            Self::Offspring { pid, command, .. } => {
                let started = "that a client or server of an earlier run started";
                write!(f, "process {pid} {started}: {command}")
            }
            Self::Container { run, id } => write!(f, "container {} of {run}", &id[..id.len().min(12)]),
            Self::Network { run, id } => write!(f, "network {} of {run}", &id[..id.len().min(12)]),
        }
    }
}

/// The counts of objects that look like leftovers and are not touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LeftAlone {
    pub foreign_folders: usize,
    pub folders_others_can_write: usize,
    /// Processes with the number and start of a server that work elsewhere.
    pub processes_elsewhere: usize,
    /// Containers, networks and folders of runs whose harness cannot be seen from here.
    pub out_of_sight: usize,
}

impl LeftAlone {
    /// Returns the counts as sentences, one for each reason.
    pub fn sentences(self) -> Vec<String> {
        let counts = [
            (self.foreign_folders, "folder", "of another user"),
            (self.folders_others_can_write, "folder", "that other users can write"),
            (
                self.processes_elsewhere,
                "process",
                "that is not in the folder of its run",
            ),
        ];
        let unseen = (self.out_of_sight > 0).then(|| {
            let (what, verb) = if self.out_of_sight == 1 {
                ("container, network or folder", "is")
            } else {
                ("containers, networks and folders", "are")
            };
            format!(
                "{} {what} of runs in another process namespace or on another machine {verb} left alone: the state of these runs \
                 cannot be seen from here\nhint: `harness doctor --clean --all` removes them, even if these runs are still active",
                self.out_of_sight
            )
        });
        let some = counts.into_iter().filter(|(count, ..)| *count > 0);
        let sentence = |(count, what, why): (usize, &str, &str)| match (count, what) {
            (1, _) => format!("1 {what} {why} left alone"),
            (_, "process") => format!("{count} processes, each one {why}, left alone"),
            _ => format!("{count} {what}s {why} left alone"),
        };
        some.map(sentence).chain(unseen).collect()
    }
}

/// The leftovers of earlier runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub leftovers: Vec<Leftover>,
    pub left_alone: LeftAlone,
    /// The objects that could not be read, with reasons.
    pub unknown: Vec<String>,
}

/// The runs whose leftovers are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Runs that are known to be over.
    Over,
    /// These, and runs that cannot be seen from here.
    OverOrUnseen,
}

impl Sight {
    /// Whether objects of this harness are leftovers; `None` if that is not known.
    pub fn is_over(self, owner: Identity) -> Option<bool> {
        match owner.vitality() {
            Vitality::Alive => Some(false),
            Vitality::Over => Some(true),
            Vitality::Unseen => (self == Self::OverOrUnseen).then_some(true),
        }
    }
}

/// Returns the folders and processes of runs whose harness has ended, among the claims in the folder `within`.
fn local(within: &Path, sight: Sight) -> Found {
    let mut found = Found::default();
    let entries = match fs::read_dir(within) {
        Ok(entries) => entries,
        Err(error) => {
            let what = format!("processes and folders of runs: {}: {error}", within.display());
            found.unknown.push(what);
            return found;
        }
    };
    let is_claim = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PREFIX);
    for entry in entries.flatten().filter(is_claim) {
        // the metadata of the entry itself: no claim is a symbolic link
        let Ok(about) = entry.metadata() else { continue };
        match check_own(&about) {
            Ok(()) if about.is_dir() => {
                let left = of_folder(entry.path(), sight, &mut found.left_alone);
                found.leftovers.extend(left);
            }
            Ok(()) => {}
            Err(Distrust::ForeignOwner(_)) => found.left_alone.foreign_folders += 1,
            Err(Distrust::WritableByOthers) => found.left_alone.folders_others_can_write += 1,
        }
    }
    found
}

/// Returns the leftovers of a claim.
fn of_folder(path: PathBuf, sight: Sight, alone: &mut LeftAlone) -> Vec<Leftover> {
    let Some(owner) = noted::<RunOwner>(&path, OWNER_FILE) else {
        let run = "an unknown run".into();
        let left = (!is_young(&path)).then_some(Leftover::Folder { run, path });
        return left.into_iter().collect();
    };
    match sight.is_over(owner.harness) {
        Some(true) => {}
        Some(false) => return Vec::new(),
        None => {
            alone.out_of_sight += 1;
            return Vec::new();
        }
    }
    let (run, claim) = (owner.run.clone(), path.clone());
    if let Some(proxies) = noted(&path, PROXIES_FILE) {
        return vec![Leftover::Proxies { run, proxies, claim }];
    }
    if let Some(servers) = ClaimedOutage::noted_in(&path).filter(|servers| !servers.is_empty()) {
        return vec![Leftover::Outages { run, servers, claim }];
    }
    if let Some(traces) = noted(&path, TRACES_FILE) {
        return vec![Leftover::Traces { run, traces, claim }];
    }
    let servers = owner.servers.iter();
    let alive = servers.filter(|server| server.vitality() == Vitality::Alive);
    let (own, elsewhere): (Vec<&Identity>, Vec<&Identity>) = alive.partition(|server| works_in(server.pid(), &path));
    let processes = own.into_iter().map(|server| Leftover::Process {
        run: owner.run.clone(),
        pid: server.pid(),
        identity: *server,
        claim: path.clone(),
    });
    let folder = Leftover::Folder { run, path: claim };
    alone.processes_elsewhere += elsewhere.len();
    processes.chain([folder]).collect()
}

/// Whether the working folder of a process is in `claim`, as that of every server that [`super::local`] starts. Unlike the
/// environment, which a server may overwrite with its title, the kernel keeps it.
fn works_in(pid: u32, claim: &Path) -> bool {
    let works = fs::read_link(format!("/proc/{pid}/cwd"));
    works.is_ok_and(|works| claim.canonicalize().is_ok_and(|claim| works.starts_with(claim)))
}

/// Whether a folder is so new that its owner may not have written the owner file yet.
fn is_young(path: &Path) -> bool {
    let made = fs::metadata(path).and_then(|about| about.modified());
    let age = made.ok().and_then(|made| made.elapsed().ok());
    age.is_none_or(|age| age < UNSIGNED)
}

/// Returns all leftovers, containers included if an engine answers.
pub async fn all(sight: Sight) -> Found {
    let mut found = local(&std::env::temp_dir(), sight);
    let noted = found.leftovers.iter().filter_map(|leftover| match leftover {
        Leftover::Process { pid, .. } => Some(*pid),
        _ => None,
    });
    let noted: Vec<u32> = noted.collect();
    let offspring = process::marked(|owner| owner.vitality() == Vitality::Over);
    let of_nobody = offspring.into_iter().filter(|one| !noted.contains(&one.identity.pid()));
    found.leftovers.extend(of_nobody.map(|one| Leftover::Offspring {
        pid: one.identity.pid(),
        command: one.command,
        identity: one.identity,
    }));
    #[cfg(feature = "docker")]
    containers::look_for(sight, &mut found).await;
    #[cfg(not(feature = "docker"))]
    if engine_is_expected() {
        let what = "containers and networks: this harness was built without docker";
        found.unknown.push(what.to_owned());
    }
    found
}

/// Whether there is a container engine that should answer.
pub fn engine_is_expected() -> bool {
    std::env::var_os("DOCKER_HOST").is_some() || Path::new("/var/run/docker.sock").exists()
}

/// Removes a leftover; of entries on servers only the claim: the backend removes them. The error has the reason for a failure.
pub async fn remove(leftover: &Leftover) -> Result<(), String> {
    match leftover {
        Leftover::Folder { path, .. } | Leftover::Traces { claim: path, .. } => match claim::remove(path) {
            // another process cleans at the same time
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.to_string()),
            _ => Ok(()),
        },
        Leftover::Process { identity, claim, .. } => kill(*identity, claim),
        Leftover::Offspring { identity, .. } => {
            let mut marked = process::marked(|owner| owner.vitality() == Vitality::Over).into_iter();
            let still = marked.find(|one| one.identity == *identity);
            still.map_or(Ok(()), |one| one.identity.kill())
        }
        Leftover::Outages { servers, claim, .. } => {
            servers.iter().try_for_each(ClaimedOutage::undo)?;
            remove_claim(claim)
        }
        Leftover::Proxies { proxies, claim, .. } => {
            proxies.remove().await?;
            remove_claim(claim)
        }
        #[cfg(feature = "docker")]
        Leftover::Container { id, .. } => super::engine::remove_container(id).await,
        #[cfg(feature = "docker")]
        Leftover::Network { id, .. } => super::engine::remove_network(id).await,
        #[cfg(not(feature = "docker"))]
        Leftover::Container { .. } | Leftover::Network { .. } => Err("this harness was built without docker".into()),
    }
}

/// Removes the claim of a run.
pub fn remove_claim(claim: &Path) -> Result<(), String> {
    claim::remove(claim).map_err(|error| error.to_string())
}

fn kill(identity: Identity, claim: &Path) -> Result<(), String> {
    if identity.vitality() == Vitality::Over {
        return Ok(());
    }
    if !works_in(identity.pid(), claim) {
        return Err("it is not in the folder of its run any more".into());
    }
    identity.kill()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::ExitStatusExt;

    use super::claim::Claim;
    use super::*;
    use crate::ownership::give_away;

    /// Makes a claim in `within` of an ended harness, with these processes.
    fn dead_claim(within: &Path, name: &str, servers: Vec<Identity>) -> PathBuf {
        let folder = within.join(format!("{PREFIX}{name}"));
        fs::create_dir_all(folder.join("n1")).unwrap();
        let harness = Identity::new(u32::MAX, 1);
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
        let (folder, sight) = (claim.folder().to_owned(), Sight::OverOrUnseen);
        assert_eq!(of_folder(folder, sight, &mut LeftAlone::default()), []);
        let temporary = tempfile::tempdir().unwrap();
        let path = dead_claim(temporary.path(), "r", vec![]);
        let expected = Leftover::Folder { run: "r".into(), path };
        assert_eq!(local(temporary.path(), Sight::Over).leftovers, [expected]);
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
            left_alone,
            ..Found::default()
        };
        assert_eq!(local(temporary.path(), Sight::Over), expected);
        let foreign = (left_alone.foreign_folders == 1).then_some("1 folder of another user left alone");
        let sentences = foreign
            .into_iter()
            .chain(["1 folder that other users can write left alone"]);
        assert_eq!(left_alone.sentences(), Vec::from_iter(sentences));
    }

    #[tokio::test]
    async fn a_process_is_killed_only_if_it_works_in_the_folder_of_its_run() {
        let temporary = tempfile::tempdir().unwrap();
        let claim = dead_claim(temporary.path(), "r", vec![]);
        let (mut server, mut other) = (sleeper(&claim.join("n1")), sleeper(temporary.path()));
        let servers = [&server, &other].map(|child| Identity::of(child.id()).unwrap());
        dead_claim(temporary.path(), "r", servers.to_vec());
        let found = local(temporary.path(), Sight::Over);
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
        assert!(kill(servers[1], &claim).unwrap_err().contains("is not in the folder"));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_seen_is_left_alone_and_said_unless_all_is_wanted() {
        let temporary = tempfile::tempdir().unwrap();
        let path = dead_claim(temporary.path(), "r", vec![]);
        let harness = Identity::elsewhere();
        let (run, servers) = ("r".to_owned(), Vec::new());
        let owner = RunOwner { run, harness, servers };
        fs::write(path.join(OWNER_FILE), serde_json::to_string(&owner).unwrap()).unwrap();
        let found = local(temporary.path(), Sight::Over);
        assert_eq!((found.leftovers.len(), found.left_alone.out_of_sight), (0, 1));
        assert!(found.left_alone.sentences()[0].contains("--clean --all"));
        let all = local(temporary.path(), Sight::OverOrUnseen);
        assert_eq!(all.leftovers, [Leftover::Folder { run: "r".into(), path }]);
        assert_eq!(all.left_alone, LeftAlone::default());
    }
}
