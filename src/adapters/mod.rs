//! Adapters: clients for lock libraries, known by name and pinned to a version.
//!
//! `workloads/adapters/adapters.toml` lists them. The list and the programs are part of the binary, so that
//! `--client kazoo-lock` works without a checkout; [`Adapter::install`] writes the programs below the user's cache folder
//! and fetches the libraries there.

pub mod surveyed;

use std::borrow::Cow;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{fs, io};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::installing::{self, cache_folder};

const LIST: &str = include_str!("../../workloads/adapters/adapters.toml");

/// A name and what is in its file.
macro_rules! program {
    ($name:literal, $folder:literal) => {
        (
            $name,
            include_str!(concat!("../../workloads/adapters/", $folder, "/", $name)),
        )
    };
}

/// The programs, by their names below the adapters' folder.
const FILES: &[(&str, &str)] = &[
    program!("harness_client.py", "python"),
    program!("kazoo_lock.py", "python"),
    program!("aetcd_lock.py", "python"),
    program!("etcdctl_lock.py", "python"),
    program!("redis_py.py", "python"),
    program!("python_redis_lock.py", "python"),
    program!("pottery_redlock.py", "python"),
    program!("redlock_py.py", "python"),
    program!("kube_lease.py", "python"),
    program!("kube_election.py", "python"),
    program!("CuratorLock.java", "java"),
    program!("HarnessClient.java", "java"),
];

/// Where Debian keeps the libraries of Java.
const JARS: &str = "/usr/share/java";

/// A client for one kind of lock of one library.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    pub name: String,
    /// `zk`, `etcd` or `redis`; a lock on Redis also works on Valkey.
    pub backend: String,
    /// The library, its version, and which of its locks.
    pub library: String,
    /// Packages of PyPI, pinned: `kazoo==2.11.0`.
    #[serde(default)]
    pip: Vec<String>,
    /// Names of files in [`JARS`], without their ending.
    #[serde(default)]
    jars: Vec<String>,
    /// A program that must be on the `PATH`.
    program: Option<String>,
    /// Debian's packages that have the jars or the program.
    #[serde(default)]
    packages: Vec<String>,
    /// A file of [`FILES`] or of its own, and its arguments.
    run: String,
    /// Programs beside those of [`FILES`], by their names.
    #[serde(skip)]
    own: Vec<(String, String)>,
    /// The file and version that name it, where no name of the list does.
    #[serde(skip)]
    typed: String,
}

/// Why an adapter cannot be installed or run: a sentence, and a hint where there is one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AdapterError(String);

/// All of them, in the order of the list.
pub fn all() -> &'static [Adapter] {
    #[derive(Deserialize)]
    struct List {
        adapter: Vec<Adapter>,
    }
    static ALL: LazyLock<Vec<Adapter>> = LazyLock::new(|| {
        let list: List = toml::from_str(LIST).expect("the list of adapters is part of the source");
        list.adapter
    });
    &ALL
}

/// The command for the shell of a client that was typed as `text`: an adapter's name or file, or a command.
///
/// # Errors
///
/// It is an adapter that is not installed, or its file is wrong.
pub fn shell_command(text: &str) -> Result<String, AdapterError> {
    typed(text)?.map_or_else(|| Ok(text.to_owned()), |adapter| adapter.command())
}

/// The adapter of that name, or of that file ([`surveyed::typed`]); `None`: it is neither.
///
/// # Errors
///
/// The file is wrong.
pub fn typed(text: &str) -> Result<Option<Cow<'static, Adapter>>, AdapterError> {
    match named(text) {
        Some(adapter) => Ok(Some(Cow::Borrowed(adapter))),
        None => surveyed::typed(text).transpose().map(|adapter| adapter.map(Cow::Owned)),
    }
}

fn named(name: &str) -> Option<&'static Adapter> {
    all().iter().find(|adapter| adapter.name == name)
}

impl Adapter {
    /// Its programs, with those that others have as well.
    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let own = self.own.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        FILES.iter().copied().chain(own)
    }

    pub fn is_installed(&self) -> bool {
        self.folder().is_ok_and(|folder| folder.join(READY).exists())
    }

    /// Its name, with a digest of all that it is made of.
    ///
    /// # Errors
    ///
    /// There is no cache folder.
    pub fn identity(&self) -> Result<String, AdapterError> {
        let folder = self.folder()?;
        Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }

    /// The command that runs it.
    ///
    /// # Errors
    ///
    /// It is not installed; the sentence says how to install it.
    pub fn command(&self) -> Result<String, AdapterError> {
        let folder = self.folder()?;
        if !self.is_installed() {
            return Err(AdapterError(format!(
                "the client `{name}` needs {library}, which is not installed\nhint: `harness adapters {name}` installs it in {}",
                folder.display(),
                name = if self.typed.is_empty() { &self.name } else { &self.typed },
                library = self.library,
            )));
        }
        let (file, arguments) = self.run.split_once(' ').unwrap_or((&self.run, ""));
        let command = if self.jars.is_empty() {
            format!("{} {}", quoted(&self.python(&folder)), quoted(&folder.join(file)))
        } else {
            let class = file.trim_end_matches(".java");
            let path = format!("{}:{}", self.class_path(), folder.display());
            format!(
                "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -cp {} {class}",
                quoted(Path::new(&path))
            )
        };
        Ok(format!("{command} {arguments}").trim_end().to_owned())
    }

    /// Fetches the libraries and writes the program. Nothing is done where that was done before.
    ///
    /// # Errors
    ///
    /// A program is missing or failed; the sentence quotes what it said.
    pub fn install(&self) -> Result<Installed, AdapterError> {
        let folder = self.folder()?;
        if folder.join(READY).exists() {
            return Ok(Installed::Before(folder));
        }
        self.has_what_it_needs()?;
        // what an install that was ended left is made anew
        let cannot = |error: io::Error| AdapterError(format!("could not write {}: {error}", folder.display()));
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(cannot)?;
        }
        fs::create_dir_all(&folder).map_err(cannot)?;
        for (name, text) in self.files() {
            fs::write(folder.join(name), text).map_err(cannot)?;
        }
        if !self.pip.is_empty() {
            let venv = folder.join("venv");
            call(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/python"));
            call(
                pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
                    .args(&self.pip),
            )?;
        }
        if let Some((file, _)) = self.run.split_once(' ').filter(|_| !self.jars.is_empty()) {
            let mut compiler = Command::new("javac");
            call(
                compiler
                    .arg("-cp")
                    .arg(self.class_path())
                    .arg("-sourcepath")
                    .arg(&folder)
                    .arg("-d")
                    .arg(&folder)
                    .arg(folder.join(file)),
            )?;
        }
        fs::write(folder.join(READY), "").map_err(cannot)?;
        Ok(Installed::Now(folder))
    }

    /// The packages of Debian that it needs, for the hint.
    fn has_what_it_needs(&self) -> Result<(), AdapterError> {
        let interpreter = if self.jars.is_empty() { "python3" } else { "javac" };
        let programs = self.program.iter().map(String::as_str).chain([interpreter]);
        let missing: Vec<&str> = programs.filter(|program| !on_path(program)).collect();
        let jars = self.jars.iter().map(|jar| format!("{JARS}/{jar}.jar"));
        let missing: Vec<String> = missing
            .into_iter()
            .map(str::to_owned)
            .chain(jars.filter(|jar| !Path::new(jar).exists()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let mut sentence = format!(
            "the client `{}` needs {}, which is not on this machine",
            self.name,
            missing.join(", ")
        );
        if !self.packages.is_empty() {
            let _ = write!(
                sentence,
                "\nhint: on Debian, `apt-get install {}`",
                self.packages.join(" ")
            );
        }
        Err(AdapterError(sentence))
    }

    /// Where it is installed: below the cache folder, by everything that it is made of, so that another version of harness
    /// installs another one.
    fn folder(&self) -> Result<PathBuf, AdapterError> {
        let mut made_of = Sha256::new();
        for part in self
            .pip
            .iter()
            .chain(&self.jars)
            .map(String::as_str)
            .chain([&*self.run])
        {
            made_of.update(part);
            made_of.update([0]);
        }
        for (name, text) in self.files() {
            made_of.update(name);
            made_of.update(text);
        }
        let digest: String = made_of
            .finalize()
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let cache = cache_folder().ok_or_else(|| AdapterError("neither XDG_CACHE_HOME nor HOME is set".into()))?;
        Ok(cache.join("harness/adapters").join(format!("{}-{digest}", self.name)))
    }

    fn python(&self, folder: &Path) -> PathBuf {
        if self.pip.is_empty() {
            "python3".into()
        } else {
            folder.join("venv/bin/python")
        }
    }

    fn class_path(&self) -> String {
        let jars: Vec<String> = self.jars.iter().map(|jar| format!("{JARS}/{jar}.jar")).collect();
        jars.join(":")
    }
}

/// Where an adapter is, and whether it was there before.
#[derive(Debug)]
pub enum Installed {
    Now(PathBuf),
    Before(PathBuf),
}

/// Written last into the folder of an adapter.
const READY: &str = "ready";

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Runs a command to its end.
fn call(command: &mut Command) -> Result<(), AdapterError> {
    said_by(command).map(drop)
}

/// What a command printed; the error has the last lines that it said.
fn said_by(command: &mut Command) -> Result<String, AdapterError> {
    installing::said_by(command).map_err(AdapterError)
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adapter_names_a_program_that_is_part_of_the_binary_and_a_pinned_version() {
        assert!(all().len() > 10);
        for adapter in all() {
            let file = adapter.run.split(' ').next().unwrap();
            assert!(FILES.iter().any(|(name, _)| *name == file), "{adapter:?}");
            assert!(
                (harness_workloads::BackendId::ALL.iter().map(|id| id.name()))
                    .chain(["kube-lease"])
                    .any(|name| name == adapter.backend),
                "{adapter:?}"
            );
            assert!(adapter.pip.iter().all(|package| package.contains("==")), "{adapter:?}");
            let kinds = [
                !adapter.pip.is_empty(),
                !adapter.jars.is_empty(),
                adapter.program.is_some(),
            ];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{adapter:?}");
        }
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        let output = Command::new("sh")
            .args(["-c", &format!("printf %s {}", quoted(Path::new("/a b/c'd")))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/a b/c'd");
    }
}
