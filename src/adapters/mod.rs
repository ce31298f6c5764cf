//! Adapters: clients for lock libraries, known by name and pinned to a version.
//!
//! `workloads/adapters/adapters.toml` lists them. The list and the programs are part of the binary, so that
//! `--client kazoo-lock` works without a checkout; [`Adapter::install`] writes the programs below the user's cache folder
//! and fetches the libraries there.

mod archive;
mod programs;
pub mod surveyed;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::{fs, io};

use serde::Deserialize;
use sha2::{Digest, Sha256};

pub use crate::installing::Installed;
use crate::installing::{cache_folder, fill_unless, is_filled, output_of};
use archive::Archive;
use programs::{AdapterLanguage, FILES};

const LIST: &str = include_str!("../../workloads/adapters/adapters.toml");

/// The folder of Debian's jars.
const JARS: &str = "/usr/share/java";

/// The file in the folder of an installation with the path of the Python that made its virtual environment.
const MADE_BY: &str = "venv/made-by";

/// A client for one kind of lock of one library.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapter {
    pub name: String,
    /// `zk`, `etcd` or `redis`; a lock on Redis also works on Valkey.
    pub backend: String,
    /// The library, its version, and the name of the lock.
    pub library: String,
    /// Packages of PyPI, pinned: `kazoo==2.11.0`.
    #[serde(default)]
    pip: Vec<String>,
    /// Names of files in [`JARS`], without their ending.
    #[serde(default)]
    jars: Vec<String>,
    /// The name of an [`Archive`] that has its jars.
    archive: Option<String>,
    /// Lines of `[dependencies]` in a `Cargo.toml`, pinned.
    #[serde(default)]
    crates: Vec<String>,
    /// `CRATE VERSION`: no other one of that crate is built. For crates that take any version of it and work with that of another one.
    #[serde(default)]
    unified: Vec<String>,
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
    /// The file and version that select it, if it is not in the list.
    #[serde(skip)]
    typed: String,
}

#[derive(Deserialize)]
struct AdapterList {
    adapter: Vec<Adapter>,
    archive: Vec<Archive>,
}

static ALL: LazyLock<AdapterList> =
    LazyLock::new(|| toml::from_str(LIST).expect("the list of adapters is part of the source"));

/// Returns the adapters in the order of the list.
pub fn all() -> &'static [Adapter] {
    &ALL.adapter
}

/// Returns the command for the shell of a client that was typed as `text`: an adapter's name or file, or a command.
///
/// # Errors
///
/// It is an adapter that is not installed, or its file is wrong.
pub fn shell_command(text: &str) -> Result<String, String> {
    typed(text)?.map_or_else(|| Ok(text.to_owned()), |adapter| adapter.command())
}

/// Returns the adapter of that name, or of that file ([`surveyed::typed`]), or `None` for any other text.
///
/// # Errors
///
/// The file is wrong.
pub fn typed(text: &str) -> Result<Option<Cow<'static, Adapter>>, String> {
    match named(text) {
        Some(adapter) => Ok(Some(Cow::Borrowed(adapter))),
        None => surveyed::typed(text).transpose().map(|adapter| adapter.map(Cow::Owned)),
    }
}

fn named(name: &str) -> Option<&'static Adapter> {
    all().iter().find(|adapter| adapter.name == name)
}

impl Adapter {
    /// Returns the file of its program, and the arguments.
    fn program_file(&self) -> (&str, &str) {
        self.run.split_once(' ').unwrap_or((&self.run, ""))
    }

    fn language(&self) -> AdapterLanguage {
        AdapterLanguage::of(self.program_file().0).unwrap_or(AdapterLanguage::Python)
    }

    /// Returns its program, the library that all programs in its language share, and its own programs in that language.
    fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        let language = self.language();
        let needed = [self.program_file().0, language.library()];
        let listed = FILES.iter().copied().filter(move |(name, _)| needed.contains(name));
        let own = self.own.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        listed.chain(own.filter(move |(name, _)| name.ends_with(language.ending())))
    }

    pub fn is_installed(&self) -> bool {
        self.folder().is_ok_and(|folder| self.is_usable(&folder))
    }

    /// Whether a folder has its program and libraries. Another Python than the one that made a virtual environment does not find its
    /// packages: after an upgrade the same link leads to another version.
    fn is_usable(&self, folder: &Path) -> bool {
        let has_its_python = || match (fs::canonicalize(self.python(folder)), fs::read(folder.join(MADE_BY))) {
            (Ok(python), Ok(made_by)) => made_by == python.as_os_str().as_encoded_bytes(),
            // older versions of harness did not note it
            (python, _) => python.is_ok(),
        };
        is_filled(folder) && (self.pip.is_empty() || has_its_python())
    }

    /// Returns its name with a digest of its packages and programs.
    ///
    /// # Errors
    ///
    /// There is no cache folder.
    pub fn identity(&self) -> Result<String, String> {
        let folder = self.folder()?;
        Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
    }

    /// Returns the command that runs it.
    ///
    /// # Errors
    ///
    /// It is not installed; the sentence has the command that installs it.
    pub fn command(&self) -> Result<String, String> {
        let folder = self.folder()?;
        if !self.is_installed() {
            return Err(format!(
                "the client `{name}` needs {library}, which is not installed\nhint: `harness adapters {name}` installs it in {}",
                folder.display(),
                name = if self.typed.is_empty() { &self.name } else { &self.typed },
                library = self.library,
            ));
        }
        let (file, arguments) = self.program_file();
        let command = match self.language() {
            AdapterLanguage::Python => format!("{} {}", quoted(&self.python(&folder)), quoted(&folder.join(file))),
            AdapterLanguage::Rust => quoted(&folder.join(CRATE)),
            AdapterLanguage::Java => {
                let class = file.trim_end_matches(".java");
                let path = format!("{}:{}", self.class_path()?, folder.display());
                format!(
                    "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -cp {} {class}",
                    quoted(Path::new(&path))
                )
            }
        };
        Ok(format!("{command} {arguments}").trim_end().to_owned())
    }

    /// Fetches the libraries and writes the program, unless an earlier call did.
    ///
    /// # Errors
    ///
    /// A program is missing or failed; the sentence quotes its output.
    pub fn install(&self) -> Result<Installed, String> {
        let is_usable = |folder: &Path| self.is_usable(folder);
        fill_unless(self.folder()?, is_usable, |folder| self.fill(folder))
    }

    fn fill(&self, folder: &Path) -> Result<(), String> {
        self.has_what_it_needs()?;
        let cannot = |error: io::Error| format!("could not write {}: {error}", folder.display());
        for (name, text) in self.files() {
            fs::write(folder.join(name), text).map_err(cannot)?;
        }
        if !self.pip.is_empty() {
            let venv = folder.join("venv");
            output_of(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
            output_of(pip.args(&self.pip))?;
            let python = fs::canonicalize(self.python(folder)).map_err(cannot)?;
            fs::write(folder.join(MADE_BY), python.as_os_str().as_encoded_bytes()).map_err(cannot)?;
        }
        let file = self.program_file().0;
        match self.language() {
            AdapterLanguage::Python => {}
            AdapterLanguage::Java => {
                self.archive().map_or(Ok(()), Archive::provide)?;
                let mut compiler = Command::new("javac");
                compiler.args(["-cp", &self.class_path()?, "-sourcepath"]).arg(folder);
                output_of(compiler.arg("-d").arg(folder).arg(folder.join(file)))?;
            }
            AdapterLanguage::Rust => {
                fs::write(folder.join("Cargo.toml"), self.manifest()).map_err(cannot)?;
                let target = folder.join("target");
                let cargo = |arguments: &[&str]| output_of(Command::new("cargo").args(arguments).current_dir(folder));
                for (name, version) in self.unified.iter().filter_map(|unified| unified.split_once(' ')) {
                    cargo(&["generate-lockfile", "--quiet"])?;
                    let locked = fs::read_to_string(folder.join("Cargo.lock")).map_err(cannot)?;
                    for other in versions_of(name, &locked).filter(|other| *other != version) {
                        cargo(&["update", "--quiet", &format!("{name}@{other}"), "--precise", version])?;
                    }
                }
                cargo(&["build", "--release", "--quiet", "--target-dir", "target"])?;
                fs::rename(target.join("release").join(CRATE), folder.join(CRATE)).map_err(cannot)?;
                fs::remove_dir_all(target).map_err(cannot)?;
            }
        }
        Ok(())
    }

    /// Checks that this machine has its programs and jars. The error has the packages of Debian that it needs.
    fn has_what_it_needs(&self) -> Result<(), String> {
        let of_language = self.language().program().to_owned();
        let programs = self.program.iter().cloned().chain([of_language]);
        let programs = programs.filter(|program| !on_path(program));
        let jars = self.jar_files().filter(|jar| !Path::new(jar).exists());
        let missing: Vec<String> = programs.chain(jars).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let hint = match self.packages.is_empty() {
            true => String::new(),
            false => format!("\nhint: on Debian, `apt-get install {}`", self.packages.join(" ")),
        };
        Err(format!(
            "the client `{}` needs {}, which is not on this machine{hint}",
            self.name,
            missing.join(", ")
        ))
    }

    fn jar_files(&self) -> impl Iterator<Item = String> {
        self.jars.iter().map(|jar| format!("{JARS}/{jar}.jar"))
    }

    /// Returns the folder below the cache folder in which it is installed. The name has a digest of its packages and programs and
    /// of nothing else, so that another version of harness installs it again only if one of those differs.
    fn folder(&self) -> Result<PathBuf, String> {
        let mut made_of = Sha256::new();
        let lists = [&self.pip, &self.jars, &self.crates, &self.unified];
        for part in lists.into_iter().flatten().chain(&self.archive).chain([&self.run]) {
            made_of.update(part);
            made_of.update([0]);
        }
        for (name, text) in self.files() {
            made_of.update(name);
            made_of.update(text);
        }
        let made_of = made_of.finalize();
        let digest: String = made_of.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(cache_folder()?
            .join("harness/adapters")
            .join(format!("{}-{digest}", self.name)))
    }

    fn python(&self, folder: &Path) -> PathBuf {
        if self.pip.is_empty() {
            "python3".into()
        } else {
            folder.join("venv/bin/python")
        }
    }

    /// Returns the `Cargo.toml` of its program, with the optimization of a user's program: arithmetic wraps there.
    fn manifest(&self) -> String {
        format!(
            "[package]\nname = \"{CRATE}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [[bin]]\nname = \"{CRATE}\"\npath = \"{}\"\n\n\
             [dependencies]\n{SHARED_CRATES}{}\n\n\
             [profile.release]\nopt-level = 1\nstrip = true\n\n\
             # a project of its own, also in the folder of another\n[workspace]\n",
            self.program_file().0,
            self.crates.join("\n"),
        )
    }

    fn archive(&self) -> Option<&'static Archive> {
        let name = self.archive.as_deref()?;
        ALL.archive.iter().find(|archive| archive.name == name)
    }

    fn class_path(&self) -> Result<String, String> {
        if let Some(archive) = self.archive() {
            return archive.class_path();
        }
        Ok(self.jar_files().collect::<Vec<_>>().join(":"))
    }
}

/// The program of an adapter in Rust.
const CRATE: &str = "client";

/// Dependencies of `harness_client.rs`.
const SHARED_CRATES: &str =
    "nix = { version = \"0.31\", default-features = false, features = [\"time\"] }\nserde_json = \"1\"\n";

/// Returns the versions of a crate in a `Cargo.lock`.
fn versions_of<'a>(name: &str, locked: &'a str) -> impl Iterator<Item = &'a str> {
    let entry = format!("name = \"{name}\"\nversion = \"");
    let entries: Vec<&str> = locked.split(&entry).skip(1).collect();
    entries.into_iter().filter_map(|entry| entry.split('"').next())
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a path as one word of a shell.
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
            assert!(adapter.crates.iter().all(|line| line.contains("\"=")), "{adapter:?}");
            assert_eq!(adapter.archive.is_some(), adapter.archive().is_some(), "{adapter:?}");
            let kinds = [
                adapter.archive.is_some(),
                !adapter.pip.is_empty(),
                !adapter.jars.is_empty(),
                !adapter.crates.is_empty(),
                adapter.program.is_some(),
            ];
            assert_eq!(kinds.iter().filter(|kind| **kind).count(), 1, "{adapter:?}");
        }
    }

    #[test]
    fn an_adapter_is_made_of_its_program_and_the_library_of_its_language_alone() {
        for adapter in all() {
            let mut files: Vec<&str> = adapter.files().map(|(name, _)| name).collect();
            files.sort_unstable();
            let mut needed = [adapter.program_file().0, adapter.language().library()];
            needed.sort_unstable();
            assert_eq!(files, needed, "{adapter:?}");
        }
        for (name, _) in FILES {
            let uses = |adapter: &Adapter| adapter.files().any(|(file, _)| file == *name);
            assert!(all().iter().any(uses), "no adapter is made of {name}");
        }
    }

    #[test]
    fn no_program_imports_one_that_is_not_installed_with_it() {
        let imports = |text: &str, name: &str| {
            let (module, _) = name.rsplit_once('.').unwrap();
            ["import ", "from ", "mod ", "extends "]
                .iter()
                .any(|word| text.contains(&format!("{word}{module}")))
        };
        for adapter in all() {
            let (program, library) = (adapter.program_file().0, adapter.language().library());
            for (name, text) in adapter.files() {
                let others = FILES.iter().map(|(other, _)| *other);
                let others = others.filter(|other| *other != name && other.ends_with(adapter.language().ending()));
                let imported: Vec<&str> = others.filter(|other| imports(text, other)).collect();
                let expected = if name == program { vec![library] } else { Vec::new() };
                assert_eq!(imported, expected, "{name}");
            }
        }
    }

    #[test]
    fn a_client_whose_python_is_gone_or_another_one_is_not_installed() {
        let cache = tempfile::tempdir().unwrap();
        let folder = cache.path().join("x");
        let adapter = Adapter {
            pip: vec!["x==1".to_owned()],
            ..Adapter::default()
        };
        let install = || fill_unless(folder.clone(), |folder| adapter.is_usable(folder), |_| Ok(())).unwrap();
        assert!(matches!((install(), install()), (Installed::Now(_), Installed::Now(_))));
        fs::create_dir_all(folder.join("venv/bin")).unwrap();
        let python = cache.path().canonicalize().unwrap().join("python3.11");
        fs::write(&python, "").unwrap();
        std::os::unix::fs::symlink(&python, folder.join("venv/bin/python")).unwrap();
        for (made_by, is_usable) in [("/usr/bin/python3.10", false), (python.to_str().unwrap(), true)] {
            fs::write(folder.join(MADE_BY), made_by).unwrap();
            assert_eq!(adapter.is_usable(&folder), is_usable, "{made_by}");
        }
        assert!(matches!(install(), Installed::Before(_)));
        fs::remove_file(python).unwrap();
        assert!(!adapter.is_usable(&folder));
    }

    #[test]
    fn each_version_of_a_crate_is_found_in_a_lock_file_and_none_of_a_longer_name() {
        let entry = |name, version| format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n\n");
        let locked =
            [("k8s", "0.26.1"), ("k8s-more", "7"), ("k8s", "0.29.0")].map(|(name, version)| entry(name, version));
        let locked = locked.concat();
        assert_eq!(versions_of("k8s", &locked).collect::<Vec<_>>(), ["0.26.1", "0.29.0"]);
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
