//! Fixtures: those of `docs/fixtures` and the tests that `harness shrink` writes pass with a lock that holds, and fail with the
//! proof as their message if it does not. The shards of a night on Kubernetes are merged by the one that ends last.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command::{Answer, Harness, assert_has, assert_says, tests, texts};
use crate::machine::write_program;

const FIXTURES: &str = "docs/fixtures";
/// Debian's `junit5`.
const JUNIT: &str = "/usr/share/java/junit-platform-console-standalone.jar";
const JUNIT_NEEDS: [&str; 5] = [
    "junit-jupiter-api",
    "junit-jupiter-engine",
    "opentest4j",
    "apiguardian-api",
    "picocli",
];

/// Copies the fixture of a language; `breaking` replaces the lock of its first test by one that is known to be broken.
fn copy(language: &str, breaking: Option<(&str, &str)>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut broken = 0;
    for entry in fs::read_dir(Path::new(FIXTURES).join(language)).unwrap() {
        let from = entry.unwrap().path();
        let mut text = fs::read_to_string(&from).unwrap();
        if let Some((holds, breaks)) = breaking
            && text.contains(holds)
        {
            text = text.replacen(holds, breaks, 1);
            broken += 1;
        }
        fs::write(folder.path().join(from.file_name().unwrap()), text).unwrap();
    }
    assert_eq!(broken, usize::from(breaking.is_some()), "{language} has no such words");
    folder
}

fn command(program: &str, words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder);
    command
        .env("HARNESS", env!("CARGO_BIN_EXE_harness"))
        .env("GOCACHE", folder.join("cache"));
    command
}

fn run(program: &str, words: &[&str], folder: &Path) -> Answer {
    Answer::to(&mut command(program, words, folder))
}

/// Runs the fixture of a language as it is, and with a broken lock in its first test.
fn judged(language: &str, breaking: (&str, &str), tests: impl Fn(&Path) -> Answer) {
    tests(copy(language, None).path()).assert_exit(0);
    let failed = tests(copy(language, Some(breaking)).path());
    assert_ne!(failed.exit, 0, "{language}");
    // the proof
    assert_has(&failed.said(), &["HL001-1"]);
}

fn is_here(program: &str, words: &[&str]) -> bool {
    let answer = Command::new(program)
        .args(words)
        .current_dir(std::env::temp_dir())
        .output();
    let is_here = answer.is_ok_and(|answer| answer.status.success());
    if !is_here {
        eprintln!("skipped: {program} {} is not here", words.join(" "));
    }
    is_here
}

#[test]
fn the_fixture_of_cargo_test() {
    let breaking = ("--seed 1 --fault partition=holder", "--seed 1 --fault pause-holder");
    judged("rust", breaking, |folder| {
        let words = ["--edition=2024", "--test", "my_lock.rs", "-o", "my_lock"];
        run("rustc", &words, folder).assert_exit(0);
        let tests = folder.join("my_lock");
        run(tests.to_str().unwrap(), &[], folder)
    });
}

#[test]
fn the_fixture_of_pytest() {
    // the Python of the PATH, of Debian, or of `make wheel`
    let wheels = fs::canonicalize("target/wheels/env/bin/python").unwrap_or_default();
    let pythons = ["python3", "/usr/bin/python3", wheels.to_str().unwrap()];
    let has_pytest = |python: &&str| is_here(python, &["-m", "pytest", "--version"]);
    if let Some(python) = pythons.into_iter().find(has_pytest) {
        let breaking = ("\"partition=holder\", \"--results\"", "\"pause-holder\", \"--results\"");
        judged("python", breaking, |folder| {
            run(python, &["-m", "pytest", "-q"], folder)
        });
    }
}

#[test]
fn the_fixture_of_go_test() {
    if is_here("go", &["version"]) {
        let breaking = (
            "\"--fault\", \"partition=holder\")...)",
            "\"--holder\", \"naive\", \"--fault\", \"partition=holder\")...)",
        );
        judged("go", breaking, |folder| run("go", &["test", "./..."], folder));
    }
}

fn has_junit() -> bool {
    let has_jar = Path::new(JUNIT).exists();
    if !has_jar {
        eprintln!("skipped: {JUNIT} is not here");
    }
    has_jar && is_here("javac", &["-version"])
}

/// Compiles these classes of the folder, and returns a command that runs their tests.
fn junit(folder: &Path, files: &[&str]) -> Command {
    let beside = |name: &&str| {
        PathBuf::from(JUNIT)
            .with_file_name(format!("{name}.jar"))
            .display()
            .to_string()
    };
    let needs: Vec<String> = JUNIT_NEEDS.iter().map(beside).collect();
    let path = format!(".:{JUNIT}:{}", needs.join(":"));
    let words = ["-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC", "-cp", &path];
    run("javac", &[&words, files].concat(), folder).assert_exit(0);
    let launcher = "org.junit.platform.console.ConsoleLauncher";
    let words = [
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        &path,
        launcher,
        "--scan-class-path",
        ".",
    ];
    command("java", &words, folder)
}

#[test]
fn the_fixture_of_junit() {
    let breaking = (
        // not in the comment, which names a lock of one's own
        "\"1\", \"--fault\", \"partition=holder\"",
        "\"1\", \"--holder\", \"naive\", \"--fault\", \"partition=holder\"",
    );
    if has_junit() {
        judged("java", breaking, |folder| {
            Answer::to(&mut junit(folder, &["RunLock.java", "MyLockTest.java"]))
        });
    }
}

/// Returns the command that runs a test of `harness shrink` in this folder; `None` if its language is not installed.
fn written_test(folder: &Path, name: &str) -> Option<Command> {
    // as pytest calls it
    const PYTHON: &str = "import pathlib, runpy, sys, tempfile\n\
        [test] = [value for name, value in runpy.run_path(sys.argv[1]).items() if name.startswith('test_')]\n\
        test(pathlib.Path(tempfile.mkdtemp(dir='.')))";
    let (_, end) = name.rsplit_once('.').unwrap();
    Some(match end {
        "py" => command("python3", &["-c", PYTHON, name], folder),
        "sh" => command("sh", &[name], folder),
        "java" if has_junit() => junit(folder, &[name]),
        "mjs" | "js" if is_here("node", &["--version"]) => command("node", &["--test", name], folder),
        "rs" if is_here("cargo", &["--version"]) => {
            fs::create_dir(folder.join("src")).unwrap();
            fs::write(folder.join("src/lib.rs"), "").unwrap();
            let manifest = "[package]\nname = \"my-lock\"\nedition = \"2024\"\n[workspace]\n";
            fs::write(folder.join("Cargo.toml"), manifest).unwrap();
            command("cargo", &["test", "--offline", "--target-dir", "target"], folder)
        }
        _ => return None,
    })
}

/// Asserts that a find on models is written as a test that fails with the proof, and passes without a violation.
fn is_written_as(name: &str) {
    let harness = Harness::new();
    let words = "--runtime simulated --backend redis --recipe redis-setnx --fault kill-holder --clients 2 --grants 30 --time 25s --seed 1";
    harness.run(words).assert_exit(1);
    harness.assert_says(&format!("shrink latest --runs 1 --confirm 1 --as-test {name}"), 1, &[]);
    fails_until(harness.folder.path(), name, |test| test.env("HARNESS", "true"));
}

/// Asserts that a test of `harness shrink` in this folder fails with the proof, and passes when the lock is mended.
pub fn fails_until(folder: &Path, name: &str, mended: impl FnOnce(&mut Command) -> &mut Command) {
    let Some(mut test) = written_test(folder, name) else {
        return;
    };
    let failed = Answer::to(&mut test);
    assert_ne!(failed.exit, 0, "{name}");
    assert_has(&failed.said(), &["x HL005-1"]);
    Answer::to(mended(&mut test)).assert_exit(0);
}

tests! {
    is_written_as:
        a_find_as_a_test_of_junit("LockTest.java")
        a_find_as_a_test_of_node("lock.test.mjs")
        a_find_as_a_test_of_cargo("tests/lock.rs")
}

/// A night of two pods, on models; `harness` is the program of that name in the folder.
struct Night(tempfile::TempDir);

impl Night {
    const SHARDS: usize = 2;

    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_harness"), folder.path().join("harness")).unwrap();
        let rows = ["a", "b", "c", "d", "e"].map(|name| format!("[[row]]\nname = \"{name}\"\n"));
        let suite = format!(
            "[defaults]\nbackend = \"redis\"\nruntime = \"simulated\"\nlease = \"1s\"\ntime = \"8s\"\n{}\
             [[row]]\nname = \"no expiry\"\nrecipe = \"redis-setnx\"\nfault = \"kill-holder\"\ntime = \"12s\"\n",
            rows.concat()
        );
        fs::write(folder.path().join("suite.toml"), suite).unwrap();
        Self(folder)
    }

    /// Returns the command of a pod.
    fn pod(&self, index: usize) -> Command {
        let mut pod = Command::new("sh");
        pod.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/kubernetes/night.sh"));
        let path = std::env::var("PATH").unwrap();
        pod.env("PATH", format!("{}:{path}", self.0.path().display()));
        pod.env("RESULTS", self.0.path().join("results"));
        pod.env("NIGHT", "harness-suite-1")
            .env("SUITE", self.0.path().join("suite.toml"));
        pod.env("SHARDS", Self::SHARDS.to_string())
            .env("JOB_COMPLETION_INDEX", index.to_string());
        pod.stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null());
        pod
    }

    /// Returns the command of a pod that hunts a lock which keeps its key when its holder is killed.
    fn hunter(&self, index: usize) -> Command {
        let mut pod = self.pod(index);
        pod.env_remove("SUITE").env(
            "HUNT",
            "--runtime simulated --backend redis --recipe redis-setnx --fault kill-holder --experiments 20 --quiet",
        );
        pod
    }

    /// Returns the merged record of all pods, and its folder; `None` if nothing was merged.
    fn joined(&self, file: &str) -> Option<(Value, PathBuf)> {
        let folders = fs::read_dir(self.0.path().join("results/harness-suite-1/joined")).ok()?;
        let mut folders = folders.map(|entry| entry.unwrap().path());
        let folder = folders.find(|folder| folder.join(file).exists())?;
        let text = fs::read_to_string(folder.join(file)).unwrap();
        Some((serde_json::from_str(&text).unwrap(), folder))
    }

    /// Returns the outcomes of the merged rows.
    fn outcomes(&self) -> Option<Vec<(String, String)>> {
        let (record, _) = self.joined("suite.json")?;
        let all = |key: &str| texts(&record["rows"], key).into_iter().map(str::to_owned);
        Some(all("name").zip(all("judged")).collect())
    }
}

#[test]
fn the_shard_that_ends_last_joins_the_night() {
    let night = Night::new();
    let first = night.pod(0).status().unwrap().code();
    assert_eq!(night.outcomes(), None, "a shard is missing");
    let last = night.pod(1).status().unwrap().code();
    let joined = night.outcomes().expect("both have ended");
    assert_eq!(joined.len(), 6, "{joined:?}");
    let (ok, broken): (Vec<_>, Vec<_>) = joined.iter().partition(|(_, judged)| judged == "as-expected");
    assert_eq!((ok.len(), broken[0].0.as_str()), (5, "no expiry"));
    assert_eq!(
        last,
        Some(1),
        "it is the exit code of all, whichever shard has the row: the first had {first:?}"
    );
}

#[test]
fn shards_that_end_together_are_joined_once() {
    let night = Night::new();
    let mut pods: Vec<_> = (0..Night::SHARDS)
        .map(|index| night.pod(index).spawn().unwrap())
        .collect();
    let codes: Vec<_> = pods.iter_mut().map(|pod| pod.wait().unwrap().code()).collect();
    assert!(codes.contains(&Some(1)), "{codes:?}");
    assert_eq!(night.outcomes().expect("both have ended").len(), 6);
}

#[test]
fn the_hunt_that_ends_last_merges_what_all_found() {
    let night = Night::new();
    assert_eq!(night.hunter(0).status().unwrap().code(), Some(1));
    assert!(night.joined("hunt.json").is_none(), "a hunt is missing");
    assert_eq!(night.hunter(1).status().unwrap().code(), Some(1));
    let (merged, folder) = night.joined("hunt.json").expect("both have ended");
    assert_eq!(merged["counts"]["experiments"], 40);
    assert_eq!(merged["merged"].as_array().unwrap().len(), 2, "{merged}");
    let finds = merged["finds"].as_array().unwrap();
    assert!(finds.iter().all(|find| find["property"] == "HL005"), "{merged}");
    let counted: u64 = finds.iter().map(|find| find["count"].as_u64().unwrap()).sum();
    assert!(counted >= merged["counts"]["violated"].as_u64().unwrap(), "{merged}");
    let run = folder.join(finds[0]["run"].as_str().unwrap());
    assert!(run.join("history.jsonl").exists(), "the way to its run");
    // neither of the two can continue as the other
    let harness = |words: &[&str]| command(env!("CARGO_BIN_EXE_harness"), words, night.0.path());
    let mut refused = harness(&["hunt", "--continue", folder.to_str().unwrap()]);
    assert_says(&mut refused, 2, &["2 hunts, and only a single hunt can be continued"]);
    let again = Answer::to(&mut harness(&["hunt", "--merge", "results/harness-suite-1", "--json"]));
    again.assert_exit(1);
    assert_eq!(
        again.diagnosis["counts"], merged["counts"],
        "the merged record is not counted"
    );
    let mut nothing = harness(&["hunt", "--merge", "results/none"]);
    assert_says(&mut nothing, 2, &["results/none contains no hunt.json"]);
}

#[test]
fn a_pod_whose_servers_did_not_start_has_not_ended() {
    let night = Night::new();
    let harness = night.0.path().join("harness");
    fs::remove_file(&harness).unwrap();
    write_program(&harness, "exit 4");
    for index in 0..Night::SHARDS {
        let code = night.pod(index).status().unwrap().code();
        assert_eq!(code, Some(4), "Kubernetes tries it again");
    }
    assert_eq!(night.outcomes(), None);
    let ended = fs::read_dir(night.0.path().join("results/harness-suite-1/ended")).unwrap();
    assert_eq!(ended.count(), 0);
}
