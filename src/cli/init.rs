//! `harness init`: writes a client to start from, a suite of it and a workflow of GitHub that runs the suite.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use super::Failure;
use super::stdout::print;
use crate::exit::Exit;
use crate::report::words::{json_string, quoted};

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    Python,
    Java,
    Go,
    Node,
    Rust,
}

/// A file of a skeleton: its path in the folder, and its text.
type SkeletonFile = (&'static str, &'static str);

/// A client in one language: a lock on Redis that needs no library of it.
struct Skeleton {
    files: &'static [SkeletonFile],
    /// The command that builds the program, if it needs a build.
    build: Option<&'static str>,
    /// The client, run in the folder.
    command: &'static str,
    /// The pattern of the files that builds and runs leave, for `.gitignore`.
    ignored: &'static str,
}

/// A file of `workloads/`: of a skeleton, or the client protocol that a skeleton shares with the adapters in its language.
macro_rules! skeleton_file {
    ($folder:literal, $name:literal) => {
        ($name, include_str!(concat!("../../workloads/", $folder, "/", $name)))
    };
}

const SUITE: &str = include_str!("../../workloads/skeletons/suite.toml");
const WORKFLOW: &str = include_str!("../../workloads/skeletons/workflow.yml");

impl Language {
    fn skeleton(self) -> Skeleton {
        match self {
            Self::Python => Skeleton {
                files: &[
                    skeleton_file!("skeletons/python", "my_lock.py"),
                    skeleton_file!("adapters/python", "harness_client.py"),
                ],
                build: None,
                command: "python3 my_lock.py",
                ignored: "__pycache__/",
            },
            Self::Java => Skeleton {
                files: &[
                    skeleton_file!("skeletons/java", "MyLock.java"),
                    skeleton_file!("adapters/java", "HarnessClient.java"),
                ],
                build: Some("javac MyLock.java"),
                command: "java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC MyLock",
                ignored: "*.class",
            },
            Self::Go => Skeleton {
                files: &[
                    skeleton_file!("skeletons/go", "go.mod"),
                    skeleton_file!("skeletons/go", "my_lock.go"),
                ],
                build: Some("go build -o my-lock ."),
                command: "./my-lock",
                ignored: "/my-lock",
            },
            Self::Node => Skeleton {
                files: &[skeleton_file!("skeletons/node", "my_lock.mjs")],
                build: None,
                command: "node my_lock.mjs",
                ignored: "/node_modules/",
            },
            Self::Rust => Skeleton {
                files: &[
                    skeleton_file!("skeletons/rust", "Cargo.toml"),
                    skeleton_file!("skeletons/rust", "src/main.rs"),
                    (
                        "src/harness_client.rs",
                        include_str!("../../workloads/adapters/rust/harness_client.rs"),
                    ),
                ],
                build: Some("cargo build --release"),
                command: "./target/release/my-lock",
                ignored: "/target/",
            },
        }
    }
}

/// Writes the skeleton to `folder`, and nothing if one of its files exists.
pub fn init(language: Language, folder: &Path) -> Result<Exit, Failure> {
    let skeleton = language.skeleton();
    let failed = |error| Failure::environment(format!("could not make {}: {error}", folder.display()));
    let place = Place::of(folder).map_err(failed)?;
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for (name, text) in skeleton.files {
        files.push((folder.join(name), (*text).to_owned()));
    }
    files.push((folder.join("suite.toml"), suite(&skeleton)));
    files.push((place.workflow(), workflow(&skeleton, &place)));
    let there: Vec<String> = files
        .iter()
        .filter(|(path, _)| path.symlink_metadata().is_ok())
        .map(|(path, _)| path.display().to_string())
        .collect();
    if !there.is_empty() {
        let sentence = format!(
            "{} exists already and is not overwritten\nhint: name another folder: harness init {} DIR",
            there.join(", "),
            language.to_possible_value().expect("no language is hidden").get_name()
        );
        return Err(Failure::usage(sentence));
    }
    fs::create_dir_all(folder).map_err(failed)?;
    for (path, text) in &files {
        write_new(path, text)?;
    }
    // an existing file has rules of its own
    let ignore = folder.join(".gitignore");
    if ignore.symlink_metadata().is_err() {
        let text = format!("/results/\n{}\n", skeleton.ignored);
        write_new(&ignore, &text)?;
        files.push((ignore, text));
    }
    print(&summary(&skeleton, folder, &files));
    Ok(Exit::Holds)
}

/// The repository that a folder belongs to: GitHub reads workflows at its root alone.
struct Place {
    root: PathBuf,
    /// The path from the root to the folder; empty if they are the same.
    below: PathBuf,
    /// The folder's own name.
    name: String,
}

impl Place {
    fn of(folder: &Path) -> io::Result<Self> {
        let folder = std::path::absolute(folder)?;
        // the folder need not exist
        let there = folder.ancestors().find(|above| above.exists()).unwrap_or(&folder);
        let below = folder.strip_prefix(there).unwrap_or(Path::new(""));
        let folder = there.canonicalize()?.join(below);
        let root = folder.ancestors().find(|folder| folder.join(".git").exists());
        let root = root.unwrap_or(&folder).to_owned();
        let below = folder.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        Ok(Self {
            root,
            below,
            name: name.unwrap_or_else(|| "my-lock".into()),
        })
    }

    fn workflow(&self) -> PathBuf {
        let is_other = |letter: char| !letter.is_ascii_alphanumeric() && !"-_".contains(letter);
        let name = self.name.replace(is_other, "-");
        self.root.join(".github/workflows").join(format!("{name}.yml"))
    }

    /// Returns the path of a file in the folder, from the root.
    fn seen_from_root(&self, name: &str) -> String {
        self.below.join(name).display().to_string()
    }
}

fn suite(skeleton: &Skeleton) -> String {
    SUITE.replace("@COMMAND@", &json_string(skeleton.command))
}

fn workflow(skeleton: &Skeleton, place: &Place) -> String {
    let build = skeleton.build.map_or_else(String::new, |build| {
        format!("      - name: The client\n        run: {build}\n")
    });
    let folder = if place.below.as_os_str().is_empty() {
        ".".into()
    } else {
        place.seen_from_root("")
    };
    let one_line = place.name.replace(char::is_control, " ");
    WORKFLOW
        .replace("@NAME@", &one_line)
        .replace("@YAML_NAME@", &json_string(&place.name))
        .replace("@YAML_PATHS@", &json_string(&place.seen_from_root("**")))
        .replace("@YAML_FOLDER@", &json_string(folder.trim_end_matches('/')))
        .replace("@YAML_COMMAND@", &json_string(skeleton.command))
        .replace("@YAML_RESULTS@", &json_string(&place.seen_from_root("results")))
        .replace("@BUILD@", &build)
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        let sentence = format!("could not write {}: {error}", path.display());
        match error.kind() {
            ErrorKind::AlreadyExists => Failure::usage(sentence),
            _ => Failure::environment(sentence),
        }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)
}

/// Returns the list of the written files, and the next commands.
fn summary(skeleton: &Skeleton, folder: &Path, files: &[(PathBuf, String)]) -> String {
    let mut text: String = files
        .iter()
        .map(|(path, _)| format!("wrote {}\n", path.display()))
        .collect();
    let command = skeleton.command;
    let enter = match folder.to_str() {
        Some("." | "") => None,
        _ => Some(format!("cd {}", quoted(&folder.display().to_string()))),
    };
    let next = [
        enter,
        skeleton.build.map(str::to_owned),
        Some(format!("harness client-check {} --backend redis", json_string(command))),
        Some(format!(
            "harness run --backend redis --fault partition --client {}",
            json_string(command)
        )),
        Some("harness suite suite.toml".to_owned()),
    ];
    text.push_str("\nThe client is a working lock on Redis: replace it with yours.\n");
    next.into_iter()
        .flatten()
        .for_each(|line| text.push_str(&format!("  {line}\n")));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;

    #[test]
    fn names_of_folders_end_nothing_early() {
        let place = Place {
            root: "/repo".into(),
            below: "a/\"b: c\"".into(),
            name: "\"b: c\"".into(),
        };
        assert_eq!(place.workflow(), Path::new("/repo/.github/workflows/-b--c-.yml"));
        let text = workflow(&Language::Java.skeleton(), &place);
        let parts = [
            r#"working-directory: "a/\"b: c\"""#,
            r#"paths: ["a/\"b: c\"/**"]"#,
            "run: javac MyLock.java\n",
        ];
        assert_has(&text, &parts);
        let mut marks = ["@YAML_", "@BUILD@", "@NAME@"].into_iter();
        assert_eq!(marks.find(|mark| text.contains(mark)), None);
    }
}
