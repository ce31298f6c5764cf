//! The fixtures of `docs/fixtures` pass with a lock that holds, and fail, with the proof as their message, with one that does not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// A copy of the fixture of a language; `breaking` makes its first test one of a lock that is known to be broken.
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

fn run(program: &str, words: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(words).current_dir(folder);
    command
        .env("HARNESS", env!("CARGO_BIN_EXE_harness"))
        .env("GOCACHE", folder.join("cache"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs the fixture of a language as it is, and with a first test whose lock breaks.
fn judged(language: &str, breaking: (&str, &str), tests: impl Fn(&Path) -> Output) {
    let passed = tests(copy(language, None).path());
    assert!(passed.status.success(), "{language}: {}", said(&passed));
    let failed = tests(copy(language, Some(breaking)).path());
    let said = said(&failed);
    assert!(!failed.status.success(), "{language}: {said}");
    assert!(said.contains("HL001-1"), "{language} fails without the proof: {said}");
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
        let built = run(
            "rustc",
            &["--edition=2024", "--test", "my_lock.rs", "-o", "my_lock"],
            folder,
        );
        assert!(built.status.success(), "{}", said(&built));
        let tests = folder.join("my_lock");
        run(tests.to_str().unwrap(), &[], folder)
    });
}

#[test]
fn the_fixture_of_pytest() {
    // the one on the PATH, Debian's, or that of `make wheel`
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

#[test]
fn the_fixture_of_junit() {
    if !(is_here("javac", &["-version"]) && Path::new(JUNIT).exists()) {
        eprintln!("skipped: javac or {JUNIT} is not here");
        return;
    }
    let beside = |name: &&str| {
        PathBuf::from(JUNIT)
            .with_file_name(format!("{name}.jar"))
            .display()
            .to_string()
    };
    let needs: Vec<String> = JUNIT_NEEDS.iter().map(beside).collect();
    let path = format!(".:{JUNIT}:{}", needs.join(":"));
    let breaking = (
        // not in the comment, where a lock of one's own is named
        "\"1\", \"--fault\", \"partition=holder\"",
        "\"1\", \"--holder\", \"naive\", \"--fault\", \"partition=holder\"",
    );
    judged("java", breaking, |folder| {
        let built = run("javac", &["-cp", &path, "RunLock.java", "MyLockTest.java"], folder);
        assert!(built.status.success(), "{}", said(&built));
        let launcher = "org.junit.platform.console.ConsoleLauncher";
        run("java", &["-cp", &path, launcher, "--scan-class-path", "."], folder)
    });
}
