//! A lock of a library as a TOML file describes it ([`SurveyedLock`]): library, versions, store, client, and known finds.
//!
//! `docs/adding-a-library.md` has the keys. `--client FILE.toml==VERSION` runs it, and a survey hunts all locks of a folder.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::Adapter;
use super::programs::AdapterLanguage;
use crate::installing::output_of;

/// One kind of lock of one library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SurveyedLock {
    /// The name of its file.
    #[serde(skip)]
    pub name: String,
    #[serde(skip)]
    pub file: PathBuf,
    pub library: String,
    /// The name of the lock in the library.
    pub lock: String,
    pub home: String,
    pub backend: String,
    /// The versions of the library, newest first.
    pub versions: Vec<String>,
    /// Packages of PyPI, pinned; `{version}` is the library's.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Lines of `[dependencies]` in a `Cargo.toml`, pinned, of the Rust registry.
    #[serde(default)]
    pub crates: Vec<String>,
    /// The name of an archive of the adapters, which has the jars of the one version.
    pub archive: Option<String>,
    /// A program, below the folder of the survey or among the adapters, and its arguments.
    pub client: String,
    /// Options of `harness run`, in every experiment.
    #[serde(default)]
    pub set: Vec<String>,
    #[serde(default)]
    pub not_promised: Vec<NotPromised>,
    #[serde(default)]
    pub find: Vec<Triage>,
}

/// A promise that the library's documentation excludes.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotPromised {
    pub promise: String,
    pub quote: String,
    pub link: String,
}

/// A find that a reader has compared with the library's source.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Triage {
    /// Property and class: `HL001 told-twice`.
    pub find: String,
    /// The versions that have it; empty if all have it.
    #[serde(default)]
    pub versions: Vec<String>,
    pub is: FindKind,
    pub happened: String,
    /// File and lines of the library.
    pub source: String,
    /// A public report, or the search that found none.
    pub report: String,
}

impl Triage {
    /// Whether this version has the find.
    pub fn is_of(&self, version: &str) -> bool {
        self.versions.is_empty() || self.versions.iter().any(|known| known == version)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FindKind {
    Defect,
    /// A documented limit, or one that no lock of its kind avoids.
    Limit,
    /// The adapter's fault.
    Adapter,
}

impl FindKind {
    pub fn word(self) -> &'static str {
        match self {
            Self::Defect => "defect",
            Self::Limit => "limit",
            Self::Adapter => "fault of the adapter",
        }
    }
}

impl SurveyedLock {
    /// Returns the value of one of its options.
    fn option(&self, name: &str) -> Option<&str> {
        let given = self.set.iter().filter_map(|set| set.split_once('='));
        given
            .filter(|(option, _)| *option == name)
            .map(|(_, value)| value)
            .next_back()
    }

    /// Whether it is a lock on a majority of servers that know nothing of each other, or on a cluster.
    pub fn has_majority(&self) -> bool {
        let is_cluster = ["zk", "etcd", "nats"].contains(&self.backend.as_str());
        self.option("nodes").map_or(is_cluster, |nodes| nodes != "1")
    }

    /// Returns the file of its client.
    pub fn program(&self) -> &str {
        self.client.split(' ').next().unwrap_or_default()
    }

    /// Returns the name of its store; for a described one, that of its file.
    pub fn store(&self) -> &str {
        let name = Path::new(&self.backend).file_stem();
        name.and_then(|name| name.to_str()).unwrap_or(&self.backend)
    }

    /// Returns its runtime, `virtual` by default.
    pub fn runtime(&self) -> &str {
        self.option("runtime").unwrap_or("virtual")
    }

    /// Returns the packages of a version, in a line.
    pub fn pinned(&self, version: &str) -> String {
        let all = [&self.packages, &self.crates].map(|listed| of_version(listed, version));
        let all: Vec<String> = all.into_iter().flatten().chain(self.archive.clone()).collect();
        all.join(", ")
    }

    /// Returns the newest version of the library in its registry.
    ///
    /// # Errors
    ///
    /// The registry did not answer; the sentence quotes the output.
    pub fn newest(&self) -> Result<String, String> {
        let package = (self.packages.iter()).find_map(|package| package.strip_suffix("=={version}"));
        let named = (self.crates.iter()).find(|line| line.contains("\"={version}\""));
        let (library, said, before, after) = if let Some(library) = package {
            let mut pip = Command::new("python3");
            pip.args(["-m", "pip", "index", "versions", "--disable-pip-version-check", library]);
            // `walrus (0.9.8)` is the first line
            (library, output_of(&mut pip)?, "(", ")")
        } else if let Some(line) = named {
            let library = line.split(' ').next().unwrap_or_default();
            let mut cargo = Command::new("cargo");
            // not of a workspace that has the crate in its lock file
            cargo.args(["info", "--quiet", library]).current_dir("/");
            (library, output_of(&mut cargo)?, "\nversion: ", "\n")
        } else {
            return Err("no package of it has the version `{version}`, so its newest one is not known".to_owned());
        };
        let version = said.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        match version {
            Some((version, _)) => Ok(version.to_owned()),
            None => Err(format!("the registry named no version of {library}")),
        }
    }

    /// Returns the value of `--client` for one of its versions.
    pub fn client_of(&self, version: &str) -> String {
        format!("{}=={version}", self.file.display())
    }

    /// Returns its client with the packages of a version, in an environment of its own. Files that the clients of its folder
    /// share belong to it; the programs of the other `locks` there do not.
    ///
    /// # Errors
    ///
    /// A program of the folder cannot be read.
    pub fn adapter(&self, locks: &[Self], version: &str) -> Result<Adapter, String> {
        let folder = folder_of(&self.file);
        let is_of_another = |name: &str| name != self.program() && locks.iter().any(|other| other.program() == name);
        let cannot = |path: &Path, error| format!("could not read {}: {error}", path.display());
        let mut own = Vec::new();
        for entry in fs::read_dir(folder).map_err(|error| cannot(folder, error))? {
            let path = entry.map_err(|error| cannot(folder, error))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if AdapterLanguage::of(&name).is_some() && !is_of_another(&name) {
                let text = fs::read_to_string(&path).map_err(|error| cannot(&path, error))?;
                own.push((name, text));
            }
        }
        own.sort();
        Ok(Adapter {
            name: format!("survey-{}-{version}", self.name),
            backend: self.store().to_owned(),
            library: self.pinned(version),
            pip: of_version(&self.packages, version),
            archive: self.archive.clone(),
            crates: of_version(&self.crates, version),
            run: self.client.clone(),
            own,
            typed: self.client_of(version),
            ..Adapter::default()
        })
    }

    fn check(&self) -> Result<(), String> {
        let packages = self.packages.iter().filter(|package| !package.contains("=="));
        let crates = self.crates.iter().filter(|line| !line.contains("\"="));
        if let Some(unpinned) = packages.chain(crates).next() {
            return Err(format!("`{unpinned}` has no version"));
        }
        if self.versions.is_empty() || self.pinned("").is_empty() {
            return Err("it has no version or no package".to_owned());
        }
        let is_known = |name: &String| super::ALL.archive.iter().any(|archive| archive.name == *name);
        if let Some(name) = self.archive.iter().find(|name| !is_known(name)) {
            return Err(format!("`{name}` is not an archive of the adapters"));
        }
        let set = self.set.iter().find(|set| !set.contains('='));
        set.map_or(Ok(()), |set| Err(format!("`{set}` is not OPTION=VALUE")))
    }
}

fn of_version(listed: &[String], version: &str) -> Vec<String> {
    listed.iter().map(|one| one.replace("{version}", version)).collect()
}

/// Returns the folder of a file that was typed.
fn folder_of(file: &Path) -> &Path {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns the client that was typed as `FILE.toml` or `FILE.toml==VERSION`, by default of the newest version in the file.
pub fn typed(text: &str) -> Option<Result<Adapter, String>> {
    let (file, version) = text
        .split_once("==")
        .map_or((text, None), |(file, version)| (file, Some(version)));
    let file = Path::new(file);
    // the last argument of a command may be a file of another kind
    let is_command = text.contains(char::is_whitespace) && !file.exists();
    if file.extension()? != "toml" || is_command {
        return None;
    }
    let adapter = || {
        let locks = read(folder_of(file))?;
        let lock = locks.iter().find(|lock| lock.file.file_name() == file.file_name());
        let lock = lock.ok_or_else(|| format!("there is no file {}", file.display()))?;
        lock.adapter(&locks, version.unwrap_or(&lock.versions[0]))
    };
    Some(adapter())
}

/// Returns the locks of the files in a folder, by name.
///
/// # Errors
///
/// A file cannot be read, or is wrong; the sentence names it.
pub fn read(folder: &Path) -> Result<Vec<SurveyedLock>, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("could not read {}: {error}", folder.display());
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .map_err(|error| cannot(&error))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    files.sort();
    let of_file = |path: &PathBuf| {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(&error))?;
        let mut lock: SurveyedLock = toml::from_str(&text).map_err(|error| wrong(&error.to_string().trim_end()))?;
        lock.check().map_err(|why| wrong(&why))?;
        lock.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        lock.file.clone_from(path);
        Ok(lock)
    };
    files.iter().map(of_file).collect()
}

/// Returns the file of a lock of two versions, with these lines beside.
#[cfg(test)]
pub fn file_of_test(name: &str, more: &str) -> String {
    format!(
        "library = \"{name}\"\nlock = \"Lock\"\nhome = \"https://example.org\"\nclient = \"{name}.py once\"\n\
         versions = [\"2\", \"1\"]\npackages = [\"{name}=={{version}}\"]\n{more}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_lock(folder: &Path, name: &str) {
        let text = file_of_test(name, "backend = \"redis\"");
        fs::write(folder.join(format!("{name}.toml")), text).unwrap();
        fs::write(folder.join(format!("{name}.py")), name).unwrap();
    }

    #[test]
    fn a_client_is_another_one_after_a_change_of_its_program_or_of_a_shared_one_but_not_of_that_of_another() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x", "y"] {
            write_lock(folder.path(), name);
        }
        let change = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        change("shared.py", "");
        let file = folder.path().join("x.toml").display().to_string();
        let identity = || typed(&file).unwrap().unwrap().identity().unwrap();
        let first = identity();
        change("y.py", "changed");
        change("shared.rs", "a program in another language");
        assert_eq!(identity(), first);
        change("shared.py", "changed");
        let second = identity();
        assert_ne!(second, first);
        change("x.py", "changed");
        assert_ne!(identity(), second);
    }

    #[test]
    fn a_client_is_typed_by_its_file_and_has_what_its_folder_shares_but_not_the_programs_of_others() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["x", "y"] {
            write_lock(folder.path(), name);
        }
        for shared in ["Shared.java", "shared.py"] {
            fs::write(folder.path().join(shared), "").unwrap();
        }
        let file = folder.path().join("x.toml").display().to_string();
        let adapter = |text: &str| typed(text).unwrap();
        let newest = adapter(&file).unwrap();
        assert_eq!(
            (newest.pip.as_slice(), newest.backend.as_str()),
            (["x==2".to_owned()].as_slice(), "redis")
        );
        let own: Vec<&str> = newest.own.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(own, ["Shared.java", "shared.py", "x.py"]);
        let older = adapter(&format!("{file}==1")).unwrap();
        assert_eq!(older.pip, ["x==1"]);
        assert_ne!(older.identity().unwrap(), newest.identity().unwrap());
        let hint = older.command().unwrap_err();
        assert!(hint.contains(&format!("harness adapters {file}==1")), "{hint}");
        let missing = adapter(&file.replace("x.toml", "z.toml")).unwrap_err();
        assert!(missing.contains("there is no file"), "{missing}");
        for other in ["python3 x.py", "python3 x.py settings.toml", "kazoo-lock"] {
            assert!(typed(other).is_none(), "{other}");
        }
    }
}
